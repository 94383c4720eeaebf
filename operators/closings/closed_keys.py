"""Keys that one side of a family has closed, in one bucket, until they can no longer affect a result.

Suppose side b has closed key k. No later row of b has k, so rows of a with k have no future partners. Stored
rows of a with k may be removed; new rows of a with k probe, but are not stored. A later row of b with k
breaks the promise.

    b's watermark    ------------------------------------|--------------->
    rows of a with k, all before T         x   x      x  T
                                                         |<-- window on a -->|
                                                                             the closing is forgotten

Let w be the window on a. Once b's watermark has passed T + w, every row of b that could match a dropped row
of a is late. So a later row of b with k is treated as a row of a new key. T is an upper bound of the event
times of the dropped rows of a. For rows stored before k was closed, T is set to the newest event time of a at
that moment, which all buckets know. Rows of a that arrive after the closing are sent to all buckets of the
key. So all buckets of a key remember the closing for the same time, whichever rows they store, and treat each
row in the same way.

Closings are stored in segments, as rows are (``closing_rows``). A key may be in several segments: it stays
closed while one of its closings is remembered. Closings up to ``floor_us`` count as forgotten, so segments
need not be rewritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, sqrt

import numpy as np
import pyarrow as pa

from catalog.times.durations import MIN_TIME_US
from catalog.values.policies.punctuation_policy import PurgePrices
from catalog.values.query import UNBOUNDED_US
from operators.closings.closing_rows import (
    as_stored,
    closed_numbers,
    collapsed,
    folded,
    known,
    matching,
)
from operators.closings.contract import SideContract
from operators.kernels.keys import Bools, Int64s
from operators.segments.encoding.row_codec import TS
from operators.segments.layout import SideLayout
from operators.segments.segment import Segment

#: A segment is rewritten if at least one row in this many is dead.
WORTH_A_REWRITE = 4
#: Minimum number of closings between two searches of the stored rows, since a search takes time even if it
#: finds nothing.
LEAST_CLOSINGS = 16
#: Two segments are merged unless the older one has more than this many times the closings of the newer one.
_MERGED_RATIO = 2
#: Rows are searched early once there are at least this many times the rows that the last search left.
_GROWN = 2
#: Approximate number of stored rows per batch that are sampled to count rows with open keys.
_SAMPLE = 1024
_NO_KEYS = np.zeros(0, dtype=np.int64)


def closings_until_search(
    prices: PurgePrices, rows: int, segments: int, closings: int, males: int, killed: float
) -> float:
    """Return the number of closings after which to search the rows of a side.

    Dead rows are rows whose key is closed. Until a search removes them, rows of the other side (males) are
    compared with dead rows, too:

        dead rows   rn |      /|      /|
                       |    /  |    /  |
                       |  /    |  /    |
                       |/      |/      |
                       +-------n------2n-->  closings

    Let λ_p closings and λ_m males arrive per second, let r stored rows die with each closing, and let a
    search cost c_scan for each of |S| stored rows. With a search after every n closings, the searches cost
    c_scan |S| λ_p / n per second. On average there are r (n - 1) / 2 dead rows, and each costs c_probe λ_m
    per second. The sum is least at

        n = sqrt(2 c_scan |S| λ_p / (c_probe λ_m r))

    Both rates are measured over the same period, so the counts of this period can replace them. If males are
    merged with segments, a male has the same cost per segment, regardless of the segment's number of rows.
    Then c_probe is this cost for all segments, divided by |S|.

    Dead rows also take memory. So the result is the smaller of n and the number of closings after which so
    many rows may be dead that segments are rewritten.

    Args:
        prices: Calibrated prices.
        rows: Number of stored rows of the side.
        segments: Number of segments that contain these rows.
        closings: Closings since the last search.
        males: Rows of the other side since the last search.
        killed: Number of stored rows that die with a closing, more than 0.
    """
    if not rows:
        return LEAST_CLOSINGS
    probing = (prices.per_probed_row + prices.per_probed_segment * segments / rows) * males * killed
    cheapest = sqrt(2 * prices.per_searched_row * rows * closings / probing) if probing else inf
    return max(LEAST_CLOSINGS, min(cheapest, rows / (WORTH_A_REWRITE * killed)))


@dataclass(slots=True, eq=False)
class ClosedKeys:
    """Keys that a side has closed.

    Attributes:
        contract: Contract of the side.
        layout: Layout of the side.
        window_us: Longest window on the other side.
        segments: The closings, older ones first.
        floor_us: Closings up to this time are forgotten; None if nothing is forgotten.
        newest_us: Newest event time of either stream ever, even if a watermark has since been reset.
        unpurged: Closings since the rows of the other side were last searched.
        males: Rows of this side since the last search.
        killed: Average number of rows of the other side that died with each closing before the last search; 1
            before the first search.
        kept: Rows of the other side that the last search left in the state, including dead rows.
        discarded: New rows of the other side that were not stored in this batch because their key is closed.
        purged: Rows of the other side that were removed from the state in this batch because their key is
            closed.
        violating: Rows of this side that broke a promise in this batch.
        live: Estimated number of rows of the other side whose key is open at the end of the batch.
        died: Estimated number of rows of the other side whose key is open before the batch and closed after
            it.
        arrived: Closings of this batch.
        dead: Upper bound of the number of stored rows of the other side with closed keys: dead rows left by
            the last search, less the dead rows that have left since.
        dead_per_slice: The same upper bound for each slice of the other side, join by join; empty before the
            first search under the plan in force.
        last: Last row of a clustered side, as an edge (``clustered_closings``); None before the first row.
    """

    contract: SideContract
    layout: SideLayout
    window_us: int
    segments: list[Segment] = field(default_factory=list)
    floor_us: int | None = None
    newest_us: int | None = None
    unpurged: int = 0
    males: int = 0
    killed: float = 1.0
    kept: int = 0
    discarded: int = 0
    purged: int = 0
    violating: int = 0
    live: int = 0
    died: int = 0
    arrived: int = 0
    dead: int = 0
    dead_per_slice: list[int] = field(default_factory=list)
    last: pa.RecordBatch | None = None

    @property
    def lasts(self) -> bool:
        """Return whether closings are remembered forever."""
        return self.contract.remember_us is None or self.window_us >= UNBOUNDED_US

    def begin_batch(self) -> None:
        """Reset the counters of the batch."""
        self.discarded = self.purged = self.violating = self.arrived = self.live = self.died = 0

    def take_over(self, former: ClosedKeys) -> None:
        """Take over the closings that were remembered under the previous plan version."""
        self.segments, self.floor_us, self.newest_us = former.segments, former.floor_us, former.newest_us
        self.unpurged, self.males, self.killed = former.unpurged, former.males, former.killed
        self.dead, self.kept = former.dead, former.kept
        if former.lasts and not self.lasts and self.newest_us is not None:
            # The former contract forgot nothing, so it did not extend the times of closings.
            self.segments = [Segment(_at(s.rows, self.newest_us), 0, ()) for s in self.segments]
        if former.contract.clustered:
            self.last = former.last

    def closed(self, rows: Segment, layout: SideLayout) -> Bools:
        """Return which rows have a key that is closed and remembered, bool[n].

        Args:
            rows: Rows of either side.
            layout: Their layout.
        """
        found = np.zeros(len(rows), dtype=np.bool_)
        for segment in self.segments:
            found |= matching(rows, layout, self._remembered(segment))
        return found

    def remembers(self, closings: pa.RecordBatch) -> Bools:
        """Return which closings have a key that is closed and remembered, bool[n]."""
        found = np.zeros(closings.num_rows, dtype=np.bool_)
        for segment in self.segments:
            found |= known(closings, self._remembered(segment), self.layout.key_types)
        return found

    def all_remembered(self) -> pa.RecordBatch | None:
        """Return all remembered closings, merged so that each key occurs once; None if there are none."""
        parts = [part for part in map(self._remembered, self.segments) if part.num_rows]
        return folded(parts) if parts else None

    def remember(
        self, arrived: pa.RecordBatch | None, newest_us: int, extended: Sequence[pa.RecordBatch]
    ) -> None:
        """Take over the closings of a batch.

        Args:
            arrived: New closings, as returned by ``first_closings``.
            newest_us: Newest event time of either stream so far.
            extended: Closings of keys closed earlier, with the times of the other side's rows that have
                arrived since.
        """
        parts = [part for part in extended if part.num_rows]
        if arrived is not None and arrived.num_rows:
            self.arrived = arrived.num_rows
            self.unpurged += arrived.num_rows
            arrived = _at(arrived, newest_us)
            # Arrived closings are folded already.
            rows = self._folded([*parts, arrived]) if parts else self._stored(arrived)
        elif parts:
            rows = self._folded(parts)
        else:
            return
        self.segments.append(Segment(rows, 0, ()))
        self._merge()

    def count_open(self, held: Sequence[Segment], arrived: pa.RecordBatch | None) -> None:
        """Count the other side's rows with open keys, and the rows whose keys the batch closes.

        Dead rows stay in the state until they are removed. So the counts of removed rows do not tell how long
        keys stay open. If there are many rows, only every nth row is checked.

        Args:
            held: Stored rows of the other side.
            arrived: Closings of the batch, which are not remembered yet.
        """
        step = sum(map(len, held)) // _SAMPLE + 1
        sample, first = [_NO_KEYS], step // 2
        for segment in held:
            sample.append(segment.key[first::step])
            first = (first - len(segment)) % step
        keys = np.sort(np.concatenate(sample))
        for segment in self.segments:
            keys = keys[~closed_numbers(keys, self._remembered(segment))]
        dying = 0 if arrived is None else int(np.count_nonzero(closed_numbers(keys, arrived)))
        self.live += (len(keys) - dying) * step
        self.died += dying * step

    def see(self, newest_us: int | None) -> int:
        """Return the newest event time of either stream ever, given the current newest time."""
        if self.newest_us is None and newest_us is not None:
            # Closings remembered before the first row get the newest event time of the first batch with rows.
            self.segments = [Segment(_at(segment.rows, newest_us), 0, ()) for segment in self.segments]
        times = [time for time in (newest_us, self.newest_us) if time is not None]
        self.newest_us = max(times, default=None)
        return MIN_TIME_US if self.newest_us is None else self.newest_us

    def forget(self, watermark_us: int | None) -> None:
        """Forget closings that can no longer affect a result.

        Args:
            watermark_us: Watermark of the side.
        """
        if watermark_us is None or self.lasts:
            return
        floor_us = watermark_us - max(self.window_us, self.contract.remember_us or 0)
        self.floor_us = floor_us if self.floor_us is None else max(floor_us, self.floor_us)
        self.segments = [s for s in self.segments if s.t_max > self.floor_us]

    def is_search_due(
        self, rows: int, segments: int, prices: PurgePrices, after: float | None = None
    ) -> bool:
        """Return whether the other side's rows should be searched for dead rows now.

        If the number of rows has grown much since the last search, there may be more dead rows than that
        search suggests.

        Args:
            rows: Number of these rows.
            segments: Number of segments that contain these rows.
            prices: Prices of searching and probing.
            after: Number of closings after which to search; None: the cheapest number.
        """
        if after is None and rows < _GROWN * self.kept:
            counts = (rows, segments, self.unpurged, self.males)
            after = closings_until_search(prices, *counts, self.killed)
        return self.unpurged >= (LEAST_CLOSINGS if after is None else after)

    def end_search(self, found: int, left: int, kept: int) -> None:
        """Record the result of a search.

        Args:
            found: Dead rows.
            left: Dead rows that stay in the state.
            kept: All rows that stay in the state.
        """
        # Add one to both counts, so that a search that finds no dead rows does not put off the next search
        # forever.
        self.killed = (max(found - self.dead, 0) + 1) / (self.unpurged + 1)
        self.unpurged = self.males = 0
        self.dead, self.kept = left, kept

    def lose(self, removed: Sequence[int]) -> None:
        """Record the dead rows that left the state without a search, while slices were processed.

        Args:
            removed: Number of rows that left each slice of the other side, join by join.
        """
        count = sum(removed)
        self.purged += count
        self.dead = max(self.dead - count, 0)
        if self.dead_per_slice:
            left = zip(self.dead_per_slice, removed, strict=True)
            self.dead_per_slice = [max(dead - gone, 0) for dead, gone in left]

    @property
    def remembered(self) -> int:
        """Number of closings that are remembered."""
        return sum(self._remembered(segment).num_rows for segment in self.segments)

    def rehash(self, closings: Sequence[Segment]) -> None:
        """Take over closings of other buckets, merging duplicates."""
        kept = [part for part in map(self._remembered, closings) if part.num_rows]
        self.segments = [Segment(self._folded(kept), 0, ())] if kept else []

    def _folded(self, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        return self._stored(folded(parts))

    def _stored(self, closings: pa.RecordBatch) -> pa.RecordBatch:
        return as_stored(collapsed(closings, whenever=self.lasts))

    def _remembered(self, segment: Segment) -> pa.RecordBatch:
        if self.floor_us is None or segment.t_min > self.floor_us:
            return segment.rows
        return segment.rows.filter(pa.array(segment.ts > self.floor_us))

    def _merge(self) -> None:
        """Merge the newest segments, to keep segments few and to rewrite each closing rarely."""
        while len(self.segments) > 1:
            older, newer = self.segments[-2:]
            if len(older) > _MERGED_RATIO * len(newer):
                return
            kept = [part for part in map(self._remembered, (older, newer)) if part.num_rows]
            self.segments[-2:] = [Segment(self._folded(kept), 0, ())] if kept else []


def _at(closings: pa.RecordBatch, time_us: int) -> pa.RecordBatch:
    """Return closings with all times set to one value."""
    times = pa.array(np.full(closings.num_rows, time_us, dtype=np.int64))
    return closings.set_column(closings.schema.names.index(TS), TS, times)


def first_closings(parts: Sequence[pa.RecordBatch], late_limit_us: int | None) -> pa.RecordBatch | None:
    """Return a batch's closings sorted by (key, position), each key with its first position.

    Args:
        parts: Closings from all partitions.
        late_limit_us: Rows with an earlier event time are late and close nothing.
    """
    if late_limit_us is not None:
        parts = [p.filter(pa.array(p.column(TS).to_numpy() >= late_limit_us)) for p in parts]
    parts = [part for part in parts if part.num_rows]
    return folded(parts) if parts else None


@dataclass(frozen=True, slots=True, eq=False)
class ClosedOpposite:
    """Closings of the other side, as seen by the rows of one side in a batch.

    No later row of the other side can match rows whose key it has closed:

        key closed before the batch    stored rows were decided in the batch that closed it, new rows are now
        key closed by the batch        all of its rows are decided now

    A closing is remembered until the other side's watermark has passed the rows of its key by the longest
    window. So if a stored row's windows are still open and its key has a remembered closing, the row was
    already decided.

    Attributes:
        closed: Keys that the other side has closed before the batch.
        arrived: Closings that arrived with the batch, or None.
        layout: Layout of the rows.
    """

    closed: ClosedKeys
    arrived: pa.RecordBatch | None
    layout: SideLayout

    def ended(self, rows: Segment, *, fresh: bool) -> Int64s:
        """Return the indices of rows that can get no match after this batch, but could before it.

        Args:
            rows: Rows of one segment.
            fresh: Whether the rows are new in this batch.
        """
        if fresh:
            found = self.closed.closed(rows, self.layout)
            if self.arrived is not None:
                found |= matching(rows, self.layout, self.arrived)
            return np.flatnonzero(found)
        if self.arrived is None:
            return _NO_KEYS
        places = np.flatnonzero(matching(rows, self.layout, self.arrived))
        return places[~self.ended_before(rows, places)] if len(places) else places

    def ended_before(self, rows: Segment, places: Int64s) -> Bools:
        """Return which stored rows could get no further match even before the batch, bool[n].

        Args:
            rows: Rows of one segment.
            places: int64[n], ascending, indices of these rows.
        """
        return self.closed.closed(rows.take(places), self.layout)
