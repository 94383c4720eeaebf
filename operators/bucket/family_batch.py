"""One family's part of a batch in one bucket: which new rows are joined and stored, and the pairs they make.

payloads, or pairs of the step before ── without late, disordered, violating rows ── males, females ── pairs
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from catalog.steps import (
    copied_side,
    in_order,
    is_exchanged,
    is_intermediate,
    made_by,
    taken_intermediates,
)
from catalog.values.plan import Plan
from operators.bucket.batch_output import BatchOutput
from operators.bucket.closing import BatchClosings, kept_columns
from operators.bucket.counters import key_counters
from operators.bucket.finishing import result_punctuations
from operators.bucket.pairs_again import PairsAgain
from operators.bucket.progress import ClockProgress, least
from operators.join.family_joins import FamilyJoins
from operators.join.pairs import PairTable
from operators.kernels.fragments import Placed
from operators.lineage.routes import RouteCounts, add_up
from operators.orders.order_clock import MOST
from operators.pack.payload import Payload, arrivals, counted_rows
from operators.ranks.ranking import Ranking
from operators.segments.layout import SIDES
from operators.segments.merge import concat, concat_alike
from operators.segments.segment import Segment, unlabelled
from operators.steps.exchange import ExchangedRows, arrived
from operators.steps.handed_pairs import HandedPairs


@dataclass(frozen=True, slots=True, eq=False)
class FamilyBatch:
    """One family's part of a batch.

    Attributes:
        joins: Joins of the family.
        payloads: Payloads of the batch, in order.
        version: Plan version in force.
        place: Number of this bucket, and the number of buckets.
        before: Progress of each side on the family's clock when the batch began.
        reached: Progress of each side on the family's clock at the end of the batch.
        newest: Greatest clock value of each side's rows so far.
        closings: Closings of the batch, or None if no side can close a key.
        handed: Pairs made by earlier steps in this batch, by the stream id of the intermediate.
        exchanged: Pairs that other buckets sent to this bucket in the previous batch.
        again: Recomputes the pairs that are not stored.
        held_back: Highest watermark by which a family may purge rows, by family id. Families without such a
            limit have no entry.
        idle: Ids of streams from which no row is expected for now.
        groups_wait: Whether groups that are ready are emitted in the next batch instead of this one.
        earlier: Rankings of earlier families that gave the rows of a side their ranks, by side.
        rows_wait: Whether all rows of streams wait until the next batch. Pairs of earlier steps never wait.
    """

    joins: FamilyJoins
    payloads: Sequence[Payload]
    version: int
    place: tuple[int, int]
    before: Mapping[str, int | None]
    reached: Mapping[str, int | None]
    newest: Mapping[str, int | None]
    closings: BatchClosings | None
    handed: Mapping[int, HandedPairs]
    exchanged: Sequence[ExchangedRows]
    again: PairsAgain
    held_back: Mapping[str, int | None]
    idle: frozenset[int] = frozenset()
    groups_wait: bool = False
    earlier: Mapping[str, Sequence[Ranking]] = field(default_factory=dict)
    rows_wait: bool = False

    def pairs(self, output: BatchOutput) -> PairTable:
        """Run the batch through the joins of the family.

        Args:
            output: Receives the counters of the new rows' keys, and the rows that break a promise.

        Returns:
            The pairs of the batch.
        """
        joins, plan = self.joins, self.joins.family.plan
        males: dict[str, Segment | None] = {}
        females: dict[str, Segment | None] = {}
        keyless: dict[str, Segment | None] = {"a": None, "b": None}
        more: dict[str, list[tuple[Segment, Segment | None]]] = {}
        for side in SIDES:
            came, *others = self._in_place(side, self._came(side, output))
            males[side], females[side] = self._placed(side, came, output)
            placed = (self._placed(side, rows, output) for rows in others)
            more[side] = [(rows, resting) for rows, resting in placed if rows is not None]
            if joins.absence is not None:
                keyless[side] = self._keyless(side)
        if joins.ranked is not None:
            counted: dict[str, list[pa.RecordBatch]] = {
                side: counted_rows(self.payloads, plan.id, side, self.before[side])
                for side in plan.counted_sides
            }
            made = joins.process_ranked(
                joins.ranked, males, counted, self.reached, self._resting, self.earlier
            )
        else:
            arrived = {} if self.closings is None else self.closings.arrived
            opened = {}
            for side, parked in joins.parked.items():
                other = "b" if side == "a" else "a"
                newest = self._joined_to(other, [males[other], *(rows for rows, _ in more[other])])
                opened[side] = parked.due(newest)
                females[side] = parked.park(females[side], newest)
                more[side] = [(rows, parked.park(resting, newest)) for rows, resting in more[side]]
                parked.settle(self.place[1], joins.family.lineages[side].live)
            purging, again = self.reached, None
            if plan.id in self.held_back:
                slowest = self.held_back[plan.id]
                purging = {side: least(reached, slowest) for side, reached in self.reached.items()}
            if not plan.rests:
                females["a"] = None
                again = None if males["b"] is None else self.again.rows(plan, males["b"])
            made = joins.process(
                males["a"],
                males["b"],
                purging,
                females,
                self.before,
                keyless,
                arrived,
                opened,
                more,
                again,
            )
            if not plan.rests and males["b"] is not None:
                first = next(iter(joins.chains.values())).slices["a"][0]
                first.counts.partials = self.again.partials
        if self.closings is not None:
            self.closings.close(
                self.before, self.reached, self.newest, self.place, finish=not self.groups_wait
            )
        return made

    def groups(self, pairs: PairTable, table: pa.RecordBatch | None) -> list[pa.Table]:
        """Add pairs to the groups of the family, and return the groups to emit.

        Args:
            pairs: The pairs.
            table: The pairs as a table, or None if there are no pairs.
        """
        groups = self.joins.groups
        if groups is None:
            return []
        if table is not None:
            groups.add(table, pairs.routes().table())
        if self.groups_wait:
            groups.given = 0
            return []
        finished = None if self.closings is None else self.closings.finished
        closed = [
            None if finished is None else groups.close_keys(finished),
            groups.close(self.reached.values()),
        ]
        found = [each for each in closed if each is not None]
        groups.given = sum(each.num_rows for each in found)
        return found

    def results(
        self, pairs: PairTable, table: pa.RecordBatch | None, batch: int
    ) -> tuple[pa.RecordBatch, RouteCounts] | None:
        """Return pairs and result punctuations as result file rows, with their routes.

        Args:
            pairs: The pairs.
            table: The pairs as a table, or None if there are no pairs.
            batch: Batch number.
        """
        found = [] if table is None else [(table, pairs.routes())]
        if self.closings is not None and self.closings.finished is not None:
            rows, routes = result_punctuations(self.joins, self.closings.finished, self.version, batch)
            found.append((rows, routes))
        if len(found) < 2:
            return found[0] if found else None
        ids = tuple(q.id for q in self.joins.family.plan.queries)
        together = pa.concat_batches([rows.cast(found[0][0].schema) for rows, _ in found])
        return together, add_up(ids, [routes for _, routes in found])

    def _stream(self, side: str) -> int:
        plan = self.joins.family.plan
        return plan.stream_a if side == "a" else plan.stream_b

    def _came(self, side: str, output: BatchOutput) -> Segment | None:
        """Return the new rows of a side that are not late and break no promise, sorted by key."""
        joins, family = self.joins, self.joins.family
        stream_id = self._stream(side)
        if is_exchanged(stream_id):
            return arrived(self.exchanged, family.plan, family.layouts[side], self.version, side)
        if is_intermediate(stream_id):
            rows = self.handed[stream_id]
            return rows.rows(family.plan, family.layouts[side], self.version, side)
        if family.plan.ordered:
            came, broken = joins.in_order(side, self._arrived(side, None), self.before[side], self.place)
            violating = None if broken is None else kept_columns(family.layouts[side], broken)
        else:
            came, violating = self._arrived(side, self.before[side]), None
            if self.closings is not None and came is not None:
                came, violating = self.closings.without_violating(side, came, self.place)
        if violating is not None:
            output.violating[stream_id, family.plan.id, side] = violating
        return came

    def _in_place(self, side: str, came: Segment | None) -> list[Segment | None]:
        """Return the rows of a side to join in this batch, or [None]; store the rows that must wait."""
        waiting = self.joins.sorting[side]
        stays = self.rows_wait and not is_intermediate(self._stream(side))
        waiting.taken = 0
        if not waiting.segments and not stays and not self._sorts(side):
            return [came]
        if came is not None:
            waiting.segments.append(came)
        live = self.joins.family.lineages[side].live
        before = self.reached[side] if self._sorts(side) else MOST + 1
        going = concat_alike(waiting.released(None if stays else before), live)
        waiting.taken = sum(map(len, going))
        waiting.merge()
        return [*going] or [None]

    def _sorts(self, side: str) -> bool:
        """Return whether rows of a side wait until no earlier row can arrive.

        Rows of an intermediate never wait, because the previous step has already sorted its rows.
        """
        stream = self._stream(side)
        sorts = self.joins.family.plan.memory.sorts and stream not in self.idle
        return sorts and not is_intermediate(stream)

    def _joined_to(self, side: str, males: Sequence[Segment | None]) -> int | None:
        """Return an upper bound of the clock values of a side's rows that are joined in this batch."""
        if not self.joins.family.plan.memory.sorts:
            return self.newest[side]
        reached = self.reached[side]
        known = [] if reached is None else [reached - 1]
        return max([*known, *(rows.t_max for rows in males if rows)], default=None)

    def _placed(
        self, side: str, came: Segment | None, output: BatchOutput
    ) -> tuple[Segment | None, Segment | None]:
        """Return the new rows that probe in this bucket, and the new rows to store in it; count all keys."""
        if came is None:
            return None, None
        family = self.joins.family
        placed = family.fragments.place(came.key, came.pos, *self.place)
        resting = self._resting(side, came, placed)
        output.keys.append(key_counters(family.plan.id, side, came.key, placed.home))
        # Outer, semi and anti joins check whether a row has a match. Such a row probes in only one bucket,
        # which holds all its partners.
        probing = resting if side == family.plan.spread_side else came
        if self.closings is not None:
            return probing, self.closings.resting(side, came, resting)
        return probing, resting

    def _resting(self, side: str, came: Segment, placed: Placed | None = None) -> Segment:
        """Return the new rows of a side to store in this bucket."""
        plan, fragments = self.joins.family.plan, self.joins.family.fragments
        # Pairs of an earlier step stay in the bucket that made them. So the rows of the other side, which
        # these pairs may match, are stored in all buckets of their key.
        stays = is_intermediate(plan.stream_a) and not is_exchanged(plan.stream_a)
        if stays or side == copied_side(plan):
            return came
        apart = (placed or fragments.place(came.key, came.pos, *self.place)).female
        return came if apart is None else came.filter(apart)

    def _arrived(self, side: str, limit: int | None) -> Segment | None:
        """Return a side's rows from all payloads, except rows whose clock value is below a limit."""
        plan = self.joins.family.plan
        filters = plan.filters_a if side == "a" else plan.filters_b
        # These bits have the order in which PACK wrote them, because PACK and CHAIN use the plan that the
        # batch's offset names.
        bits = tuple(f.bit for f in filters)
        parts = []
        for rows, file in arrivals(self.payloads, plan.id, side):
            if file is not None:
                rows = unlabelled(rows, file.name, self.version, bits)
            segment = Segment(rows, self.version, bits, arrived=file)
            if limit is not None and len(segment) and segment.t_min < limit:
                segment = segment.filter(segment.ts >= limit)
            if len(segment):
                parts.append(segment)
        return concat(parts) if parts else None

    def _keyless(self, side: str) -> Segment | None:
        """Return the new rows of a side that have no key and are not late."""
        plan, limit = self.joins.family.plan, self.before[side]
        bits = tuple(f.bit for f in (plan.filters_a if side == "a" else plan.filters_b))
        found = [p.keyless[plan.id, side] for p in self.payloads if (plan.id, side) in p.keyless]
        parts = [Segment(rows, self.version, bits) for rows in found]
        if limit is not None:
            parts = [part.filter(part.ts >= limit) for part in parts]
        parts = [part for part in parts if len(part)]
        return concat(parts) if parts else None


