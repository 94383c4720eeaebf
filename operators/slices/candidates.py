"""Candidate pairs of one side of a join, collected from all segments before any is checked further.

    slices of a          slice 1              slice 2
    segments          s1      s2      s3      s4      s5
    candidates     [ ......|.......|.......|.......|...... ]   one run per segment, in order
    males of b     [ ..................................... ]   rows of one segment throughout

Pairs are found segment by segment, but their queries, residuals and columns are computed for all candidates
together: a call of numpy or Arrow takes about 10 µs even for few rows. Measured on three queries of the
State-Slice paper (§7.2): 102-260 ms per batch if each segment is processed alone, and 32-50 ms if candidates
are collected first.
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

#: Maximum number of candidate pairs expanded together; limits memory if one key has very many rows.
MAX_PAIRS_AT_ONCE = 2_000_000
#: Minimum number of pairs in a chunk, since each chunk takes about 0.1 ms. With 4 keys and batches of 100
#: rows, a batch took 169 ms with chunks of as many pairs as rows; now it takes 30 ms.
MIN_PAIRS_AT_ONCE = 1 << 15
#: Rows that a male's galloping search skips in about the time of testing each of them with the filter.
FILTERED_PER_MALE = 16
#: Maximum relative rounding error of a sum: a few units in the last place of a double.
_ROUNDED = 2.0**-50


@dataclass(frozen=True, slots=True, eq=False)
class SegmentRun:
    """Candidates of one segment.

    Attributes:
        rows: The segment.
        classes: Classes of its rows.
        index: int64[n], index in the segment of each candidate's row.
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
        """Return a value per row, int64[n], given a function that returns the values of a segment."""
        return _joined([values(run.rows)[run.index] for run in self.runs])

    def pos(self) -> Int64s:
        """Return the positions in the source, int64[n]."""
        return _joined([run.rows.pos[run.index] for run in self.runs])

    def key(self) -> Int64s:
        """Return the keys, int64[n]."""
        return _joined([run.rows.key[run.index] for run in self.runs])

    def classes(self) -> RowClasses:
        """Return the classes of the n rows, numbered uniformly over all segments."""
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
        """Return a stream column, n values."""
        derived = layout.derived(name, self.ts, self.key)
        if derived is not None:
            return derived
        parts = [layout.read(run.rows, name, run.index) for run in self.runs]
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Candidate pairs: equal int64 keys, and near enough in time for the largest windows.

    Attributes:
        females: Rows of the slices.
        males: Rows that probed them.
        slices: Number of the slice of each run of ``females``.
    """

    females: CandidateSide
    males: CandidateSide
    slices: tuple[int, ...]

    def per_slice(self, chosen: Int64s) -> Iterator[tuple[int, int]]:
        """Yield, for each run, its slice's number and how many of the chosen candidates are in it.

        Args:
            chosen: int64[m], ascending, indices of candidates.
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
        classes: Classes of its rows.
        keys: int64[m], keys of the males that reach the slice, ascending.
        times: int64[m], their event times.
        reaching: int64[m], row numbers of these males; None for all males.
        scan: Finds pairs by scanning rings; None: pairs are found by merging.
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
    """Ranges of n rows. Two rows are a pair if their ranges overlap; on one side, ranges are points.

    Attributes:
        low: float64[n], starts of the ranges.
        high: float64[n], ends of the ranges, inclusive; below ``low`` if a row has no range.
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
        band: The band.
        layouts: Columns per side.
    """

    band: Band
    layouts: Mapping[str, SideLayout]

    def ranges(self, side: str, rows: Segment) -> Ranges:
        """Return the ranges of a side's rows, at least as wide as those that DuckDB compares."""
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
        """Return the least and greatest possible column value plus offset; +inf and -inf for NULL."""
        layout = self.layouts[side]
        column, kind = layout.read(rows, bound.column), layout.types[bound.column]
        null = column.is_null().to_numpy(zero_copy_only=False)
        if kind in ("date", "timestamp"):
            column = column.cast(pa.int32() if kind == "date" else pa.int64())
        value = pc.fill_null(column.cast(pa.float64(), safe=False), 0.0).to_numpy(zero_copy_only=False)
        # NaN is greater than any number, as in DuckDB. Conversion of integers to doubles keeps their order.
        # Sums and decimals are rounded, both here and in DuckDB.
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
    """Pairs of equal key of one segment."""

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
    """Pairs of equal key of one segment that males find in their rings."""

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
    """Pairs of one segment whose ranges overlap."""

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
    """Maximum distances in time between females and the males that probe them, µs.

    Attributes:
        behind_us: Largest window on the females' side.
        ahead_us: Largest window on the males' side.
    """

    behind_us: int
    ahead_us: int

    def can_meet(self, female: Segment, oldest: int, newest: int) -> bool:
        """Return whether a window reaches from any row of a segment to the males' event times."""
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
        males: Probing rows of the opposite stream.
        classes: Classes of the males.
        reach: Largest distances between candidates.
        touched: int64[slices], increased by the number of pairs in each slice that have equal keys or are in
            the band, regardless of their distance in time.
        side: Side of the segments.
        band: Finds pairs by a band instead of a key.

    Yields:
        Candidates of all segments, in several pieces if they do not fit into one. Use a piece before
        requesting the next one.
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
        wanted: Filter of the keys of all males.

    Returns:
        int64[m] each: keys, event times and row indices. If many rows may match, all rows are returned, with
        None as indices.
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
