"""A bucket: the joins of all families for the keys that hash to the bucket, and all streams' watermarks.

Every bucket reads every header and every control record. So all buckets agree on watermarks and on the plan
in every batch without communication, and a replayed batch repeats its first run. A batch applies its control
records, advances the watermarks, drops rows that were late when it began, and then joins the other rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from catalog.documents.codec import decode
from catalog.documents.plan_differences import BucketRecord, applied
from catalog.steps import (
    in_order,
    is_exchanged,
    made_by,
    makers,
    makers_again,
    plan_streams,
    taken_intermediates,
)
from catalog.values.control import Horizon, Promises
from catalog.values.counters.batch_counters import StreamPunctuations
from catalog.values.plan import FamilyPlan, Plan
from operators.bucket.batch_output import BatchOutput
from operators.bucket.closing import BatchClosings, decoded_promise
from operators.bucket.family_batch import FamilyBatch, last_pairs, ordered_joins_of
from operators.bucket.pairs_again import PairsAgain, held_back
from operators.bucket.progress import ClockProgress, latest, least, setting_out
from operators.bucket.rank_chains import earlier_rankings, followers, restarted_families
from operators.bucket.watermark import Watermark
from operators.groups.open_groups import group_results
from operators.join.compiled_family import CompiledFamily, compile_family
from operators.join.family_joins import FamilyJoins
from operators.join.migration.migration import Marks, migrated
from operators.join.pairs import PairTable
from operators.lineage.entitlement import MOST_TERMS, Term, settled
from operators.orders.order_clock import MOST
from operators.orders.order_progress import OrderProgress, following
from operators.pack.payload import Payload
from operators.segments.encoding.row_codec import TS
from operators.segments.layout import SIDES
from operators.steps.exchange import ExchangedRows, set_out
from operators.steps.handed_pairs import HandedPairs

Terms = dict[str, dict[int, tuple[Term, ...]]]


@dataclass(slots=True)
class StreamState:
    """State of a stream, kept in every bucket.

    Attributes:
        watermark: Event-time progress.
        rows: Number of rows in this batch.
        rejected_rows: Number of rows in this batch that have no event time.
        late_rows: Number of late rows in this batch, counted only in the bucket to which PACK sent the rows
            that may be late (``Payload.suspects``).
        order: Progress in the stream's order, or None if the stream has no order.
        horizon_us: Event time below which rows were evicted before their windows ended, µs UTC, or None if
            no row was evicted early.
    """

    watermark: Watermark
    rows: int = 0
    rejected_rows: int = 0
    late_rows: int = 0
    order: OrderProgress | None = None
    horizon_us: int | None = None


@dataclass(slots=True, eq=False)
class Bucket:
    """State of one bucket.

    Attributes:
        plan: Plan in force, or None before the first plan.
        streams: State per stream id.
        families: Joins per family id.
        terms: Conditions under which a query may use rows from before its activation
            (``operators.lineage.entitlement``), per family id, side and query id.
        next_batch: Number of the next batch.
        slack_us: Slack that replaces the slack of every family, for tests, µs, or None. With 0, segments are
            split exactly at every boundary.
        plan_changed: Whether this batch put another plan in force.
        closed_groups: Groups that are emitted in this batch, per family id.
        late_groups: Ids of families whose groups are not emitted before the next batch.
        last_pairs: Last pairs for the queries that leave in this batch, per family id: pairs of rows that
            were still waiting for their place in the order.
        late_rows: Ids of families whose rows are not joined before the next batch.
        arrived: Watermark and newest event time of each exchanged intermediate, by its id. Both are those of
            the batch that sent the intermediate's pairs (``operators.steps.exchange``).
        exchange_files: Stored ids of the pairs that this bucket sent to other buckets in the last batch.
        restarted: Ids of families that restart their counts of rows in this batch.
    """

    plan: Plan | None = None
    streams: dict[int, StreamState] = field(default_factory=dict)
    families: dict[str, FamilyJoins] = field(default_factory=dict)
    terms: dict[str, Terms] = field(default_factory=dict)
    next_batch: int = 0
    slack_us: int | None = None
    plan_changed: bool = False
    closed_groups: dict[str, list[pa.Table]] = field(default_factory=dict)
    late_groups: frozenset[str] = frozenset()
    last_pairs: dict[str, PairTable] = field(default_factory=dict)
    late_rows: frozenset[str] = frozenset()
    arrived: dict[int, tuple[int | None, int | None]] = field(default_factory=dict)
    exchange_files: tuple[str, ...] = ()
    restarted: frozenset[str] = frozenset()

    def process(self, payloads: Sequence[Payload], exchanged: Sequence[ExchangedRows] = ()) -> BatchOutput:
        """Run one batch.

        Args:
            payloads: The payloads of the batch for this bucket, in any order; at least one.
            exchanged: Pairs that other buckets sent to this bucket in the previous batch.

        Returns:
            Results, late rows and counters. The counters of the slices stay in the slices until the next
                batch.
        """
        ordered = sorted(payloads, key=lambda p: p.order)
        batch = ordered[0].batch
        self.plan_changed = False
        self.closed_groups, self.late_groups = {}, frozenset()
        self.last_pairs, self.late_rows = {}, frozenset()
        self.restarted = frozenset()
        # The place is (number of this bucket, number of buckets). Every payload with rows contains it.
        place = next((p.place for p in ordered if p.place is not None), (0, 1))
        control = [text for p in ordered for text in p.control]
        heartbeats, promises, pulled = self._apply_control(control, place)
        exchanged = [rows for rows in exchanged if rows.family not in self.restarted]
        start = self._reached(self.plan)
        setting_out = self._setting_out()
        for stream in self.streams.values():
            stream.rows = stream.rejected_rows = stream.late_rows = 0
        self._advance(ordered, heartbeats)
        self.arrived = setting_out
        end = self._reached(self.plan)
        output = BatchOutput(
            late=self._late_rows(ordered, start.times_us),
            filters=[counters for p in ordered for counters in p.filters],
            received=[p.received for p in ordered if p.received is not None],
            pack_us=sum(p.pack_us for p in ordered),
            began_us=min((p.began_us for p in ordered if p.began_us is not None), default=None),
        )
        version = self.plan.version if self.plan else 0
        handed: dict[int, HandedPairs] = {}
        newest = self._newest(self.plan)
        idle = frozenset(i for i, stream in self.streams.items() if stream.watermark.idle)
        families = self.plan.families if self.plan else ()
        taken, made_in, ordered_families = taken_intermediates(families), makers(families), in_order(families)
        again = PairsAgain.of(self.families, families, version)
        held = held_back(ordered_families, start.sides) if again.makers else {}
        if self.late_rows:
            # Rows that wait for the next batch may have arrived in an earlier batch. So a row that may match
            # the oldest waiting row is not purged.
            sorting = [rows for joins in self.families.values() for rows in joins.sorting.values()]
            oldest = min((segment.t_min for rows in sorting for segment in rows.segments), default=MOST)
            held |= {f.id: least(oldest, least(*start.sides(f).values())) for f in families if f.ordered}
        for plan in ordered_families:
            joins, before = self.families[plan.id], start.sides(plan)
            closings = BatchClosings.of(joins, ordered, before, promises, place)
            reached, latest_of = end.sides(plan), newest.sides(plan)
            if closings is not None:
                closings.pulled = any(query.id in pulled for query in plan.queries)
            wait = plan.id in self.late_groups
            part = FamilyBatch(
                joins,
                ordered,
                version,
                place,
                before,
                reached,
                latest_of,
                closings,
                handed,
                exchanged,
                again,
                held,
                idle,
                wait,
                {} if joins.ranked is None else earlier_rankings(plan, self.families, made_in),
                plan.id in self.late_rows,
            )
            pairs = part.pairs(output)
            if made := made_by(plan, taken):
                handed |= dict.fromkeys(made, pairs.handed())
            table = pairs.finish(version, batch)
            if joins.groups is not None:
                self.closed_groups.setdefault(plan.id, []).extend(part.groups(pairs, table))
            elif (results := part.results(pairs, table, batch)) is not None:
                output.results[plan.id], output.routes[plan.id] = results
        for plan in families:
            if (ranked := self.families[plan.id].ranked) is not None:
                asking = [end.sides(each) for each in followers(plan, families)]
                ranked.end_batch(end.sides(plan), asking)
            for side, stream_id in (("a", plan.stream_a), ("b", plan.stream_b)):
                if is_exchanged(stream_id):
                    layout = self.families[plan.id].family.layouts[side]
                    output.exchanged += set_out(handed[stream_id], plan, layout, place[1], side)
        for family_id, groups in self.closed_groups.items():
            results = group_results(groups, version, batch)
            if results is not None:
                output.results[family_id], output.routes[family_id] = results
        for family_id, left in self.last_pairs.items():
            if (rows := left.finish(version, batch)) is not None:
                output.add_results(family_id, rows, left.routes())
        if promises:
            output.received += self._received(promises, place)
        self.next_batch = batch + 1
        return output

    def _received(self, promises: Sequence[Promises], place: tuple[int, int]) -> Iterator[StreamPunctuations]:
        """Count punctuations in control records, and those that no family uses, for this bucket's streams."""
        used = {
            (stream_id, contract.on)
            for joins in self.families.values()
            for side, contract in joins.family.contracts.items()
            for stream_id in [joins.family.plan.stream_a if side == "a" else joins.family.plan.stream_b]
        }
        for each in promises:
            if each.stream_id in self.streams and each.stream_id % place[1] == place[0]:
                count = decoded_promise(each).num_rows
                ignored = 0 if (each.stream_id, frozenset(each.on)) in used else count
                yield StreamPunctuations(each.stream_id, count, ignored)

    def watermarks(self) -> Mapping[int, int | None]:
        """Return the watermark of each stream and intermediate by its id."""
        return self._reached(self.plan).times_us

    def clocks(self, family: FamilyPlan) -> dict[str, int | None]:
        """Return each side's progress on a family's clock: event time, or the order of an ordered family."""
        return self._reached(self.plan).sides(family)

    def _reached(self, plan: Plan | None) -> ClockProgress:
        """Return the clock value below which rows are late, per stream and intermediate of a plan."""
        times = {i: s.watermark.value_us for i, s in self.streams.items()}
        orders = {i: None if s.order is None else s.order.limit for i, s in self.streams.items()}
        return ClockProgress.of(plan, times, orders, least, {i: at[0] for i, at in self.arrived.items()})

    def _newest(self, plan: Plan | None) -> ClockProgress:
        """Return the greatest clock value so far, per stream and intermediate of a plan."""
        times = {i: s.watermark.max_event_time_us for i, s in self.streams.items()}
        orders = {i: None if s.order is None else s.order.newest for i, s in self.streams.items()}
        return ClockProgress.of(plan, times, orders, latest, {i: at[1] for i, at in self.arrived.items()})

    def _setting_out(self) -> dict[int, tuple[int | None, int | None]]:
        """Return the value of ``arrived`` for this batch, from the watermarks after the previous batch."""
        if self.plan is None:
            return {}
        reached = setting_out(self.plan, self._reached(self.plan).times_us, least)
        newest = setting_out(self.plan, self._newest(self.plan).times_us, latest)
        return {made: (reached[made], newest[made]) for made in reached}

    def compile(self, family: FamilyPlan, plan: Plan) -> CompiledFamily:
        """Compile a family of a plan with this bucket's ``terms``."""
        terms = self.terms.get(family.id, {side: {} for side in SIDES})
        return compile_family(family, plan.version, plan_streams(plan), terms, self.slack_us)

    def _apply_control(
        self, texts: Sequence[str], place: tuple[int, int]
    ) -> tuple[list[tuple[int, int]], list[Promises], set[int]]:
        """Apply control records; return their heartbeats, punctuations, and ids of queries to ``Pull``."""
        records = [decode(BucketRecord, text.encode()) for text in texts]
        plan = self.plan
        for record in records:
            if record.change is not None:
                plan = applied(plan, record.change)
            elif record.plan is not None:
                plan = record.plan
        if plan is not None and plan is not self.plan:
            # All plan versions that take effect before the same batch are applied as one change. The plan
            # of the previous batch decides which rows new queries may use. So a query that leaves in one of
            # these versions still keeps rows for a query that enters in a later version.
            self.activate(plan, place)
        for record in records:
            if record.horizon is not None:
                self._leave_behind(record.horizon)
        beats = [record.heartbeat for record in records if record.heartbeat is not None]
        for beat in beats:
            if beat.watermark_us is None and (stream := self.streams.get(beat.stream_id)) is not None:
                stream.watermark = stream.watermark.reset()
                stream.order = None if stream.order is None else stream.order.reset()
                self.restarted |= restarted_families(beat.stream_id, () if plan is None else plan.families)
                for joins in self.families.values():
                    joins.forget_undecided(beat.stream_id)
        for family_id in self.restarted:
            # Ranks from before and after the restart cannot be compared, so no combination may mix them.
            self.families[family_id].restart_counts()
        moved = [(beat.stream_id, beat.watermark_us) for beat in beats if beat.watermark_us is not None]
        promises = [record.promises for record in records if record.promises is not None]
        return moved, promises, {record.pull.query_id for record in records if record.pull is not None}

    def _leave_behind(self, horizon: Horizon) -> None:
        """Remove the rows of a stream whose event times are below a horizon from the state."""
        # A stream may be removed in the batch that brings its last horizon.
        if (stream := self.streams.get(horizon.stream_id)) is not None:
            stream.horizon_us = max(horizon.time_us, stream.horizon_us or horizon.time_us)
            for joins in self.families.values():
                joins.leave_behind(horizon.stream_id, horizon.time_us)

    def activate(self, plan: Plan, place: tuple[int, int] = (0, 1)) -> None:
        """Put a plan version in force before the batch's rows are joined, and migrate all families to it.

        Args:
            plan: The plan version.
            place: Number of this bucket, and the number of buckets.
        """
        before = self.plan.version if self.plan is not None else 0
        self._join_waiting_rows(plan, place)
        former_orders = {} if self.plan is None else {s.id: s.order for s in self.plan.streams}
        for stream in plan.streams:
            state = self.streams.setdefault(stream.id, StreamState(Watermark(stream.lateness_us)))
            state.order = following(state.order, former_orders.get(stream.id), stream.order)
        # A stream's id is never used again, so the state of a removed stream is not needed any more.
        self.streams = {stream.id: self.streams[stream.id] for stream in plan.streams}
        families = {}
        reached, newest = self._reached(plan), self._newest(plan)
        for family in plan.families:
            former = self.families.get(family.id)
            activated = frozenset(q.id for q in family.queries if q.since_version > before)
            self.terms[family.id], marks = self._terms(
                family, former, activated, reached.sides(family), newest.sides(family)
            )
            compiled = self.compile(family, plan)
            if former is None:
                families[family.id] = FamilyJoins.empty(compiled)
            else:
                families[family.id] = migrated(former, compiled, activated, marks, reached.sides(family))
        self._let_rest(plan, families)
        self.terms = {family_id: self.terms[family_id] for family_id in families}
        queries = {query.id: query for family in plan.families for query in family.queries}
        named = {query.name.lower(): query for query in queries.values()}
        # In one batch, only one version of an updated query's SQL text has results. So the groups of the new
        # text, and all other groups of its family, wait for the next batch. If the new text returns pairs,
        # the groups of the former text are not emitted.
        updated: set[str] = set()
        for family_id, joins in self.families.items():
            if joins.groups is None:
                continue
            leaving = [q for q in joins.family.plan.queries if q.id not in queries]
            followed = {q.name.lower() for q in leaving if q.name.lower() in named}
            grouped = {name for name in followed if named[name].grouping is not None}
            updated |= grouped
            left = joins.groups.leave(
                q.id for q in leaving if q.name.lower() not in followed or q.name.lower() in grouped
            )
            if left is not None:
                self.closed_groups.setdefault(family_id, []).append(left)
        self.late_groups = frozenset(
            family.id
            for family in plan.families
            if any(query.name.lower() in updated for query in family.queries)
        )
        self.families = families
        self.plan = plan
        self.plan_changed = True

    def _join_waiting_rows(self, plan: Plan, place: tuple[int, int]) -> None:
        """Join the rows that wait for their place in the order, for the queries that leave.

        These rows continue to wait for the remaining queries. In one batch, only one version of an updated
        query's SQL text has results. So the rows of the families that serve the new text wait for the next
        batch. If none of these families sorts its rows, the waiting rows are not joined for the former text.
        """
        former = () if self.plan is None else self.plan.families
        names = {q.id: q.name.lower() for family in former for q in family.queries}
        following = {q.id: q.name.lower() for family in plan.families for q in family.queries}
        leaving = {query_id for query_id in names if query_id not in following}
        updated = {names[query_id] for query_id in leaving} & {
            name for query_id, name in following.items() if query_id not in names
        }
        late: dict[str, set[str]] = {}
        for family in plan.families if updated else ():
            entering = {following[q.id] for q in family.queries if q.id not in names}
            if family.memory.sorts and entering & updated:
                late[family.id] = entering & updated
        self.late_rows = frozenset(late)
        leaving -= {i for i in leaving if names[i] in updated.difference(*late.values())}
        if self.plan is None or not any(w.rows for j in self.families.values() for w in j.sorting.values()):
            return
        part = ordered_joins_of(self.plan, leaving)
        reached = self._reached(part)
        joins = {
            family.id: migrated(
                self.families[family.id],
                self.compile(family, part),
                frozenset(),
                watermarks=reached.sides(family),
            )
            for family in part.families
        }
        self.last_pairs = last_pairs(part, joins, place, reached, self._newest(part))

    def _let_rest(self, plan: Plan, families: Mapping[str, FamilyJoins]) -> None:
        """Make and store the intermediate pairs of families that did not store them under the last plan."""
        makers = makers_again([joins.family.plan for joins in self.families.values()])
        again = PairsAgain.of(families, plan.families, plan.version)
        for family in in_order(plan.families) if makers else ():
            if family.rests and family.id in makers:
                rows = again.all_rows(family, families[makers[family.id].id].family.plan)
                if rows is None:
                    continue
                for chain in families[family.id].chains.values():
                    if (admitted := chain.admitted("a", rows)) is not None:
                        chain.slices["a"][0].segments.append(admitted)

    def _terms(
        self,
        family: FamilyPlan,
        former: FamilyJoins | None,
        activated: frozenset[int],
        reached: Mapping[str, int | None],
        newest: Mapping[str, int | None],
    ) -> tuple[Terms, Marks]:
        """Return the terms of each query, and for each new lineage bit the terms that the bit replaces.

        All buckets know the same watermarks and plans, so they all compute equal terms. A worker therefore
        compiles a family once for all its buckets.
        """
        known = self.terms.get(family.id, {side: {} for side in SIDES})
        terms: Terms = {side: {} for side in SIDES}
        marks: Marks = {side: {} for side in SIDES}
        # Rows that wait for their place in the order are joined long after the other stream has passed them.
        # So in such a family a term is kept even when the other stream has passed all its rows.
        sorts = family.memory.sorts or (former is not None and former.family.plan.memory.sorts)
        for side, other in (("a", "b"), ("b", "a")):
            opposite = reached[other]
            unfolded: dict[frozenset[str], tuple[Term, ...]] = {}
            for query in family.queries:
                if query.backfill != "state":
                    continue
                if query.id not in activated:
                    window_us = query.w_a_us if side == "a" else query.w_b_us
                    held = known[side].get(query.id, ())
                    terms[side][query.id] = tuple(t for t in held if sorts or t.reaches(window_us, opposite))
                    continue
                columns = frozenset(query.columns_a if side == "a" else query.columns_b)
                if columns not in unfolded:
                    found = (
                        former.terms_for(side, opposite, newest[side], columns) if former is not None else ()
                    )
                    unfolded[columns] = found
                held = unfolded[columns]
                if len(held) > MOST_TERMS:
                    mark = settled(query.id, held)
                    marks[side] |= dict.fromkeys(mark.bits, held)
                    held = (mark,)
                terms[side][query.id] = held
        return terms, marks

    def _advance(self, payloads: Sequence[Payload], heartbeats: Sequence[tuple[int, int]]) -> None:
        for payload in payloads:
            for header in payload.streams:
                stream = self.streams[header.stream_id]
                stream.rows += header.rows
                stream.rejected_rows += header.rejected_rows
                stream.watermark = stream.watermark.after_rows(header.max_event_time_us)
                if stream.order is not None and header.order is not None:
                    stream.order = stream.order.after_rows(header.order)
        for stream_id, watermark_us in heartbeats:
            # A stream may be removed in the batch that brings its last heartbeat.
            if stream_id in self.streams:
                stream = self.streams[stream_id]
                stream.watermark = stream.watermark.after_heartbeat(watermark_us)

    def _late_rows(
        self, payloads: Sequence[Payload], start: Mapping[int, int | None]
    ) -> dict[int, pa.RecordBatch]:
        late: dict[int, list[pa.RecordBatch]] = {}
        for payload in payloads:
            for stream_id, rows in payload.suspects.items():
                limit = start[stream_id]
                if limit is None:
                    continue
                rows = rows.filter(pa.array(rows.column(TS).to_numpy() < limit))
                if rows.num_rows:
                    late.setdefault(stream_id, []).append(rows)
                    self.streams[stream_id].late_rows += rows.num_rows
        return {stream_id: pa.concat_batches(parts) for stream_id, parts in late.items()}


def total_rows(bucket: Bucket) -> int:
    """Return the number of rows that all joins of a bucket hold."""
    return sum(len(s) for joins in bucket.families.values() for s in joins.segments())
