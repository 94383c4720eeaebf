"""Chains with boundaries that no strategy chose.

    pinned    a user set them by splitting and merging slices      they replace the strategy's boundaries
    left      windows of departed queries (on_leave: manual)       they are added to the strategy's boundaries

A chain always ends at its largest window, or where a departed query's larger window ended. The part of a
chain beyond every running query's window keeps no rows and serves no query. All other properties of a slice
(which queries reach it, which rows it keeps) follow from the queries, as in every chain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from catalog.values.plan import SHARED_JOIN, Boundaries, FamilyPlan, JoinPlan, Plan, Slice
from catalog.values.query import Query
from planner.families.families import SIDES, Family, SideName, families, side_chain, side_window_us
from planner.families.filters import weaker_filters
from planner.strategies.shared_join import shared_join
from planner.strategies.slice_dag import chain_of_path

#: Boundaries by family id.
ByFamily = Mapping[str, Boundaries]

NO_BOUNDARIES: ByFamily = MappingProxyType({})


def is_one_chain(joins: Sequence[JoinPlan]) -> bool:
    """Return whether a family has one shared join of sliced chains, whose boundaries can be chosen freely."""
    only = joins[0]
    return len(joins) == 1 and only.id == SHARED_JOIN and only.partition is None and not only.pulled_up


def boundaries_of(family: FamilyPlan) -> Boundaries:
    """Return the ends of a family's slices; empty if it has no single shared chain (``is_one_chain``)."""
    if not is_one_chain(family.joins):
        return Boundaries()
    a, b = (tuple(s.w_end_us for s in side_chain(family.joins[0], side)) for side in SIDES)
    return Boundaries(a, b)


def kept_families(previous: Plan | None, replanned: Collection[str]) -> frozenset[str]:
    """Return the ids of the previous plan's families that are not planned again."""
    return (
        frozenset() if previous is None else frozenset(f.id for f in previous.families) - frozenset(replanned)
    )


def given_families(previous: Plan | None) -> frozenset[str]:
    """Return the ids of current families that have boundaries which their strategy did not choose."""
    return frozenset() if previous is None else frozenset(f.id for f in previous.families if f.given)


def retained_boundaries(previous: Plan | None, queries: Iterable[Query]) -> dict[str, Boundaries]:
    """Return the current boundaries that are not the window of any running query.

    Args:
        previous: Plan in force; None before the first.
        queries: Queries of the next plan version.

    Returns:
        Boundaries by family id; families without such boundaries are left out.
    """
    found: dict[str, Boundaries] = {}
    members = families(queries)
    for family in () if previous is None else previous.families:
        ends = boundaries_of(family)
        running = members.get(family.id, ())
        left = Boundaries(
            _without(ends.a, {q.a.window_us for q in running}),
            _without(ends.b, {q.b.window_us for q in running}),
        )
        if running and left:
            found[family.id] = left
    return found


def pinned_chain(family: Family, pinned: Boundaries, left: Boundaries) -> tuple[JoinPlan, ...]:
    """Cut a family's chains at their pinned boundaries.

    Args:
        family: The family.
        pinned: Ends of slices; an end beyond the chain's end has an effect only once a query has a larger
            window.
        left: Boundaries that departed queries left.

    Returns:
        The one join that all queries share.
    """

    def chain(side: SideName) -> tuple[Slice, ...]:
        largest = max(side_window_us(q, side) for q in family.queries)
        end = max((largest, *left.side(side)))
        inner = (at for at in pinned.side(side) if at < end)
        return _chain(family, side, {largest, *left.side(side), *inner})

    return shared_join(family, chain("a"), chain("b"))


def with_retained(family: Family, joins: tuple[JoinPlan, ...], left: Boundaries) -> tuple[JoinPlan, ...]:
    """Add the boundaries of departed queries to the chain that a strategy chose.

    Args:
        family: The family.
        joins: Joins that the strategy chose; several joins, or one join with pulled-up selections, are
            returned unchanged.
        left: Boundaries that departed queries left.
    """
    if not is_one_chain(joins):
        return joins
    a, b = (
        _chain(family, side, {*(s.w_end_us for s in side_chain(joins[0], side)), *left.side(side)})
        for side in SIDES
    )
    return shared_join(family, a, b)


def _chain(family: Family, side: SideName, ends: Iterable[int]) -> tuple[Slice, ...]:
    return chain_of_path([0, *sorted(ends)], family.queries, side, weaker_filters(family, side))


def _without(ends: Iterable[int], windows: set[int]) -> tuple[int, ...]:
    return tuple(at for at in ends if at not in windows)
