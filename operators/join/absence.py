"""Absence: decisions that a row of a family and bucket has no match, for outer, semi and anti joins.

                 T_a        opposite watermark passes T_a + 10 s    ... T_a + 30 s
    row a  ------o------------------|---------------------------------|-----------> time
                                    no match: absent for (g1, 10 s)   no match: absent for (g1, 30 s)

A row that passes its side's filter is *absent* for a query if it has no match and no later row can match it.
No later row can match it once the opposite watermark has passed its event time by the query's window on its
side: matches have T_b - T_a < W_a, and every later row of b is at or after b's watermark. The batch that
moves the watermark that far *decides* the row, which means that it finds whether the row is absent. The same
batch does so under every strategy and slack, because the decision depends on times, not on slices. A batch in
which the other side closes the row's key (``operators.closings``) decides the row, too, because all matches
are then known. Rows wait in their slices for this decision. Rows whose key is NULL match nothing and wait in
a separate list. Known matches are stored as marks (``join.marks``).

    1. before its chains move or drop rows, a batch looks up the rows that it decides
    2. the pairs of the batch add marks
    3. decided rows without a match inside the window become results

Rows that no query needs after their matches are removed early (``leaving.needs``).

A semi join returns a row at the row's first match. Which match is first depends on the order of the union of
both streams: by event time, then by position. Queries that return a row at the same event time share one
result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from catalog.columns.arrow_types import arrow_type
from catalog.values.query import UNBOUNDED_US
from catalog.values.routes.route_table import RouteTable
from operators.closings.closed_keys import ClosedOpposite
from operators.join.absence_classes import AbsentClasses, CompiledAbsence, SemiClasses
from operators.join.compiled_family import CompiledFamily
from operators.join.marks import NO_MATCH, GroupMarks, NearestMatches, fold, marks_segment, satisfied
from operators.join.nearest import NEVER, passed_windows
from operators.join.pairs import PairChunk, PairTable
from operators.join.segment_classes import SegmentClasses
from operators.kernels.keys import Bools, Int64s
from operators.leaving.needs import ended_needs
from operators.lineage.routes import RouteCounts
from operators.segments.layout import SIDES, SideLayout
from operators.segments.segment import Segment, timestamps
from operators.slices.sliced_join import SliceState, compact

#: Ids of the queries of one join, and the segments of a side whose rows may wait to be decided for them.
Waiting = tuple[frozenset[int], Iterable[Segment]]
_NOTHING = np.zeros(0, dtype=np.int64)
_NO_CLOSINGS: Mapping[str, ClosedOpposite] = MappingProxyType({})
#: Stored rows are searched for early removal once at least one row in this many may have got a match since
#: the last search.
_WORTH_A_LOOK = 4


@dataclass(frozen=True, slots=True, eq=False)
class DueRows:
    """Rows of one segment that a batch decides, each for a run of neighbouring judged classes.

    Attributes:
        segment: The segment.
        rows: int64[n], indices of the rows in the segment.
        first: int64[n], first class for which each row is decided. Classes are sorted by window.
        last: int64[n], one more than the last class for which each row is decided.
        null: Whether the key of the rows is NULL.
    """

    segment: Segment
    rows: Int64s
    first: Int64s
    last: Int64s
    null: bool


#: Rows that a batch decides, by side and condition group.
Due = dict[tuple[str, int], list[DueRows]]


@dataclass(slots=True, eq=False)
class Absence:
    """State of a family's outer, semi and anti joins, in addition to its chains.

    Attributes:
        family: The family, compiled under the plan version in force.
        compiled: The outer, semi and anti joins, compiled.
        marks: Nearest matches of the rows of each side, as segments of marks.
        keyless: Rows per side whose key is NULL. They stay here until they are decided.
        given: Number of absent rows among the results of the last batch, per side, summed over all queries.
        unmatched: Number of absent rows among the results of the last batch for each outer join, by query id.
        found: Number of rows per side that got their first match in the last batch. A row counts once in each
            condition group in which it got a match.
        unsearched: Number of marks per side added since rows were last searched for early removal.
    """

    family: CompiledFamily
    compiled: CompiledAbsence
    marks: dict[str, SliceState] = field(default_factory=lambda: {side: _unbounded() for side in SIDES})
    keyless: dict[str, SliceState] = field(default_factory=lambda: {side: _unbounded() for side in SIDES})
    given: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SIDES, 0))
    unmatched: Counter[int] = field(default_factory=Counter)
    found: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SIDES, 0))
    unsearched: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SIDES, 0))

    def states(self) -> Iterator[SliceState]:
        """Yield the ``SliceState`` objects that hold the segments of this object, in a fixed order."""
        for side in SIDES:
            yield self.marks[side]
            yield self.keyless[side]

    def take_over(self, former: Absence) -> None:
        """Take over the state that another object had under the previous plan version."""
        self.marks, self.keyless, self.unsearched = former.marks, former.keyless, former.unsearched

    def due(
        self,
        held: Mapping[str, Sequence[Waiting]],
        fresh: Mapping[str, Sequence[Segment]],
        keyless: Mapping[str, Segment | None],
        before: Mapping[str, int | None],
        watermarks: Mapping[str, int | None],
        row_classes: SegmentClasses,
        closings: Mapping[str, ClosedOpposite] = _NO_CLOSINGS,
    ) -> Due:
        """Look up the rows that the batch decides, before its chains run.

        Args:
            held: Rows stored before the batch, per side and join.
            fresh: New rows per side that have a key.
            keyless: New rows per side without a key. They are added to the attribute ``keyless``.
            before: Watermark per side at the end of the previous batch.
            watermarks: Watermark per side at the end of this batch.
            row_classes: Row classes of the segments.
            closings: For each side whose keys the other side can close: finds rows whose key is closed.
        """
        found: Due = {}
        ended: dict[int, Int64s] = {}
        for (side, group), classes in self.compiled.absent.items():
            other, new = "b" if side == "a" else "a", keyless[side]
            now, then = watermarks[other], before[other]
            met = closings.get(side)
            if now is None and met is None:
                continue
            waiting, arrived = self.keyless[side].segments, [] if new is None else [new]
            resting = [s for ids, segments in held[side] if ids & classes.ids for s in segments]
            if met is not None:
                for segment in resting:
                    if id(segment) not in ended:
                        ended[id(segment)] = met.ended(segment, fresh=False)
                for segment in fresh[side]:
                    ended[id(segment)] = met.ended(segment, fresh=True)
            looked_at = [
                *((segment, then, False, met) for segment in resting),
                *((segment, then, True, None) for segment in waiting),
                *((segment, None, False, None) for segment in fresh[side]),
                *((segment, None, True, None) for segment in arrived),
            ]
            parts = [
                _due_rows(
                    *(classes, s, since, now, row_classes),
                    null=null,
                    ended=ended.get(id(s), _NOTHING),
                    known=known,
                )
                for s, since, null, known in looked_at
            ]
            due = [part for part in parts if part is not None]
            if due:
                found[side, group] = due
        for side in SIDES:
            new = keyless[side]
            if new is not None:
                self.keyless[side].segments.append(new)
        return found

    def decide(
        self,
        due: Due,
        pairs: PairTable,
        watermarks: Mapping[str, int | None],
        repeated: Collection[str],
    ) -> None:
        """Decide rows after the batch's chains have run, and forget the marks of decided rows.

        Args:
            due: Result of ``due``.
            pairs: Pairs of the batch with their matches. Absent rows and results of semi joins are added.
            watermarks: Watermark per side at the end of the batch.
            repeated: Sides on which a row with matches may be in several segments in this batch.
        """
        self.given, self.found = dict.fromkeys(SIDES, 0), dict.fromkeys(SIDES, 0)
        self.unmatched.clear()
        matches = pairs.matches
        assert matches is not None, "the pairs of an absence family leave marks"
        for side in SIDES:
            new = []
            for group in self.compiled.groups[side]:
                place = (side, group.number)
                matched = matches.rows_of(*place)
                found = matches.marks_of(*place, matched)
                if found is None and place not in due:
                    continue
                known = NearestMatches.of(self.marks[side].segments, group.number, found)
                semi = self.compiled.semi.get(place)
                if semi is not None and found is not None:
                    self._give_first(semi, matched, found, known, pairs, repeated=side in repeated)
                nearer = None if found is None else found.nearer(known)
                if nearer is not None:
                    self.found[side] += known.unmatched(nearer.pos, once=side not in repeated)
                    known.add(nearer)
                    new.append(nearer)
                if place in due:
                    self._give_absent(self.compiled.absent[place], due[place], known, pairs)
            if new:
                self._add_marks(side, marks_segment(new))
        for side, other in (("a", "b"), ("b", "a")):
            now = watermarks[other]
            after = None if now is None else now - self.compiled.reach_us[side]
            live = {group.number for group in self.compiled.groups[side]}
            self.marks[side].segments = fold(self.marks[side].segments, live, after)
            waiting = self.keyless[side]
            if after is not None:
                waiting.segments = [s for s in waiting.segments if s.t_max > after]
            compact(waiting, UNBOUNDED_US, self.family.lineages[side].live)

    def forget_marks(self, side: str, held: Iterable[Segment]) -> None:
        """Drop the marks of rows that are not stored any more, because such rows get no further matches.

        Args:
            side: Side of the rows.
            held: All rows of the side that are still stored.
        """
        positions = np.concatenate([_NOTHING, *(segment.pos for segment in held)])
        kept = [segment.filter(np.isin(segment.pos, positions)) for segment in self.marks[side].segments]
        self.marks[side].segments = [segment for segment in kept if len(segment)]

    def undecided(self, side: str, held: Iterable[Segment], opposite_us: int | None) -> int:
        """Count the rows of a side that are still undecided for the longest window.

        Args:
            side: The side.
            held: Stored rows of the side that have a key; this object holds the rows without a key.
            opposite_us: The opposite watermark, µs; if it is None, all rows are undecided.
        """
        segments = [s for s in (*held, *self.keyless[side].segments) if len(s)]
        if opposite_us is None:
            return sum(len(s) for s in segments)
        after = opposite_us - self.compiled.reach_us[side]
        # Read times only in segments that span the limit; in all others, all rows are decided or none is.
        return sum(
            len(s) if s.t_min > after else int(np.count_nonzero(s.ts > after))
            for s in segments
            if s.t_max > after
        )

    def forget_undecided(self, side: str, held: Iterable[Segment]) -> None:
        """Treat the stored rows of a side as decided, because the opposite watermark is reset.

        Otherwise rows that are decided already would be results again when the watermark passes them again.

        Args:
            side: The side.
            held: Stored rows of the side that have a key; this object holds the rows without a key.
        """
        groups = self.compiled.groups[side]
        for segment in (*held, *self.keyless[side].segments):
            if groups and len(segment):
                self._add_marks(side, satisfied(groups, segment))
        self.keyless[side].segments = []

    def is_look_due(self, side: str, held: int) -> bool:
        """Return whether to search stored rows for early removal; if so, count new marks from 0 again.

        Args:
            side: Side of the rows.
            held: Number of stored rows of the side.
        """
        if side not in self.compiled.needs or self.unsearched[side] * _WORTH_A_LOOK < max(held, 1):
            return False
        self.unsearched[side] = 0
        return True

    def early(
        self, side: str, opposite_us: int | None, row_classes: SegmentClasses
    ) -> Callable[[Segment], Bools]:
        """Return a function that finds the rows of a segment that can be removed early, as bool[n].

        Args:
            side: Side of the rows.
            opposite_us: The opposite watermark, µs.
            row_classes: Row classes of segments.
        """
        known: dict[int, NearestMatches] = {}

        def nearest(group: int, pos: Int64s) -> tuple[Int64s, Int64s]:
            if group not in known:
                known[group] = NearestMatches.of(self.marks[side].segments, group, None)
            return known[group].at(pos)

        def leave(segment: Segment) -> Bools:
            classes = row_classes.of(side, segment)
            needs = self.compiled.needs_of(side, classes.masks)
            ages_us = np.maximum((opposite_us if opposite_us is not None else segment.t_min) - segment.ts, 0)
            return ended_needs(needs, classes, ages_us, segment.pos, nearest)

        return leave

    def _add_marks(self, side: str, marks: Segment) -> None:
        self.marks[side].segments.append(marks)
        self.unsearched[side] += len(marks)

    def _give_absent(
        self, classes: AbsentClasses, due: Sequence[DueRows], known: NearestMatches, pairs: PairTable
    ) -> None:
        given: list[Int64s] = []
        of_classes = np.zeros(len(classes.windows_us), dtype=np.int64)
        for part in due:
            segment, rows = part.segment, part.rows
            pos = segment.pos[rows]
            ahead, behind = known.at(pos)
            first, last = part.first, part.last
            if given:
                # A row may be stored in several joins, but is a result only once.
                last = np.where(np.isin(pos, np.concatenate(given)), first, last)
            if len(self.family.joins) > 1:
                given.append(pos)
            runs = classes.runs
            row, starts, ends = runs.without_match(first, last, ahead, behind)
            row = rows[row]
            of_classes += runs.rows(starts, ends)
            if len(row):
                codes, routes = runs.routes(starts, ends)
                # For each query, the result time is the row's event time plus the query's window. The row's
                # event time is stored once for all queries, and readers of a query add its window.
                times = segment.ts[row]
                pairs.add(self._chunk(classes.side, routes, codes, segment, row, times, null=part.null))
        self.given[classes.side] += classes.runs.results(of_classes)
        for query_id, place in classes.outer:
            self.unmatched[query_id] += int(of_classes[place])

    def _give_first(
        self,
        semi: SemiClasses,
        matched: Sequence[tuple[Segment, Int64s]],
        found: GroupMarks,
        known: NearestMatches,
        pairs: PairTable,
        *,
        repeated: bool,
    ) -> None:
        """Add the rows that have their first match in this batch to the results of semi joins.

        Args:
            semi: Semi joins that return the rows.
            matched: Segments, each with its rows that have matches in this batch.
            found: Marks of the rows in ``matched`` in this batch, in the same order.
            known: Marks of earlier batches.
            pairs: Receives the results.
            repeated: Whether a row may be in several of the segments.
        """
        ahead, behind, once = found.ahead, found.behind, None
        if repeated:
            ahead, behind, once = _nearest_of_all(found)
        routed = semi.first_matches(ahead, behind, *known.at(found.pos))
        later = ahead if semi.side == "a" else behind
        for times, (places, routes) in zip((found.ts, found.ts + later), routed, strict=True):
            given = places >= 0 if once is None else (places >= 0) & once
            start = 0
            for segment, rows in matched:
                part = slice(start, start + len(rows))
                start += len(rows)
                if (own := given[part]).any():
                    of_part = times[part][own]
                    pairs.add(
                        self._chunk(
                            semi.side, routes, places[part][own], segment, rows[own], of_part, null=False
                        )
                    )

    def _chunk(
        self,
        judged: str,
        routes: RouteTable,
        codes: Int64s,
        segment: Segment,
        rows: Int64s,
        event_time: Int64s,
        *,
        null: bool,
    ) -> PairChunk:
        """Return a chunk with rows of one side, in which the other side is NULL.

        Args:
            judged: Side of the rows.
            routes: Routes of the rows.
            codes: int64[n], index into the routes for each row.
            segment: Segment of the rows.
            rows: int64[n], indices of the rows in the segment.
            event_time: int64[n], event times of the results, µs.
            null: Whether the key of the rows is NULL.
        """
        count = len(rows)
        columns: list[pa.Array] = []
        for side, names in (("a", self.family.plan.carried("a")), ("b", self.family.plan.carried("b"))):
            layout = self.family.layouts[side]
            for name in names:
                if side == judged:
                    columns.append(_read(layout, segment, name, rows, null=null))
                else:
                    columns.append(pa.nulls(count, arrow_type(layout.types[name])))
        own, none = pa.array(segment.pos[rows]), pa.nulls(count, pa.int64())
        arrays = [
            pa.array(routes.numbers[codes]),
            timestamps(event_time),
            *((own, none) if judged == "a" else (none, own)),
            *columns,
        ]
        counts = np.bincount(codes, minlength=len(routes))
        taken = np.flatnonzero(counts)
        return PairChunk(arrays, _NOTHING, _NOTHING, RouteCounts.of(routes.take(taken), counts[taken]))


def _nearest_of_all(found: GroupMarks) -> tuple[Int64s, Int64s, Bools]:
    """Return the nearest matches of each row, combined over the several segments that may contain the row.

    Returns:
        int64[n] ahead, int64[n] behind, and bool[n], whether an entry is the first entry of its row.
    """
    _, first, place = np.unique(found.pos, return_index=True, return_inverse=True)
    ahead, behind = (np.full(len(first), NO_MATCH, dtype=np.int64) for _ in range(2))
    np.minimum.at(ahead, place, found.ahead)
    np.minimum.at(behind, place, found.behind)
    once = np.zeros(len(found.pos), dtype=np.bool_)
    once[first] = True
    return ahead[place], behind[place], once


def _due_rows(
    classes: AbsentClasses,
    segment: Segment,
    then: int | None,
    now: int | None,
    row_classes: SegmentClasses,
    *,
    null: bool,
    ended: Int64s = _NOTHING,
    known: ClosedOpposite | None = None,
) -> DueRows | None:
    """Find rows of a segment that the opposite watermark passes by a window, or whose key was closed.

    Return None if there are no such rows.

    Args:
        classes: Judged classes with these windows.
        segment: The segment.
        then: Opposite watermark up to which the segment's rows are already decided, or None if no row is.
        now: Opposite watermark up to which the rows are decided now, or None if it is not known yet.
        row_classes: Row classes of segments.
        null: Whether the key of the rows is NULL.
        ended: Indices of rows that are decided for all windows, because the other side has closed their key.
        known: Finds stored rows that an earlier closing has decided, or None for new rows.
    """
    windows = classes.windows_us
    if not len(segment) or segment.epoch_max < classes.since_version:
        return None
    passed = now is not None and now - segment.t_min >= windows[0]
    passed &= then is None or then - segment.t_max < windows[-1]
    if not passed and not len(ended):
        return None
    decided = np.zeros(len(segment) if len(ended) else 0, dtype=np.bool_)
    decided[ended] = True
    rows, first, last = passed_windows(
        segment.ts, windows, NEVER if then is None else then, NEVER if now is None else now, decided
    )
    due: Bools = np.ones(len(rows), dtype=np.bool_)
    if segment.epoch_min < classes.since_version:
        due &= segment.epochs()[rows] >= classes.since_version
    serving = row_classes.of(classes.side, segment).serving(len(segment), classes.queries)
    if serving is not None:
        due &= serving[rows]
    if known is not None:
        due[due] = ~known.ended_before(segment, rows[due])
    rows, first, last = (part if due.all() else part[due] for part in (rows, first, last))
    return DueRows(segment, rows, first, last, null) if len(rows) else None


def _read(layout: SideLayout, segment: Segment, name: str, rows: Int64s, *, null: bool) -> pa.Array:
    if null and name == layout.derived_key:
        return pa.nulls(len(rows), arrow_type(layout.types[name]))
    return layout.read(segment, name, rows)


def _unbounded() -> SliceState:
    return SliceState(0, UNBOUNDED_US, 0)
