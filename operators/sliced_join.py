"""Sliced window joins (State-Slice, VLDB 2006, section 4).

A slice [w_start, w_end) of a holds the rows of a that far behind b's watermark:

      b's watermark                     wm - w_1            wm - w_2
          |  slice 1 [0, w_1)              | slice 2 [w_1, w_2) |  purged
    ------+--------------------------------+--------------------+---------> older

An arriving male of b cross-purges, probes, then propagates to the next slice; a female of a is inserted into slice 1. Out
of order a row rests in slice 1 until the opposite watermark has passed it by w_1, so the slice that
holds a row tells a lower bound of its distance to every row still to come: rows of slice i have been
passed by w_(i-1). That bound, not an answer, is what the slice's filter rests on.

Invariant: a row rests in exactly one slice of its chain, so no pair is made twice.
Source: Definitions 1 and 2, Figures 5 and 6. Rows move by segment: a segment whose span is below the slack moves as a
whole, a wider one is split at the boundary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from operators.keys import Int64s
from operators.segment import Segment, concat, mergeable

#: Candidate pairs expanded at once; bounds memory when one key has very many rows.
MAX_PAIRS_AT_ONCE = 2_000_000
#: A run of neighbouring segments is merged when it is so long and no member holds most of its rows, so
#: that every row is rewritten about log_4(rows / rows of a batch) times.
COMPACTION_FANIN = 4


@dataclass(slots=True)
class SliceCounts:
    """What a slice did in one batch; see ``catalog.values.batch.SliceCounters``."""

    touched: int = 0
    males: int = 0
    inserted: int = 0
    moved_in: int = 0
    filtered: int = 0
    purged: int = 0
    results: int = 0


@dataclass(slots=True)
class SliceState:
    """One sliced window of one side: its segments and what it did in this batch.

    Attributes:
        w_start_us: Start of the window, inclusive.
        w_end_us: End, exclusive.
        reach: Set of the queries whose window on this side goes beyond ``w_start_us``.
        segments: Rows held, in no set order.
        counts: Counters of this batch.
    """

    w_start_us: int
    w_end_us: int
    reach: int
    segments: list[Segment] = field(default_factory=list)
    counts: SliceCounts = field(default_factory=SliceCounts)

    @property
    def rows(self) -> int:
        """Rows held."""
        return sum(len(segment) for segment in self.segments)


def purge(state: SliceState, watermark_us: int, slack_us: int) -> list[Segment]:
    """Cross-purge: take out what the opposite watermark has passed by the slice's end.

    Args:
        state: The slice; its segments change.
        watermark_us: Opposite watermark.
        slack_us: A segment that spans at most so much stays until all of it has been passed.

    Returns:
        Segments whose rows all satisfy T + w_end <= watermark.
    """
    limit = watermark_us - state.w_end_us
    staying, leaving = [], []
    for segment in state.segments:
        if segment.t_max <= limit:
            leaving.append(segment)
        elif segment.t_min <= limit and segment.t_max - segment.t_min > slack_us:
            passed = segment.ts <= limit
            leaving.append(segment.filter(passed))
            staying.append(segment.filter(~passed))
        else:
            staying.append(segment)
    state.segments = staying
    return leaving


def probe(female: Segment, males: Segment) -> Iterator[tuple[Int64s, Int64s]]:
    """Find the pairs of equal key between a slice's segment and probing males.

    Args:
        female: Rows of the slice, by key.
        males: Probing rows of the opposite stream, by key.

    Yields:
        Row of ``female`` and row of ``males`` of each candidate, int64[n] each, in chunks.
    """
    if not len(female) or not len(males):
        return
    first = np.searchsorted(female.key, males.key, side="left")
    inside = first < len(female)
    hit = np.flatnonzero(inside)
    hit = hit[female.key[first[hit]] == males.key[hit]]
    if not len(hit):
        return
    first = first[hit]
    count = np.searchsorted(female.key, males.key[hit], side="right") - first
    ends = np.cumsum(count)
    begin = 0
    while begin < len(hit):
        # At least one male at a time, as many as fit otherwise.
        done = int(ends[begin - 1]) if begin else 0
        stop = max(int(np.searchsorted(ends, done + MAX_PAIRS_AT_ONCE, side="right")), begin + 1)
        part = count[begin:stop]
        offsets = np.cumsum(part) - part
        male_rows = np.repeat(hit[begin:stop], part)
        female_rows = np.arange(len(male_rows)) + np.repeat(first[begin:stop] - offsets, part)
        yield female_rows, male_rows
        begin = stop


def compact(state: SliceState, slack_us: int) -> None:
    """Merge runs of small neighbouring segments as long as the merged span stays within the slack."""
    if len(state.segments) < COMPACTION_FANIN:
        return
    ordered = sorted(state.segments, key=lambda s: (s.t_min, s.t_max, int(s.pos[0])))
    result: list[Segment] = []
    run: list[Segment] = []

    def close() -> None:
        # Leave out, largest first, what would make up most of the merged rows.
        small = sorted(run, key=len)
        while small and 2 * len(small[-1]) > sum(len(segment) for segment in small):
            result.append(small.pop())
        if len(small) >= COMPACTION_FANIN:
            result.append(concat(small))
        else:
            result.extend(small)
        run.clear()

    for segment in ordered:
        if run:
            t_min = run[0].t_min
            t_max = max(s.t_max for s in run)
            if max(t_max, segment.t_max) - t_min > slack_us or not mergeable(run[0], segment):
                close()
        run.append(segment)
    if run:
        close()
    state.segments = result
