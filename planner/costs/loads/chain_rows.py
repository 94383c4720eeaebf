"""Expected rows that one side of a join stores, and rows that probe them, for each possible slice boundary.

    boundaries           0                 w1            w2        w3
    rows that enter      P(q1, q2 or q3)   P(q2 or q3)   P(q3)     0       a slice starting here
    rows that probe it   the same for the other side's filters

``planner.costs.loads.loads`` derives the work from these rows. Queries with the same windows and filters
count as one query here, because ten thousand queries may have only a few thousand pairs of windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from catalog.values.plan import FamilyPlan, JoinPlan, PlannedQuery
from catalog.values.query import UNBOUNDED_US
from planner.costs.cost import SearchLoads
from planner.costs.loads.row_classes import Bits, RowClass, row_classes_of
from planner.costs.loads.segments import ChainStorage, chain_storage
from planner.costs.rates import FamilyRates, Floats
from planner.families.families import (
    SIDES,
    Family,
    SideName,
    other_side,
    side_chain,
    side_filter,
    side_window_us,
)

Ints = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class Reaching:
    """Rows of a side that reach the slices of a chain.

    Attributes:
        rows: Rows that the join admits.
        ends: For each filter of these rows, the largest window on the chain's side among the queries with
            this filter.
        per_s: Rows per second that reach a slice, by the boundary where it starts.
        keeps: For each boundary where a slice starts, its filters; a row that reaches the slice passes at
            least one of them.
    """

    rows: RowClass
    ends: Mapping[int | None, int]
    per_s: Floats
    keeps: Sequence[Bits]


@dataclass(frozen=True, slots=True, eq=False)
class ChainRows:
    """Rows of all possible slices of one side of a join, by the start and end of the slice.

    Attributes:
        side: Side whose rows the chain holds.
        boundaries_us: 0, every distinct window of the join's queries, and other ends of the chain, ascending.
        seconds: The boundaries in seconds; an unbounded boundary is at the horizon.
        left: Fraction of rows that are still held at the age of each boundary.
        lasting: Integral of ``left`` from 0 to each boundary.
        keep: For each boundary, a number that identifies the filters of a slice starting there; equal filters
            have equal numbers.
        own: Rows of the side that reach each slice if no row leaves before the end of its window.
        other: Rows of the other side that probe each slice.
        storage: Segments of the slices.
    """

    side: SideName
    boundaries_us: tuple[int, ...]
    seconds: Floats
    left: Floats
    lasting: Floats
    keep: Ints
    own: Reaching
    other: Reaching
    storage: ChainStorage

    def searched(self, ends_us: Sequence[int], selectivity: float) -> SearchLoads:
        """Return the work of searching the slices of a chain.

        Args:
            ends_us: Ends of the slices, µs, ascending.
            selectivity: Fraction of all pairs of rows that have equal keys.
        """
        places = np.searchsorted(self.boundaries_us, [0, *ends_us])
        start, end = places[:-1], places[1:]
        coming, males = self.own.per_s[start], self.other.per_s[start]
        candidates = males * (coming * (self.lasting[end] - self.lasting[start]))
        return SearchLoads(
            males_per_s=males,
            segments=self.storage.segments(start, end),
            candidates_per_s=candidates,
            matches_per_s=candidates * selectivity,
            inserted_per_s=float(coming[0] * self.left[0]),
        )


def unlike(queries: Sequence[PlannedQuery]) -> Sequence[PlannedQuery]:
    """Return one query for each combination of windows and filters."""
    return tuple({(q.w_a_us, q.w_b_us, q.filter_a, q.filter_b): q for q in queries}.values())


def chain_rows(
    family: Family | FamilyPlan,
    join: JoinPlan,
    side: SideName,
    rates: FamilyRates,
    queries: Sequence[PlannedQuery],
) -> ChainRows:
    """Find the rows of all possible slices of one side of a join.

    Args:
        family: The family.
        join: One of the family's joins; boundaries are the slice ends of its chain and all windows of its
            queries.
        side: Side whose rows the chain holds.
        rates: Known or assumed rates of the family.
        queries: The join's queries, or at least one of each combination of windows and filters (``unlike``).

    Returns:
        The rows, by boundaries.
    """
    windows = {s: {side_window_us(q, s) for q in queries} for s in SIDES}
    boundaries = sorted({0, *windows[side], *(s.w_end_us for s in side_chain(join, side))})
    seconds = np.array([rates.seconds(us, side) for us in boundaries], dtype=np.float64)
    own, other = (
        _reaching(row_classes_of(family, join, of, rates), _filter_ends(queries, of, side), boundaries)
        for of in (side, other_side(side))
    )
    left, lasting, keep = rates.side(side).left(seconds), rates.side(side).lasting_s(seconds), _numbered(own)
    bounded_s = [rates.seconds(w, s) for s in SIDES for w in windows[s] if w < UNBOUNDED_US]
    return ChainRows(
        side=side,
        boundaries_us=tuple(boundaries),
        seconds=seconds,
        left=left,
        lasting=lasting,
        keep=keep,
        own=own,
        other=other,
        storage=chain_storage(
            seconds,
            own.per_s * left,
            keep,
            _numbered(other),
            longest_s=max(bounded_s, default=0.0),
            batch_s=rates.batch_s.value,
            row_bytes=own.rows.rates.row_bytes.value,
            buckets=rates.buckets,
        ),
    )


def _reaching(rows: RowClass, ends: Mapping[int | None, int], boundaries: Sequence[int]) -> Reaching:
    bits = _bits_beyond(ends, boundaries)
    return Reaching(rows, ends, rows.rates.rate.value * rows.shares(bits), rows.kept(bits))


def _filter_ends(queries: Sequence[PlannedQuery], of: SideName, side: SideName) -> dict[int | None, int]:
    """Return, for each filter of side ``of``, the largest window of its queries on ``side``."""
    ends: dict[int | None, int] = {}
    for query in queries:
        bit = side_filter(query, of)
        ends[bit] = max(side_window_us(query, side), ends.get(bit, 0))
    return ends


def _bits_beyond(ends: Mapping[int | None, int], boundaries: Sequence[int]) -> list[Bits]:
    """Return, per boundary, the filters of queries that reach beyond it; equal sets share an object."""
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


def _numbered(reaching: Reaching) -> Ints:
    """Number the sets of filters of slices; all slices that keep every row get the same number."""
    numbers: dict[Bits, int] = {}
    return np.array(
        [numbers.setdefault(frozenset({None}) if None in k else k, len(numbers)) for k in reaching.keeps],
        dtype=np.int64,
    )
