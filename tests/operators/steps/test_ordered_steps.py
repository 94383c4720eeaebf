"""Joins of several streams without windows: all combinations of equal values of rows in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.control import Heartbeat
from catalog.values.plan import Strategy
from catalog.values.query import Query
from catalog.values.stream import Order, Stream
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from tests.builders import a_stream
from tests.examples import examples
from tests.operators.cases import SETTINGS
from tests.operators.durable import Crash
from tests.operators.rehash.test_rehash import NUMBERS, moving
from tests.operators.steps.combinations import Combination, DurableRecorder, Recorder
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

_FOUR = "A a, B b, C c, D d WHERE a.e = b.e AND b.e = c.e AND c.e = d.e"
#: Joins whose last step has pairs on both sides.
BUSHY = {
    "four": f"SELECT a.r AS w, b.r AS x, c.r AS y, d.r AS z FROM {_FOUR} TREE ((a, b), (c, d))",
    "filtered": f"SELECT a.r AS w, b.r AS x, c.r AS y, d.r AS z FROM {_FOUR} AND a.r % 2 = 0 "
    "AND b.r + d.r > 3 TREE ((c, d), (a, b))",
    "two": TEXTS["two"],
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


@dataclass(frozen=True, slots=True)
class Ran:
    """A run that is over.

    Attributes:
        runner: What ran the queries.
        queries: Queries by name.
        values: Values of each stream's rows, in their order of arrival.
        kept: Numbers of the rows of each stream that came and have a value.
    """

    runner: Recorder
    queries: Mapping[str, Query]
    values: Mapping[int, Sequence[int | None]]
    kept: dict[int, list[int]]

    def in_order(self, families: Mapping[int, tuple[str, str]]) -> dict[int, list[int]]:
        """Return the rows that keep the order of their streams.

        Args:
            families: For each stream the side, and the beginning of the family that has it.
        """
        disordered = {
            n: {pos for family, of, pos in self.runner.violating if of == side and family.startswith(start)}
            for n, (side, start) in families.items()
        }
        return {n: [r for r in self.kept[n] if r not in disordered[n]] for n in families}

    def rows_of(self, name: str) -> Counter[Combination]:
        """Return the results of a query."""
        return self.runner.rows_of(self.queries[name])


def ran_in_order(data: st.DataObject, texts: Mapping[str, str], count: int) -> Ran:
    """Run queries over so many streams, whose rows come nearly in order."""
    descending = data.draw(st.booleans())
    scramble = data.draw(st.sampled_from((0, 2, 12)))
    streams = {n: stream(n, Order("e", scramble, descending)) for n in range(1, count + 1)}
    by_name = {s.name: s for s in streams.values()}
    queries = {
        name: bind(text, by_name, name=name, query_id=i) for i, (name, text) in enumerate(texts.items(), 1)
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
            came = data.draw(st.integers(0, 14))
            taken = values[n][at[n] : at[n] + came]
            tables[n] = table_of(taken, at[n])
            at[n] += len(taken)
        runner.step(tables, [plan] if batch == 0 else [])
        move(runner, None)
    runner.step({n: table_of([], at[n]) for n in streams}, heartbeats=[Heartbeat(n, 10**6) for n in streams])
    kept = {n: [r for r in range(at[n]) if values[n][r] is not None] for n in streams}
    return Ran(runner, queries, values, kept)


@settings(SETTINGS, max_examples=examples(80, short=10))
@given(data=st.data())
def test_combinations_are_those_of_nested_loops(data: st.DataObject) -> None:
    ran = ran_in_order(data, TEXTS, 3)
    family_of_stream = {1: ("a", "s1s2"), 2: ("b", "s1s2"), 3: ("b", "d")}
    values, kept = ran.values, ran.kept
    in_order = ran.in_order(family_of_stream)

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
    assert ran.rows_of("three") == Counter(three)
    expected = Counter((x, y, z) for x, y, z in three if x % 2 == 0 and y + z > 3)
    assert ran.rows_of("filtered") == expected
    two = Counter((x, y) for x in in_order[1] for y in in_order[2] if values[1][x] == values[2][y])
    assert ran.rows_of("two") == two
    assert ran.rows_of("windows") == Counter(combined(kept))


@settings(SETTINGS, max_examples=examples(80, short=8))
@given(data=st.data())
def test_pairs_of_two_steps_are_joined_by_their_order(data: st.DataObject) -> None:
    ran = ran_in_order(data, BUSHY, 4)
    in_order = ran.in_order({1: ("a", "s1s2"), 2: ("b", "s1s2"), 3: ("a", "s3s4"), 4: ("b", "s3s4")})
    combined = [
        (w, x, y, z)
        for w in in_order[1]
        for x in in_order[2]
        if ran.values[1][w] == ran.values[2][x]
        for y in in_order[3]
        if ran.values[3][y] == ran.values[1][w]
        for z in in_order[4]
        if ran.values[4][z] == ran.values[1][w]
    ]
    assert ran.rows_of("four") == Counter(combined)
    assert ran.rows_of("filtered") == Counter(
        (w, x, y, z) for w, x, y, z in combined if w % 2 == 0 and x + z > 3
    )
    pairs = [(w, x) for w in in_order[1] for x in in_order[2] if ran.values[1][w] == ran.values[2][x]]
    assert ran.rows_of("two") == Counter(pairs)
