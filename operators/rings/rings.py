"""Rings of one side of a join: the last slice of its chain, from which expired rows are removed.

    rings        0              1              2              one for each remainder of the key
    segments     [x x 4 7 9]    []             [x 8]          x: removed; 4 and 8 are heads
                 [11 12]        [10]           []

A male first examines the head of its ring, removes expired rows, and scans the remaining rows. The
*invalidation* (``catalog.values.policies.probe.Probe``) determines which other rings also lose their expired
rows when a row arrives. Nested loops use a single ring.

A ring stores ``gone``, the time up to which its rows were removed. The ring's head in every segment follows
from this time, even after a restart, so the bucket's manifest stores nothing else about rings. A segment is
dropped once all of its rows are removed, and rewritten once at least half of its rows are removed.

Invariant: a row is removed only if it is too old for all later males. So results do not depend on the
invalidation. Males arrive in the order of their clock. Rows expire by the male's own time, or by the
watermark if that is earlier.

Source: WNL and WHJ (Kostowski, Claypool), §2, Figures 2 and 3, and §3.2. In the paper, a stream arrives in
order, and a ring is a circular buffer. Here rows may arrive out of order, so the rows of a ring are sorted
only within each segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from catalog.values.policies.probe import Probe
from operators.kernels.keys import Bools, Int64s
from operators.rings.ring_kernel import heads_behind, remove_expired, scan_rings
from operators.segments.indexes.cell_index import CellIndex
from operators.segments.segment import Segment

#: Value of ``gone`` if no row has been removed.
NOTHING: Final = -(2**63)
#: A segment is rewritten once at least one row in this many has been removed.
WORTH_A_REWRITE = 2
#: Maximum number of (row, ring) pairs processed together, to limit memory if each row cleans all rings.
_LOOKED_AT_ONCE = 1 << 22


@dataclass(slots=True)
class RingCounts:
    """Counts of the rings of one side in one batch, named as in ``ProbeCounters``."""

    probes: int = 0
    inserted: int = 0
    scanned: int = 0
    looked: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Arrivals:
    """Rows that arrive at rings, in the order of their clock.

    Attributes:
        rows: int64[m], index of each row in its segment.
        keys: int64[m], key of each row.
        times: int64[m], clock of each row, ascending.
        cells: int64[m], ring of each row.
    """

    rows: Int64s
    keys: Int64s
    times: Int64s
    cells: Int64s

    @classmethod
    def of(cls, keys: Int64s, times: Int64s, cells: int) -> Arrivals:
        """Sort the rows of a segment by their clock.

        Args:
            keys: int64[m], keys of the rows.
            times: int64[m], clock of each row.
            cells: Number of rings.
        """
        order = np.argsort(times, kind="stable")
        keys = keys[order]
        return cls(order, keys, times[order], keys % cells)

    def only(self, kept: Bools) -> Arrivals:
        """Return the rows of a segment for which ``kept`` is true, bool[rows of the segment]."""
        own = kept[self.rows]
        return Arrivals(self.rows[own], self.keys[own], self.times[own], self.cells[own])

    def part(self, begin: int, end: int) -> Arrivals:
        """Return the rows from index ``begin`` up to, but not including, index ``end``."""
        own = slice(begin, end)
        return Arrivals(self.rows[own], self.keys[own], self.times[own], self.cells[own])


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """Males that scan their rings in one segment.

    Attributes:
        index: Rows of the segment, sorted by ring and time.
        males: The males.
        first: int64[m], row at which each male's scan begins.
    """

    index: CellIndex
    males: Arrivals
    first: Int64s
    _state: Int64s = field(default_factory=lambda: np.zeros(4, dtype=np.int64))

    @property
    def done(self) -> bool:
        """Return whether all males have scanned."""
        return int(self._state[0]) >= len(self.males.cells)

    @property
    def scanned(self) -> int:
        """Number of rows compared so far."""
        return int(self._state[2])

    @property
    def touched(self) -> int:
        """Number of pairs of equal key found so far."""
        return int(self._state[3])

    def fill(self, females: Int64s, males: Int64s, behind_us: int, ahead_us: int) -> int:
        """Write the rows of pairs as ``scan_rings`` does; return the number of pairs."""
        index, own = self.index, self.males
        found = scan_rings(
            index.keys,
            index.times,
            index.offsets,
            own.keys,
            own.times,
            own.cells,
            self.first,
            behind_us,
            ahead_us,
            self._state,
            females,
            males,
        )
        females[:found] = index.rows[females[:found]]
        males[:found] = own.rows[males[:found]]
        return int(found)


@dataclass(slots=True, eq=False)
class Rings:
    """Rings of one side of a join in one bucket.

    Attributes:
        probe: Number of rings, and rule for the removal of expired rows.
        w_end_us: Window of the side, µs; older rows have expired.
        gone: int64[cells], time up to which the rows of each ring have been removed.
        counts: Counts of this batch.
    """

    probe: Probe
    w_end_us: int
    gone: Int64s = field(init=False)
    counts: RingCounts = field(default_factory=RingCounts)

    def __post_init__(self) -> None:
        self.gone = np.full(self.probe.cells, NOTHING, dtype=np.int64)

    def arrivals(self, rows: Segment) -> Arrivals:
        """Return rows sorted by their clock, with their rings (``Arrivals.of``)."""
        return Arrivals.of(rows.key, rows.ts, self.probe.cells)

    def whole(self, segment: Segment, males: Arrivals) -> Scan:
        """Let males scan their rings in a segment where no row can have expired."""
        index = segment.in_cells(self.probe.cells)
        return Scan(index, males, index.offsets[males.cells])

    def probed(
        self, segments: Sequence[Segment], males: Arrivals, reached: int | None
    ) -> list[tuple[Segment, Scan]]:
        """Remove rows that have expired when males arrive, and let the males scan the remaining rows.

        Args:
            segments: Segments of the side.
            males: Rows of the other side.
            reached: Progress of the other side at the end of the batch; None before its first row.
        """
        every = self.probe.invalidation in ("probe-all", "optimal")
        self.counts.probes += len(males.cells)
        ordered = [(s, s.in_cells(self.probe.cells)) for s in _by_age(segments)]
        scans = []
        for part, found in self._emptied([index for _, index in ordered], males, reached, every=every):
            scans += [(s, Scan(index, part, first)) for (s, index), first in zip(ordered, found, strict=True)]
        return scans

    def entered(self, segments: Sequence[Segment], females: Arrivals, reached: int | None) -> None:
        """Remove rows that have expired when other rows enter, if the invalidation requires it.

        Args:
            segments: Segments of the side, including those of the entering rows.
            females: The entering rows.
            reached: Progress of the other side at the end of the batch, after all of its males have probed.
        """
        self.counts.inserted += len(females.cells)
        if self.probe.invalidation in ("probe+insert", "optimal"):
            every = self.probe.invalidation == "optimal"
            indexes = [segment.in_cells(self.probe.cells) for segment in _by_age(segments)]
            for _ in self._emptied(indexes, females, reached, every=every):
                pass

    def dropped(self, segments: Sequence[Segment]) -> tuple[list[Segment], int]:
        """Rewrite segments with many removed rows; return the segments and the number of dropped rows."""
        staying, dropped = [], 0
        for segment in segments:
            gone = self.removed(segment)
            if not gone or gone * WORTH_A_REWRITE < len(segment):
                staying.append(segment)
                continue
            dropped += gone
            if gone < len(segment):
                staying.append(segment.filter(self._live(segment)))
        return staying, dropped

    def settled(self, segments: Sequence[Segment]) -> list[Segment]:
        """Return segments without their removed rows; from then on, no row counts as removed."""
        kept = [s.filter(self._live(s)) if self.removed(s) else s for s in segments]
        self.gone = np.full(self.probe.cells, NOTHING, dtype=np.int64)
        return [segment for segment in kept if len(segment)]

    def removed(self, segment: Segment) -> int:
        """Return how many rows of a segment have been removed."""
        index = segment.in_cells(self.probe.cells)
        heads = heads_behind(index.times, index.offsets, self.gone)
        return int((heads - index.offsets[:-1]).sum())

    def held(self, segments: Sequence[Segment], reached: int | None) -> tuple[int, int]:
        """Return the number of rows that have not expired, and the number of expired rows not removed yet."""
        rows = sum(len(segment) - self.removed(segment) for segment in segments)
        if reached is None:
            return rows, 0
        live = sum(int(np.count_nonzero(s.ts > reached - self.w_end_us)) for s in segments)
        return live, rows - live

    def _live(self, segment: Segment) -> Bools:
        live: Bools = segment.ts > self.gone[segment.key % self.probe.cells]
        return live

    def _emptied(
        self, indexes: Sequence[CellIndex], rows: Arrivals, reached: int | None, *, every: bool
    ) -> Iterator[tuple[Arrivals, list[Int64s]]]:
        """Remove rows that expire when ``rows`` arrive; yield parts of ``rows``, and their rings' heads."""
        cells = self.probe.cells
        at_once = max(1, _LOOKED_AT_ONCE // cells) if every else max(1, len(rows.cells))
        for begin in range(0, len(rows.cells), at_once):
            part = rows.part(begin, begin + at_once)
            count = len(part.cells)
            if reached is None:
                limits = np.full(count, NOTHING, dtype=np.int64)
            else:
                limits = np.minimum(part.times, reached) - self.w_end_us
            looked = np.zeros(count * cells if every else count, dtype=np.bool_)
            counts = np.zeros(2, dtype=np.int64)
            found = []
            for index in indexes:
                heads = heads_behind(index.times, index.offsets, self.gone)
                first = np.empty(count, dtype=np.int64)
                remove_expired(
                    index.times,
                    index.oldest,
                    index.offsets,
                    heads,
                    part.cells,
                    limits,
                    every,
                    looked,
                    first,
                    counts,
                )
                found.append(first)
            # An empty ring also counts as examined.
            self.counts.looked += int(counts[0]) + int(np.count_nonzero(~looked))
            self.counts.removed += int(counts[1])
            if every:
                np.maximum(self.gone, limits.max(), out=self.gone)
            else:
                np.maximum.at(self.gone, part.cells, limits)
            yield part, found


def _by_age(segments: Sequence[Segment]) -> list[Segment]:
    return sorted(segments, key=lambda s: (s.t_min, s.t_max, int(s.pos[0])))
