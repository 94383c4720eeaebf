"""Sliced window joins (State-Slice, VLDB 2006, §4).

A slice [w_start, w_end) of a contains the rows of a whose distance behind b's watermark is in this range:

      b's watermark                     wm - w_1            wm - w_2
          |  slice 1 [0, w_1)              | slice 2 [w_1, w_2) |  purged
    ------+--------------------------------+--------------------+---------> older

An arriving male of b removes expired rows from a slice (cross-purge), probes the slice, and moves on to the
next slice. A female of a is inserted into slice 1. Even a row that arrives out of order stays in slice 1
until the opposite watermark has passed the row by w_1. So a row's slice gives a lower bound of the row's
distance to every later row: the watermark has passed a row of slice i by at least w_(i-1). The filter of a
slice relies on this bound, but results do not, because every pair's distance is checked.

Invariant: a row is in exactly one slice of its chain, so no pair is made twice.

Source: Definitions 1 to 3, Lemma 1, Figure 9. A row leaves a slice at a distance of w_end, as in the
definitions; Figure 9 prints "> W^end". Unlike in the paper, rows move by segment. A segment whose time span
is at most the slack moves as a whole, and a wider segment is split. A boundary is *lazy*
(``FamilyPlan.lazy_ends``) if the filters stop neither rows nor males there. A segment is not split at a lazy
boundary, but moves when all of its rows may move.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from catalog.values.query import UNBOUNDED_US
from operators.segments.merge import concat, mergeable
from operators.segments.segment import Segment

#: A run of this many neighbouring segments is merged if no segment has most of the run's rows. So every row
#: is rewritten about log_4(rows / rows of a batch) times.
COMPACTION_FANIN = 4
#: Up to this many boundaries, rows are compared with each boundary. With more boundaries, it is faster to
#: sort the times of the rows.
FEW_BOUNDARIES = 16
#: A segment with this many rows is not merged any more, because a segment is stored as one value.
MAX_MERGED_ROWS = 1_000_000


@dataclass(slots=True)
class SliceCounts:
    """Counts of a slice in one batch; ``SliceCounters`` describes the fields of the same names."""

    touched: int = 0
    product: int = 0
    males: int = 0
    inserted: int = 0
    moved_in: int = 0
    filtered: int = 0
    purged: int = 0
    made: int = 0
    results: int = 0
    left: int = 0
    discarded: int = 0
    closed: int = 0
    again: int = 0
    partials: int = 0


@dataclass(slots=True)
class SliceState:
    """One sliced window of one side, with its segments and its counters of this batch.

    Attributes:
        w_start_us: Start of the slice's window, inclusive, µs.
        w_end_us: End of the slice's window, exclusive, µs.
        reach: Set of the queries whose window on this side goes beyond ``w_start_us``.
        segments: The rows, as segments in no fixed order.
        counts: Counters of this batch.
    """

    w_start_us: int
    w_end_us: int
    reach: int
    segments: list[Segment] = field(default_factory=list)
    counts: SliceCounts = field(default_factory=SliceCounts)

    @property
    def rows(self) -> int:
        """Number of rows stored in this slice, including rows that should have moved to later slices."""
        return sum(len(segment) for segment in self.segments)


def purge(
    state: SliceState,
    watermark_us: int,
    slack_us: int,
    end_of: Callable[[Segment], int] | None = None,
    *,
    drop: bool = False,
) -> list[Segment]:
    """Cross-purge: remove the rows that the opposite watermark has passed by the end of the slice's window.

    Args:
        state: The slice. Its segments change.
        watermark_us: Opposite watermark, µs.
        slack_us: A segment whose time span is at most this leaves only as a whole, once the watermark has
            passed all of its rows, µs.
        end_of: Returns the end at which to split a segment: the slice's end or the end of a later slice.
            None: all segments are split at the slice's end.
        drop: Whether leaving rows are discarded. If so, they are not copied, which saves time because usually
            most rows of a segment leave at once.

    Returns:
        Segments of leaving rows, which all satisfy T + w_end <= watermark. Empty if ``drop`` is true.
    """
    limit = watermark_us - state.w_end_us
    staying, leaving = [], []
    for segment in state.segments:
        if segment.t_max <= limit:
            leaving.append(segment)
            continue
        if segment.t_min > limit or segment.t_max - segment.t_min <= slack_us:
            staying.append(segment)
            continue
        passed = limit if end_of is None else watermark_us - end_of(segment)
        if segment.t_min <= passed:
            if not drop:
                leaving.append(segment.cut(segment.t_min, passed + 1))
            segment = segment.cut(passed + 1, segment.t_max + 1)
        staying.append(segment)
    state.segments = staying
    return [] if drop else leaving


def count_per_slice(ends_us: Sequence[int], segment: Segment, watermark_us: int) -> list[int]:
    """Count the rows of a segment per slice, by their distance behind the opposite watermark.

    Args:
        ends_us: Ends of the slices, ascending, µs. Rows beyond the last end count in the last slice, and rows
            ahead of the watermark count in the first slice.
        segment: The rows.
        watermark_us: Opposite watermark, µs.
    """
    counts = [0] * len(ends_us)
    inner = ends_us[:-1]
    first = bisect_right(inner, watermark_us - segment.t_max)
    last = bisect_right(inner, watermark_us - segment.t_min)
    if last - first > FEW_BOUNDARIES:
        passed = segment.behind(watermark_us - np.array(inner[first:last]))
        counts[first : last + 1] = np.diff(len(segment) - passed, prepend=0, append=len(segment)).tolist()
        return counts
    below = 0
    for number in range(first, last):
        so_far = int(np.count_nonzero(segment.ts > watermark_us - inner[number]))
        counts[number] = so_far - below
        below = so_far
    counts[last] = len(segment) - below
    return counts


def compact(
    state: SliceState,
    slack_us: int,
    live: Collection[int] | None = None,
    without_dead: Callable[[Segment], Segment | None] | None = None,
) -> None:
    """Merge runs of small neighbouring segments if the merged segment's time span is at most the slack.

    In an unbounded slice, rows never cross a boundary, so the slack does not matter, and only size limits a
    merge.

    Args:
        state: The slice. Its segments change.
        slack_us: Maximum time span of a merged segment, µs.
        live: Lineage bits that a query may still need. Other bits do not prevent a merge of segments that
            differ in them. None: all bits are needed.
        without_dead: Returns the rows of a merged segment that stay, or None if none stays. By default, all
            rows stay.
    """
    if len(state.segments) < COMPACTION_FANIN:
        return
    if state.w_end_us >= UNBOUNDED_US:
        slack_us = UNBOUNDED_US
    ordered = sorted(state.segments, key=lambda s: (s.t_min, s.t_max, s.first_pos))
    result: list[Segment] = []
    run: list[Segment] = []

    def close() -> None:
        # Leave out each segment, largest first, that would have most of the merged rows.
        small = sorted(run, key=len)
        while small and (
            len(small[-1]) >= MAX_MERGED_ROWS or 2 * len(small[-1]) > sum(len(segment) for segment in small)
        ):
            result.append(small.pop())
        if len(small) >= COMPACTION_FANIN:
            merged: Segment | None = concat(small, live)
            if merged is not None and without_dead is not None:
                merged = without_dead(merged)
            result.extend([] if merged is None else [merged])
        else:
            result.extend(small)
        run.clear()

    for segment in ordered:
        if run:
            t_min = run[0].t_min
            t_max = max(s.t_max for s in run)
            if max(t_max, segment.t_max) - t_min > slack_us or not mergeable(run[0], segment, live):
                close()
        run.append(segment)
    if run:
        close()
    state.segments = result
