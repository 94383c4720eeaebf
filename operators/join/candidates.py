"""Candidate pairs of one side of a join, gathered over all of its segments before any is looked at closer.

    slices of a          slice 1              slice 2
    segments          s1      s2      s3      s4      s5
    candidates     [ ......|.......|.......|.......|...... ]   one run per segment, in order
    males of b     [ ..................................... ]   rows of one segment throughout

A pair is found segment by segment, but its queries, its residuals and its columns are worked out for all
candidates at once: a call of numpy or Arrow costs some 10 µs however few rows it has. Measured on
three queries of the State-Slice paper (§7.2): 102-260 ms a batch segment by segment, 32-50 ms gathered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from operators.kernels.key_filter import key_filter, rows_with_partners
from operators.kernels.keys import Bools, Codes, Int64s, Words
from operators.kernels.merge import merge_pairs
from operators.lineage.lineage import RowClasses
from operators.segments.layout import SideLayout
from operators.segments.segment import Segment

_Array = TypeVar("_Array", Int64s, Codes)

#: Candidate pairs expanded at once; bounds memory when one key has very many rows.
MAX_PAIRS_AT_ONCE = 2_000_000
#: Room for so many pairs whatever the rows, since each chunk of pairs costs some 0.1 ms: with 4 keys and
#: batches of 100 rows a batch took 169 ms in chunks of as many pairs as rows, and takes 30 ms.
MIN_PAIRS_AT_ONCE = 1 << 15
#: A gallop of a male past so many rows takes about as long as asking the filter for each of them.
FILTERED_PER_MALE = 16


@dataclass(frozen=True, slots=True, eq=False)
class SegmentRun:
    """Candidates of one segment.

    Attributes:
        rows: The segment.
        classes: Classes of its rows.
        index: int64[n], row of the segment of each candidate.
    """

    rows: Segment
    classes: RowClasses
    index: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class CandidateSide:
    """One side of n candidate pairs.

    Attributes:
        runs: Rows of the side in the order of the pairs; n of them in all.
    """

    runs: tuple[SegmentRun, ...]

    def ts(self) -> Int64s:
        """Return the event times, int64[n]."""
        return _joined([run.rows.ts[run.index] for run in self.runs])

    def pos(self) -> Int64s:
        """Return the positions in the source, int64[n]."""
        return _joined([run.rows.pos[run.index] for run in self.runs])

    def _key(self) -> Int64s:
        """Return the keys, int64[n]."""
        return _joined([run.rows.key[run.index] for run in self.runs])

    def classes(self) -> RowClasses:
        """Return the classes of the rows, n of them, under one numbering."""
        numbers: dict[int, int] = {}
        # Most segments have the same classes, in the same order: then there is nothing to renumber.
        renumbered: dict[tuple[int, ...], Int64s | None] = {}
        codes: list[Codes] = []
        for run in self.runs:
            masks = run.classes.masks
            if masks not in renumbered:
                own = [numbers.setdefault(mask, len(numbers)) for mask in masks]
                same = own == list(range(len(own)))
                renumbered[masks] = None if same else np.array(own, dtype=np.int64)
            if run.classes.codes is None:
                codes.append(np.full(len(run.index), numbers[masks[0]], dtype=np.int64))
                continue
            found, to = run.classes.codes[run.index], renumbered[masks]
            codes.append(found if to is None else to[found])
        return RowClasses(_joined(codes) if len(numbers) > 1 else None, tuple(numbers))

    def select(self, keep: Bools) -> CandidateSide:
        """Return the side of the pairs where ``keep``, bool[n], holds."""
        runs, start = [], 0
        for run in self.runs:
            kept = run.index[keep[start : start + len(run.index)]]
            start += len(run.index)
            if len(kept):
                runs.append(SegmentRun(run.rows, run.classes, kept))
        return CandidateSide(tuple(runs))

    def read(self, layout: SideLayout, name: str) -> pa.Array:
        """Return a stream column, n values."""
        derived = layout.derived(name, self.ts, self._key)
        if derived is not None:
            return derived
        parts = [layout.read(run.rows, name, run.index) for run in self.runs]
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Candidate pairs: of equal int64 key, and not too far apart for the largest windows.

    Attributes:
        females: Rows of the slices.
        males: Rows that probed them.
        slices: Number of the slice that each run of ``females`` lies in.
    """

    females: CandidateSide
    males: CandidateSide
    slices: tuple[int, ...]

    def per_slice(self, chosen: Int64s) -> Iterator[tuple[int, int]]:
        """Yield the number of a slice and how many of the candidates chosen lie in it, run by run.

        Args:
            chosen: int64[m], ascending, numbers of candidates.
        """
        ends = np.cumsum([len(run.index) for run in self.females.runs])
        below = np.searchsorted(chosen, ends)
        yield from zip(self.slices, np.diff(below, prepend=0).tolist(), strict=True)


