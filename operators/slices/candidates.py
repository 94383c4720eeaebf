"""Candidate pairs between one side's slices and the other side's males, collected from many segments.

    slices of a          slice 1              slice 2
    segments          s1      s2      s3      s4      s5
    candidates     [ ......|.......|.......|.......|...... ]   one run per segment, in order
    males of b     [ ..................................... ]   rows of one segment throughout

Pairs are found segment by segment. But their queries, residual predicates and columns are computed for all
candidates together, because a call of numpy or Arrow takes about 10 µs even for few rows. For three queries
of the State-Slice paper (§7.2), a batch takes 102-260 ms if each segment is processed alone, and 32-50 ms if
candidates are collected first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.values.plan import Band, Bound
from operators.kernels.keys import Bools, Codes, Int64s, Words
from operators.lineage.lineage import RowClasses
from operators.rings.rings import Scan
from operators.segments.layout import SideLayout
from operators.segments.segment import Segment
from operators.slices.key_filter import key_filter, rows_with_partners
from operators.slices.merge_kernel import merge_pairs
from operators.slices.overlaps import Doubles, overlapping_pairs

_Array = TypeVar("_Array", Int64s, Codes)

#: Maximum number of candidate pairs that are held at once. It limits memory if one key has very many rows.
MAX_PAIRS_AT_ONCE = 2_000_000
#: Minimum capacity of a chunk in pairs, because each chunk takes about 0.1 ms. With 4 keys and batches of 100
#: rows, a batch takes 30 ms. It took 169 ms when a chunk could hold only as many pairs as the batch had rows.
MIN_PAIRS_AT_ONCE = 1 << 15
#: The filter of keys is used if a segment has at most this many rows per male. With more rows per male, the
#: galloping search skips rows faster than the filter tests them.
FILTERED_PER_MALE = 16
#: Maximum relative rounding error of a sum: a few units in the last place of a double.
_ROUNDED = 2.0**-50


@dataclass(frozen=True, slots=True, eq=False)
class SegmentRun:
    """Candidates of one segment.

    Attributes:
        rows: The segment.
        classes: Classes of the segment's rows.
        index: int64[n], index of each candidate's row in the segment.
    """

    rows: Segment
    classes: RowClasses
    index: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class CandidateSide:
    """One side of n candidate pairs.

    Attributes:
        runs: Rows of the side in the order of the pairs, n rows in total.
    """

    runs: tuple[SegmentRun, ...]

    def ts(self) -> Int64s:
        """Return the event times, int64[n]."""
        return self.gathered(_times)

    def gathered(self, values: Callable[[Segment], Int64s]) -> Int64s:
        """Return a value per row, int64[n], given a function that returns the values of a segment's rows."""
        return _joined([values(run.rows)[run.index] for run in self.runs])

    def pos(self) -> Int64s:
        """Return the positions in the source, int64[n]."""
        return _joined([run.rows.pos[run.index] for run in self.runs])

    def key(self) -> Int64s:
        """Return the keys, int64[n]."""
        return _joined([run.rows.key[run.index] for run in self.runs])

    def classes(self) -> RowClasses:
        """Return the classes of the n rows, with one numbering of classes for all segments."""
        numbers: dict[int, int] = {}
        # Most segments have the same classes in the same order, so they need no renumbering.
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
        """Return this side of the pairs for which ``keep``, bool[n], is true."""
        runs, start = [], 0
        for run in self.runs:
            kept = run.index[keep[start : start + len(run.index)]]
            start += len(run.index)
            if len(kept):
                runs.append(SegmentRun(run.rows, run.classes, kept))
        return CandidateSide(tuple(runs))

    def read(self, layout: SideLayout, name: str) -> pa.Array:
        """Return the values of a stream column in the n rows."""
        derived = layout.derived(name, self.ts, self.key)
        if derived is not None:
            return derived
        parts = [layout.read(run.rows, name, run.index) for run in self.runs]
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Candidate pairs: rows with equal int64 keys that are near enough in time for the largest windows.

    Attributes:
        females: Row of a slice in each pair.
        males: Row of the other side in each pair.
        slices: Number of the slice of each run of ``females``.
    """

    females: CandidateSide
    males: CandidateSide
    slices: tuple[int, ...]

    def per_slice(self, chosen: Int64s) -> Iterator[tuple[int, int]]:
        """Yield, for each run of ``females``, its slice's number and the number of its chosen candidates.

        Args:
            chosen: int64[m], ascending, indices of the chosen candidates.
        """
        ends = np.cumsum([len(run.index) for run in self.females.runs])
        below = np.searchsorted(chosen, ends)
        yield from zip(self.slices, np.diff(below, prepend=0).tolist(), strict=True)


@dataclass(frozen=True, slots=True, eq=False)
class Probing:
    """Segment of a slice, with the males that probe it.

    Attributes:
        slice: Number of the slice.
        rows: The segment.
        classes: Classes of the segment's rows.
        keys: int64[m], keys of the males that reach the slice, ascending.
        times: int64[m], event times of these males, µs.
        reaching: int64[m], row numbers of these males, or None if all males reach the slice.
        scan: Finds pairs by scanning rings. None: pairs are found by merging the keys of males and segment.
    """

    slice: int
    rows: Segment
    classes: RowClasses
    keys: Int64s
    times: Int64s
    reaching: Int64s | None
    scan: Scan | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Ranges of n rows of one side. Two rows are a pair if their ranges overlap.

    The ranges of one of the two sides are points.

    Attributes:
        low: float64[n], starts of the ranges.
        high: float64[n], ends of the ranges, inclusive. The end is below the start if a row has no range.
    """

    low: Doubles
    high: Doubles

    def take(self, rows: Int64s) -> Ranges:
        """Return the ranges of some rows."""
        return Ranges(self.low[rows], self.high[rows])


