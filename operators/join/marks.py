"""Marks: distances of the nearest matches of rows, stored apart from the rows' segments.

    _key     _pos   _ts   c.ahead   c.behind       the row at this position has for condition group _key
    group 7    4     ..      2 s       none        a match 2 s ahead of it, and none behind
    group 7    9     ..     none       1 s

A mark has the position of its row. So the segments that hold the row can be cut, merged and filtered without
changing the mark. Marks have segments of their own, which are stored like other segments. A batch adds one
segment with the matches that are nearer than all earlier matches of the row. These are mostly one or two per
row, since later partners are farther away. A few segments of similar size are merged into one. Marks of rows
that are decided for all windows are then dropped.

For look-ups, a batch copies the marks of each condition group into arrays by position (``PositionTable``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from operators.join.absence_classes import CompiledAbsence, ConditionGroup
from operators.join.nearest import PositionTable, take_nearer
from operators.kernels.keys import Bools, Int64s
from operators.segments.encoding.row_codec import KEY, POS, TS
from operators.segments.segment import COLUMN, Segment
from operators.slices.candidates import CandidateSide

AHEAD, BEHIND = "ahead", "behind"
#: Distance that means no match, and its stored form, a small number so that columns stay narrow.
NO_MATCH = 2**62
_STORED_NO_MATCH = -2
#: Number of neighbouring segments of similar size that are merged into one.
FANIN = 4
_NOTHING = np.zeros(0, dtype=np.int64)


@dataclass(slots=True, eq=False)
class NearestMatches:
    """Nearest matches of a side's rows for one condition group.

    Attributes:
        table: Finds the index of a position in ``ahead`` and ``behind``, or None if positions are too
            scattered for a table.
        known: int64[n], positions in ascending order, used if there is no table.
        ahead: int64[n], distance of the nearest match ahead for each position, µs, or ``NO_MATCH``.
        behind: int64[n], distance of the nearest match behind for each position, µs, or ``NO_MATCH``.
    """

    table: PositionTable | None
    known: Int64s
    ahead: Int64s
    behind: Int64s

    @classmethod
    def of(cls, marks: Sequence[Segment], group: int, besides: GroupMarks | None) -> NearestMatches:
        """Copy marks into arrays by position.

        Args:
            marks: Marks of the side.
            group: Number of the condition group.
            besides: Marks that may be added later, so that the arrays get entries for their positions, or
                None.
        """
        parts = [part for segment in marks if len((part := _of_group(segment, group)).pos)]
        positions = [part.pos for part in (*parts, *(() if besides is None else (besides,)))]
        table = PositionTable.covering(positions) if positions else None
        known = np.unique(np.concatenate(positions)) if positions and table is None else _NOTHING
        far = np.full(len(known) if table is None else table.size, NO_MATCH, dtype=np.int64)
        found = cls(table, known, far, far.copy())
        for part in parts:
            found.add(part)
        return found

    def add(self, marks: GroupMarks) -> None:
        """Add marks; the arrays must already have entries for their positions, and a position may repeat."""
        if self.table is not None:
            self.table.take_nearer(self.ahead, self.behind, marks.pos, marks.ahead, marks.behind)
            return
        place = np.searchsorted(self.known, marks.pos)
        np.minimum.at(self.ahead, place, marks.ahead)
        np.minimum.at(self.behind, place, marks.behind)

    def at(self, pos: Int64s) -> tuple[Int64s, Int64s]:
        """Return the distances of the nearest matches, ahead and behind, for each position, int64[n]."""
        if not len(self.ahead):
            none = np.full(len(pos), NO_MATCH, dtype=np.int64)
            return none, none
        if self.table is not None:
            return self.table.nearest(self.ahead, self.behind, pos, NO_MATCH)
        place = np.minimum(np.searchsorted(self.known, pos), len(self.known) - 1)
        inside = self.known[place] == pos
        return np.where(inside, self.ahead[place], NO_MATCH), np.where(inside, self.behind[place], NO_MATCH)

    def unmatched(self, pos: Int64s, *, once: bool) -> int:
        """Count distinct positions without a match; ``once`` states that the given positions are distinct."""
        ahead, behind = self.at(pos)
        none = (ahead == NO_MATCH) & (behind == NO_MATCH)
        return int(np.count_nonzero(none)) if once else len(np.unique(pos[none]))


@dataclass(slots=True, eq=False)
class _Nearest:
    """Nearest matches of the rows of one segment in one batch, int64[n] each."""

    rows: Segment
    ahead: Int64s
    behind: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class GroupMarks:
    """The n marks of rows of one side for one condition group.

    Attributes:
        group: Number of the condition group.
        ts: int64[n], event times of the rows, µs.
        pos: int64[n], positions of the rows. A position occurs twice if its row is stored in two joins.
        ahead: int64[n], distance of the nearest match ahead, µs.
        behind: int64[n], distance of the nearest match behind, µs.
    """

    group: int
    ts: Int64s
    pos: Int64s
    ahead: Int64s
    behind: Int64s

    def after(self, after_us: int | None) -> GroupMarks:
        """Return the marks of rows that are later than an event time, or all marks if it is None."""
        return self if after_us is None else self._select(self.ts > after_us)

    def nearer(self, known: NearestMatches) -> GroupMarks | None:
        """Return the marks that are nearer than the known marks, or None if there are none."""
        ahead, behind = known.at(self.pos)
        nearer = (self.ahead < ahead) | (self.behind < behind)
        if nearer.all():
            return self
        if not nearer.any():
            return None
        return self._select(nearer)

    def _select(self, keep: Bools) -> GroupMarks:
        columns = (self.ts, self.pos, self.ahead, self.behind)
        return GroupMarks(self.group, *(column[keep] for column in columns))


@dataclass(slots=True, eq=False)
class BatchMatches:
    """Nearest match of each row in one batch.

    Attributes:
        compiled: The outer, semi and anti joins, compiled.
    """

    compiled: CompiledAbsence
    # By side and condition group: nearest matches per segment, by the segment's ``id()``.
    _nearest: dict[tuple[str, int], dict[int, _Nearest]] = field(default_factory=dict)

    def add(self, a: CandidateSide, b: CandidateSide, codes: Int64s, sets: Sequence[int]) -> None:
        """Add n pairs as matches of their rows.

        Args:
            a: Row of a in each pair.
            b: Row of b in each pair.
            codes: int64[n], index of each pair's entry in ``sets``.
            sets: Distinct sets of queries. A pair is a match for the queries of its set.
        """
        distance = b.ts() - a.ts()
        for side, rows in (("a", a), ("b", b)):
            for group in self.compiled.groups[side]:
                nearest = self._nearest.setdefault((side, group.number), {})
                for segment, index, apart in _matching(rows, codes, sets, group.queries, distance):
                    _mark(nearest, segment, index, apart)

    def rows_of(self, side: str, group: int) -> list[tuple[Segment, Int64s]]:
        """Return the segments of a side, each with its rows that have matches for a condition group."""
        found = self._nearest.get((side, group), {}).values()
        return [(one.rows, np.flatnonzero((one.ahead < NO_MATCH) | (one.behind < NO_MATCH))) for one in found]

    def marks_of(self, side: str, group: int, parts: Sequence[tuple[Segment, Int64s]]) -> GroupMarks | None:
        """Return the marks of the rows that ``rows_of`` returned, in the same order, or None for no rows."""
        if not parts:
            return None
        nearest = self._nearest[side, group]
        columns = [
            (rows.ts[some], rows.pos[some], nearest[id(rows)].ahead[some], nearest[id(rows)].behind[some])
            for rows, some in parts
        ]
        return GroupMarks(group, *(np.concatenate(column) for column in zip(*columns, strict=True)))


def _mark(nearest: dict[int, _Nearest], rows: Segment, index: Int64s, apart: Int64s) -> None:
    """Add matches of a segment's rows: ``index`` has the row of each match, ``apart`` its T_b - T_a."""
    if id(rows) not in nearest:
        far = np.full(len(rows), NO_MATCH, dtype=np.int64)
        nearest[id(rows)] = _Nearest(rows, far, far.copy())
    found = nearest[id(rows)]
    take_nearer(found.ahead, found.behind, index, apart)


