"""Joins without windows: all equal keys of the rows in order, whatever the cuts, and little state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.columns.arrow_types import arrow_type
from catalog.values.control import Heartbeat
from catalog.values.plan import Plan, Replication, Strategy
from catalog.values.policies.memory import Memory
from catalog.values.stream import Order, Stream
from operators.orders.order_progress import OrderProgress, ordered_rows, scrambling_factor
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.families.families import family_of
from tests.builders import a_stream
from tests.examples import examples
from tests.operators.cases import SETTINGS
from tests.operators.durable import Crash, DurableRunner
from tests.operators.harness import Runner
from tests.operators.rehash.test_rehash import NUMBERS, moving

TYPES = ("bigint", "int", "date", "timestamp", "decimal(9,2)")
STRATEGIES: tuple[Strategy, ...] = ("mem-opt", "cpu-opt", "unshared", "pullup")
FILTERED = "SELECT a.e AS e, a.v AS v, b.v AS w FROM A a JOIN B b ON a.e = b.e WHERE a.v > 1"
CROSSWISE = "SELECT a.e AS e FROM A a, B b WHERE a.e = b.e AND a.v < b.v"
BY_GROUP = "SELECT a.e AS e FROM A a JOIN B b USING (e, g)"
NEAR = "SELECT a.v AS v FROM A a, B b WHERE a.g = b.g AND abs(a.e - b.e) <= 2"
BEHIND = "SELECT a.v AS v FROM A a, B b WHERE b.e - a.e BETWEEN 1 AND 2"
#: Types whose values have distances.
HAVE_DISTANCES = ("bigint", "int")


def value_of(step: int | None, kind: str) -> object:
    """Return the value that stands at a step of the order of a type."""
    if step is None:
        return None
    if kind == "date":
        return date(2026, 1, 1) + timedelta(days=step)
    if kind == "timestamp":
        return datetime(2026, 1, 1) + timedelta(microseconds=step)
    return Decimal(step).scaleb(-2) if kind.startswith("decimal") else step


Row = tuple[int | None, int, int, int]
#: Ways to save memory; few rows in memory let rows of small tests wait on disk.
MEMORIES = (Memory(), Memory("msf"), *(Memory(w, n) for w in ("dbf", "hybrid") for n in (1, 4, 16)))


def table_of(stream: Stream, rows: Sequence[Row], begin: int) -> pa.Table:
    kind = stream.columns[1].type
    columns = [
        pa.array([row[3] for row in rows], pa.timestamp("us")),
        pa.array([value_of(row[0], kind) for row in rows], arrow_type(kind)),
        pa.array([row[1] for row in rows], pa.int32()),
        pa.array([row[2] for row in rows], pa.int32()),
        pa.array(range(begin, begin + len(rows)), pa.int64()),
    ]
    return pa.table(columns, names=["ts", "e", "g", "v", "_pos"])


def ordered_stream(number: int, name: str, kind: str, order: Order | None) -> Stream:
    made = a_stream(number, columns=(("e", kind), ("g", "int"), ("v", "int")), name=name)
    return replace(made, order=order)


@st.composite
def rows_in_disorder(draw: st.DrawFn) -> list[Row]:
    """Draw rows whose order values rise more or less; event times are in no relation to them."""
    noise = draw(st.sampled_from((0, 2, 9)))
    rows: list[Row] = []
    for place in range(draw(st.integers(0, 40))):
        step = None if draw(st.integers(0, 15)) == 0 else place // 2 + draw(st.integers(-noise, noise))
        rows.append((step, draw(st.integers(0, 1)), draw(st.integers(0, 3)), draw(st.integers(0, 99))))
    return rows


def saving(plan: Plan, memory: Memory, fragments: int = 1) -> Plan:
    """Return a plan whose ordered families save memory in one way, with so many fragments of each key."""
    given = {"memory": memory, "replication": Replication(fragments)}
    return replace(plan, families=tuple(replace(f, **given) if f.ordered else f for f in plan.families))


def passes(name: str, a: Row, b: Row) -> bool:
    if a[0] is None or b[0] is None:
        return False
    return {
        "filtered": a[0] == b[0] and a[2] > 1,
        "crosswise": a[0] == b[0] and a[2] < b[2],
        "grouped": a[0] == b[0] and a[1] == b[1],
        "near": abs(a[0] - b[0]) <= 2 and a[1] == b[1],
        "behind": 1 <= b[0] - a[0] <= 2,
    }[name]


@settings(SETTINGS, max_examples=examples(300, short=37))
@given(data=st.data())
def test_pairs_are_all_that_conditions_allow_of_rows_in_order(data: st.DataObject) -> None:
    kind, descending = data.draw(st.sampled_from(TYPES)), data.draw(st.booleans())
    scrambles = {n: data.draw(st.sampled_from((0, 1, 3, 8, 30))) for n in (1, 2)}
    streams = {
        n: ordered_stream(n, name, kind, Order("e", scrambles[n], descending))
        for n, name in ((1, "A"), (2, "B"))
    }
    rows = {n: data.draw(rows_in_disorder()) for n in streams}
    if descending:
        rows = {n: [(None if e is None else -e, g, v, ts) for e, g, v, ts in of] for n, of in rows.items()}
    by_name = {s.name: s for s in streams.values()}
    texts = {"filtered": FILTERED, "crosswise": CROSSWISE, "grouped": BY_GROUP}
    if kind in HAVE_DISTANCES:
        texts |= {"near": NEAR, "behind": BEHIND}
    queries = [bind(text, by_name, name=n, query_id=i) for i, (n, text) in enumerate(texts.items(), 1)]
    objective = Objective(data.draw(st.sampled_from(STRATEGIES)))
    # The last query enters later.
    fragments = data.draw(st.integers(1, 2))
    first, second = (data.draw(st.sampled_from(MEMORIES)) for _ in range(2))
    earlier = saving(build_plan(queries[1:], streams, objective=objective), first, fragments)
    later = saving(build_plan(queries, streams, earlier, objective=objective), second, fragments)
    buckets, crash = data.draw(st.integers(1, 3)), data.draw(st.sampled_from(get_args(Crash)))
    runner = (
        Runner(streams, buckets, slack_us=None, stored=data.draw(st.booleans()))
        if crash == "never"
        else DurableRunner(streams, buckets, slack_us=None, crash=crash)
    )
    move = moving(data.draw(NUMBERS) if crash == "never" else [0])
    enters = data.draw(st.integers(0, 3))
    batch_of: dict[tuple[int, int], int] = {}
    at = dict.fromkeys(streams, 0)
    for batch in range(data.draw(st.integers(1, 6))):
        tables = {}
        for n in streams:
            begin, count = at[n], data.draw(st.integers(0, 16))
            taken = rows[n][begin : begin + count]
            batch_of |= {(n, place): batch for place in range(begin, begin + len(taken))}
            tables[n] = table_of(streams[n], taken, begin)
            at[n] = begin + len(taken)
        plans = [earlier] if batch == 0 and enters else [later] if batch == enters else []
        outputs = runner.step(tables, plans)
        move(runner, None)
        for output in outputs:
            for table in output.results.values():
                pairs = zip(
                    table.column("_pos_a").to_pylist(),
                    table.column("_pos_b").to_pylist(),
                    table.column("_event_time").cast(pa.int64()).to_pylist(),
                    strict=True,
                )
                assert all(time == max(rows[1][a][3], rows[2][b][3]) for a, b, time in pairs)
    # Rows that wait for others before them do so until their stream is idle.
    nothing = {n: table_of(streams[n], [], at[n]) for n in streams}
    runner.step(nothing, heartbeats=[Heartbeat(n, 100) for n in streams])
    assert not any(
        waiting.rows for b in runner.state for j in b.families.values() for waiting in j.sorting.values()
    )
    for query in queries:
        out_of_order = {(side, pos) for family, side, pos in runner.violating if family == family_of(query)}
        since = enters if query.name == "filtered" else 0
        wanted = Counter(
            (query.id, x, y)
            for x in range(at[1])
            for y in range(at[2])
            if passes(query.name, rows[1][x], rows[2][y])
            and ("a", x) not in out_of_order
            and ("b", y) not in out_of_order
            and min(batch_of[1, x], batch_of[2, y]) >= since
        )
        assert Counter({k: n for k, n in runner.results.items() if k[0] == query.id}) == wanted
    check_progress(runner, rows, at, batch_of, scrambles, descending=descending)


def check_progress(
    runner: Runner,
    rows: Mapping[int, Sequence[Row]],
    at: Mapping[int, int],
    batch_of: Mapping[tuple[int, int], int],
    scrambles: Mapping[int, int],
    *,
    descending: bool,
) -> None:
    """Check which rows count as out of order, by the definition, and that the state is minimal."""
    found = {(1 if side == "a" else 2, pos) for _, side, pos in runner.violating}
    limits = {}
    for n, of in rows.items():
        steps = [None if row[0] is None else (-row[0] if descending else row[0]) for row in of[: at[n]]]
        counted = [(place, step) for place, step in enumerate(steps) if step is not None]
        for place, step in counted:
            before = [s for p, s in counted if batch_of[n, p] < batch_of[n, place]]
            passed = before[: max(len(before) - scrambles[n], 0)]
            behind = bool(passed) and step <= max(passed)
            assert behind == ((n, place) in found)
        passed = [s for _, s in counted][: max(len(counted) - scrambles[n], 0)]
        limits[n] = max(passed, default=None)
    families = runner.state[0].families
    for family_id in families:
        for side, other in (("a", 2), ("b", 1)):
            n = 1 if side == "a" else 2
            plan = families[family_id].family.plan
            window = max(q.w_a_us if side == "a" else q.w_b_us for q in plan.queries)
            for joins in (bucket.families[family_id] for bucket in runner.state):
                for _, of_side, _, state in joins.slices():
                    for segment in state.segments if of_side == side else ():
                        for pos in segment.pos.tolist():
                            step = rows[n][pos][0]
                            assert step is not None
                            limit = limits[other]
                            clock = -step if descending else step
                            assert limit is None or clock + window > limit + 1


@pytest.mark.parametrize("scramble", [0, 1, 5, 64, 200, 1000])
def test_progress_follows_the_definition(scramble: int) -> None:
    rng = np.random.default_rng(scramble)
    values = np.arange(3000) + rng.integers(-50, 50, 3000)
    progress, seen = OrderProgress.begun(scramble), 0
    for length in rng.integers(0, 400, 12).tolist():
        progress = progress.after_rows(ordered_rows(values[seen : seen + length], scramble))
        seen += length
        passed = values[: max(seen - scramble, 0)]
        if scramble < 128:
            assert progress.passed == (int(passed.max()) if len(passed) else None)
        else:
            behind = values[: max(seen - scramble - scramble // 64, 0)]
            assert progress.passed is None or progress.passed <= int(passed.max())
            assert not len(behind) or (progress.passed is not None and progress.passed >= int(behind.max()))
        assert len(progress.blocks) <= 2 * 64 + 2


def test_a_stream_that_keeps_its_scramble_breaks_no_order() -> None:
    rng = np.random.default_rng(7)
    steps = np.arange(2000)[np.argsort(np.arange(2000) + rng.uniform(0, 20, 2000), kind="stable")]
    scramble = scrambling_factor(steps)
    streams = {n: ordered_stream(n, name, "bigint", Order("e", scramble)) for n, name in ((1, "A"), (2, "B"))}
    query = bind(CROSSWISE, {s.name: s for s in streams.values()}, query_id=1)
    runner = Runner(streams, 2, slack_us=None)
    plan = build_plan([query], streams)
    for begin in range(0, 2000, 77):
        rows = [(int(step), 0, 0, 0) for step in steps[begin : begin + 77]]
        of_b = [(e, g, 1, t) for e, g, _, t in rows]
        tables = {1: table_of(streams[1], rows, begin), 2: table_of(streams[2], of_b, begin)}
        runner.step(tables, [plan] if begin == 0 else [])
    assert not runner.violating
    assert runner.results == Counter({(1, n, n): 1 for n in range(2000)})


@given(st.lists(st.integers(0, 12), max_size=30))
def test_the_scrambling_factor_is_that_of_the_definition(values: list[int]) -> None:
    apart = [s - t for t in range(len(values)) for s in range(t, len(values)) if values[s] <= values[t]]
    assert scrambling_factor(np.array(values, dtype=np.int64)) == max(apart, default=0)


def test_a_monitored_factor_follows_the_rows() -> None:
    rng = np.random.default_rng(3)
    begins, lost = 0, 0
    progress = OrderProgress.begun(None)
    for disorder, batches in ((0, 20), (100, 60), (500, 60), (10, 120)):
        for _ in range(batches):
            places = np.arange(begins, begins + 500)
            values = (
                np.sort(places + rng.integers(-disorder, disorder + 1, 500))
                if disorder < 2
                else (places + rng.integers(-disorder, disorder + 1, 500))
            )
            begins += 500
            lost += int(np.count_nonzero(values < progress.limit)) if progress.limit is not None else 0
            progress = progress.after_rows(ordered_rows(values, None))
        # Values within d of their places come at most 4 d behind others; blocks have 64 rows.
        assert 64 <= progress.scramble <= 1.5 * (4 * disorder + 2 * 64) + 1
        assert len(progress.factors) < 100
    assert lost <= 0.001 * begins