@dataclass(frozen=True, slots=True, eq=False)
class BandProbe:
    """Finds the pairs of a family that has no key but a band condition.

    Attributes:
        band: The band condition.
        layouts: Columns per side.
    """

    band: Band
    layouts: Mapping[str, SideLayout]

    def ranges(self, side: str, rows: Segment) -> Ranges:
        """Return the ranges of a side's rows, wide enough to contain every pair that DuckDB would find."""
        if side == self.band.side:
            low, high = self._ends(side, rows, Bound(self.band.column))
            return Ranges(low, high)
        low, high = np.full(len(rows), -np.inf), np.full(len(rows), np.inf)
        if self.band.low is not None:
            low, _ = self._ends(side, rows, self.band.low)
        if self.band.high is not None:
            _, high = self._ends(side, rows, self.band.high)
        return Ranges(low, high)

    def _ends(self, side: str, rows: Segment, bound: Bound) -> tuple[Doubles, Doubles]:
        """Return lower and upper bounds of column value plus offset; for NULL, +inf and -inf (no range)."""
        layout = self.layouts[side]
        column, kind = layout.read(rows, bound.column), layout.types[bound.column]
        null = column.is_null().to_numpy(zero_copy_only=False)
        if kind in ("date", "timestamp"):
            column = column.cast(pa.int32() if kind == "date" else pa.int64())
        value = pc.fill_null(column.cast(pa.float64(), safe=False), 0.0).to_numpy(zero_copy_only=False)
        # NaN is greater than any number, as in DuckDB. Conversion of integers to doubles keeps their order.
        # Sums and decimals are rounded, both here and in DuckDB, so the bounds allow for rounding errors.
        value = np.where(np.isnan(value), np.inf, value)
        exact = bound.offset == 0 and not kind.startswith("decimal")
        pad = 0.0 if exact else (np.abs(value) + abs(bound.offset)) * _ROUNDED
        with np.errstate(invalid="ignore"):  # inf - inf is NaN
            low, high = value + bound.offset - pad, value + bound.offset + pad
        for end, nothing in ((low, np.inf), (high, -np.inf)):
            end[np.isnan(end)] = np.inf
            end[null] = nothing
        return low, high


class _Merging:
    """Pairs of males with rows of one segment that have equal keys, found by merging."""

    def __init__(self, probing: Probing, wanted: Words | None, reach: Reach) -> None:
        self._probing, self._reach = probing, reach
        self._keys, self._times, self._some = _with_partners(probing, wanted)
        self._state = np.zeros(4, dtype=np.int64)

    @property
    def done(self) -> bool:
        return int(self._state[1]) >= len(self._probing.keys)

    @property
    def touched(self) -> int:
        return int(self._state[3])

    def fill(self, females: Int64s, males: Int64s) -> int:
        """Write the row numbers of pairs, and return the number of pairs."""
        probing = self._probing
        found = merge_pairs(
            self._keys,
            self._times,
            probing.keys,
            probing.times,
            self._reach.behind_us,
            self._reach.ahead_us,
            self._state,
            females,
            males,
        )
        if self._some is not None:
            females[:found] = self._some[females[:found]]
        if probing.reaching is not None:
            males[:found] = probing.reaching[males[:found]]
        return found


class _Scanning:
    """Pairs of males with rows of one segment that have equal keys, found by scanning rings."""

    def __init__(self, scan: Scan, reach: Reach) -> None:
        self._scan, self._reach = scan, reach

    @property
    def done(self) -> bool:
        return self._scan.done

    @property
    def touched(self) -> int:
        return self._scan.touched

    def fill(self, females: Int64s, males: Int64s) -> int:
        """Write the row numbers of pairs, and return the number of pairs."""
        return self._scan.fill(females, males, self._reach.behind_us, self._reach.ahead_us)


