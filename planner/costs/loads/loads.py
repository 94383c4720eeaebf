"""Expected work of slices and joins, from rates and selectivities, for cost models to price.

    rows of a ── λ_a P(some query can use it) ──> [0, w1) ── those that pass cond'_2 ──> [w1, w2) ──> purged
                                                     ^                                      ^
    males of b ──────────────────────────────── all that serve Q1, Q2 ────────── all that serve Q2

In steady state, measured in event time, a slice [s, e) of a side holds the rows that entered it during e - s
seconds. Every male that can serve a query of the slice meets all of these rows. Arrivals are assumed to be
uniform in time and independent of filters and keys; for filters, see ``planner.costs.rates``.
Invariant: the load of a slice depends on its own ends, and on no other slice (``SliceLoad``).

Source: the terms of State-Slice (VLDB 2006), Equations 1-3 (§3.1, §3.2, §4.3) and §5.2, without their prices;
the invariant is Lemma 2 (§5.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from catalog.values.plan import SHARED_JOIN, FamilyPlan, JoinPlan, PlannedQuery, queries_of
from planner.costs.cost import JoinInput, SearchLoads, SliceLoad
from planner.costs.loads.chain_rows import Ints, chain_rows, unlike
from planner.costs.loads.pair_selectivity import pair_selectivities
from planner.costs.loads.row_classes import RowClass
from planner.costs.loads.segments import ChainStorage
from planner.costs.rates import FamilyRates, Floats
from planner.families.families import (
    SIDES,
    Family,
    SideName,
    other_side,
    result_columns,
    side_chain,
    side_filter,
    side_filters,
    side_window_us,
)


def slice_loads(family: Family | FamilyPlan, join: JoinPlan, rates: FamilyRates) -> tuple[SliceLoad, ...]:
    """Return the expected load of each slice of a join.

    Args:
        family: The family.
        join: One of the family's joins, of any strategy; a boundary need not be the window of a query.
        rates: Known or assumed rates of the family.

    Returns:
        The slices of side a in order, then the slices of side b.
    """
    return tuple(
        loads.slice(piece.w_start_us, piece.w_end_us)
        for side in SIDES
        for loads in [chain_loads(family, join, side, rates)]
        for piece in side_chain(join, side)
    )


def search_loads(
    family: Family | FamilyPlan, join: JoinPlan, rates: FamilyRates
) -> tuple[SearchLoads, SearchLoads]:
    """Return only the loads of searching the slices of a join, for a and b; ``slice_loads`` has all loads.

    Args:
        family: The family.
        join: One of its joins.
        rates: Known or assumed rates of the family.
    """
    queries = unlike(queries_of(family.queries, join.queries))

    def of_side(side: SideName) -> SearchLoads:
        ends_us = [piece.w_end_us for piece in side_chain(join, side)]
        rows = chain_rows(family, join, side, rates, queries)
        return rows.searched(ends_us, rates.join_selectivity.value)

    return of_side("a"), of_side("b")


def join_input(family: Family | FamilyPlan, joins: Sequence[JoinPlan], rates: FamilyRates) -> JoinInput:
    """Return the load of filtering a family's rows before its joins, and of merging pairs after them.

    Args:
        family: The family.
        joins: All of its joins.
        rates: Known or assumed rates of the family.

    Returns:
        The load of all joins together.
    """
    fed = [i for join in joins for i in join.queries]
    several = {i for i, uses in _counted(fed).items() if uses > 1}
    split = {join.partition.side for join in joins if join.partition is not None}
    private = {i for join in joins if _is_private(join) for i in join.queries}
    pairs_per_s2 = rates.a.rate.value * rates.b.rate.value * rates.join_selectivity.value
    return JoinInput(
        rows_per_s=rates.a.rate.value + rates.b.rate.value,
        filter_evaluations_per_s=sum(
            rates.side(side).rate.value * len(side_filters(family, side)) for side in SIDES
        ),
        split_per_s=sum(rates.side(side).rate.value * len(side_filters(family, side)) for side in split),
        private_filters_per_s=sum(
            rates.side(side).rate.value
            for query in family.queries
            if query.id in private
            for side in SIDES
            if side_filter(query, side) is not None
        ),
        merged_per_s=pairs_per_s2
        * sum(
            rates.a.passing_any([q.filter_a])
            * rates.b.passing_any([q.filter_b])
            * (rates.lasting_s(q.w_a_us, "a") + rates.lasting_s(q.w_b_us, "b"))
            for q in family.queries
            if q.id in several
        ),
        batch_s=rates.batch_s.value,
        buckets=rates.buckets,
        filters=sum(len(side_filters(family, side)) for side in SIDES),
        filtered_sides=sum(bool(side_filters(family, side)) for side in SIDES),
    )


def _counted(ids: Iterable[int]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for i in ids:
        counts[i] = counts.get(i, 0) + 1
    return counts


def _is_private(join: JoinPlan) -> bool:
    """Return whether the join serves a single query and its rows are filtered before the join."""
    return join.id != SHARED_JOIN and join.partition is None


@dataclass(frozen=True, slots=True, eq=False)
class ChainLoads:
    """Loads of all possible slices of one side of a join, by the boundaries at which they start and end.

    Arrays are indexed by boundary. An integral runs over distances from 0 to the boundary, in seconds, so
    the value of a slice is the difference between the values at its two boundaries. Each second is weighted
    with the fraction of rows that are still held at this distance: a slice [s, e) holds λ ∫ P(R > t) dt rows,
    where R is the time until a row leaves the state early.

    Attributes:
        side: Side whose rows the chain holds.
        boundaries_us: 0, every distinct window of the join's queries, and other ends of the chain, ascending.
        seconds: The boundaries in seconds; an unbounded boundary is at the horizon.
        left: Fraction of rows that are still held at the age of the boundary.
        lasting: Integral of ``left``.
        entering: Rows per second that would enter a slice starting here if no row left the state early.
        males: Opposite rows per second that probe a slice starting here.
        keep: Number that identifies the filter of a slice starting here; equal filters have equal numbers.
        first_judged: Rows per second that the filter of the first slice tests.
        judged: Integral of the number of distinct filters, of both sides, that are tested on pairs.
        guaranteed: Filters counted in ``judged`` that all pairs of a slice starting here pass anyway; for
            each filter, the value of ``lasting`` at the largest window of the queries with this filter.
        residuals: Integral of the mean number of residuals that are tested on a pair.
        results: Integral of the fraction of equal-key pairs that serve a query.
        windows_below: Number of distinct windows that are smaller than the boundary.
        windows_upto: Number of distinct windows that are not greater than the boundary.
        queries_upto: Number of queries with a window that is not greater than the boundary.
        storage: Segments of the slices.
        result_columns: Number of columns that a joined pair carries.
        rates: Known or assumed rates of the family.
    """

    side: SideName
    boundaries_us: tuple[int, ...]
    seconds: Floats
    left: Floats
    lasting: Floats
    entering: Floats
    males: Floats
    keep: Ints
    first_judged: float
    judged: Floats
    guaranteed: tuple[tuple[float, ...], ...]
    residuals: Floats
    results: Floats
    windows_below: Ints
    windows_upto: Ints
    queries_upto: Ints
    storage: ChainStorage
    result_columns: int
    rates: FamilyRates

    def slice(self, w_start_us: int, w_end_us: int) -> SliceLoad:
        """Return the load of the slice between two boundaries."""
        start, end = self.boundaries_us.index(w_start_us), self.boundaries_us.index(w_end_us)
        return self._load(start, end, last=end == len(self.boundaries_us) - 1)

    def inner_slices(self, start: int) -> SliceLoad:
        """Return, as arrays, the loads of all slices that start at boundary ``start``, except the longest."""
        return self._load(start, np.arange(start + 1, len(self.boundaries_us) - 1), last=False)

    def last_slice(self, start: int) -> SliceLoad:
        """Return the load of the slice from boundary number ``start`` to the last."""
        return self._load(start, len(self.boundaries_us) - 1, last=True)

    # ``end`` is a number, or an array of numbers for several slices at once; numpy computes with both alike.
    def _load(self, start: int, end: Any, *, last: bool) -> SliceLoad:
        number: Any = float if isinstance(end, int) else np.asarray
        count: Any = int if isinstance(end, int) else np.asarray
        rates, own = self.rates, self.rates.side(self.side)
        coming, males = float(self.entering[start]), float(self.males[start])
        entering = coming * float(self.left[start])
        held = coming * (self.lasting[end] - self.lasting[start])
        selectivity = rates.join_selectivity.value
        pairs_per_s2 = rates.a.rate.value * rates.b.rate.value * selectivity
        passed_anyway: Any = 0.0
        for until in self.guaranteed[start]:
            passed_anyway = passed_anyway + np.minimum(self.lasting[end], until) - self.lasting[start]
        judged = np.maximum(self.judged[end] - self.judged[start] - passed_anyway, 0.0)
        stored_segments, stored_bytes = self.storage.stored(start, end, last=last)
        leaving_judged = 0.0 if last else coming * self.left[end] * (self.keep[end] != self.keep[start])
        return SliceLoad(
            side=self.side,
            w_start_s=float(self.seconds[start]),
            w_end_s=number(self.seconds[end]),
            first=start == 0,
            last=last,
            judged_per_s=number(leaving_judged + (self.first_judged if start == 0 else 0.0)),
            entering_per_s=entering,
            held_rows=number(held),
            held_bytes=number(held * own.row_bytes.value),
            chain_males_per_s=float(self.males[0]),
            males_per_s=males,
            candidates_per_s=number(males * held),
            matches_per_s=number(males * held * selectivity),
            results_per_s=number(pairs_per_s2 * (self.results[end] - self.results[start])),
            boundaries=count(self.windows_below[end] - self.windows_upto[start]),
            judged_results_per_s=number(
                males * coming * selectivity * judged
                + pairs_per_s2 * (self.residuals[end] - self.residuals[start])
            ),
            unions=count((self.queries_upto[end] - self.queries_upto[start]) * (start > 0)),
            batch_s=rates.batch_s.value,
            buckets=rates.buckets,
            segments=number(self.storage.segments(start, end)),
            stored_segments_per_s=number(stored_segments),
            stored_bytes_per_s=number(stored_bytes),
            result_columns=self.result_columns,
        )


def chain_loads(
    family: Family | FamilyPlan, join: JoinPlan, side: SideName, rates: FamilyRates
) -> ChainLoads:
    """Prepare the loads of all possible slices of one side of a join.

    Args:
        family: The family.
        join: One of the family's joins; boundaries are the slice ends of its chain and all windows of its
            queries.
        side: Side whose rows the chain holds.
        rates: Known or assumed rates of the family.

    Returns:
        The loads, by boundaries.
    """
    queries = queries_of(family.queries, join.queries)
    windows = sorted(side_window_us(q, side) for q in queries)
    distinct = sorted(set(windows))
    found = chain_rows(family, join, side, rates, queries)
    boundaries, lasting, own, other = found.boundaries_us, found.lasting, found.own, found.other
    judged_at_entry = own.rows.is_plain and not _is_private(join) and None not in own.ends
    return ChainLoads(
        side=side,
        boundaries_us=boundaries,
        seconds=found.seconds,
        left=found.left,
        lasting=lasting,
        entering=own.per_s,
        males=other.per_s,
        keep=found.keep,
        first_judged=own.rows.rates.rate.value if judged_at_entry else 0.0,
        judged=_integral(_alive(own.ends, boundaries) + _alive(other.ends, boundaries), lasting),
        guaranteed=tuple(
            tuple(rates.lasting_s(end, side) for end in (*mine, *theirs) if end > start)
            for start, mine, theirs in zip(
                boundaries,
                own.rows.guaranteed_ends(own.keeps, own.ends),
                other.rows.guaranteed_ends(other.keeps, other.ends),
                strict=True,
            )
        ),
        residuals=_integral(_residuals(queries, side, boundaries, own.rows, other.rows), lasting),
        results=_integral(
            pair_selectivities([q for q in queries if q.gives_pairs], side, boundaries, own.rows, other.rows),
            lasting,
        ),
        windows_below=np.searchsorted(distinct, boundaries, side="left").astype(np.int64),
        windows_upto=np.searchsorted(distinct, boundaries, side="right").astype(np.int64),
        queries_upto=np.searchsorted(windows, boundaries, side="right").astype(np.int64),
        storage=found.storage,
        result_columns=_result_columns(family),
        rates=rates,
    )


def _result_columns(family: Family | FamilyPlan) -> int:
    """Return the number of columns that a pair carries."""
    if isinstance(family, FamilyPlan):  # has the columns; deriving them once per unshared query takes long
        return sum(len(family.carried(side)) for side in SIDES)
    return sum(len(result_columns(family.queries, side)) for side in SIDES)


def _alive(ends: Mapping[int | None, int], boundaries: Sequence[int]) -> Floats:
    """Return, for each boundary, the number of filters of queries whose windows reach beyond the boundary."""
    filter_ends = np.sort(np.array([end for bit, end in ends.items() if bit is not None], dtype=np.int64))
    return (len(filter_ends) - np.searchsorted(filter_ends, boundaries, side="right")).astype(np.float64)


def _integral(beyond: Floats, seconds: Floats) -> Floats:
    """Integrate values that are constant between boundaries; the integral is 0 at the first boundary."""
    return np.concatenate([[0.0], np.cumsum(beyond[:-1] * np.diff(seconds))])


def _residuals(
    queries: Sequence[PlannedQuery],
    side: SideName,
    boundaries: Sequence[int],
    own: RowClass,
    other: RowClass,
) -> Floats:
    """Return the mean number of residuals tested on a pair, for each distance in ``boundaries``."""
    own_share, other_share = own.single_shares(), other.single_shares()
    judging = [
        (side_window_us(q, side), own_share(side_filter(q, side)) * other_share(_mate_filter(q, side)))
        for q in queries
        if q.residual is not None
    ]
    windows = np.array([window for window, _ in judging], dtype=np.int64)
    order = np.argsort(windows, kind="stable")
    shares = np.array([share for _, share in judging], dtype=np.float64)[order]
    upto = np.concatenate([[0.0], np.cumsum(shares)])
    return np.asarray(upto[-1] - upto[np.searchsorted(windows[order], boundaries, side="right")])


def _mate_filter(query: PlannedQuery, side: SideName) -> int | None:
    return side_filter(query, other_side(side))
