"""Expected work of slices and joins, from rates and selectivities alone: the loads that models price.

    rows of a ── λ_a P(some query can use it) ──> [0, w1) ── those that pass cond'_2 ──> [w1, w2) ──> purged
                                                     ^                                      ^
    males of b ──────────────────────────────── all that serve Q1, Q2 ────────── all that serve Q2

Steady state in event time: a slice [s, e) of a side holds the rows that entered it in e - s seconds, and
every male that can serve one of its queries meets all of them. Arrivals are uniform in time and independent
of filters and keys; filters are as independent as ``planner.costs.rates`` says.
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
from catalog.values.query import UNBOUNDED_US
from planner.costs.cost import JoinInput, SliceLoad
from planner.costs.pair_selectivity import pair_selectivities
from planner.costs.rates import FamilyRates
from planner.costs.row_classes import Bits, Floats, RowClass, row_classes_of
from planner.costs.segments import ChainStorage, chain_storage
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

_Ints = np.ndarray[tuple[int], np.dtype[np.int64]]


def slice_loads(family: Family | FamilyPlan, join: JoinPlan, rates: FamilyRates) -> tuple[SliceLoad, ...]:
    """Return what each slice of a join is expected to do.

    Args:
        family: The family.
        join: One of its joins, of any strategy; boundaries may be no query's window.
        rates: What is known of the family.

    Returns:
        The slices of a in order, then those of b.
    """
    return tuple(
        loads.slice(piece.w_start_us, piece.w_end_us)
        for side in SIDES
        for loads in [chain_loads(family, join, side, rates)]
        for piece in side_chain(join, side)
    )


def join_input(family: Family | FamilyPlan, joins: Sequence[JoinPlan], rates: FamilyRates) -> JoinInput:
    """Return what comes to a family's joins, and what leaves them to be merged.

    Args:
        family: The family.
        joins: All of its joins.
        rates: What is known of the family.

    Returns:
        The load.
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
    """Return whether one query has the join to itself, and has its rows filtered before it."""
    return join.id != SHARED_JOIN and join.partition is None


@dataclass(frozen=True, slots=True, eq=False)
class ChainLoads:
    """Loads of every slice that one side of a join can have, by the boundaries of its ends.

    Arrays are by boundary. An integral counts seconds of distance from 0 to the boundary, so that a slice's
    part is a difference. A second counts as much as rows are left at this distance: a slice [s, e) holds
    λ ∫ P(R > t) dt rows, R being the time until the other side closes a row's key.

    Attributes:
        side: Side whose rows the chain holds.
        boundaries_us: 0, every distinct window of the join's queries, and other ends of the chain, ascending.
        seconds: The same in seconds; unbounded is the horizon.
        left: Fraction of rows that are left at this age.
        lasting: Integral of ``left``.
        entering: Rows per second that would enter a slice starting here if all were left.
        males: Opposite rows per second that probe a slice starting here.
        keep: Number of the filter of a slice starting here; equal for equal filters.
        first_judged: Rows per second that the first slice's filter judges.
        judged: Integral of the distinct filters that pairs have to be judged by, of both sides.
        guaranteed: Ends of filters in ``judged`` that all pairs of a slice starting here pass anyway, as
            values of ``lasting``.
        residuals: Integral of residuals' evaluations per pair of rows per second.
        results: Integral of the fraction of equal-key pairs that serve a query.
        windows_below: Distinct windows smaller than the boundary.
        windows_upto: Distinct windows not greater than it.
        queries_upto: Queries with a window not greater than it.
        storage: Segments of the slices.
        result_columns: Columns that a joined pair carries.
        rates: What is known of the family.
    """

    side: SideName
    boundaries_us: tuple[int, ...]
    seconds: Floats
    left: Floats
    lasting: Floats
    entering: Floats
    males: Floats
    keep: _Ints
    first_judged: float
    judged: Floats
    guaranteed: tuple[tuple[float, ...], ...]
    residuals: Floats
    results: Floats
    windows_below: _Ints
    windows_upto: _Ints
    queries_upto: _Ints
    storage: ChainStorage
    result_columns: int
    rates: FamilyRates

    def slice(self, w_start_us: int, w_end_us: int) -> SliceLoad:
        """Return the load of the slice between two boundaries."""
        start, end = self.boundaries_us.index(w_start_us), self.boundaries_us.index(w_end_us)
        return self._load(start, end, last=end == len(self.boundaries_us) - 1)

    def inner_slices(self, start: int) -> SliceLoad:
        """Return, as arrays, the loads of all slices from boundary number ``start`` but the last."""
        return self._load(start, np.arange(start + 1, len(self.boundaries_us) - 1), last=False)

    def last_slice(self, start: int) -> SliceLoad:
        """Return the load of the slice from boundary number ``start`` to the last."""
        return self._load(start, len(self.boundaries_us) - 1, last=True)

    # Any: a number, or an array of them for several ends at once; numpy computes the same with either.
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
    """Prepare the loads of all slices that one side of a join can have.

    Args:
        family: The family.
        join: One of its joins; its chain's ends are boundaries, and so are all windows of its queries.
        side: Side whose rows the chain holds.
        rates: What is known of the family.

    Returns:
        The loads, by boundaries.
    """
    queries = queries_of(family.queries, join.queries)
    windows = sorted(side_window_us(q, side) for q in queries)
    distinct = sorted(set(windows))
    boundaries = sorted({0, *distinct, *(s.w_end_us for s in side_chain(join, side))})
    seconds = np.array([rates.seconds(us, side) for us in boundaries], dtype=np.float64)
    left, lasting = rates.side(side).left(seconds), rates.side(side).lasting_s(seconds)

    mates = other_side(side)
    own, other = (row_classes_of(family, join, s, rates) for s in (side, mates))
    own_ends, other_ends = (_filter_ends(queries, s, side) for s in (side, mates))
    own_bits, other_bits = (_reaching(ends, boundaries) for ends in (own_ends, other_ends))
    own_keep, other_keep = own.kept(own_bits), other.kept(other_bits)
    entering, keep = own.rates.rate.value * own.shares(own_bits), _numbered(own_keep)
    bounded_s = [
        rates.seconds(w, s) for q in queries for s in SIDES if (w := side_window_us(q, s)) < UNBOUNDED_US
    ]
    judged_at_entry = own.is_plain and not _is_private(join) and None not in own_bits[0]
    return ChainLoads(
        side=side,
        boundaries_us=tuple(boundaries),
        seconds=seconds,
        left=left,
        lasting=lasting,
        entering=entering,
        males=other.rates.rate.value * other.shares(other_bits),
        keep=keep,
        first_judged=own.rates.rate.value if judged_at_entry else 0.0,
        judged=_integral(_alive(own_ends, boundaries) + _alive(other_ends, boundaries), lasting),
        guaranteed=tuple(
            tuple(rates.lasting_s(end, side) for end in (*mine, *theirs) if end > start)
            for start, mine, theirs in zip(
                boundaries,
                own.guaranteed_ends(own_keep, own_ends),
                other.guaranteed_ends(other_keep, other_ends),
                strict=True,
            )
        ),
        residuals=_integral(_residuals(queries, side, boundaries, own, other), lasting),
        results=_integral(
            pair_selectivities([q for q in queries if q.gives_pairs], side, boundaries, own, other), lasting
        ),
        windows_below=np.searchsorted(distinct, boundaries, side="left").astype(np.int64),
        windows_upto=np.searchsorted(distinct, boundaries, side="right").astype(np.int64),
        queries_upto=np.searchsorted(windows, boundaries, side="right").astype(np.int64),
        storage=chain_storage(
            seconds,
            entering * left,
            keep,
            _numbered(other_keep),
            longest_s=max(bounded_s, default=0.0),
            batch_s=rates.batch_s.value,
            row_bytes=own.rates.row_bytes.value,
            buckets=rates.buckets,
        ),
        result_columns=_result_columns(family),
        rates=rates,
    )


