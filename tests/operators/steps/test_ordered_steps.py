"""Joins of several streams without windows: all combinations of equal values of rows in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.control import Heartbeat
from catalog.values.plan import Strategy
from catalog.values.stream import Order, Stream
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from tests.builders import a_stream
from tests.examples import examples
from tests.operators.bucket.test_rehash import NUMBERS, moving
from tests.operators.cases import SETTINGS
from tests.operators.durable import Crash
from tests.operators.steps.combinations import DurableRecorder, Recorder
from tests.operators.test_orders import MEMORIES, saving

STRATEGIES: tuple[Strategy, ...] = ("mem-opt", "cpu-opt", "unshared", "pullup")
#: Joins by the order of their streams, and one with windows over the same streams.
TEXTS = {
    "three": "SELECT a.r AS x, b.r AS y, c.r AS z FROM A a, B b, C c WHERE a.e = b.e AND b.e = c.e",
    "filtered": "SELECT a.r AS x, b.r AS y, c.r AS z FROM A a JOIN B b ON a.e = b.e JOIN C c ON a.e = c.e "
    "WHERE a.r % 2 = 0 AND b.r + c.r > 3",
    "two": "SELECT a.r AS x, b.r AS y FROM A a JOIN B b ON a.e = b.e",
    "windows": "SELECT a.r AS x, b.r AS y, c.r AS z FROM A [RANGE 1 DAY] a, B [RANGE 1 DAY] b, "
    "C [RANGE 1 DAY] c WHERE a.e = b.e AND b.e = c.e",
}


def stream(number: int, order: Order) -> Stream:
    return replace(a_stream(number, 10**15, (("e", "bigint"), ("r", "bigint"))), order=order)


def table_of(values: Sequence[int | None], begin: int) -> pa.Table:
    numbers = pa.array(range(begin, begin + len(values)), pa.int64())
    # The event times of all streams lie within a second, in no relation to the order.
    times = pa.array([(n * 7919) % 1_000_000 for n in range(begin, begin + len(values))], pa.timestamp("us"))
    return pa.table(
        {"ts": times, "e": pa.array(values, pa.int64()), "r": numbers, "_pos": numbers},
    )


@settings(SETTINGS, max_examples=examples(80, short=10))
@given(data=st.data())
def test_combinations_are_those_of_nested_loops(data: st.DataObject) -> None:
    descending = data.draw(st.booleans())
    scramble = data.draw(st.sampled_from((0, 2, 12)))
    streams = {n: stream(n, Order("e", scramble, descending)) for n in (1, 2, 3)}
    by_name = {s.name: s for s in streams.values()}
    queries = {
        name: bind(text, by_name, name=name, query_id=i) for i, (name, text) in enumerate(TEXTS.items(), 1)
    }
    objective = Objective(data.draw(st.sampled_from(STRATEGIES)))
    plan = build_plan(list(queries.values()), streams, objective=objective)
    plan = saving(plan, data.draw(st.sampled_from(MEMORIES)))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    noise = data.draw(st.sampled_from((0, 1, 6)))
    sign = -1 if descending else 1
    values: dict[int, list[int | None]] = {
        n: [
            None if rng.random() < 0.05 else sign * int(place // 2 + rng.integers(-noise, noise + 1))
            for place in range(30)
        ]
        for n in streams
    }
    buckets, crash = data.draw(st.integers(1, 3)), data.draw(st.sampled_from(get_args(Crash)))
    runner: Recorder = (
        Recorder(streams, buckets, slack_us=None, stored=data.draw(st.booleans()))
        if crash == "never"
        else DurableRecorder(streams, buckets, slack_us=None, crash=crash)
    )
    move = moving(data.draw(NUMBERS) if crash == "never" else [0])
    at = dict.fromkeys(streams, 0)
    for batch in range(data.draw(st.integers(1, 5))):
        tables = {}
        for n in streams:
            count = data.draw(st.integers(0, 14))
            taken = values[n][at[n] : at[n] + count]
            tables[n] = table_of(taken, at[n])
            at[n] += len(taken)
        runner.step(tables, [plan] if batch == 0 else [])
        move(runner, None)
    runner.step({n: table_of([], at[n]) for n in streams}, heartbeats=[Heartbeat(n, 10**6) for n in streams])
    family_of_stream = {1: ("a", "s1s2"), 2: ("b", "s1s2"), 3: ("b", "d")}
    disordered = {
        n: {pos for family, of, pos in runner.violating if of == side and family.startswith(start)}
        for n, (side, start) in family_of_stream.items()
    }
    kept = {n: [r for r in range(at[n]) if values[n][r] is not None] for n in streams}
    in_order = {n: [r for r in kept[n] if r not in disordered[n]] for n in streams}

    def combined(rows: dict[int, list[int]]) -> list[tuple[int, int, int]]:
        return [
            (x, y, z)
            for x in rows[1]
            for y in rows[2]
            if values[1][x] == values[2][y]
            for z in rows[3]
            if values[3][z] == values[1][x]
        ]

    three = combined(in_order)
    assert runner.rows_of(queries["three"]) == Counter(three)
    expected = Counter((x, y, z) for x, y, z in three if x % 2 == 0 and y + z > 3)
    assert runner.rows_of(queries["filtered"]) == expected
    two = Counter((x, y) for x in in_order[1] for y in in_order[2] if values[1][x] == values[2][y])
    assert runner.rows_of(queries["two"]) == two
    assert runner.rows_of(queries["windows"]) == Counter(combined(kept))