def last_pairs(
    plan: Plan,
    families: Mapping[str, FamilyJoins],
    place: tuple[int, int],
    reached: ClockProgress,
    newest: ClockProgress,
) -> dict[str, PairTable]:
    """Join all rows that wait for their place in the order now, before the order is certain.

    Args:
        plan: Plan with only ordered joins (``ordered_joins_of``).
        families: Joins of the plan's families. They are changed, and must not be used afterwards.
        place: Number of this bucket, and the number of buckets.
        reached: Progress of the streams and intermediates of the plan.
        newest: Greatest clock value of each stream and intermediate.

    Returns:
        The pairs by family id.
    """
    ordered, taken = in_order(plan.families), taken_intermediates(plan.families)
    again = PairsAgain.of(families, plan.families, plan.version)
    handed: dict[int, HandedPairs] = {}
    found = {}
    for family in ordered:
        sides = reached.sides(family)
        part = FamilyBatch(
            joins=families[family.id],
            payloads=(),
            version=plan.version,
            place=place,
            before=sides,
            reached=sides,
            newest=newest.sides(family),
            closings=None,
            handed=handed,
            exchanged=(),
            again=again,
            held_back={},
            # Rows of an idle stream do not wait, so mark all streams as idle.
            idle=frozenset(stream.id for stream in plan.streams),
        )
        pairs = found[family.id] = part.pairs(BatchOutput())
        handed |= dict.fromkeys(made_by(family, taken), pairs.handed())
    return found


def ordered_joins_of(plan: Plan, query_ids: Collection[int]) -> Plan:
    """Return a plan reduced to the given queries, and to families that join streams by their order."""
    families = []
    for family in plan.families if query_ids else ():
        queries = tuple(query for query in family.queries if query.id in query_ids)
        if not family.ordered or not queries:
            continue
        members = {join.id: tuple(i for i in join.queries if i in query_ids) for join in family.joins}
        joins = tuple(replace(join, queries=members[join.id]) for join in family.joins if members[join.id])
        families.append(replace(family, queries=queries, joins=joins))
    return replace(plan, families=tuple(families))
