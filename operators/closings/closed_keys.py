"""Keys that one side of a family has closed, kept in a bucket until they can no longer affect a result.

Suppose side b has closed key k. No later row of b has k, so rows of a with k have no future partners. Stored
rows of a with k may be removed; new rows of a with k probe, but are not stored. A later row of b with k
breaks the promise.

    b's watermark    ------------------------------------|--------------->
    rows of a with k, all before T         x   x      x  T
                                                         |<-- window on a -->|
                                                                             the closing is forgotten

Let T be an upper bound of the event times of the dropped rows of a, and let w be the window on a. Once b's
watermark has passed T + w, every row of b that could match a dropped row of a is late. So a later row of b
with k is treated as a row of a new key. When k is closed, T is set to the newest event time of either stream,
which all buckets know. Rows of a with k that arrive later may increase T; they are sent to all buckets of k.
So all buckets of k remember the closing for the same time, whichever rows they store, and treat each row in
the same way.

Closings are stored in segments, as rows are (``closing_rows``). If several segments have closings of a key,
the key stays closed while at least one of these closings is remembered. Closings with a time T up to
``floor_us`` count as forgotten, so that segments need not be rewritten to remove them.
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

#: A segment is rewritten if at least one row in this many is dead, which means that its key is closed.
WORTH_A_REWRITE = 4
#: Minimum number of closings between two searches for dead rows, because a search takes time even if it finds
#: none.
LEAST_CLOSINGS = 16
#: Two segments are merged if the older segment has at most this many times the closings of the newer segment.
_MERGED_RATIO = 2
#: Once a side has at least this many times the rows that its last search left in the state, the next search
#: follows after ``LEAST_CLOSINGS`` closings.
_GROWN = 2
#: Approximate number of stored rows that are sampled in each batch to estimate how many have open keys.
_SAMPLE = 1024
_NO_KEYS = np.zeros(0, dtype=np.int64)


def closings_until_search(
    prices: PurgePrices, rows: int, segments: int, closings: int, males: int, killed: float
) -> float:
    """Return the number of closings after which to search the stored rows of a side for dead rows.

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

    Dead rows also take memory. So the result is at most the number of closings after which segments are
    expected to have enough dead rows to be rewritten.

    Args:
        prices: Calibrated prices.
        rows: Number of stored rows of the side.
        segments: Number of segments that contain these rows.
        closings: Number of closings since the last search.
        males: Number of rows of the other side that arrived since the last search.
        killed: Average number of stored rows that become dead with each closing, more than 0.
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
        window_us: Longest window on the other side, µs.
        segments: The closings, older ones first.
        floor_us: Closings with times up to this one, µs, are forgotten; None if no closing is forgotten.
        newest_us: Newest event time that either stream has ever had, µs, even if a watermark has since been
            reset; None before the first row.
        unpurged: Number of closings since the rows of the other side were last searched.
        males: Number of rows of this side that arrived since the last search.
        killed: Average number of rows of the other side that died with each closing before the last search; 1
            before the first search.
        kept: Number of rows of the other side that the last search left in the state, including dead rows.
        discarded: Number of new rows of the other side that were not stored in this batch because their key
            is closed.
        purged: Number of rows of the other side that were removed from the state in this batch because their
            key is closed.
        violating: Number of rows of this side that broke a promise in this batch.
        live: Estimated number of rows of the other side whose key is open at the end of the batch.
        died: Estimated number of rows of the other side whose key is open before the batch and closed after
            it.
        arrived: Number of closings that arrived in this batch.
        dead: Upper bound of the number of stored rows of the other side with closed keys: dead rows left by
            the last search, minus dead rows removed since.
        dead_per_slice: ``dead`` of each slice of the other side, join by join; empty before the first search
            under the plan in force.
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
            # Under the former contract no closing was forgotten, so the times of closings were not kept up to
            # date: the newest event time is an upper bound for each of them.
            self.segments = [Segment(_at(s.rows, self.newest_us), 0, ()) for s in self.segments]
        if former.contract.clustered:
            self.last = former.last

    def closed(self, rows: Segment, layout: SideLayout) -> Bools:
        """Return which rows have a key that is closed and remembered, bool[n].

        Args:
            rows: Rows of either side.
            layout: Layout of the rows.
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
        """Return all remembered closings, merged so that each key occurs once, or None if there are none."""
        parts = [part for part in map(self._remembered, self.segments) if part.num_rows]
        return folded(parts) if parts else None

    def remember(
        self, arrived: pa.RecordBatch | None, newest_us: int, extended: Sequence[pa.RecordBatch]
    ) -> None:
        """Remember the closings of a batch.

        Args:
            arrived: New closings, as returned by ``first_closings``.
            newest_us: Newest event time of either stream so far, µs.
            extended: Closings of keys that were closed earlier, with the event times of the other side's rows
                that have arrived since with these keys.
        """
        parts = [part for part in extended if part.num_rows]
        if arrived is not None and arrived.num_rows:
            self.arrived = arrived.num_rows
            self.unpurged += arrived.num_rows
            arrived = _at(arrived, newest_us)
            # Arrived closings are already merged by key.
            rows = self._folded([*parts, arrived]) if parts else self._stored(arrived)
        elif parts:
            rows = self._folded(parts)
        else:
            return
        self.segments.append(Segment(rows, 0, ()))
        self._merge()

    def count_open(self, held: Sequence[Segment], arrived: pa.RecordBatch | None) -> None:
        """Count the other side's rows with open keys, and the rows whose keys the batch closes.

        Dead rows stay in the state until a search removes them. So the number of removed rows does not show
        how long keys stay open. If there are many rows, only every nth row is counted, n times.

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
        """Update and return ``newest_us``, given the newest event time since a watermark was last reset."""
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
        search suggests, so ``LEAST_CLOSINGS`` closings are enough.

        Args:
            rows: Number of stored rows of the other side.
            segments: Number of segments that contain these rows.
            prices: Prices of searching and probing.
            after: Number of closings after which to search, or None for the cheapest number.
        """
        if after is None and rows < _GROWN * self.kept:
            counts = (rows, segments, self.unpurged, self.males)
            after = closings_until_search(prices, *counts, self.killed)
        return self.unpurged >= (LEAST_CLOSINGS if after is None else after)

    def end_search(self, found: int, left: int, kept: int) -> None:
        """Record the result of a search.

        Args:
            found: Number of dead rows that the search found.
            left: Number of dead rows that stay in the state.
            kept: Number of all rows that stay in the state.
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
        """Replace the closings by the closings of several buckets, merged so that each key occurs once."""
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
        """Merge the newest segments, so that there are few segments and each closing is rarely rewritten."""
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
        late_limit_us: Rows with an earlier event time are late and close no key; None if no row is late.
    """
    if late_limit_us is not None:
        parts = [p.filter(pa.array(p.column(TS).to_numpy() >= late_limit_us)) for p in parts]
    parts = [part for part in parts if part.num_rows]
    return folded(parts) if parts else None


@dataclass(frozen=True, slots=True, eq=False)
class ClosedOpposite:
    """Closings of the other side, which decide in a batch which rows of one side can get no more matches.

    No later row of the other side can match a row whose key the other side has closed:

        key closed before the batch    stored rows were decided when it was closed; new rows are decided now
        key closed by the batch        all rows with the key are decided now

    A closing is remembered until the other side's watermark has passed the rows of its key by the longest
    window. So if a stored row's windows are still open and its key has a remembered closing, the row was
    already decided.

    Attributes:
        closed: Keys that the other side has closed before the batch.
        arrived: Closings that arrived with the batch; None if there are none.
        layout: Layout of the rows.
    """

    closed: ClosedKeys
    arrived: pa.RecordBatch | None
    layout: SideLayout

    def ended(self, rows: Segment, *, fresh: bool) -> Int64s:
        """Return the indices of rows that can get no match after this batch, but could before it.

        Args:
            rows: Rows of one segment.
            fresh: True if the rows are new in this batch; False if they were stored in earlier batches.
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
            places: int64[n], ascending, indices of the rows to check.
        """
        return self.closed.closed(rows.take(places), self.layout)
