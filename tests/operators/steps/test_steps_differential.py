"""Joins of three and more streams give what one DuckDB join over all rows gives, however they are run."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from tests.examples import examples
from tests.operators.cases import SETTINGS
from tests.operators.rehash.test_rehash import moving
from tests.operators.steps.combinations import Recorder, Written, expected, rows, stream
from tests.operators.steps.drawn import run_drawn

WINDOWS_S = st.sampled_from((1, 2, 3, 5, 8, 13))


@st.composite
def written(draw: st.DrawFn, known: int, batches: int) -> Written:
    count = draw(st.integers(2, 4))
    streams = tuple(draw(st.integers(1, known)) for _ in range(count))
    order = draw(st.permutations(range(count)))
    conditions = [f"s{i}.k = s{j}.k" for i, j in pairwise(order)]
    if draw(st.booleans()):
        conditions += [f"s{i}.g = s{j}.g" for i, j in pairwise(order)]
    some = st.sampled_from(
        [
            *(f"s{n}.v < {limit}" for n in range(count) for limit in (0.3, 0.7)),
            *(f"s{i}.v <= s{j}.v" for i in range(count) for j in range(count) if i != j),
            f"s0.v + s{count - 1}.v < 1.2",
            f"s{count - 1}.ts >= s0.ts",
            "s1.ts BETWEEN s0.ts - INTERVAL '2' SECOND AND s0.ts + INTERVAL '4' SECOND",
            f"s{count - 1}.ts - INTERVAL '1' SECOND < s{count - 2}.ts",
        ]
    )
    conditions += draw(st.lists(some, max_size=3, unique=True))
    since = draw(st.integers(0, batches - 1))
    until = draw(st.integers(since + 1, batches + 3))
    windows = tuple(draw(WINDOWS_S) for _ in range(count))
    return Written(streams, windows, tuple(conditions), since, until)


@settings(SETTINGS, max_examples=examples(80, short=10))
@given(data=st.data())
def test_combinations_are_those_of_duckdb(data: st.DataObject) -> None:
    ran = run_drawn(data, written, batches=5, rows_of_stream=(0, 25), buckets=4)
    for query, each in zip(ran.queries, ran.bound, strict=True):
        found = {} if each is None else ran.runner.rows_of(each)
        assert found == expected(query, ran.tables, ran.placed, ran.runner.late), query.cql


def test_rows_of_spread_keys_are_joined_once_after_moves() -> None:
    streams = {n: stream(n) for n in (1, 2, 3)}
    rng = np.random.default_rng(5)
    tables = {n: rows(rng, streams[n], 60, 20, 0, 2) for n in streams}
    placed = {n: np.arange(60) // 10 for n in streams}
    by_name = {s.name: s for s in streams.values()}
    two = Written((1, 2), (8, 8), ("s0.k = s1.k",))
    three = Written((1, 2, 3), (8, 8, 8), ("s0.k = s1.k", "s1.k = s2.k"), since=1)
    bound = [bind(q.cql, by_name, name=f"q{n}", query_id=n) for n, q in enumerate((two, three), 1)]
    objective = Objective(partitioning="replicate")
    first = build_plan(bound[:1], streams, objective=objective)
    both = build_plan(bound, streams, first, objective=objective)
    assert all(family.replication.replicates for family in both.families)
    runner = Recorder(streams, 3, slack_us=None, stored=True)
    move = moving([0, 2, 4, 1, 3])
    for batch in range(6):
        flowing = {s.id for s in (both if batch else first).streams}
        given = {n: t.filter(placed[n] == batch) for n, t in tables.items() if n in flowing}
        runner.step(given, [first, both][batch : batch + 1])
        move(runner, None)
    for query, each in zip((two, three), bound, strict=True):
        wanted = expected(query, tables, placed, runner.late)
        assert len(wanted) > 100
        assert runner.rows_of(each) == wanted
