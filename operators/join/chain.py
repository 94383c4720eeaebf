"""A join's chain of slices in one bucket.

    males of b ->  [ a: slice 1 ] -> [ a: slice 2 ] -> ...      each side has its own slice boundaries
    males of a ->  [ b: slice 1 ] -> [ b: slice 2 ] -> ...      (if all windows are equal, they coincide)

A batch is processed like a tuple in the paper (State-Slice, VLDB 2006, §4.2, Figure 9): cross-purge, probe,
insert and propagate, slice by slice. At the end of a batch the chain is purged up to the watermarks. So it
holds only rows that some query can still use (the minimal state of Theorem 4, §6.1), and a few more: a
segment whose time span is at most the slack is not split, even if it straddles a slice boundary.

All strategies use this chain. They differ in the rows that enter the chain (``Admissible``) and in the slice
boundaries. A chain with one slice that admits every row is the paper's selection pull-up (§3.1).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.values.query import UNBOUNDED_US
from operators.join.compiled_family import Admissible, CompiledJoin
from operators.join.pairs import PairTable
from operators.join.segment_classes import SegmentClasses
from operators.join.slice_search import OneWay, SliceSearch
from operators.kernels.keys import Bools
from operators.ranks.clocked_rows import as_males, by_time
from operators.ranks.ranked_rows import RankedRows
from operators.ranks.ranking import Ranking
from operators.rings.rings import RingCounts, Rings
from operators.segments.layout import SIDES
from operators.segments.segment import Segment
from operators.slices.candidates import Reach
from operators.slices.sliced_join import SliceCounts, SliceState, compact, count_per_slice, purge
from operators.steps.expiry import Expiry, leaving

#: A stored segment is rewritten if at least one row in this many can be removed, because the row has expired
#: on the clock of its key or because its key is closed.
WORTH_A_REWRITE = 4


@dataclass(slots=True, eq=False)
class Chain:
    """Slices of both sides of a join, with their rows.

    Attributes:
        join: The join, compiled under the plan version in force.
        slices: Slices per side.
        classes: Row classes of the family's segments, shared by its joins.
        ends_us: End of each slice, per side, µs.
        rings: Rings per side that index the rows of the last slice, or None if males find rows by merging.
        search: Finds matches of males in the slices.
        dead: Function per side that returns which rows of a segment have a key that the other side closed
            before the batch, bool[n]. Sides without closed keys have no entry.
    """

    join: CompiledJoin
    slices: dict[str, list[SliceState]]
    classes: SegmentClasses
    ends_us: dict[str, tuple[int, ...]] = field(init=False)
    rings: Mapping[str, Rings] | None = field(init=False, default=None)
    search: SliceSearch = field(init=False)
    dead: Mapping[str, Callable[[Segment], Bools]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.join.probe.has_rings:
            self.rings = {side: Rings(self.join.probe, self.slices[side][-1].w_end_us) for side in SIDES}
        self.ends_us = {side: tuple(s.w_end_us for s in self.slices[side]) for side in SIDES}
        self.search = SliceSearch(self.join, self.slices, self.classes, self.ends_us, self.rings)

    @classmethod
    def empty(cls, join: CompiledJoin, classes: SegmentClasses) -> Chain:
        """Return a chain without rows."""
        return cls(join, {side: join.slices(side) for side in SIDES}, classes)

    def process(
        self,
        fresh: Mapping[str, Sequence[Segment]],
        resting: Mapping[str, Sequence[Segment]],
        watermarks: Mapping[str, int | None],
        pairs: PairTable,
        opened: Mapping[str, Sequence[Segment]],
        again: Segment | None = None,
    ) -> None:
        """Run one batch through the chain.

        Args:
            fresh: New rows of the family per side that are not late. They probe as males.
            resting: The new rows that are stored in this bucket as females. They are mostly the same segments
                as the males.
            watermarks: Watermark per side at the end of the batch.
            pairs: Receives the joined pairs.
            opened: Females per side that arrived in earlier batches but enter now (``operators.parking``).
            again: Recomputed rows of side a, or None if side a is stored.
        """
        for side in SIDES:
            for state in self.slices[side]:
                state.counts = SliceCounts()
        for side, segments in opened.items():
            for segment in segments:
                self._insert(side, self.admitted(side, segment), segment)
        for rings in () if self.rings is None else self.rings.values():
            rings.counts = RingCounts()
        admitted, females = self._admitted(fresh, resting)
        males = {side: [m for m in admitted[side] if m is not None] for side in SIDES}
        self._purge("a", _safe_limit(watermarks["b"], males["b"]))
        self._purge("b", _safe_limit(watermarks["a"], males["a"]))
        # Rows of a are inserted before the probes, and rows of b after them. So a pair of two new rows is
        # made once: by the male of b, in the bucket that stores the row of a.
        self._insert_all("a", females["a"], resting["a"])
        for side, other in (("a", "b"), ("b", "a")):
            for number, probing in enumerate(males[other], 1):
                left = males[other][number:]
                self.search.probe(side, probing, pairs, reached=_safe_limit(watermarks[other], left))
        made_again = None if again is None else self.admitted("a", again)
        if made_again is not None:
            self.slices["a"][0].counts.again += len(made_again)
            for probing in males["b"]:
                self.search.probe("a", probing, pairs, among=[made_again])
        self._insert_all("b", females["b"], resting["b"])
        for side, other in (("a", "b"), ("b", "a")):
            self._purge(side, watermarks[other])
            if self.rings is not None:
                self._empty_rings(self.rings[side], side, females[side], watermarks[other])
            elif side in self.join.expiries:
                passed = partial(self._passed, side, self.join.expiries[side])
                self._expire(side, passed, watermarks[other])
            live = self.classes.family.lineages[side].live
            for state in self.slices[side]:
                if state.segments:
                    compact(state, self.join.slacks[side], live, partial(self._without_dead, side, state))

    def process_ranked(
        self,
        released: Mapping[str, Sequence[Segment]],
        resting: Mapping[str, Sequence[Segment]],
        ranked: RankedRows,
        watermarks: Mapping[str, int | None],
        searched: Collection[str],
        pairs: PairTable,
        earlier: Mapping[str, Sequence[Ranking]],
    ) -> None:
        """Run one batch through the chain of a family with windows of rows; each side has its own clock.

        The join has two directions. In each direction, newer rows of one side probe the stored rows of the
        other side, on the clock of the stored rows. If a stream is not counted, its rows may arrive after
        newer rows of the other side are stored. Such late rows find the stored rows by event time.

        Args:
            released: Rows per side whose ranks are final in this batch, with their clocks. They probe as
                males.
            resting: The released rows that are stored in this bucket as females. They are mostly the same
                segments as the males.
            ranked: Ranks of the family's rows.
            watermarks: Watermark per side at the end of the batch.
            searched: Sides whose segments are searched for rows that have expired on the clock of their key.
            pairs: Receives the joined pairs.
            earlier: Rankings of earlier families that gave the rows of a side their ranks, by side.
        """
        for side in SIDES:
            for state in self.slices[side]:
                state.counts = SliceCounts()
        admitted, females = self._admitted(released, resting)
        males = {
            side: [self._as(as_males, side, rows) for rows in admitted[side] if rows is not None]
            for side in SIDES
        }
        for side, other in (("a", "b"), ("b", "a")):
            if side not in ranked.rankings and ranked.released_us is not None:
                for probing in males[side]:
                    self._probe_by_time(other, probing, ranked.released_us, pairs)
        for side, other in (("a", "b"), ("b", "a")):
            self._insert_all(side, females[side], resting[side])
            for probing in males[other]:
                self.search.probe(
                    side, probing, pairs, OneWay(side, Reach(self.join.reach(side).behind_us, 1))
                )
        for side in SIDES:
            by_key = ranked.clocks[side] == "key rows"
            if side in searched:
                self._purge_by_key(side, ranked, watermarks)
            elif not by_key:
                reached = ranked.reached(side, watermarks)
                self._purge(side, reached)
                if side in self.join.expiries:
                    self._expire(side, partial(self._passed_in_rows, side, earlier.get(side, ())), reached)
            live = self.classes.family.lineages[side].live
            for state in self.slices[side]:
                # With a clock per key, rows of other keys do not affect when a row expires.
                compact(state, UNBOUNDED_US if by_key else self.join.slacks[side], live)

    def _admitted(
        self, fresh: Mapping[str, Sequence[Segment]], resting: Mapping[str, Sequence[Segment]]
    ) -> tuple[dict[str, list[Segment | None]], dict[str, list[Segment | None]]]:
        """Return the rows that the join admits, per side: of ``fresh``, and of ``resting``."""
        admitted = {side: {id(rows): self.admitted(side, rows) for rows in fresh[side]} for side in SIDES}
        females = {
            side: [
                admitted[side][id(rows)] if id(rows) in admitted[side] else self.admitted(side, rows)
                for rows in resting[side]
            ]
            for side in SIDES
        }
        return {side: [*of.values()] for side, of in admitted.items()}, females

    def _probe_by_time(self, side: str, males: Segment, released_us: int, pairs: PairTable) -> None:
        """Probe the stored rows of ``side`` that are at least as new as the late rows among ``males``.

        These stored rows are in the first slice, because no male has reached their clock yet.
        """
        late = males.times < released_us
        if not late.any():
            return
        other = "b" if side == "a" else "a"
        probing = self._as(by_time, other, males, late)
        young = []
        for segment in self.slices[side][0].segments:
            some = segment.times >= probing.t_min
            if some.any():
                young.append(self._as(by_time, side, segment, some))
        reach = Reach(1, self.join.reach(other).behind_us)
        self.search.probe(side, probing, pairs, OneWay(other, reach), among=young)

    def _as(
        self, form: Callable[[Segment], Segment], side: str, rows: Segment, keep: Bools | None = None
    ) -> Segment:
        """Return rows converted to another form, with the same row classes."""
        classes = self.classes.of(side, rows)
        if keep is not None:
            rows, classes = rows.filter(keep), classes.select(keep)
        found = form(rows)
        self.classes.put(found, classes)
        return found

    def admitted(self, side: str, rows: Segment, *, after_us: int | None = None) -> Segment | None:
        """Return the rows that the join admits, or None if it admits none.

        Args:
            side: Side of the rows.
            rows: The rows.
            after_us: Event time; only later rows are returned. None: rows of all times are returned.
        """
        if self.join.admission is None:
            return rows
        return self.classes.serving(side, rows, self.join.admission[side], after_us=after_us)

    def reaching(self, side: str, rows: Segment, queries: int) -> Segment | None:
        """Return the rows that may serve one of the queries that reach a slice, or None if there are none."""
        if self.join.admission is None:
            return rows
        return self.classes.serving(side, rows, Admissible(queries))

    def rows_per_slice(self, side: str, watermark_us: int | None) -> list[int]:
        """Count the rows of a side per slice, by their distance to the opposite watermark."""
        ends_us = self.ends_us[side]
        rows = [0] * len(ends_us)
        for index, state in enumerate(self.slices[side]):
            for segment in state.segments:
                if watermark_us is None or watermark_us - segment.t_min < state.w_end_us:
                    # A row is never in a later slice than its distance requires. Here even the oldest row of
                    # the segment is not beyond this slice, so all rows of the segment belong in it.
                    rows[index] += len(segment)
                    continue
                for place, count in enumerate(count_per_slice(ends_us, segment, watermark_us)):
                    rows[place] += count
        if self.rings is not None:
            rows[-1] -= sum(self.rings[side].removed(segment) for segment in self.slices[side][-1].segments)
        return rows

    def settle_rings(self) -> None:
        """Drop the rows that rings have removed from the segments, because clocks are about to be reset."""
        for side, rings in {} if self.rings is None else self.rings.items():
            last = self.slices[side][-1]
            last.segments = rings.settled(last.segments)

    def _empty_rings(
        self, rings: Rings, side: str, entered: Sequence[Segment | None], reached: int | None
    ) -> None:
        """Remove the rows that expire in rings as new rows enter the rings, and drop empty segments."""
        last = self.slices[side][-1]
        for females in (rows for rows in entered if rows is not None):
            rings.entered(last.segments, rings.arrivals(females), reached)
        last.segments, dropped = rings.dropped(last.segments)
        last.counts.purged += dropped

    def _purge(self, side: str, watermark_us: int | None) -> None:
        if watermark_us is None:
            return
        slices = self.slices[side]
        for index, state in enumerate(slices):
            # Most slices of a long chain are empty.
            if not state.segments:
                continue
            end_of = partial(self._loses_us, side, index) if self.join.slacks[side] else None
            last = index + 1 == len(slices)
            if last and self.rings is not None:
                return
            before = list(state.segments)
            leaving = purge(state, watermark_us, self.join.slacks[side], end_of, drop=last)
            if last:
                state.counts.purged += sum(map(len, before)) - state.rows
            for segment in leaving:
                self._propagate(side, segment, index, watermark_us)
            if side in self.dead:
                whole = set(map(id, before))
                parts = [s if id(s) in whole else self._without_dead(side, state, s) for s in state.segments]
                state.segments = [part for part in parts if part is not None]

    def _expire(self, side: str, passed: Callable[[Segment, int], Bools], reached: int | None) -> None:
        """Remove rows of an intermediate that no later row can match.

        Args:
            side: Side of the rows.
            passed: Returns which rows of a segment cannot match any row at or after an event time.
            reached: Lower bound of the event times of later rows of the other side.
        """
        if reached is None:
            return
        slices = self.slices[side]
        held = [segment for state in slices for segment in state.segments]
        expired = iter(leaving(held, [passed(segment, reached) for segment in held]))
        for state in slices:
            staying = []
            for segment, gone in zip(state.segments, expired, strict=False):
                if gone is None:
                    staying.append(segment)
                    continue
                state.counts.purged += int(np.count_nonzero(gone))
                if not gone.all():
                    staying.append(self._kept(side, segment, ~gone))
            state.segments = staying

    def _passed(self, side: str, expiry: Expiry, segment: Segment, reached: int) -> Bools:
        classes = self.classes.of(side, segment)
        return expiry.expired(segment, (classes.codes, classes.masks), reached)

    def _passed_in_rows(self, side: str, earlier: Sequence[Ranking], segment: Segment, reached: int) -> Bools:
        """Return which rows of an intermediate no later row can match; for windows counted in rows."""
        router, layout = self.join.builder.router, self.classes.family.layouts[side]
        expiries, ranked = (
            (router.expiries, router.ranks) if side == "a" else (router.expiries_b, router.ranks_b)
        )
        near = []
        for name, bounds in expiries:
            # A row that was made before any query needed this column has no value in it, and is kept.
            times = pc.fill_null(layout.read(segment, name).cast(pa.int64()), reached).to_numpy()
            near.append(bounds.classes(reached - times))
        before = np.full(len(segment), reached - 1, dtype=np.int64)
        for (name, bounds), ranking in zip(ranked, earlier, strict=True):
            ranks = layout.read(segment, name).to_numpy()
            near.append(bounds.classes(ranking.up_to(segment.key, before) - ranks))
        everyone = np.zeros(len(segment), dtype=np.int64)
        codes, sets = router.masks_of(everyone, router.within[:1], *near, self.classes.of(side, segment))
        return np.array([mask == 0 for mask in sets], dtype=np.bool_)[codes]

    def _kept(self, side: str, segment: Segment, keep: Bools) -> Segment:
        kept = segment.filter(keep)
        self.classes.put(kept, self.classes.of(side, segment).select(keep))
        return kept

    def _propagate(self, side: str, segment: Segment, index: int, watermark_us: int | None = None) -> None:
        """Move a segment to the next slice, or directly past all slices that the watermark has passed.

        Args:
            side: Side of the rows.
            segment: The rows.
            index: Index of the slice that the segment leaves.
            watermark_us: Opposite watermark, µs. None: the segment moves to the next slice only.
        """
        slices = self.slices[side]
        to = index + 1
        if watermark_us is not None and side not in self.dead:
            ends_us = self.ends_us[side]
            passed = min(bisect_right(ends_us, watermark_us - segment.t_max, to), len(slices) - 1)
            # Every query that reaches a slice also reaches the slices before it.
            if passed > to and self._all_reach(side, segment, slices[passed].reach):
                for state in slices[to : passed + 1]:
                    state.counts.moved_in += len(segment)
                slices[passed].segments.append(segment)
                return
        state, following = slices[index], slices[to]
        reaching = self.reaching(side, segment, following.reach)
        following.counts.filtered += len(segment) - (0 if reaching is None else len(reaching))
        kept = None if reaching is None else self._without_dead(side, state, reaching)
        if kept is not None:
            following.counts.moved_in += len(kept)
            following.segments.append(kept)

    def _without_dead(self, side: str, state: SliceState, segment: Segment) -> Segment | None:
        """Return a segment that was moved, cut or merged, without its rows of closed keys.

        A segment that is not stored yet must be written in any case. A stored segment is rewritten only if at
        least one row in ``WORTH_A_REWRITE`` is dropped; otherwise it is returned unchanged.

        Args:
            side: Side of the rows.
            state: Slice that the dropped rows leave. The slice counts them.
            segment: The rows.

        Returns:
            The segment without rows of closed keys, or None if no rows are left.
        """
        if side not in self.dead:
            return segment
        gone = self.dead[side](segment)
        count = int(np.count_nonzero(gone))
        in_a_file = bool(segment.id) or segment.arrived is not None
        if not count or (in_a_file and count * WORTH_A_REWRITE < len(segment)):
            return segment
        state.counts.closed += count
        return None if count == len(segment) else self._kept(side, segment, ~gone)

    def _purge_by_key(self, side: str, ranked: RankedRows, watermarks: Mapping[str, int | None]) -> None:
        """Purge slices with a clock per key, but only segments in which enough rows have expired."""
        slices = self.slices[side]
        for index, state in enumerate(slices):
            staying = []
            for segment in state.segments:
                reached = ranked.reached_by(side, segment.key, watermarks)
                if reached is None:
                    return
                passed = segment.ts + state.w_end_us <= reached
                count = int(np.count_nonzero(passed))
                if count * WORTH_A_REWRITE < len(segment):
                    staying.append(segment)
                    continue
                if count < len(segment):
                    staying.append(segment.filter(~passed))
                if index + 1 < len(slices):
                    self._propagate(side, segment.filter(passed), index)
                else:
                    state.counts.purged += count
            state.segments = staying

    def _loses_us(self, side: str, index: int, segment: Segment) -> int:
        """Return the end of the first slice, from ``index`` on, at which a segment must be split.

        A segment is split at a slice's end that is not lazy. It is also split at a lazy end if some of its
        rows may not be used in the next slice, although they pass its filter: the queries that reach that
        slice are newer than these rows.
        """
        slices = self.slices[side]
        # The last slice's end is never lazy, so the range ends. A binary search is possible, because every
        # query that reaches a slice also reaches the slices before it.
        before = range(index, self.join.lazy_ends[side].index(False, index))
        if side in self.join.expiries:
            return slices[before.stop].w_end_us
        number = bisect_left(
            before, True, key=lambda n: not self._all_reach(side, segment, slices[n + 1].reach)
        )
        return slices[index + number].w_end_us

    def _all_reach(self, side: str, rows: Segment, queries: int) -> bool:
        """Return whether every row may serve one of the queries that reach a slice (``reaching``)."""
        if self.join.admission is None:
            return True
        return self.classes.of(side, rows).serving(len(rows), queries) is None

    def _insert_all(self, side: str, females: Sequence[Segment | None], came: Sequence[Segment]) -> None:
        for rows, of in zip(females, came, strict=True):
            self._insert(side, rows, of)

    def _insert(self, side: str, females: Segment | None, came: Segment) -> None:
        # Every query of the join uses the first slice, so admitted rows need no further filter.
        first = self.slices[side][0]
        inserted = 0 if females is None else len(females)
        first.counts.inserted += inserted
        first.counts.filtered += len(came) - inserted
        if females is not None:
            first.segments.append(females)


def _safe_limit(watermark_us: int | None, males: Sequence[Segment]) -> int | None:
    """Return the watermark by which the opposite side may be purged before this batch's males probe.

    It is the watermark at the end of the batch, which no later male is behind, or the time of the oldest male
    of this batch if that is earlier.
    """
    if watermark_us is None:
        return None
    return min((watermark_us, *(rows.t_min for rows in males)))