@dataclass(frozen=True, slots=True, eq=False)
class Probing:
    """Segment of a slice that males probe.

    Attributes:
        slice: Number of the slice.
        rows: The segment.
        classes: Classes of its rows.
        keys: int64[m], keys of the males that reach the slice, ascending.
        times: int64[m], their event times.
        reaching: int64[m], their rows; None for all males.
    """

    slice: int
    rows: Segment
    classes: RowClasses
    keys: Int64s
    times: Int64s
    reaching: Int64s | None


@dataclass(frozen=True, slots=True)
class Reach:
    """Largest distances in time between females and the males that probe them, µs.

    Attributes:
        behind_us: Largest window on the females' side.
        ahead_us: Largest window on the males' side.
    """

    behind_us: int
    ahead_us: int


def find_candidates(
    segments: Sequence[Probing], males: Segment, classes: RowClasses, reach: Reach, touched: Int64s
) -> Iterator[Candidates]:
    """Find the candidate pairs between segments and the males that reach them.

    Args:
        segments: Segments of the slices of a side, in the order in which the males come by.
        males: Probing rows of the opposite stream.
        classes: Classes of the males.
        reach: How far apart candidates may be.
        touched: int64[slices], counted on by the pairs of equal key in each slice, near or far.

    Yields:
        Candidates of all segments; in several pieces when there are more than fit at once. A piece is to be
        used before the next is asked for.
    """
    held = sum(len(probing.rows) for probing in segments)
    size = min(MAX_PAIRS_AT_ONCE, max(MIN_PAIRS_AT_ONCE, held + len(males)))
    female_rows, male_rows = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    runs: list[SegmentRun] = []
    slices: list[int] = []
    filled = 0
    wanted = key_filter(males.key) if len(males) else None
    for probing in segments:
        keys, times, some = _with_partners(probing, wanted)
        state = np.zeros(4, dtype=np.int64)
        while state[1] < len(probing.keys):
            found = merge_pairs(
                keys,
                times,
                probing.keys,
                probing.times,
                reach.behind_us,
                reach.ahead_us,
                state,
                female_rows[filled:],
                male_rows[filled:],
            )
            if found:
                if some is not None:
                    part = female_rows[filled : filled + found]
                    part[:] = some[part]
                if probing.reaching is not None:
                    part = male_rows[filled : filled + found]
                    part[:] = probing.reaching[part]
                runs.append(SegmentRun(probing.rows, probing.classes, female_rows[filled : filled + found]))
                slices.append(probing.slice)
                filled += found
            if filled == size:
                yield Candidates(
                    CandidateSide(tuple(runs)),
                    CandidateSide((SegmentRun(males, classes, male_rows),)),
                    tuple(slices),
                )
                runs, slices, filled = [], [], 0
        touched[probing.slice] += state[3]
    if filled:
        probed = CandidateSide((SegmentRun(males, classes, male_rows[:filled]),))
        yield Candidates(CandidateSide(tuple(runs)), probed, tuple(slices))


def _with_partners(probing: Probing, wanted: Words | None) -> tuple[Int64s, Int64s, Int64s | None]:
    """Return keys and event times of a segment, of those rows that males may meet where these are few.

    Args:
        probing: The segment.
        wanted: Filter of the keys of all males.

    Returns:
        int64[m] and int64[m], and of which rows they are, int64[m]; None: of all.
    """
    keys, times = probing.rows.key, probing.rows.ts
    if wanted is None or len(keys) > FILTERED_PER_MALE * len(probing.keys):
        return keys, times, None
    some = rows_with_partners(keys, wanted)
    if 2 * len(some) > len(keys):
        return keys, times, None
    return keys[some], times[some], some


def _joined(parts: list[_Array]) -> _Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
