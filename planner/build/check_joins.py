"""Checks of a family's joins: they answer every query, make every pair once, and keep all rows they need.

The joins of a family must have one of three forms:

    one join        all queries, all rows (its boundaries may be given: pinned, or left by departed queries)
    a join each     one query per join (unshared)
    partition       a join per class of rows of one side: class j serves the queries of ranks up to j
"""

from __future__ import annotations

import itertools

from catalog.values.plan import FamilyPlan, JoinPlan, PlannedQuery
from planner.errors import InvalidPlan
from planner.families.families import SIDES, SideName, side_chain, side_filter, side_window_us
from planner.families.filters import keep_bits, weaker_filters


def check_joins(family: FamilyPlan) -> None:
    """Check how a family's queries are joined.

    Args:
        family: The family; its queries and filters are already checked.

    Raises:
        InvalidPlan: An invariant is broken; the message names the invariant and the place.
    """
    where = f'family "{family.id}"'
    _require(bool(family.joins), f"{where}: no join")
    for left, right in itertools.pairwise(family.joins):
        _require(left.id < right.id, f"{where}: join {left.id!r} stands before {right.id!r}")
    everyone = tuple(q.id for q in family.queries)
    by_id = {q.id: q for q in family.queries}
    for join in family.joins:
        _require(bool(join.queries), f'{where}, join "{join.id}": no query')
        unknown = sorted(set(join.queries) - by_id.keys())
        _require(not unknown, f'{where}, join "{join.id}": serves unknown queries {unknown}')
        _require(
            list(join.queries) == sorted(set(join.queries)),
            f'{where}, join "{join.id}": queries not ascending',
        )
        if join.pulled_up:
            _require(
                join.partition is None, f'{where}, join "{join.id}": a pulled-up join must take all rows'
            )
    if any(join.partition is not None for join in family.joins):
        _check_partition(family, where)
    elif len(family.joins) == 1:
        _require(family.joins[0].queries == everyone, f"{where}: its one join does not serve all queries")
    else:
        served = sorted(q for join in family.joins for q in join.queries)
        _require(
            all(len(join.queries) == 1 for join in family.joins) and served == list(everyone),
            f"{where}: joins without a partition do not serve each query once",
        )
    for join in family.joins:
        queries = [by_id[i] for i in join.queries]
        for side in SIDES:
            _check_chain(family, join, queries, side, f'{where}, join "{join.id}", chain of {side}')


def _check_partition(family: FamilyPlan, where: str) -> None:
    """Check each join: ``none_of`` has the queries of all higher classes, ``queries`` all other queries."""
    parts = [join.partition for join in family.joins if join.partition is not None]
    _require(len(parts) == len(family.joins), f"{where}: some joins take a part of the rows, some take all")
    _require(len({p.side for p in parts}) == 1, f"{where}: both sides are split")
    used = {bit for q in family.queries if (bit := side_filter(q, parts[0].side)) is not None}
    _require(bool(used), f"{where}: side {parts[0].side} is split, but has no filter")
    everyone = {q.id for q in family.queries}
    above: set[int] = set()
    # The highest class excludes no other class; each lower class excludes all classes above it.
    for join in sorted(family.joins, key=lambda j: len(j.partition.none_of) if j.partition else 0):
        part = join.partition
        assert part is not None
        at = f'{where}, join "{join.id}"'
        _require(bool(part.one_of), f"{at}: its class serves no query")
        _require(list(part.one_of) == sorted(set(part.one_of)), f"{at}: one_of is not ascending")
        _require(
            part.none_of == tuple(sorted(above)), f"{at}: none_of differs from the higher classes' queries"
        )
        _require(above.isdisjoint(part.one_of), f"{at}: a query has two classes")
        _require(set(join.queries) == everyone - above, f"{at}: does not serve its class and all lower ones")
        above |= set(part.one_of)
    _require(above == everyone, f"{where}: queries {sorted(everyone - above)} have no class")


def _check_chain(
    family: FamilyPlan, join: JoinPlan, queries: list[PlannedQuery], side: SideName, where: str
) -> None:
    chain = side_chain(join, side)
    windows = {side_window_us(q, side) for q in queries}
    _require(min(windows) > 0, f"{where}: a window is not positive")
    _require(bool(chain) and chain[0].w_start_us == 0, f"{where}: does not start at 0")
    end = chain[-1].w_end_us
    reached = end >= max(windows) if family.given else end == max(windows)
    _require(reached, f"{where}: does not end at the largest window")
    for left, right in itertools.pairwise(chain):
        _require(left.w_end_us == right.w_start_us, f"{where}: not contiguous at {left.w_end_us} us")
    for piece in chain:
        _require(piece.w_start_us < piece.w_end_us, f"{where}: a slice ends where it starts")
    ends = {s.w_end_us for s in chain}
    if family.given:
        # Given boundaries (pinned, or left by departed queries) are allowed in the one chain that all queries
        # share.
        alone = len(family.joins) == 1 and join.partition is None and not join.pulled_up
        _require(alone, f"{where}: boundaries are given, but the queries do not share one chain")
    elif family.strategy == "mem-opt":
        _require(ends == windows, f"{where}: Mem-Opt must have a slice for each distinct window")
    elif family.strategy == "cpu-opt":
        # Any other boundary would give the same results, but cost CPU without serving an additional query.
        _require(ends <= windows, f"{where}: a boundary is not the window of a query")
    else:
        _require(len(chain) == 1, f"{where}: {family.strategy} must have one slice")
    _check_slices(family, join, queries, side, where)


def _check_slices(
    family: FamilyPlan, join: JoinPlan, queries: list[PlannedQuery], side: SideName, where: str
) -> None:
    """Check the filter of each slice, from the last slice to the first, so that its queries only grow."""
    weaker = weaker_filters(family, side)
    split = join.partition is not None and join.partition.side == side
    filtering = set(join.partition.one_of) if join.partition is not None and split else set(join.queries)
    waiting = sorted(queries, key=lambda q: side_window_us(q, side))
    bits: set[int | None] = set()
    keep = None if join.pulled_up else keep_bits(bits, weaker)
    chain = side_chain(join, side)
    for number, piece in reversed(list(enumerate(chain, start=1))):
        came = len(bits)
        while waiting and side_window_us(waiting[-1], side) > piece.w_start_us:
            query = waiting.pop()
            if query.id in filtering:
                bits.add(side_filter(query, side))
        if len(bits) > came and not join.pulled_up:
            keep = keep_bits(bits, weaker)
        _require(
            piece.keep == keep,
            f"{where}, slice {number}: keeps {piece.keep}, but its queries can use {keep}",
        )


def _require(holds: bool, primary: str) -> None:
    if not holds:
        raise InvalidPlan(primary)