def _matching(
    rows: CandidateSide, codes: Int64s, sets: Sequence[int], queries: int, values: Int64s
) -> Iterator[tuple[Segment, Int64s, Int64s]]:
    """Yield (segment, rows, values) for the pairs that are matches for at least one of the given queries.

    Args:
        rows: Rows of one side in n pairs.
        codes: int64[n], index of each pair's entry in ``sets``.
        sets: Distinct sets of queries. A pair is a match for the queries of its set.
        queries: Set of the given queries.
        values: int64[n], a value for each pair.
    """
    having = np.array([mask & queries != 0 for mask in sets], dtype=np.bool_)
    if not having.any():
        return
    matches: Bools | None = None if having.all() else having[codes]
    start = 0
    for run in rows.runs:
        end = start + len(run.index)
        if matches is None:
            yield run.rows, run.index, values[start:end]
        elif (own := matches[start:end]).any():
            yield run.rows, run.index[own], values[start:end][own]
        start = end


def satisfied(groups: Sequence[ConditionGroup], rows: Segment) -> Segment:
    """Return marks that give each row a match in every group, so that no row is found absent later."""
    none = np.full(len(rows), -1, dtype=np.int64)
    return marks_segment([GroupMarks(group.number, rows.ts, rows.pos, none, none) for group in groups])


