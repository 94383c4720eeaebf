"""Joins of several streams on different keys give what one DuckDB join over all rows gives."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.plan import Partitioning, Plan
from planner.bind.bind import bind
from planner.build.build_plan import STRATEGIES, build_plan
from planner.build.objective import Objective
from tests.examples import examples
from tests.operators.bucket.test_rehash import NUMBERS, moving
from tests.operators.cases import SETTINGS
from tests.operators.durable import Crash
from tests.operators.steps.combinations import DurableRecorder, Recorder, Written, expected, rows, stream

PARTITIONINGS: tuple[Partitioning, ...] = ("hash", "replicate")
WINDOWS_S = st.sampled_from((2, 5, 8, 13, 21))


@st.composite
def written(draw: st.DrawFn, known: int, batches: int) -> Written:
    """Return a query whose streams form a tree of equal columns, any of two of each stream.

    Up to two streams are joined by another condition instead.
    """
    count = draw(st.integers(2, 5))
    streams = tuple(draw(st.integers(1, known)) for _ in range(count))
    order = draw(st.permutations(range(count)))
    column = st.sampled_from(("k", "j"))
    conditions = []
    theta = ("s{0}.v BETWEEN s{1}.v - 0.2 AND s{1}.v", "s{0}.v + s{1}.v < 0.4", "s{0}.v < s{1}.v - 0.6")
    keyless = draw(st.lists(st.integers(1, 6), max_size=2, unique=True))
    for place, joined in enumerate(order[1:], 1):
        other = draw(st.sampled_from(order[:place]))
        if place in keyless:
            conditions.append(draw(st.sampled_from(theta)).format(other, joined))
        else:
            conditions.append(f"s{other}.{draw(column)} = s{joined}.{draw(column)}")
        if draw(st.integers(0, 4)) == 0:
            conditions.append(f"s{other}.g = s{joined}.g")
    some = st.sampled_from(
        [
            *(f"s{n}.v < 0.7" for n in range(count)),
            f"s0.v + s{count - 1}.v < 1.2",
            "s1.ts BETWEEN s0.ts - INTERVAL '2' SECOND AND s0.ts + INTERVAL '13' SECOND",
        ]
    )
    conditions += draw(st.lists(some, max_size=2, unique=True))
    since = draw(st.integers(0, batches - 1))
    until = draw(st.integers(since + 1, batches + 3))
    windows = tuple(draw(WINDOWS_S) for _ in range(count))
    return Written(streams, windows, tuple(conditions), since, until)


@settings(SETTINGS, max_examples=examples(80))
@given(data=st.data())
def test_combinations_of_different_keys_are_those_of_duckdb(data: st.DataObject) -> None:
    known = data.draw(st.integers(2, 4), "streams")
    batches = data.draw(st.integers(1, 6), "batches")
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), "seed"))
    key = data.draw(st.sampled_from(("bigint", "string")), "key")
    disorder = data.draw(st.integers(0, 3), "disorder")
    streams = {
        n: stream(n, key, data.draw(st.integers(0, disorder)) * 1_000_000) for n in range(1, known + 1)
    }
    tables = {n: rows(rng, streams[n], int(rng.integers(5, 31)), 20, disorder, 3) for n in streams}
    placed = {n: np.sort(rng.integers(0, batches, t.num_rows)) for n, t in tables.items()}
    queries = data.draw(st.lists(written(known, batches), min_size=1, max_size=4), "queries")
    by_name = {s.name: s for s in streams.values()}
    bound = [bind(q.cql, by_name, name=f"q{n}", query_id=n) for n, q in enumerate(queries, 1)]
    strategy = data.draw(st.sampled_from(sorted(STRATEGIES)), "strategy")
    partitioning = data.draw(st.sampled_from(PARTITIONINGS), "partitioning")
    crash = data.draw(st.sampled_from(get_args(Crash)), "crash")
    buckets, slack_us = (
        data.draw(st.integers(1, 5), "buckets"),
        data.draw(st.sampled_from((0, None)), "slack"),
    )
    runner = (
        Recorder(streams, buckets, slack_us=slack_us, stored=data.draw(st.booleans(), "stored"))
        if crash == "never"
        else DurableRecorder(streams, buckets, slack_us=slack_us, crash=crash)
    )
    move = moving(data.draw(NUMBERS, "buckets after each batch") if crash == "never" else [0])
    plan: Plan | None = None
    for batch in range(batches):
        running = [b for w, b in zip(queries, bound, strict=True) if w.since <= batch < w.until]
        plans = []
        if plan is None or {q.id for f in plan.families for q in f.queries} != {q.id for q in running}:
            plan = build_plan(
                running, streams, plan, objective=Objective(strategy, partitioning=partitioning)
            )
            plans.append(plan)
        flowing = {s.id for s in plan.streams}
        runner.step({n: t.filter(placed[n] == batch) for n, t in tables.items() if n in flowing}, plans)
        move(runner, None)
    while runner.sent:
        runner.step({})
        assert runner.batch <= batches + 4, "each exchange takes one batch"
    for query, each in zip(queries, bound, strict=True):
        # Nobody leaves after the last batch with rows.
        lasting = replace(query, until=1 << 30) if query.until >= batches else query
        assert runner.rows_of(each) == expected(lasting, tables, placed, runner.late, each), query.cql