def _result_columns(family: Family | FamilyPlan) -> int:
    """Return how many columns of its rows a pair carries."""
    if isinstance(family, FamilyPlan):  # knows them; without sharing it is asked once per query
        return sum(len(family.carried(side)) for side in SIDES)
    return sum(len(result_columns(family.queries, side)) for side in SIDES)


def _filter_ends(queries: Sequence[PlannedQuery], of: SideName, side: SideName) -> dict[int | None, int]:
    """Return the largest window on ``side`` of the queries with each filter of side ``of``."""
    ends: dict[int | None, int] = {}
    for query in queries:
        bit = side_filter(query, of)
        ends[bit] = max(side_window_us(query, side), ends.get(bit, 0))
    return ends


def _reaching(ends: Mapping[int | None, int], boundaries: Sequence[int]) -> list[Bits]:
    """Return the filters of the queries that reach beyond each boundary; the same object while none ends."""
    waiting = sorted(ends.items(), key=lambda item: item[1])
    reached: Bits = frozenset()
    reaching = []
    for boundary in reversed(boundaries):
        arrived = set()
        while waiting and waiting[-1][1] > boundary:
            arrived.add(waiting.pop()[0])
        if arrived:
            reached = reached | arrived
        reaching.append(reached)
    return reaching[::-1]


def _numbered(keeps: Sequence[Bits]) -> _Ints:
    """Number the filters of slices; all that have a query without a filter get one number."""
    numbers: dict[Bits, int] = {}
    return np.array(
        [numbers.setdefault(frozenset({None}) if None in k else k, len(numbers)) for k in keeps],
        dtype=np.int64,
    )


def _alive(ends: Mapping[int | None, int], boundaries: Sequence[int]) -> Floats:
    """Return how many filters have queries that reach beyond each boundary."""
    filter_ends = np.sort(np.array([end for bit, end in ends.items() if bit is not None], dtype=np.int64))
    return (len(filter_ends) - np.searchsorted(filter_ends, boundaries, side="right")).astype(np.float64)


def _integral(beyond: Floats, seconds: Floats) -> Floats:
    """Integrate what holds from each boundary to the next: 0 at the first boundary."""
    return np.concatenate([[0.0], np.cumsum(beyond[:-1] * np.diff(seconds))])


def _residuals(
    queries: Sequence[PlannedQuery],
    side: SideName,
    boundaries: Sequence[int],
    own: RowClass,
    other: RowClass,
) -> Floats:
    """Return how often a pair at each distance is judged by residuals: once per query that it passes."""
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
