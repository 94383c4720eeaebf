"""Rows of a leading stream that wait on disk until partners may arrive (Disk-Buffer First, DBF).

    a leads b           newest of b
                             |
    clock of a   ----------- | ------------------------------------------->
                 slices      | closed      closed      closed      tail
                 (memory)    | (manifest)  (manifest)  (manifest)  (memory)

A row of a whose clock is beyond the newest value of b has no partner yet. When such a row arrives, it probes,
finds nothing, and is then *parked*. Once enough rows are parked, they are written as segments that cover
consecutive ranges of the clock. Such a segment is *closed*: the manifest has its name, its number of rows and
its range, but its rows are neither read nor kept in memory. A closed segment is opened in the batch in which
a row of b reaches its range. Then its rows enter the first slice, before the rows of b probe.

At most C rows without partners may be in memory. A closed segment has C/2 rows, all of which are read when it
is opened. The tail has the newest rows, up to another C/2, which are not written yet.

Invariant: no row of the other stream that has already arrived can match a parked row. So parking neither
changes nor delays results.

Source: Window-Oblivious Join (Wu, Tan, Zhou), §4.2. As in the paper, a row of the lagging stream triggers
    reading parked rows. Unlike in the paper, rows are read segment by segment. A parked row stays on disk for
    at least one batch, which is longer than the paper's threshold for parking a row, three disk accesses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from operators.segments.merge import concat_alike
from operators.segments.segment import Segment
from operators.waiting.waiting_rows import WaitingRows

#: Maximum number of segments into which the rows parked in one batch are cut.
_MOST_PIECES: Final = 64


@dataclass(frozen=True, slots=True)
class ClosedSegment:
    """A stored segment that is not in memory.

    Attributes:
        id: Name of the segment (``operators.segments.encoding.view_names``).
        rows: Number of rows in the segment.
        t_min: Least clock of these rows.
        t_max: Greatest clock of these rows.
        values: Stored id and length of every stored value of the segment.
    """

    id: str
    rows: int
    t_min: int
    t_max: int
    values: tuple[tuple[str, int], ...]


@dataclass(slots=True)
class ParkingCounts:
    """Counts of one side in one batch, named as in ``MemoryCounters``."""

    closed: int = 0
    opened: int = 0
    opened_rows: int = 0


def _not_loaded(segment_id: str) -> Segment:
    raise LookupError(f"segment {segment_id} is closed, and no function that opens it is set")


@dataclass(slots=True, eq=False)
class ParkedRows:
    """Parked rows of one side of a family in one bucket.

    Attributes:
        reach: Window of the other side: a row of the other side matches rows of this side that are less than
            this distance ahead of it.
        read_ahead: C: maximum number of rows in memory that have no partner yet.
        closed: Closed segments, in no fixed order.
        segments: Segments to be closed once they are stored.
        tail: Newest parked rows, too few to be written yet.
        load: Function that opens a closed segment, given its name.
        counts: Counts of this batch.
    """

    reach: int
    read_ahead: int
    closed: list[ClosedSegment] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    tail: WaitingRows = field(default_factory=WaitingRows)
    load: Callable[[str], Segment] = _not_loaded
    counts: ParkingCounts = field(default_factory=ParkingCounts)

    @property
    def rows(self) -> int:
        """Number of parked rows."""
        return self.closed_rows + sum(len(s) for s in self.segments) + self.tail.rows

    @property
    def closed_rows(self) -> int:
        """Number of rows in closed segments."""
        return sum(segment.rows for segment in self.closed)

    def due(self, newest: int | None) -> list[Segment]:
        """Remove and return the parked rows that rows of the other stream may match from now on.

        Args:
            newest: Greatest clock of the other stream's rows; None before the first of these rows.
        """
        self.counts = ParkingCounts()
        if newest is None:
            return []
        beyond = newest + self.reach
        going = [segment for segment in self.closed if segment.t_min < beyond]
        if going:
            self.closed = [segment for segment in self.closed if segment.t_min >= beyond]
        self.counts.opened = len(going)
        self.counts.opened_rows = sum(segment.rows for segment in going)
        opened = [self.load(segment.id) for segment in going]
        opened += [segment for segment in self.segments if segment.t_min < beyond]
        self.segments = [segment for segment in self.segments if segment.t_min >= beyond]
        return [*opened, *self.tail.released(beyond)]

    def park(self, rows: Segment | None, newest: int | None) -> Segment | None:
        """Park the new rows beyond the reach of the other stream, and return the remaining rows.

        Args:
            rows: New rows that are stored in this bucket.
            newest: Greatest clock of the other stream's rows; None before the first of these rows.
        """
        if rows is None or not len(rows):
            return None
        if newest is None or rows.t_min >= newest + self.reach:
            self.tail.segments.append(rows)
            return None
        beyond = newest + self.reach
        if rows.t_max < beyond:
            return rows
        ahead = rows.ts >= beyond
        self.tail.segments.append(rows.filter(ahead))
        return rows.filter(~ahead)

    def settle(self, buckets: int, live: Collection[int]) -> None:
        """Turn the tail into segments once it has enough rows.

        Args:
            buckets: Number of buckets, which share the limit on rows in memory.
            live: Lineage bits that a query may still need.
        """
        rows = self.tail.rows
        enough = max(self.read_ahead // (2 * buckets), 1)
        if rows < enough:
            self.tail.merge()
            return
        parts = sorted(self.tail.segments, key=lambda s: int(s.pos[0]))
        self.tail.segments = []
        # Rows packed under plan versions with different filters are not merged, so that no bit is lost.
        for whole in concat_alike(parts, live):
            self.segments += _pieces(whole, min(len(whole) // enough, _MOST_PIECES))

    def close(self) -> None:
        """Drop the rows of stored segments from memory; the segments become closed."""
        for segment in self.segments:
            self.closed.append(
                ClosedSegment(segment.id, len(segment), segment.t_min, segment.t_max, segment.values)
            )
        self.counts.closed = len(self.segments)
        self.segments = []

    def opened(self) -> Iterator[Segment]:
        """Yield all parked rows, segment by segment, without changing the state."""
        for closed in self.closed:
            yield self.load(closed.id)
        yield from self.segments
        yield from self.tail.segments

    def take_over(self, former: ParkedRows) -> None:
        """Continue with the rows that were parked under the previous plan version."""
        self.closed, self.segments = [*former.closed], [*former.segments]
        self.tail.segments = [*former.tail.segments]
        self.load = former.load


def _pieces(rows: Segment, number: int) -> list[Segment]:
    """Cut rows into about ``number`` segments with consecutive ranges of the clock."""
    if number < 2:
        return [rows]
    ordered = np.sort(rows.ts)
    starts = np.unique(ordered[np.arange(number) * len(ordered) // number])
    ends = [*starts[1:].tolist(), rows.t_max + 1]
    return [rows.cut(start, end) for start, end in zip(starts.tolist(), ends, strict=True)]
