"""A family's joins in one bucket: one shared chain, or several parallel chains.

    fresh rows --+--> join 1: chain --+--> pairs of the family
                 +--> join 2: chain --+
                 +--> ...           --+

Every strategy is a set of joins that process the same rows (``catalog.values.plan.JoinPlan``). Joins share
lineage and stored columns, but each join has its own state. Each pair of a query is made by exactly one join.
A join makes pairs only for its own queries. If several joins serve a query, one side is split between them:
each row of this side enters only one of these joins (stream partition, State-Slice, VLDB 2006, §3.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa

from operators.closings.closed_keys import WORTH_A_REWRITE, ClosedKeys, ClosedOpposite
from operators.finishing.waiting_keys import WaitingKeys
from operators.groups.open_groups import OpenGroups
from operators.join.absence import Absence, Due, Waiting
from operators.join.chain import Chain
from operators.join.compiled_family import CompiledFamily
from operators.join.marks import BatchMatches
from operators.join.pairs import PairTable
from operators.join.segment_classes import SegmentClasses
from operators.kernels.keys import Bools, is_exact
from operators.lineage.entitlement import HolderQuery, Term, held_terms
from operators.lineage.lineage import RowClasses
from operators.parking.parked_rows import ParkedRows
from operators.ranks.ranked_rows import RankedRows
from operators.ranks.ranking import Ranking
from operators.segments.layout import SIDES
from operators.segments.segment import Segment
from operators.slices.sliced_join import SliceState
from operators.waiting.waiting_rows import WaitingRows

#: Objects that hold segments.
Holder = SliceState | ClosedKeys | OpenGroups | WaitingKeys | Ranking | WaitingRows | ParkedRows

#: The segments of a slice may be lazy (``operators.lazy``) if the slice's end is at least this far behind the
#: watermark: 1 hour, µs.
LONG_US: Final = 3_600_000_000

_OPPOSITES = (("a", "b"), ("b", "a"))
_NO_WATERMARKS: Mapping[str, int | None] = MappingProxyType({"a": None, "b": None})
_NO_ROWS: Mapping[str, Segment | None] = MappingProxyType({"a": None, "b": None})
_NO_CLOSINGS: Mapping[str, pa.RecordBatch | None] = MappingProxyType({})
_NONE_OPENED: Mapping[str, Sequence[Segment]] = MappingProxyType({})
_NO_RANKINGS: Mapping[str, Sequence[Ranking]] = MappingProxyType({})
_NO_MORE: Mapping[str, Sequence[tuple[Segment, Segment | None]]] = MappingProxyType({})


@dataclass(slots=True, eq=False)
class FamilyJoins:
    """The joins of a family, with their rows.

    Attributes:
        family: The family, compiled under the plan version in force.
        chains: Chain per join id, in plan order.
        classes: Row classes of all segments of the family.
        absence: State of the outer, semi and anti joins, or None if all joins are inner.
        closed: Closed keys for each side whose stream has a contract.
        disordered: Number of rows per side that broke the order of their stream in this batch. Only ordered
            families have entries.
        ranked: Ranks of rows, and rows that wait for their ranks, or None if all windows are in time.
        groups: Open groups, or None if the results are pairs.
        waiting: Closed keys that are not finished, or None if no query must learn when keys are finished.
        parked: Rows per side that wait on disk. Has entries only if the memory policy parks rows.
        sorting: Rows per side that wait for their place in the order before they are joined. Only a family
            that sorts, or sorted until this batch, has such rows.
    """

    family: CompiledFamily
    chains: dict[str, Chain]
    classes: SegmentClasses
    absence: Absence | None = None
    closed: Mapping[str, ClosedKeys] = field(default_factory=dict)
    disordered: dict[str, int] = field(default_factory=dict)
    ranked: RankedRows | None = None
    groups: OpenGroups | None = None
    waiting: WaitingKeys | None = None
    parked: Mapping[str, ParkedRows] = field(default_factory=dict)
    sorting: Mapping[str, WaitingRows] = field(
        default_factory=lambda: {side: WaitingRows() for side in SIDES}
    )

    @classmethod
    def empty(cls, family: CompiledFamily) -> FamilyJoins:
        """Return new joins for a family, without rows."""
        classes = SegmentClasses(family)
        chains = {join.plan.id: Chain.empty(join, classes) for join in family.joins}
        absence = None if family.absence is None else Absence(family, family.absence)
        ranked = None
        if family.plan.ranked:
            clocks = {side: family.plan.clock(side) for side in SIDES}
            ranked = RankedRows(clocks, family.plan.sides_with_ranks)
        groups = None if family.groups is None else OpenGroups(family.groups)
        waiting = None
        if family.finishing:
            kinds = family.plan.key_types
            waiting = WaitingKeys(0 if is_exact(kinds) else len(kinds))
        closed = _closed_keys(family)
        return cls(
            family,
            chains,
            classes,
            absence,
            closed,
            ranked=ranked,
            groups=groups,
            waiting=waiting,
            parked=_parked_rows(family),
        )

    def process(
        self,
        a: Segment | None,
        b: Segment | None,
        watermarks: Mapping[str, int | None],
        females: Mapping[str, Segment | None] | None = None,
        before: Mapping[str, int | None] = _NO_WATERMARKS,
        keyless: Mapping[str, Segment | None] = _NO_ROWS,
        closings: Mapping[str, pa.RecordBatch | None] = _NO_CLOSINGS,
        opened: Mapping[str, Sequence[Segment]] = _NONE_OPENED,
        more: Mapping[str, Sequence[tuple[Segment, Segment | None]]] = _NO_MORE,
        again: Segment | None = None,
    ) -> PairTable:
        """Run one batch through all joins.

        Args:
            a: New rows of a that are not late, or None.
            b: New rows of b that are not late, or None.
            watermarks: Watermark per side at the end of the batch.
            females: The new rows that are stored in this bucket, per side. None: all new rows are stored.
            before: Watermark per side at the end of the previous batch, used by outer, semi and anti joins.
            keyless: New rows without a key, for each side whose absent rows are results.
            closings: Closings per side that arrived with the batch, used by outer, semi and anti joins.
            opened: Rows per side that arrived in earlier batches and were parked until now.
            more: More rows per side to join in this batch, which were packed under other plan versions than
                ``a`` and ``b``: segments, each with those of its rows that are stored in this bucket.
            again: Recomputed rows of side a, or None if side a is stored.

        Returns:
            The joined pairs of the batch, and the rows that absence decides.
        """
        fresh = {"a": _some(a), "b": _some(b)}
        resting = fresh if females is None else {side: _some(females[side]) for side in SIDES}
        absence = self.absence
        pairs = PairTable(self.family.plan, None if absence is None else BatchMatches(absence.compiled))
        due: Due = {}
        if absence is not None:
            held = {side: self._waiting(side) for side in SIDES}
            met = {
                side: ClosedOpposite(self.closed[other], closings.get(other), self.family.layouts[side])
                for side, other in _OPPOSITES
                if other in self.closed
            }
            # Absence decides all new rows of a side, even rows that are not stored because their key is
            # closed. A row that is checked for matches is sent to only one bucket, so it is decided once.
            judged = {side: fresh[side] if side in met else resting[side] for side in SIDES}
            new = {side: [rows for rows in (judged[side],) if rows is not None] for side in SIDES}
            due = absence.due(held, new, keyless, before, watermarks, self.classes, met)
        dead = {
            side: partial(self.closed[other].closed, layout=self.family.layouts[side])
            for side, other in _OPPOSITES
            if other in self.closed and self.closed[other].segments
        }
        probing, entering = (
            {
                side: [rows for rows in (found[side], *(each[n] for each in more.get(side, ()))) if rows]
                for side in SIDES
            }
            for n, found in enumerate((fresh, resting))
        )
        for chain in self.chains.values():
            chain.dead = dead
            chain.process(probing, entering, watermarks, pairs, opened, again)
        for side, other in _OPPOSITES:
            if side in dead:
                slices = [state for chain in self.chains.values() for state in chain.slices[side]]
                self.closed[other].lose([state.counts.closed for state in slices])
        if absence is not None:
            # A new row may be in two segments: the segment that probes, and the stored segment, from which
            # rows of closed keys are missing.
            repeated = {
                side
                for side in SIDES
                if len(self.chains) > 1 or side in dead or resting[side] is not fresh[side]
            }
            absence.decide(due, pairs, watermarks, repeated)
            self._let_go(absence, watermarks)
        self.classes.keep_only(self.stored())
        return pairs

    def in_order(
        self, side: str, rows: Segment | None, limit: int | None, place: tuple[int, int]
    ) -> tuple[Segment | None, Segment | None]:
        """Separate new rows that keep their stream's order from rows that break it; count the latter.

        A row is sent to all buckets of its key, but if it breaks the order, only one of these buckets returns
        and counts it.

        Args:
            side: ``a`` or ``b``.
            rows: New rows of an ordered family.
            limit: Lowest clock value of a row that keeps the order. None: all rows keep it.
            place: Number of this bucket, and the number of buckets.
        """
        self.disordered[side] = 0
        if rows is None or limit is None or rows.t_min >= limit:
            return rows, None
        keeps = rows.ts >= limit
        disordered = rows.filter(~keeps)
        own = self.family.fragments.place(disordered.key, disordered.pos, *place).female
        if own is not None:
            disordered = disordered.filter(own)
        self.disordered[side] = len(disordered)
        return _some(rows.filter(keeps)), _some(disordered)

    def process_ranked(
        self,
        ranked: RankedRows,
        fresh: Mapping[str, Segment | None],
        counted: Mapping[str, Sequence[pa.RecordBatch]],
        watermarks: Mapping[str, int | None],
        resting: Callable[[str, Segment], Segment],
        earlier: Mapping[str, Sequence[Ranking]] = _NO_RANKINGS,
    ) -> PairTable:
        """Run one batch through all joins of a family with windows of rows.

        Args:
            ranked: Ranks of the family's rows, and the rows that wait for their ranks.
            fresh: New rows per side that are not late.
            counted: New rows of all buckets that are not late, for each counted side
                (``operators.ranks.ranking``).
            watermarks: Watermark per side at the end of the batch.
            resting: Returns, given a side and a segment, the rows that are stored in this bucket.
            earlier: Rankings of earlier families that gave the rows of a side their ranks, by side.

        Returns:
            The joined pairs of the batch.
        """
        pairs = PairTable(self.family.plan)
        some = {side: _some(rows) for side, rows in fresh.items()}
        released = ranked.release(some, counted, watermarks, earlier)
        females = {
            side: [own for rows in of if len(own := resting(side, rows))] for side, of in released.items()
        }
        searched = [
            side
            for side, ranking in ranked.rankings.items()
            if ranking.by_key
            and ranking.is_look_due(sum(s.rows for _, of, _, s in self.slices() if of == side))
        ]
        for chain in self.chains.values():
            chain.process_ranked(released, females, ranked, watermarks, searched, pairs, earlier)
        self.classes.keep_only(self.stored())
        return pairs

    def opposite_reached(self, watermarks: Mapping[str, int | None]) -> Mapping[str, int | None]:
        """Return, for each side, the other side's watermark, converted to the side's own clock.

        Args:
            watermarks: Watermark per side.
        """
        if self.ranked is None:
            return {"a": watermarks["b"], "b": watermarks["a"]}
        return {side: self.ranked.reached(side, watermarks) for side in SIDES}

    def terms_for(
        self, side: str, opposite_watermark_us: int | None, newest_us: int | None, columns: frozenset[str]
    ) -> tuple[Term, ...]:
        """Return the terms under which a query of the next plan version may use the stored rows of a side."""
        first = side == "a"
        holders = [
            HolderQuery(
                q.filter_a if first else q.filter_b,
                q.since_version,
                q.w_a_us if first else q.w_b_us,
                tuple(self.family.terms[side].get(q.id, ())),
            )
            for q in self.family.plan.queries
            # If a query needs only one match per row, matched rows may have been removed. So new queries
            # cannot use the rows that were stored for this query.
            if not q.needs_one_match(side)
        ]
        return held_terms(holders, opposite_watermark_us, newest_us, columns)

    def slices(self) -> Iterator[tuple[str, str, int, SliceState]]:
        """Yield (join id, side, slice index, slice) of every slice, in a fixed order."""
        for join_id, chain in self.chains.items():
            for side in SIDES:
                for index, state in enumerate(chain.slices[side]):
                    yield join_id, side, index, state

    def segments(self) -> Iterator[Segment]:
        """Yield the segments of every slice; a segment that two joins share is yielded twice."""
        for _, _, _, state in self.slices():
            yield from state.segments

    def lazy_slices(self) -> Iterator[SliceState]:
        """Yield the slices whose large segments are lazy: not opened until males may match their rows.

        Rows stay long in these slices, and males find them by key. A family in which other work than probes
        reads the rows in every batch has no lazy slices, because this work would open the segments anyway.
        """
        plan = self.family.plan
        asked = self.absence is not None or self.ranked is not None or plan.ordered or plan.probe.has_rings
        for chain in () if asked or not plan.key else self.chains.values():
            for side in SIDES:
                if side not in chain.join.expiries:
                    yield from (state for state in chain.slices[side] if state.w_end_us >= LONG_US)

    def states(self) -> Iterator[Holder]:
        """Yield all objects that hold segments, in a fixed order: slices first."""
        for _, _, _, state in self.slices():
            yield state
        if self.absence is not None:
            yield from self.absence.states()
        yield from self.closed.values()
        if self.ranked is not None:
            yield from self.ranked.states()
        if self.groups is not None:
            yield self.groups
        if self.waiting is not None:
            yield self.waiting
        for parked in self.parked.values():
            yield parked
            yield parked.tail
        yield from self.sorting.values()

    def stored(self) -> Iterator[Segment]:
        """Yield the segments of ``states``; a segment that two joins share is yielded twice."""
        for state in self.states():
            yield from state.segments

    def restart_counts(self) -> None:
        """Drop all stored rows, because ranks restart and old ranks cannot be compared with new ranks."""
        if self.ranked is not None:
            self.ranked.restart()
            for _, _, _, state in self.slices():
                state.segments = []

    def forget_undecided(self, stream_id: int) -> None:
        """Treat stored rows as decided if the watermark of their opposite stream is reset.

        Args:
            stream_id: Stream whose watermark is reset.
        """
        plan = self.family.plan
        if stream_id in (plan.stream_a, plan.stream_b):
            for chain in self.chains.values():
                chain.settle_rings()
        for side, opposite in (("a", plan.stream_b), ("b", plan.stream_a)):
            if self.absence is not None and opposite == stream_id:
                held = {id(s): s for _, segments in self._waiting(side) for s in segments}
                self.absence.forget_undecided(side, held.values())

    def leave_behind(self, stream_id: int, horizon_us: int) -> None:
        """Remove the rows of a stream from all slices if their event time is below a horizon.

        All queries over a stream with a horizon are inner joins of two streams with windows of time
        (``planner.bind.clocks.horizons``). So only slices hold its rows.
        """
        plan = self.family.plan
        kept: dict[int, Segment] = {}
        for _, side, _, state in self.slices():
            if (plan.stream_a if side == "a" else plan.stream_b) != stream_id:
                continue
            for segment in state.segments:
                # Joins that share a segment must also share the segment that replaces it.
                if id(segment) not in kept and segment.t_max >= horizon_us:
                    begun = segment.t_min < horizon_us
                    kept[id(segment)] = segment.cut(horizon_us, segment.t_max + 1) if begun else segment
            state.segments = [kept[id(segment)] for segment in state.segments if id(segment) in kept]

    def _waiting(self, side: str) -> list[Waiting]:
        return [
            (frozenset(chain.join.plan.queries), [s for state in chain.slices[side] for s in state.segments])
            for chain in self.chains.values()
        ]

    def purge_closed(self, side: str, *, all_rows: bool = False) -> None:
        """Remove stored rows whose key the other side has closed, where rewriting a segment pays.

        Args:
            side: Side of the rows.
            all_rows: Whether to rewrite every segment that has rows of closed keys, even if it does not pay.
        """
        closed = self.closed["b" if side == "a" else "a"]
        layout = self.family.layouts[side]
        slices, left = self._remove(side, lambda s: closed.closed(s, layout), all_rows=all_rows)
        kept = sum(state.rows for state, _, _ in slices)
        closed.end_search(sum(removed for _, removed, _ in slices) + left, left, kept)
        closed.dead_per_slice = [left for _, _, left in slices]
        for state, removed, _ in slices:
            state.counts.closed += removed
            closed.purged += removed
        if self.absence is not None:
            self.absence.forget_marks(side, (s for _, segments in self._waiting(side) for s in segments))

    def _let_go(self, absence: Absence, watermarks: Mapping[str, int | None]) -> None:
        """Remove rows that no query needs any more after a match, once enough rows may have got a match."""
        for side, other in _OPPOSITES:
            held = sum(state.rows for chain in self.chains.values() for state in chain.slices[side])
            if absence.is_look_due(side, held):
                slices, _ = self._remove(side, absence.early(side, watermarks[other], self.classes))
                for state, removed, _ in slices:
                    state.counts.left += removed

    def _remove(
        self, side: str, unneeded: Callable[[Segment], Bools], *, all_rows: bool = False
    ) -> tuple[list[tuple[SliceState, int, int]], int]:
        """Remove stored rows that no query needs, from segments where a rewrite pays.

        Args:
            side: Side of the rows.
            unneeded: Returns the rows of a segment that no query needs, bool[n].
            all_rows: Whether to rewrite every segment that has unneeded rows, even if it does not pay.

        Returns:
            A list of (slice, number of rows removed, number of unneeded rows left), and the number of
            unneeded rows left in all segments. In this number, a segment that joins share counts once.
        """
        kept: dict[int, Segment] = {}
        unneeded_rows: dict[int, int] = {}
        slices = []
        for chain in self.chains.values():
            for state in chain.slices[side]:
                remaining = []
                removed = left = 0
                for segment in state.segments:
                    # Joins that share a segment must also share the segment that replaces it.
                    if id(segment) not in kept:
                        gone = unneeded(segment)
                        count = int(np.count_nonzero(gone))
                        worth_it = all_rows or count * WORTH_A_REWRITE >= len(segment)
                        kept[id(segment)] = segment.filter(~gone) if count and worth_it else segment
                        unneeded_rows[id(segment)] = 0 if worth_it else count
                    stays = kept[id(segment)]
                    removed += len(segment) - len(stays)
                    left += unneeded_rows[id(segment)]
                    if len(stays):
                        remaining.append(stays)
                state.segments = remaining
                slices.append((state, removed, left))
        return slices, sum(unneeded_rows.values())

    def replace(self, state: Holder, index: int, stored: Segment) -> None:
        """Replace a segment by its stored form, and keep the segment's row classes."""
        # The classes of the replaced segment are not removed, because another join may hold this segment and
        # need its classes next.
        classes = self.classes.known(state.segments[index])
        state.segments[index] = stored
        if classes is not None:
            self.classes.put(stored, classes)

    def known_classes(self, segment: Segment) -> RowClasses | None:
        """Return the row classes of a segment, or None if they were not needed in this batch."""
        return self.classes.known(segment)

    def remember_classes(self, segment: Segment, classes: RowClasses) -> None:
        """Take over row classes that an earlier batch computed under the same plan version."""
        self.classes.put(segment, classes)


def _parked_rows(family: CompiledFamily) -> dict[str, ParkedRows]:
    """Return empty ``ParkedRows`` per side, or an empty dict if the family parks no rows on disk."""
    memory, queries = family.plan.memory, family.plan.queries
    if not memory.parks:
        return {}
    reaches = {side: max(q.w_b_us if side == "a" else q.w_a_us for q in queries) for side in SIDES}
    return {side: ParkedRows(reach, memory.read_ahead) for side, reach in reaches.items()}


def _closed_keys(family: CompiledFamily) -> dict[str, ClosedKeys]:
    """Return empty ``ClosedKeys`` for each side of a family whose stream has a contract."""
    queries = family.plan.queries
    windows = {
        side: max((q.w_b_us if side == "a" else q.w_a_us for q in queries), default=0) for side in SIDES
    }
    if family.finishing:
        # A closing is kept until its key is finished, and this depends on the windows of both sides.
        windows = dict.fromkeys(SIDES, max(windows.values()))
    return {
        side: ClosedKeys(contract, family.layouts[side], windows[side])
        for side, contract in family.contracts.items()
    }


def _some(rows: Segment | None) -> Segment | None:
    return rows if rows is not None and len(rows) else None
