from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from catalog.values.plan import Partitioning, Plan, Replication
from catalog.values.policies.probe import Probe
from catalog.values.query import JoinKind, Query
from catalog.values.statistics import Profile
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.build.placement.place_query import LONG_US, QueryPlaces
from planner.families.families import SideName, families
from tests.builders import a_query, a_query_s, a_stream

STREAMS = {i: a_stream(i) for i in (1, 2, 3)}
BY_NAME = {stream.name: stream for stream in STREAMS.values()}
INNER = a_query_s(1, 30)


def judging(query_id: int, kind: JoinKind = "outer", preserved: tuple[SideName, ...] = ("a",)) -> Query:
    """Return a query of the inner joins' key that asks about absence."""
    return a_query_s(query_id, 10, kind=kind, preserved=preserved)


def planned(queries: Sequence[Query], previous: Plan | None = None) -> Plan:
    """Return a plan of hashed keys."""
    return build_plan(queries, STREAMS, previous, objective=Objective(partitioning="hash"))


def is_beside(query: Query, previous: Plan | None, partitioning: Partitioning = "auto") -> bool:
    """Return whether a query that enters is placed beside inner joins, where nothing can be sampled."""
    return QueryPlaces(partitioning, BY_NAME, previous).placed(query).beside_inner


@pytest.mark.parametrize("kind", ["outer", "semi", "anti"])
def test_who_asks_about_absence_shares_the_slices_of_inner_joins_that_run(kind: JoinKind) -> None:
    first = planned([INNER])
    entering = QueryPlaces("auto", BY_NAME, first).placed(judging(2, kind))
    (family,) = planned([INNER, entering], first).families
    assert (family.id, [q.kind for q in family.queries]) == (first.families[0].id, ["inner", kind])
    assert [piece.w_end_us for piece in family.joins[0].chain_a] == [10_000_000, 30_000_000]


def test_it_stays_apart_where_keys_are_in_several_buckets() -> None:
    (family,) = planned([INNER]).families
    spread = replace(planned([INNER]), families=(replace(family, replication=Replication(1, ((7, 2),))),))
    assert not is_beside(judging(2), spread)
    gone = build_plan([a_query_s(3, streams=(2, 3))], STREAMS, spread)
    assert not is_beside(judging(2), gone, "hash"), "rows of the keys may still rest in several buckets"


def test_who_enters_again_is_placed_again() -> None:
    beside = QueryPlaces("auto", BY_NAME, planned([INNER])).placed(judging(2))
    again = QueryPlaces("replicate", BY_NAME).placed(beside)
    assert (beside.beside_inner, beside.spreads) == (True, False)
    assert (again.beside_inner, again.spreads) == (False, True)


def test_keys_are_not_spread_while_rows_are_judged() -> None:
    first = planned([INNER])
    beside = QueryPlaces("auto", BY_NAME, first).placed(judging(2))
    everywhere = Objective(partitioning="replicate")
    (family,) = build_plan([INNER, beside], STREAMS, first, objective=everywhere).families
    assert not family.replication.replicates
    (family,) = build_plan([INNER], STREAMS, planned([INNER, beside], first), objective=everywhere).families
    assert family.replication.replicates


def test_it_goes_where_its_like_is() -> None:
    apart = planned([judging(1)])
    assert not is_beside(judging(2), apart, "hash")
    assert is_beside(judging(2), planned([judging(3), INNER]), "hash")


def test_who_comes_first_is_placed_by_the_keys_of_a_sample() -> None:
    asked: list[Sequence[Query]] = []

    def profile(queries: Sequence[Query]) -> Profile:
        asked.append(queries)
        return Profile()

    places = QueryPlaces("auto", BY_NAME, None, profile)
    found = [places.placed(query) for query in (judging(1), judging(2, "anti"), INNER)]
    assert [query.beside_inner for query in found] == [True, True, False]
    assert len(families(found)) == len(asked) == 1, "they are of one family, whose keys were looked at once"
    assert not is_beside(judging(1), None), "nothing is known of the keys"
    assert is_beside(judging(1), None, "hash")
    assert not is_beside(judging(1, preserved=("a", "b")), None, "replicate")


def test_families_that_use_their_rows_otherwise_take_no_verdicts() -> None:
    plan = planned([INNER])
    (family,) = plan.families
    (query,) = family.queries
    others = [
        replace(family, queries=(replace(query, w_b_us=LONG_US),)),
        replace(family, queries=(replace(query, hands_on=True),)),
        replace(family, probe=Probe("loops")),
    ]
    assert [is_beside(judging(2), replace(plan, families=(each,))) for each in (family, *others)] == [
        True,
        False,
        False,
        False,
    ]
    long = replace(plan, families=(others[0],))
    assert is_beside(a_query(2, LONG_US, kind="anti", preserved=("a",)), long), "it needs these rows itself"


def test_only_others_than_inner_joins_are_beside_them() -> None:
    with pytest.raises(ValueError, match="inner join cannot be beside inner joins"):
        replace(INNER, beside_inner=True)
