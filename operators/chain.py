"""A family's chain of sliced joins in one bucket.

    males of b ->  [ a: slice 1 ] -> [ a: slice 2 ] -> ...      each side has its own boundaries;
    males of a ->  [ b: slice 1 ] -> [ b: slice 2 ] -> ...      with equal windows both chains read as one

A batch is processed as the paper processes a tuple (State-Slice, VLDB 2006, Fig. 6): cross-purge, probe,
insert, propagate, slice by slice. Between batches the chain stands at the watermarks, so what a slice holds
is what some query can still use (Theorem 4), up to the slack of segments that straddle a boundary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from catalog.values.plan import FamilyPlan, Slice
from catalog.values.query import UNBOUNDED_US
from catalog.values.stream import Stream
from operators.entitlement import HolderQuery, Term, held_terms
from operators.expressions import evaluate_filters
from operators.layout import SideLayout, side_layout
from operators.lineage import RowClasses, SideLineage, query_set, side_lineage
from operators.pairs import PairBuilder, PairTable, Probed, residual_sets
from operators.routes import router
from operators.segment import Segment
from operators.sliced_join import SliceState, compact, probe, purge

SIDES = ("a", "b")
#: Segments may straddle a slice boundary by this part of the largest window (design: The chain).
SLACK_DIVISOR = 40

Terms = Mapping[int, tuple[Term, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class CompiledFamily:
    """Everything about a family under one plan version that no row changes.

    Attributes:
        plan: The family's part of the plan.
        version: Plan version.
        layouts: Stored columns per side.
        lineages: Lineage per side.
        builder: Builds the joined pairs.
        terms: Held terms per side and query id.
        slack_us: Span below which a segment is never split.
    """

    plan: FamilyPlan
    version: int
    layouts: Mapping[str, SideLayout]
    lineages: Mapping[str, SideLineage]
    builder: PairBuilder
    terms: Mapping[str, Terms]
    slack_us: int

    def slices(self, side: str) -> list[SliceState]:
        """Return the empty slices of a side."""
        chain = self.plan.chain_a if side == "a" else self.plan.chain_b
        return [SliceState(s.w_start_us, s.w_end_us, self._reach(s)) for s in chain]

    def _reach(self, piece: Slice) -> int:
        return query_set([n for n, q in enumerate(self.plan.queries) if q.id in set(piece.queries)])


def compile_family(
    family: FamilyPlan,
    version: int,
    streams: Mapping[int, Stream],
    terms: Mapping[str, Terms],
    slack_us: int | None = None,
) -> CompiledFamily:
    """Compile a family of a plan version.

    Args:
        family: The family.
        version: Plan version in force.
        streams: Streams by id.
        terms: Held terms per side and query id (see ``operators.entitlement``).
        slack_us: Overrides the slack; 0 splits at every boundary exactly.
    """
    ids = {"a": family.stream_a, "b": family.stream_b}
    layouts = {side: side_layout(family, side, streams[ids[side]]) for side in SIDES}
    finite = [w for q in family.queries for w in (q.w_a_us, q.w_b_us) if w < UNBOUNDED_US]
    return CompiledFamily(
        plan=family,
        version=version,
        layouts=layouts,
        lineages={side: side_lineage(family, side, terms[side]) for side in SIDES},
        builder=PairBuilder(
            layouts["a"],
            layouts["b"],
            family.columns_a,
            family.columns_b,
            router(family),
            residual_sets(family),
        ),
        terms=terms,
        slack_us=max(finite, default=0) // SLACK_DIVISOR if slack_us is None else slack_us,
    )


@dataclass(slots=True, eq=False)
class Chain:
    """Slices of both sides of a family, with their rows.

    Attributes:
        family: What is compiled of the plan version in force.
        slices: Slices per side.
    """

    family: CompiledFamily
    slices: dict[str, list[SliceState]]
    _classes: dict[int, tuple[Segment, RowClasses]] = field(default_factory=dict)

    @classmethod
    def empty(cls, family: CompiledFamily) -> Chain:
        """Return a chain without rows."""
        return cls(family, {side: family.slices(side) for side in SIDES})

    def process(
        self,
        a: Segment | None,
        b: Segment | None,
        watermarks: Mapping[str, int | None],
        batch: int,
    ) -> PairTable:
        """Run one batch through the chain.

        Args:
            a: New rows of a that are not late, or None.
            b: New rows of b, or None.
            watermarks: Watermark per side at the end of the batch.
            batch: Batch number.

        Returns:
            The joined pairs of the batch.
        """
        fresh = {"a": a if a is not None and len(a) else None, "b": b if b is not None and len(b) else None}
        pairs = PairTable(self.family.builder)
        for side, other in (("a", "b"), ("b", "a")):
            self._purge(side, _safe_limit(watermarks[other], fresh[other]))
        if fresh["a"] is not None:
            self._insert("a", fresh["a"])
        self._probe("a", fresh["b"], pairs)
        self._probe("b", fresh["a"], pairs)
        if fresh["b"] is not None:
            self._insert("b", fresh["b"])
        for side, other in (("a", "b"), ("b", "a")):
            self._purge(side, watermarks[other])
            for state in self.slices[side]:
                compact(state, self.family.slack_us)
        self._classes = {id(s): c for s, c in self._live_classes()}
        return pairs

    def migrated(self, family: CompiledFamily, activated: frozenset[int]) -> Chain:
        """Return the chain of the next plan version with the rows that its queries may still use.

        Args:
            family: The family under the next version.
            activated: Ids of the queries that the next version activates.

        Returns:
            A chain whose rows lie in slices that start no later than the ones they come from; the next
            cross-purge moves them on.
        """
        chain = Chain.empty(family)
        for side in SIDES:
            for state in self.slices[side]:
                index = max(
                    (i for i, s in enumerate(chain.slices[side]) if s.w_start_us <= state.w_start_us),
                    default=0,
                )
                target = chain.slices[side][index]
                for segment in state.segments:
                    known = chain._evaluate_new_filters(side, segment, activated)
                    kept = chain._serving(side, known, target.reach)
                    if kept is not None:
                        target.segments.append(kept)
        return chain

    def terms_for(
        self, side: str, opposite_watermark_us: int | None, columns: frozenset[str]
    ) -> tuple[Term, ...]:
        """Unfold which rows of a side this version holds for a query that the next one activates."""
        first = side == "a"
        holders = [
            HolderQuery(
                q.filter_a if first else q.filter_b,
                q.since_version,
                q.w_a_us if first else q.w_b_us,
                tuple(self.family.terms[side].get(q.id, ())),
            )
            for q in self.family.plan.queries
        ]
        return held_terms(holders, opposite_watermark_us, columns)

    def replace(self, state: SliceState, index: int, stored: Segment) -> None:
        """Put the stored form of a segment in its place; what is known of its rows stays known."""
        classes = self._classes.pop(id(state.segments[index]), None)
        state.segments[index] = stored
        if classes is not None:
            self._classes[id(stored)] = (stored, classes[1])

    def known_classes(self, segment: Segment) -> RowClasses | None:
        """Return the row classes of a segment where they were needed in this batch."""
        known = self._classes.get(id(segment))
        return None if known is None else known[1]

    def remember_classes(self, segment: Segment, classes: RowClasses) -> None:
        """Take over the row classes that an earlier batch found under the same plan version."""
        self._classes[id(segment)] = (segment, classes)

    def segments(self) -> list[tuple[str, int, Segment]]:
        """Return (side, slice index, segment) of every segment."""
        return [
            (side, index, segment)
            for side in SIDES
            for index, state in enumerate(self.slices[side])
            for segment in state.segments
        ]

    def _purge(self, side: str, watermark_us: int | None) -> None:
        if watermark_us is None:
            return
        slices = self.slices[side]
        for index, state in enumerate(slices):
            leaving = purge(state, watermark_us, self.family.slack_us)
            following = slices[index + 1] if index + 1 < len(slices) else None
            for segment in leaving:
                if following is None:
                    state.counts.purged += len(segment)
                    continue
                kept = self._serving(side, segment, following.reach)
                moved = 0 if kept is None else len(kept)
                following.counts.moved_in += moved
                following.counts.filtered += len(segment) - moved
                if kept is not None:
                    following.segments.append(kept)

    def _insert(self, side: str, rows: Segment) -> None:
        first = self.slices[side][0]
        kept = self._serving(side, rows, first.reach)
        inserted = 0 if kept is None else len(kept)
        first.counts.inserted += inserted
        first.counts.filtered += len(rows) - inserted
        if kept is not None:
            first.segments.append(kept)

    def _probe(self, side: str, males: Segment | None, pairs: PairTable) -> None:
        """Let males of the other side probe the slices of ``side`` one after the other."""
        opposite = "b" if side == "a" else "a"
        for state in self.slices[side]:
            if males is not None:
                males = self._serving(opposite, males, state.reach)
            if males is None:
                return
            state.counts.males += len(males)
            male = Probed(males, self._class_of(opposite, males))
            for segment in state.segments:
                if not self._can_meet(side, segment, males):
                    continue
                female = Probed(segment, self._class_of(side, segment))
                for female_rows, male_rows in probe(segment, males):
                    state.counts.touched += len(female_rows)
                    if side == "a":
                        chunk = self.family.builder.build(female, female_rows, male, male_rows)
                    else:
                        chunk = self.family.builder.build(male, male_rows, female, female_rows)
                    if chunk is not None:
                        state.counts.results += chunk.rows
                        pairs.add(chunk)

    def _can_meet(self, side: str, female: Segment, males: Segment) -> bool:
        """Tell whether any window reaches from the segment's event times to the males'."""
        a, b = (female, males) if side == "a" else (males, female)
        bounds = self.family.builder.router
        return bool(b.t_min - a.t_max < bounds.bounds_a[-1] and a.t_min - b.t_max < bounds.bounds_b[-1])

    def _serving(self, side: str, segment: Segment, queries: int) -> Segment | None:
        """Return the rows that may serve one of the queries; None without any."""
        classes = self._class_of(side, segment)
        keep = classes.serving(len(segment), queries)
        if keep is None:
            return segment
        if not keep.any():
            return None
        if keep.all():
            return segment
        kept = segment.filter(keep)
        self._classes[id(kept)] = (kept, classes.select(keep))
        return kept

    def _class_of(self, side: str, segment: Segment) -> RowClasses:
        known = self._classes.get(id(segment))
        if known is None:
            layout = self.family.layouts[side]
            classes = self.family.lineages[side].classify(segment, layout.kept(segment))
            known = self._classes[id(segment)] = (segment, classes)
        return known[1]

    def _live_classes(self) -> list[tuple[Segment, tuple[Segment, RowClasses]]]:
        live = [segment for _, _, segment in self.segments()]
        return [(s, self._classes[id(s)]) for s in live if id(s) in self._classes]

    def _evaluate_new_filters(self, side: str, segment: Segment, activated: frozenset[int]) -> Segment:
        """Evaluate on old rows the filters of queries that may use them and that these rows do not know."""
        family = self.family.plan
        filters = {f.bit: f for f in (family.filters_a if side == "a" else family.filters_b)}
        layout = self.family.layouts[side]
        kept = layout.kept(segment)
        for query in family.queries:
            bit = query.filter_a if side == "a" else query.filter_b
            if query.id not in activated or query.backfill != "state" or bit is None:
                continue
            if bit not in segment.known_bits and set(filters[bit].columns) <= kept:
                # The event time is there for a filter that reads no column: the table must have the rows.
                names = {layout.event_time, *filters[bit].columns}
                table = pa.table({name: layout.read(segment, name) for name in sorted(names)})
                segment = segment.with_bit(bit, evaluate_filters(table, [filters[bit].sql])[0])
        return segment


def _safe_limit(watermark_us: int | None, fresh: Segment | None) -> int | None:
    """Return how far the opposite side may purge before this batch's males probe.

    No male of the batch is older than its oldest row, no later one than the watermark at its end.
    """
    if watermark_us is None or fresh is None:
        return watermark_us
    return min(watermark_us, fresh.t_min)