class _Overlapping:
    """Pairs of males with rows of one segment whose ranges overlap."""

    def __init__(self, probing: Probing, females: Ranges, males: Ranges, reach: Reach) -> None:
        rows = np.arange(len(males.low)) if probing.reaching is None else probing.reaching
        order = np.argsort(males.low[rows], kind="stable")
        rows = rows[order]
        own = males.take(rows)
        with np.errstate(invalid="ignore"):  # inf - inf is NaN
            lengths = own.high - own.low
        lengths[np.isnan(lengths)] = np.inf
        longest = np.nextafter(lengths.max(initial=0.0), np.inf)
        self._arguments = (
            *(females.low, females.high, probing.rows.ts),
            *(own.low, own.high, probing.times[order], rows, longest),
            *(reach.behind_us, reach.ahead_us),
        )
        self._females = len(females.low)
        self._state = np.zeros(4, dtype=np.int64)

    @property
    def done(self) -> bool:
        return int(self._state[0]) >= self._females

    @property
    def touched(self) -> int:
        return int(self._state[3])

    def fill(self, females: Int64s, males: Int64s) -> int:
        """Write the row numbers of pairs, and return the number of pairs."""
        return overlapping_pairs(*self._arguments, self._state, females, males)


@dataclass(frozen=True, slots=True)
class Reach:
    """Maximum distances in time between females and the males that probe them.

    Attributes:
        behind_us: Largest window on the females' side, µs. An older female must be nearer than this.
        ahead_us: Largest window on the males' side, µs. A newer female must be nearer than this.
    """

    behind_us: int
    ahead_us: int

    def can_meet(self, female: Segment, oldest: int, newest: int) -> bool:
        """Return whether a row of a segment may be near enough to males from ``oldest`` to ``newest``."""
        return oldest - female.t_max < self.behind_us and female.t_min - newest < self.ahead_us


def find_candidates(
    segments: Sequence[Probing],
    males: Segment,
    classes: RowClasses,
    reach: Reach,
    touched: Int64s,
    side: str = "a",
    band: BandProbe | None = None,
) -> Iterator[Candidates]:
    """Find the candidate pairs between segments and the males that reach them.

    Args:
        segments: Segments of a side's slices, in the order in which males pass them.
        males: Rows of the other side that probe.
        classes: Classes of the males.
        reach: Maximum distances in time between the two rows of a candidate.
        touched: int64[slices], increased by the number of pairs in each slice that have equal keys or satisfy
            the band condition, regardless of their distance in time.
        side: Side of the segments.
        band: Finds pairs by a band condition, or None if pairs are found by key.

    Yields:
        Candidates of all segments, in several chunks if they do not fit into one chunk. A chunk must be used
        before the next chunk is requested, because all chunks share their buffers.
    """
    held = sum(len(probing.rows) for probing in segments)
    size = min(MAX_PAIRS_AT_ONCE, max(MIN_PAIRS_AT_ONCE, held + len(males)))
    female_rows, male_rows = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    runs: list[SegmentRun] = []
    slices: list[int] = []
    filled = 0
    merged = band is None and any(probing.scan is None for probing in segments)
    wanted = key_filter(males.key) if len(males) and merged else None
    of_males = band.ranges("b" if side == "a" else "a", males) if band is not None else None
    for probing in segments:
        matching: _Merging | _Overlapping | _Scanning
        if probing.scan is not None:
            matching = _Scanning(probing.scan, reach)
        elif band is None or of_males is None:
            matching = _Merging(probing, wanted, reach)
        else:
            matching = _Overlapping(probing, band.ranges(side, probing.rows), of_males, reach)
        while not matching.done:
            found = matching.fill(female_rows[filled:], male_rows[filled:])
            if found:
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
        touched[probing.slice] += matching.touched
    if filled:
        probed = CandidateSide((SegmentRun(males, classes, male_rows[:filled]),))
        yield Candidates(CandidateSide(tuple(runs)), probed, tuple(slices))


def _with_partners(probing: Probing, wanted: Words | None) -> tuple[Int64s, Int64s, Int64s | None]:
    """Return keys and event times of a segment's rows: of all rows, or only of rows that may match.

    Args:
        probing: The segment.
        wanted: Filter with the keys of all males (``key_filter``), or None if no filter is used.

    Returns:
        int64[m] each: keys, event times and row indices. If many rows may match, all rows are returned, and
        the indices are None.
    """
    keys, times = probing.rows.key, probing.rows.ts
    if wanted is None or len(keys) > FILTERED_PER_MALE * len(probing.keys):
        return keys, times, None
    some = rows_with_partners(keys, wanted)
    if 2 * len(some) > len(keys):
        return keys, times, None
    return keys[some], times[some], some


def _times(rows: Segment) -> Int64s:
    return rows.times


def _joined(parts: list[_Array]) -> _Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
