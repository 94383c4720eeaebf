"""Expected number of segments in a chain's slices, which drives the engine's cost per batch.

The rows of a batch arrive as one segment. In every batch, each segment is probed, maintained and listed once.
Segments that together span no more than the slack, 1/40 of the join's largest window, may be merged and may
straddle a slice boundary. So their number depends on whether a batch covers more event time than the slack:

    batch > slack      never merged; cut at boundaries where rows or males stop, if longer than the slack
    batch <= slack     never cut; merged once four neighbours span no more than the slack

Source: ``purge`` and ``compact`` of ``operators.slices.sliced_join``; their rules are applied here to time
    spans.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

_Floats = np.ndarray[tuple[int], np.dtype[np.float64]]
_Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
#: The batches whose rows a segment holds: number of the first batch, and number after the last batch.
_Span = tuple[int, int]

#: Must equal the values in ``operators.join.compiled_family`` and ``operators.slices.sliced_join``; a test
#: checks this.
SLACK_DIVISOR = 40
COMPACTION_FANIN = 4

#: Maximum number of batches per slack to simulate. With four times as many, the merging pattern is the same.
_MOST_BATCHES = 64
#: Density of segments below full size at age x, times x: an approximation of merging four segments at a time.
_YOUNG = 1.2
#: Two cuts closer than this fraction of a batch count as one; about the time from the watermark to the end of
#: a batch.
_NEAR = 1e-3
#: Fraction of cuts that remain; merging undoes all other cuts (mean over random chains of up to 20 slices).
_KEPT = 0.85


@dataclass(frozen=True, slots=True)
class SegmentRule:
    """Rules by which segments of one chain are created, cut and merged.

    Attributes:
        batch_s: Event time that a batch covers, seconds.
        slack_s: Span in seconds within which segments are merged and not cut; infinite if there is no limit.
        filled: Fraction of batches that have rows for a bucket.
    """

    batch_s: float
    slack_s: float
    filled: float = 1.0

    # Any: a number, or an array of numbers for several slices at once; numpy computes with both alike.
    def held(self, start_s: Any, end_s: Any, cuts: Any, takes: Any = True) -> Any:
        """Return the mean number of segments in a slice of one bucket.

        Args:
            start_s: Start of the slice, seconds.
            end_s: End of the slice, seconds.
            cuts: Number of cuts through the segment of a batch at the start of the slice (``cuts``).
            takes: Whether some rows or males go no further than the end of the slice.
        """
        if self.slack_s < self.batch_s:
            return self.filled * self._cut(start_s, end_s, cuts, takes)
        if self.slack_s < COMPACTION_FANIN * self.batch_s:
            return self.filled * (end_s - start_s) / self.batch_s
        return self.filled * (self._merged(end_s) - self._merged(start_s))

    def passing_per_s(self, boundary_s: Any, cuts: Any) -> Any:
        """Return the number of segments of one bucket that pass a boundary per second.

        Args:
            boundary_s: The boundary, seconds.
            cuts: Number of cuts through the segment of a batch at the boundary.
        """
        if self.slack_s < COMPACTION_FANIN * self.batch_s:
            return self.filled * (_KEPT * cuts + 1.0) / self.batch_s
        return self.filled * np.clip(_YOUNG / boundary_s, self._grown_per_s, 1.0 / self.batch_s)

    @property
    def rewritten(self) -> float:
        """Expected number of times that a stored row is rewritten; every merge rewrites its rows."""
        return merging(self._batches)[1] if self._batches >= COMPACTION_FANIN else 0.0

    def cuts(self, boundaries_s: _Floats, takes: Sequence[bool] | None = None) -> _Ints:
        """Return, per boundary, how often it and the boundaries before it cut a batch; 0 for boundary 0.

        Args:
            boundaries_s: Boundaries from 0, seconds.
            takes: For each boundary, whether some rows or males stop there; only such a boundary cuts. None
                if some stop at every boundary.

        Boundaries whose difference is a whole number of batches cut a batch at the same place. A boundary at
        the end of a batch cuts the batch, too, because rows are purged by the watermark of the opposite
        stream, which is a little earlier than the end of the batch.
        """
        if self.slack_s >= self.batch_s:
            return np.zeros(len(boundaries_s), dtype=np.int64)
        slack = self.slack_s / self.batch_s
        places, counts = [0.0, 1.0], [0]
        taking = [True] * len(boundaries_s) if takes is None else takes
        for boundary, takes_rows in zip(
            (boundaries_s[1:] / self.batch_s % 1.0).tolist(), taking[1:], strict=True
        ):
            if not takes_rows:
                counts.append(len(places) - 2)
                continue
            place = boundary if _NEAR <= boundary <= 1.0 - _NEAR else 1.0 - _NEAR
            after = bisect_right(places, place)
            start, end = places[after - 1], places[after]
            if end - start > slack and min(place - start, end - place) >= _NEAR / 2:
                places.insert(after, place)
            counts.append(len(places) - 2)
        return np.array(counts, dtype=np.int64)

    def _cut(self, start_s: Any, end_s: Any, cuts: Any, takes: Any) -> Any:
        # A piece that straddles a slice end counts in both slices, on average as half a piece more.
        return (_KEPT * cuts + 1.0) * (end_s - start_s) / self.batch_s + 0.5 * takes

    def _merged(self, age_s: Any) -> Any:
        """Return the expected number of segments younger than ``age_s``."""
        full_per_s = self._grown_per_s
        young_s = _YOUNG * self.batch_s
        grown_s = max(_YOUNG / full_per_s, young_s) if full_per_s > 0.0 else np.inf
        young = np.minimum(age_s, young_s) / self.batch_s
        growing = _YOUNG * np.log(np.clip(age_s, young_s, grown_s) / young_s)
        # If ``full_per_s`` is 0, no segment reaches full size, and 0 times infinity would be NaN.
        return young + growing + (np.maximum(age_s - grown_s, 0.0) * full_per_s if full_per_s > 0.0 else 0.0)

    @property
    def _grown_per_s(self) -> float:
        """Full-size segments per second of event time, among rows much older than the watermark."""
        return merging(self._batches)[0] / self.slack_s

    @property
    def _batches(self) -> int:
        """Number of batches that fit into the slack."""
        return int(min(self.slack_s / self.batch_s * (1.0 + _NEAR), 2.0**60))


@dataclass(frozen=True, slots=True, eq=False)
class ChainStorage:
    """Segments of all possible slices of one side of a join, by the boundaries at which they start and end.

    Attributes:
        seconds: Boundaries from 0, seconds.
        entering: Rows per second that enter a slice starting at each boundary.
        keep: For a slice starting at each boundary, a number of its filter; equal filters have equal numbers.
        cuts: Number of cuts through a batch's segment at each boundary (``SegmentRule.cuts``).
        takes: Whether fewer rows or males pass the boundary than the previous boundary.
        rule: Rules by which segments are created, cut and merged.
        row_bytes: Encoded bytes of a row.
        buckets: Number of buckets of the job.
    """

    seconds: _Floats
    entering: _Floats
    keep: _Ints
    cuts: _Ints
    takes: np.ndarray[tuple[int], np.dtype[np.bool_]]
    rule: SegmentRule
    row_bytes: float
    buckets: int

    # Any: a number, or an array of numbers for several slices at once; numpy computes with both alike.
    def segments(self, start: Any, end: Any) -> Any:
        """Return the number of segments per bucket in a slice between two boundary numbers."""
        return self.rule.held(self.seconds[start], self.seconds[end], self.cuts[start], self.takes[end])

    def stored(self, start: int, end: Any, *, last: bool) -> tuple[Any, Any]:
        """Return the new segments and bytes that a slice stores per second, in all buckets together.

        Arriving rows are stored, and stored again with each merge. If a filter drops rows of a segment that
        moves to the next slice, the remaining rows are stored again. A segment that moves unchanged or is cut
        is not rewritten.
        """
        segments, rows = 0.0 * self.seconds[end], 0.0 * self.seconds[end]
        if start == 0:
            segments = segments + self.buckets * self.rule.filled / self.rule.batch_s
            rows = rows + self.entering[0] * (1.0 + self.rule.rewritten)
        if not last:
            filtered = self.keep[end] != self.keep[start]
            passing = self.rule.passing_per_s(self.seconds[end], self.cuts[end])
            segments = segments + filtered * self.buckets * passing
            rows = rows + filtered * self.entering[end]
        return segments, rows * self.row_bytes


def chain_storage(
    seconds: _Floats,
    entering: _Floats,
    keep: _Ints,
    males_keep: _Ints,
    *,
    longest_s: float,
    batch_s: float,
    row_bytes: float,
    buckets: int,
) -> ChainStorage:
    """Prepare the segments of all possible slices of one side of a join.

    Args:
        seconds: Boundaries from 0, seconds.
        entering: Rows per second that enter a slice starting at each boundary.
        keep: For a slice starting at each boundary, a number that identifies its filter.
        males_keep: For a slice starting at each boundary, a number that identifies the filter of its males.
        longest_s: Largest bounded window of the join's queries on either side, in seconds; 0 if all windows
            are unbounded.
        batch_s: Event time that a batch covers, seconds.
        row_bytes: Encoded bytes of a row.
        buckets: Number of buckets of the job.
    """
    filled = float(-np.expm1(-entering[0] * batch_s / buckets))  # rows arrive as a Poisson process
    rule = SegmentRule(batch_s, longest_s / SLACK_DIVISOR if longest_s else np.inf, filled)
    takes = np.concatenate(([False], (np.diff(keep) != 0) | (np.diff(males_keep) != 0)))
    takes[-1] = True
    cuts = rule.cuts(seconds, takes.tolist())
    return ChainStorage(seconds, entering, keep, cuts, takes, rule, row_bytes, buckets)


@cache
def merging(batches: int) -> tuple[float, float]:
    """Simulate the merging of segments for a stream of one row per batch.

    Args:
        batches: Number of batches that fit into the slack, at least ``COMPACTION_FANIN``.

    Returns:
        Mean number of segments per slack for rows much older than the watermark, and how often a stored row
        is rewritten. As ``batches`` grows, the number of segments rises until there are enough unmerged
        segments for one more merge, and then falls.

    >>> [round(merging(n)[0], 1) for n in (4, 5, 6, 8)]
    [1.2, 1.9, 2.8, 1.2]
    """
    while batches > _MOST_BATCHES:
        batches //= COMPACTION_FANIN
    window = 8 * batches
    counted = range(window + batches, window + 3 * batches)
    segments: list[_Span] = []
    held = rewritten = 0
    for now in range(counted.stop):
        segments = [(first, end) for first, end in segments if end > now + 1 - window]
        before = {*segments}
        segments = _compacted([*segments, (now, now + 1)], batches)
        if now in counted:
            held += len(segments)
            # Rows of the current batch are merged before they are stored, so they do not count as rewritten.
            merged = {*segments} - before - {(now, now + 1)}
            rewritten += sum(end - first - (end > now) for first, end in merged)
    return held / len(counted) / (window / batches), rewritten / len(counted)


def _compacted(segments: Sequence[_Span], slack: int) -> list[_Span]:
    """Simulate ``operators.slices.sliced_join.compact``, oldest first."""
    result: list[_Span] = []
    run: list[_Span] = []
    for segment in segments:
        if run and segment[1] - run[0][0] > slack:
            result += _merged_run(run)
            run = []
        run.append(segment)
    return sorted(result + _merged_run(run))


def _merged_run(run: Sequence[_Span]) -> list[_Span]:
    small = sorted(run, key=_length)
    left = []
    while small and 2 * _length(small[-1]) > sum(_length(segment) for segment in small):
        left.append(small.pop())
    if len(small) < COMPACTION_FANIN:
        return [*left, *small]
    return [*left, (min(first for first, _ in small), max(end for _, end in small))]


def _length(segment: _Span) -> int:
    return segment[1] - segment[0]
