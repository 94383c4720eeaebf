"""Ranks shared by several families: the first family that joins a stream numbers the stream's rows.

family of A and B      numbers the rows of A, and passes on pairs with the rank of their row a
family of (A, B), C    needs the number of rows of A up to the time of its row c
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from catalog.steps import is_intermediate, makers
from catalog.values.plan import FamilyPlan
from operators.join.family_joins import FamilyJoins
from operators.ranks.ranking import Ranking


def earlier_rankings(
    plan: FamilyPlan, joins: Mapping[str, FamilyJoins], made_in: Mapping[int, FamilyPlan]
) -> dict[str, list[Ranking]]:
    """Return the rankings of earlier families that gave a family's rows their ranks, by side.

    Args:
        plan: The family; ``FamilyPlan.ranks_of`` names the columns with ranks.
        joins: Joins by family id.
        made_in: Family that makes the pairs of each intermediate (``makers``).
    """
    streams = {"a": plan.stream_a, "b": plan.stream_b}
    return {
        side: [_ranking(streams[side], column, joins, made_in) for column in plan.ranks_of(side)]
        for side in plan.sides_with_ranks
    }


def followers(plan: FamilyPlan, families: Sequence[FamilyPlan]) -> list[FamilyPlan]:
    """Return the later families that use the ranks computed in a family.

    Args:
        plan: The family.
        families: All families.
    """
    made_in = makers(families)
    return [f for f in families if f.sides_with_ranks and any(e.id == plan.id for e in _earlier(f, made_in))]


def restarted_families(stream_id: int, families: Sequence[FamilyPlan]) -> frozenset[str]:
    """Return the ids of the families that restart their row counts when a stream's watermark is reset.

    A family restarts if it has rows of the stream, or if it shares ranks with a family that restarts.

    Args:
        stream_id: The stream.
        families: All families.
    """
    made_in = makers(families)
    ranked = [f for f in families if f.ranked]
    found = {
        f.id
        for f in ranked
        if any(stream_id in (each.stream_a, each.stream_b) for each in (f, *_earlier(f, made_in)))
    }
    sharing = [
        frozenset({f.id, *(e.id for e in _earlier(f, made_in) if e.ranked)})
        for f in ranked
        if f.sides_with_ranks
    ]
    while more := [ids for ids in sharing if ids & found and not ids <= found]:
        found.update(*more)
    return frozenset(found)


def _earlier(plan: FamilyPlan, made_in: Mapping[int, FamilyPlan]) -> Iterator[FamilyPlan]:
    """Yield the families whose pairs are rows of a family, then the families before these, and so on."""
    for stream_id in (plan.stream_a, plan.stream_b):
        if is_intermediate(stream_id):
            yield made_in[stream_id]
            yield from _earlier(made_in[stream_id], made_in)


def _ranking(
    stream_id: int, column: str, joins: Mapping[str, FamilyJoins], made_in: Mapping[int, FamilyPlan]
) -> Ranking:
    """Return the ranking that filled a column of an intermediate.

    The column's name begins with one side for each step between the ranking and the intermediate.
    """
    side, _, rest = column.partition(".")
    maker = made_in[stream_id]
    if "." in rest:
        return _ranking(maker.stream_a if side == "a" else maker.stream_b, rest, joins, made_in)
    ranked = joins[maker.id].ranked
    assert ranked is not None, "ranks come from a family that counts rows"
    return ranked.rankings[side]
