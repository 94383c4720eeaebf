"""Queries that come and go while rows wait for their place in the order: they get what they get without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.control import Heartbeat
from catalog.values.plan import Plan
from catalog.values.policies.memory import Memory
from catalog.values.query import Query
from catalog.values.stream import Order, Stream
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from tests.examples import examples
from tests.operators.cases import SETTINGS
from tests.operators.durable import Crash, DurableRunner
from tests.operators.harness import Runner
from tests.operators.rehash.test_rehash import NUMBERS, moving
from tests.operators.test_orders import (
    CROSSWISE,
    FILTERED,
    MEMORIES,
    NEAR,
    STRATEGIES,
    Row,
    ordered_stream,
    rows_in_disorder,
    saving,
    table_of,
)

NAMES = {1: "A", 2: "B", 3: "C"}
THREE = "SELECT a.v AS v FROM A a, B b, C c WHERE a.e = b.e AND b.e = c.e"
FILTERED_THREE = f"{THREE} AND c.v > 1"
TEXTS = (FILTERED, CROSSWISE, NEAR, THREE, FILTERED_THREE)
SORTING = tuple(memory for memory in MEMORIES if memory.sorts)


@dataclass(slots=True)
class Changes:
    """Plans of queries that come, go and change at random, beside one that stays.

    Attributes:
        streams: Streams by id.
        running: Running queries by name.
        plan: The last plan.
        names: Name of every query so far by its id.
    """

    streams: Mapping[int, Stream]
    running: dict[str, Query]
    plan: Plan | None
    names: dict[int, str]

    def next(self, data: st.DataObject, objective: Objective) -> Plan:
        """Return the plan after some queries have changed; at least one runs."""
        changed = data.draw(st.sets(st.sampled_from("pqr"), min_size=1))
        for name in sorted(changed):
            text = data.draw(st.sampled_from((*TEXTS, None)))
            self.running.pop(name, None)
            if text is not None:
                self._enter(name, text, data.draw(st.booleans()))
        if "stays" not in self.running:
            self._enter("stays", THREE, False)
        self.plan = build_plan(list(self.running.values()), self.streams, self.plan, objective=objective)
        return self.plan

    def _enter(self, name: str, text: str, state: bool) -> None:
        number = len(self.names) + 1
        backfill = "state" if state and text not in (THREE, FILTERED_THREE) else "none"
        by_name = {stream.name: stream for stream in self.streams.values()}
        self.running[name] = bind(text, by_name, name=name, query_id=number, backfill=backfill)
        self.names[number] = name


def batches(data: st.DataObject, streams: Mapping[int, Stream]) -> Iterator[dict[int, Sequence[Row]]]:
    """Yield the rows of each stream in some batches."""
    rows = {n: data.draw(rows_in_disorder()) for n in streams}
    at = dict.fromkeys(streams, 0)
    for _ in range(data.draw(st.integers(2, 6))):
        taken = {}
        for n in streams:
            taken[n] = rows[n][at[n] : at[n] + data.draw(st.integers(0, 16))]
            at[n] += len(taken[n])
        yield taken


@settings(SETTINGS, max_examples=examples(200, short=8))
@given(data=st.data())
def test_queries_get_what_they_get_if_no_row_waits(data: st.DataObject) -> None:
    streams = {
        n: ordered_stream(n, name, "bigint", Order("e", data.draw(st.sampled_from((0, 3, 8, 30)))))
        for n, name in NAMES.items()
    }
    objective = Objective(data.draw(st.sampled_from(STRATEGIES)))
    changes = Changes(streams, {}, None, {})
    number, crash = data.draw(st.integers(1, 3)), data.draw(st.sampled_from(get_args(Crash)))
    plain = Runner(streams, number, slack_us=None)
    runner = (
        Runner(streams, number, slack_us=None, stored=data.draw(st.booleans()))
        if crash == "never"
        else DurableRunner(streams, number, slack_us=None, crash=crash)
    )
    move = moving(data.draw(NUMBERS) if crash == "never" else [0])
    at = dict.fromkeys(streams, 0)
    for batch, taken in enumerate(batches(data, streams)):
        plans, saved = [], []
        if batch == 0 or data.draw(st.booleans()):
            plan = changes.next(data, objective)
            plans, saved = [plan], [saving(plan, data.draw(st.sampled_from(SORTING)))]
        tables = {n: table_of(streams[n], rows, at[n]) for n, rows in taken.items()}
        at = {n: at[n] + len(rows) for n, rows in taken.items()}
        before = runner.results.copy()
        plain.step(tables, plans)
        runner.step(tables, saved)
        move(runner, None)
        given_now = {query_id for query_id, _, _ in runner.results - before}
        series = Counter(changes.names[query_id] for query_id in given_now)
        assert all(texts == 1 for texts in series.values()), "a batch has results of two texts of a query"
    nothing = {n: table_of(streams[n], [], at[n]) for n in streams}
    runner.step(nothing, heartbeats=[Heartbeat(n, 100) for n in streams])
    assert runner.violating == plain.violating
    assert runner.results == plain.results


def rows(*steps: int) -> list[Row]:
    return [(step, 0, 2, 0) for step in steps]


@pytest.mark.parametrize("memory", [Memory("msf"), Memory("hybrid", 4)])
def test_a_query_that_leaves_gets_the_pairs_of_rows_that_wait(memory: Memory) -> None:
    streams = {n: ordered_stream(n, NAMES[n], "bigint", Order("e", 10)) for n in (1, 2)}
    by_name = {stream.name: stream for stream in streams.values()}
    leaving, staying = (bind(FILTERED, by_name, name=f"q{n}", query_id=n) for n in (1, 2))
    first = build_plan([leaving, staying], streams)
    later = build_plan([staying], streams, first)
    runner = Runner(streams, slack_us=None)
    came = {n: table_of(streams[n], rows(1, 2, 3), 0) for n in streams}
    runner.step(came, [saving(first, memory)])
    assert not runner.results
    came = {n: table_of(streams[n], rows(2, 4), 3) for n in streams}
    runner.step(came, [saving(later, memory)])
    # Those of the batches before; for the other query all rows go on waiting.
    assert runner.results == Counter({(1, n, n): 1 for n in range(3)})
    nothing = {n: table_of(streams[n], [], 5) for n in streams}
    runner.step(nothing, heartbeats=[Heartbeat(n, 100) for n in streams])
    of_both = [*((n, n) for n in range(5)), (1, 3), (3, 1)]
    assert runner.results == Counter({(1, n, n): 1 for n in range(3)} | {(2, *pair): 1 for pair in of_both})


def test_rows_that_wait_for_two_updates_meet_rows_that_the_other_stream_has_passed() -> None:
    streams = {n: ordered_stream(n, NAMES[n], "bigint", Order("e", 0)) for n in (1, 2)}
    by_name = {stream.name: stream for stream in streams.values()}
    stays = bind(FILTERED, by_name, name="stays", query_id=0, backfill="state")
    updated = [bind(FILTERED, by_name, name="updated", query_id=n) for n in (1, 2, 3)]
    plan = None
    runner = Runner(streams, slack_us=None)
    came: tuple[dict[int, list[Row]], ...] = ({1: rows(1, 2, 3)}, {2: rows(1, 2, 3, 4, 5)}, {})
    for batch, some in enumerate(came):
        # The query that stays enters when rows of A rest already.
        plan = build_plan([*([stays] if batch else []), updated[batch]], streams, plan)
        tables = {n: table_of(streams[n], some.get(n, []), 0) for n in streams}
        runner.step(tables, [saving(plan, Memory("msf"))])
    assert not runner.results
    nothing = {n: table_of(streams[n], [], 5) for n in streams}
    runner.step(nothing, heartbeats=[Heartbeat(n, 100) for n in streams])
    assert runner.results == Counter({(0, n, n): 1 for n in range(3)})


def test_no_pairs_of_a_former_text_come_beside_those_of_a_text_whose_rows_do_not_wait() -> None:
    streams = {n: ordered_stream(n, NAMES[n], "bigint", Order("e", 10)) for n in (1, 2)}
    by_name = {stream.name: stream for stream in streams.values()}
    windows = "SELECT a.v AS v FROM A [RANGE 1 DAY] a JOIN B [RANGE 1 DAY] b ON a.e = b.e"
    first = build_plan([bind(FILTERED, by_name, name="q", query_id=1)], streams)
    later = build_plan([bind(windows, by_name, name="q", query_id=2)], streams, first)
    runner = Runner(streams, slack_us=None)
    runner.step({n: table_of(streams[n], rows(1), 0) for n in streams}, [saving(first, Memory("msf"))])
    runner.step({n: table_of(streams[n], rows(2), 1) for n in streams}, [later])
    assert runner.results == Counter({(2, 1, 1): 1})
