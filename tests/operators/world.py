"""A run of the operators beside the oracles, checked after every batch: results, state, masks, counters.

plans, rows ──> DurableRunner ──> results ─────── NestedLoops (tests.operators.oracle)
                     │
                   slices ───── rows of each: Lemma 1 and Theorem 4 of State-Slice, up to the slack
                     │
                   masks ────── Chronicle (tests.operators.held): which query may use which row
                     │
                  counters ──── rows before + in - out = rows now, slice by slice
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from catalog.values.control import Heartbeat
from catalog.values.counters.family_counters import SliceCounters
from catalog.values.plan import FamilyPlan, JoinPlan, Plan
from catalog.values.query import UNBOUNDED_US, Query
from catalog.values.stream import Stream
from operators.bucket.batch_output import BatchOutput
from operators.bucket.counters import slice_table
from operators.join.compiled_family import SLACK_DIVISOR
from operators.segments.layout import SIDES
from tests.operators.cases import check_values
from tests.operators.durable import Crash, DurableRunner
from tests.operators.harness import SliceName
from tests.operators.held import Chronicle
from tests.operators.oracle import NestedLoops, side_of
from tests.operators.queries import Row, a_table


@dataclass
class World:
    """Operators and oracles, batch by batch.

    Attributes:
        streams: Streams by id.
        buckets: Number of buckets.
        slack_us: Slack of every family; None takes the families' own.
    """

    streams: Mapping[int, Stream]
    buckets: int = 1
    slack_us: int | None = 0
    plan: Plan | None = None
    queries: tuple[Query, ...] = ()
    expected: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    sources: dict[tuple[int, int], Row] = field(default_factory=dict)
    may_use: dict[tuple[int, str], set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.runner = DurableRunner(self.streams, self.buckets, self.slack_us)
        self.oracle = NestedLoops(self.streams)
        self.chronicle = Chronicle(self.streams)

    def batch(
        self,
        rows: Mapping[int, Sequence[Row]],
        plans: Sequence[Plan] = (),
        queries: Sequence[Query] | None = None,
        heartbeats: Sequence[Heartbeat] = (),
        crash: Crash = "never",
    ) -> list[BatchOutput]:
        """Run one batch and check everything.

        Args:
            rows: Rows per stream id; those of streams that do not flow yet are left out.
            plans: Plan versions of this boundary.
            queries: Queries of the last of them; None without plans.
            heartbeats: After the rows.
            crash: Where the process dies.
        """
        self.plan = plans[-1] if plans else self.plan
        self.queries = tuple(queries) if queries is not None else self.queries
        assert self.plan is not None
        flowing = {s.id for s in self.plan.streams}
        rows = {i: arrived for i, arrived in rows.items() if i in flowing and arrived}
        heartbeats = [beat for beat in heartbeats if beat.stream_id in flowing]
        before = _held_counts(self.runner)
        self.runner.crash = crash
        outputs = self.runner.step(
            {i: a_table(self.streams[i], arrived) for i, arrived in rows.items()}, plans, heartbeats
        )
        self.expected += self.oracle.step(queries, rows, heartbeats)
        self.chronicle.batch(self.queries, rows, heartbeats)
        self.sources |= {(i, r.pos): r for i, arrived in rows.items() for r in arrived}
        self.may_use = {(q.id, side): self.chronicle.may_use(q, side) for q in self.queries for side in SIDES}
        self._check_results()
        for output in outputs:
            check_values(output, self.plan, self.oracle, self.sources)
        for family in self.plan.families:
            self._check_slices(family)
            self._check_masks(family)
        # What the slices held between the change of plan and the rows is not to be seen from here.
        self._check_counters(outputs, before if not plans else None)
        return outputs

    def _check_results(self) -> None:
        found = self.runner.results
        if found != self.expected:
            missing, surplus = self.expected - found, found - self.expected
            raise AssertionError(
                f"batch {self.runner.batch - 1}: missing {dict(missing)}, surplus {dict(surplus)}"
            )
        late = {i: positions for i, positions in self.runner.late.items() if positions}
        assert late == {i: positions for i, positions in self.oracle.late.items() if positions}

    def _check_slices(self, family: FamilyPlan) -> None:
        """No join lacks a row that its queries can use; no slice holds one that it should not."""
        spread = () if family.spread_side is None else (family.spread_side,)
        key = (family.stream_a, family.stream_b, family.key, family.of_absence, spread)
        for side in SIDES:
            usable: set[int] = set()
            held: set[int] = set()
            for join in family.joins:
                # state_rows asserts that no row is held twice in a chain.
                slices = self.runner.state_rows(family.id, side, join.id)
                held |= set().union(*slices)
                usable |= self.oracle.usable(key, side, queries=join.queries)
                if join.partition is None:
                    mine = self.oracle.usable(key, side, queries=join.queries)
                    lost = mine - set().union(*slices)
                    assert not lost, f"{join.id}/{side}: rows {lost} are usable and lost"
                elif join.partition.side == side:
                    assert sum(map(len, slices)) == len(set().union(*slices))
                self._check_slice_rows(family, join, side, slices)
            assert usable <= held, f"{family.id}/{side}: rows {usable - held} are usable and lost"

    def _check_slice_rows(
        self, family: FamilyPlan, join: JoinPlan, side: str, slices: Sequence[set[int]]
    ) -> None:
        """A row of [s, e) has been passed by s and not by e (Lemma 1, up to the slack), and serves a query.

        Where there is slack, it may have been passed by more than e if it is of use behind that, too.
        """
        slack_us = self._slack_us(family, join)
        stream_id = family.stream_a if side == "a" else family.stream_b
        opposite = self.oracle.watermark(family.stream_b if side == "a" else family.stream_a)
        members = [q for q in self.queries if q.id in join.queries]
        chain = join.chain_a if side == "a" else join.chain_b
        for piece, held in zip(chain, slices, strict=True):
            reaching = [q for q in members if side_of(q, side).window_us > piece.w_start_us]
            serving = set().union(*(self.may_use[q.id, side] for q in reaching))
            for pos in held:
                where = f"batch {self.runner.batch - 1}, {join.id}/{side} {piece}: row {pos}"
                row = self.sources[stream_id, pos]
                if opposite is not None:
                    passed_by = opposite - row.ts
                    assert piece.w_start_us == 0 or passed_by >= piece.w_start_us, f"{where} is too deep"
                    passed = max((p.w_end_us for p in chain if p.w_end_us <= passed_by - slack_us), default=0)
                    if slack_us and passed < chain[-1].w_end_us:
                        beyond = [q for q in members if side_of(q, side).window_us > passed]
                        of_use = set().union(*(self.may_use[q.id, side] for q in beyond))
                        assert join.pulled_up or pos in of_use, f"{where} should have been filtered"
                    else:
                        assert passed < piece.w_end_us, f"{where} should have been purged"
                assert join.pulled_up or pos in serving, f"{where} serves no query"

    def _slack_us(self, family: FamilyPlan, join: JoinPlan) -> int:
        if self.slack_us is not None:
            return self.slack_us
        windows = [w for q in family.queries if q.id in join.queries for w in (q.w_a_us, q.w_b_us)]
        return max((w for w in windows if w < UNBOUNDED_US), default=0) // SLACK_DIVISOR

    def _check_masks(self, family: FamilyPlan) -> None:
        """For every row held: the queries that may use it are those of the chronicle.

        No more than these; and no less as long as a query's window reaches the row.
        """
        members = [q for q in self.queries if q.id in {planned.id for planned in family.queries}]
        for side in SIDES:
            stream_id = family.stream_a if side == "a" else family.stream_b
            may_use = {q.id: self.may_use[q.id, side] for q in members}
            for bucket in self.runner.state:
                joins = bucket.families[family.id]
                ids = [query.id for query in joins.family.plan.queries]
                for _, its_side, _, state in joins.slices():
                    if its_side != side:
                        continue
                    for segment in state.segments:
                        classes = joins.classes.of(side, segment)
                        codes = [0] * len(segment) if classes.codes is None else classes.codes.tolist()
                        for pos, code in zip(segment.pos.tolist(), codes, strict=True):
                            found = {q for place, q in enumerate(ids) if classes.masks[code] >> place & 1}
                            row = self.sources[stream_id, pos]
                            may = {q.id for q in members if pos in may_use[q.id]}
                            must = {q.id for q in members if self.chronicle.reached(q, side, row, -1)} & may
                            where = f"{family.id}/{side}: row {pos}"
                            assert must <= found <= may, f"{where} serves {found}, not {must} to {may}"

    def _check_counters(self, outputs: Sequence[BatchOutput], before: Mapping[SliceName, int] | None) -> None:
        counted: dict[SliceName, Counter[str]] = {}
        for bucket in self.runner.state:
            for c in slice_table(bucket.families, bucket.clocks).counters():
                counted.setdefault(_name(c), Counter()).update(
                    {
                        name: getattr(c, name)
                        for name in ("inserted", "moved_in", "filtered", "purged", "left", "results", "made")
                    }
                )
        if self.runner.crash != "never":
            return  # what slices did is not stored: it went into the batch's report
        tables = [table for output in outputs for table in output.results.values()]
        pairs = sum(table.num_rows - alone(table) for table in tables)
        assert sum(c["results"] for c in counted.values()) == pairs
        assert sum(c["made"] for c in counted.values()) == pairs
        if before is None:
            return
        now = _held_counts(self.runner)
        for name, deeds in counted.items():
            family, join, side, number = name
            following = counted.get((family, join, side, number + 1))
            out = deeds["purged"] if following is None else following["moved_in"] + following["filtered"]
            came = deeds["inserted"] + deeds["moved_in"]
            stayed = before.get(name, 0) + came - out - deeds["left"]
            assert now[name] == stayed, f"{name}: {dict(deeds)}"


def _name(counters: SliceCounters) -> SliceName:
    return counters.family, counters.join, counters.side, counters.slice


def alone(table: pa.RecordBatch) -> int:
    """Count the results that are rows of one side."""
    return table.column("_pos_a").null_count + table.column("_pos_b").null_count


def _held_counts(runner: DurableRunner) -> dict[SliceName, int]:
    """Return the rows that each slice holds over all buckets."""
    held: Counter[SliceName] = Counter()
    for bucket in runner.state:
        for c in slice_table(bucket.families, bucket.clocks).counters():
            held[_name(c)] += c.lying
    return dict(held)
