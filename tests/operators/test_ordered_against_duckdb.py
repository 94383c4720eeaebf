"""Joins without windows beside DuckDB's joins of the rows in order, wherever rows wait for their partners.

The texts of the queries are SQL: DuckDB runs them as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from catalog.values.control import Heartbeat
from catalog.values.policies.memory import Memory
from catalog.values.stream import Order, Stream
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from tests.operators.steps.combinations import NAMES, DurableRecorder, Recorder
from tests.operators.steps.test_ordered_steps import stream
from tests.operators.test_orders import saving

ROWS, BATCH, NOISE = 360, 60, 20
MEMORIES = (Memory(), Memory("msf"), Memory("dbf", 30), Memory("hybrid", 30))
TEXTS = (
    "SELECT a.r AS x, b.r AS y FROM A a JOIN B b ON a.e = b.e",
    "SELECT a.r AS x, b.r AS y FROM A a, B b WHERE abs(a.e - b.e) <= 2 AND a.r % 3 = 0",
    "SELECT a.r AS x, b.r AS y, c.r AS z FROM A a, B b, C c WHERE a.e = b.e AND b.e = c.e AND c.r % 2 = 0",
    "SELECT a.r AS w, b.r AS x, c.r AS y, d.r AS z FROM A a, B b, C c, D d "
    "WHERE a.e = b.e AND b.e = c.e AND c.e = d.e AND a.r + d.r > 100",
)
TREE = " TREE ((a, b), (c, d))"


def rows_of(random: np.random.Generator) -> pa.Table:
    """Return rows in disorder, some without a value; each value comes about twice."""
    steps = np.arange(ROWS) // 2 + random.integers(-NOISE, NOISE + 1, ROWS)
    numbers = np.arange(ROWS)
    return pa.table(
        {
            "ts": pa.array(random.integers(0, 1_000_000, ROWS), pa.timestamp("us")),
            "e": pa.array(steps, pa.int64(), mask=random.random(ROWS) < 0.05),
            "r": pa.array(numbers, pa.int64()),
            "_pos": pa.array(numbers, pa.int64()),
        }
    )


#: Numbers of buckets, and of batches by which the second stream lags behind the others.
CASES = [(2, 4), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((1, 0), (3, 12), (5, 4)))]


@pytest.mark.parametrize(("buckets", "lag"), CASES)
@pytest.mark.parametrize("memory", MEMORIES, ids=lambda memory: memory.strategy)
def test_results_are_those_of_rows_in_order(memory: Memory, buckets: int, lag: int) -> None:
    random = np.random.default_rng((buckets, lag))
    # The factor of B is too small, so that some of its rows break its order.
    scrambles = {1: 4 * NOISE, 2: NOISE, 3: 4 * NOISE, 4: None}
    streams = {n: stream(n, Order("e", scramble)) for n, scramble in scrambles.items()}
    by_name = {of.name: of for of in streams.values()}
    tables = {n: rows_of(random) for n in streams}
    queries = [
        bind(text + (TREE if " D d " in text else ""), by_name, name=f"q{n}", query_id=n)
        for n, text in enumerate(TEXTS, 1)
    ]
    plan = saving(build_plan(queries, streams), memory)
    runner: Recorder = (
        Recorder(streams, buckets, slack_us=None, stored=True)
        if buckets % 2
        else DurableRecorder(streams, buckets, slack_us=None, crash="after-commit")
    )
    for batch in range(ROWS // BATCH + lag):
        begins = {n: (batch - (lag if n == 2 else 0)) * BATCH for n in streams}
        taken = {n: of.slice(max(begins[n], 0), BATCH if begins[n] >= 0 else 0) for n, of in tables.items()}
        runner.step(taken, [plan] if batch == 0 else [])
    runner.step(
        {n: of.slice(0, 0) for n, of in tables.items()}, heartbeats=[Heartbeat(n, 10**9) for n in streams]
    )
    disordered = disordered_rows(runner, streams)
    assert len(disordered[2]) > 10
    with duckdb.connect() as duck:
        for n, of in tables.items():
            keeps = [r not in disordered[n] for r in range(ROWS)]
            duck.register(NAMES[n - 1], of.filter(pa.array(keeps)))
        for query, text in zip(queries, TEXTS, strict=True):
            wanted = Counter(duck.sql(text).fetchall())
            assert wanted.total() > 100
            assert runner.rows_of(query) == wanted, text


def disordered_rows(runner: Recorder, streams: Mapping[int, Stream]) -> dict[int, set[int]]:
    """Return the rows of each stream that broke its order, which all its families agree in."""
    found: dict[int, set[int]] = {n: set() for n in streams}
    assert runner.plan is not None
    sides = {f.id: {"a": f.stream_a, "b": f.stream_b} for f in runner.plan.families}
    for family, side, position in runner.violating:
        found[sides[family][side]].add(position)
    return found