def marks_segment(marks: Sequence[GroupMarks]) -> Segment:
    """Return marks as a segment, which is their stored form, sorted by condition group."""
    ordered = sorted(marks, key=lambda m: m.group)
    arrays = {
        KEY: np.concatenate([np.full(len(m.pos), m.group, dtype=np.int64) for m in ordered]),
        TS: np.concatenate([m.ts for m in ordered]),
        POS: np.concatenate([m.pos for m in ordered]),
        COLUMN + AHEAD: _stored_distances([m.ahead for m in ordered]),
        COLUMN + BEHIND: _stored_distances([m.behind for m in ordered]),
    }
    return Segment(pa.RecordBatch.from_pydict(arrays), 0, ())


def fold(marks: Sequence[Segment], live: Collection[int], after_us: int | None) -> list[Segment]:
    """Merge segments of marks that have similar sizes, and drop marks that no query needs.

    Args:
        marks: Marks of one side.
        live: Numbers of the existing condition groups.
        after_us: Event time up to which all rows are decided for all windows, or None if no row is.

    Returns:
        The segments of marks to keep.
    """
    kept = [segment for segment in marks if after_us is None or segment.t_max > after_us]
    small = sorted(kept, key=len)
    while small and 2 * len(small[-1]) > sum(map(len, small)):
        small.pop()
    if len(small) < FANIN:
        return kept
    folded = {id(segment) for segment in small}
    parts = []
    for group in sorted(live):
        for segment in small:
            part = _of_group(segment, group).after(after_us)
            if len(part.pos):
                parts.append(part)
    result = [segment for segment in kept if id(segment) not in folded]
    return [*result, marks_segment(parts)] if parts else result


def _stored_distances(parts: Sequence[Int64s]) -> Int64s:
    distances = np.concatenate(parts)
    return np.where(distances == NO_MATCH, _STORED_NO_MATCH, distances)


def _of_group(segment: Segment, group: int) -> GroupMarks:
    """Return the marks of one condition group in a segment."""
    start, end = np.searchsorted(segment.key, [group, group + 1]).tolist()
    return GroupMarks(
        group,
        segment.ts[start:end],
        segment.pos[start:end],
        _distances(segment, AHEAD, start, end),
        _distances(segment, BEHIND, start, end),
    )


def _distances(segment: Segment, name: str, start: int, end: int) -> Int64s:
    column = segment.column(name)
    assert column is not None, "marks have both distances"
    distances: Int64s = column.slice(start, end - start).to_numpy()
    return np.where(distances == _STORED_NO_MATCH, NO_MATCH, distances)
