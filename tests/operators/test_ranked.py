"""Windows of rows against nested loops: the results of each batch, whatever cut, buckets and strategy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.control import Heartbeat
from catalog.values.query import Clock, Query
from operators.bucket.counters import absence_counters
from operators.join.family_joins import FamilyJoins
from operators.segments.segment import Segment
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.strategies.strategies import STRATEGIES
from tests.builders import a_query, a_stream
from tests.examples import examples
from tests.operators.cases import SETTINGS
from tests.operators.durable import Crash, DurableRunner
from tests.operators.harness import Runner
from tests.operators.queries import Row, a_table
from tests.operators.ranked import BATCHES, RankedCase, RankedLoops, check_ranked, ranked_cases
from tests.operators.rehash.test_rehash import NUMBERS, moving

STREAMS = {i: a_stream(i) for i in (1, 2)}


def counting(query: Query, a: Clock, b: Clock = "time") -> Query:
    return replace(query, a=replace(query.a, clock=a), b=replace(query.b, clock=b))


def rows_at(*times: int, first: int = 0, key: int = 1) -> list[Row]:
    values = {"k": key, "m": "x", "v": 1, "w": 1}
    return [Row(first + number, time, values) for number, time in enumerate(times)]


def resting(runner: Runner) -> Iterator[tuple[FamilyJoins, str, Segment]]:
    for bucket in runner.state:
        for joins in bucket.families.values():
            for _, side, _, state in joins.slices():
                yield from ((joins, side, segment) for segment in state.segments)


@settings(SETTINGS, max_examples=examples(50))
@given(ranked_cases())
def test_windows_of_rows_give_in_each_batch_what_nested_loops_give(case: RankedCase) -> None:
    check_ranked(case)


@settings(SETTINGS, max_examples=examples(15))
@given(ranked_cases(), NUMBERS)
def test_ranks_go_on_in_another_number_of_buckets(case: RankedCase, numbers: list[int]) -> None:
    move = moving(numbers)
    check_ranked(case, lambda runner, _: move(runner, None))


@settings(SETTINGS, max_examples=examples(15))
@given(ranked_cases(), st.lists(st.sampled_from(get_args(Crash)), min_size=1, max_size=BATCHES))
def test_a_batch_that_is_repeated_gives_and_stores_the_same(case: RankedCase, crashes: list[Crash]) -> None:
    following = cycle(crashes)
    runner = DurableRunner(case.streams, case.buckets, case.slack_us, crash=next(following))

    def die_in_the_next(_runner: Runner, _loops: RankedLoops) -> None:
        runner.crash = next(following)

    check_ranked(case, die_in_the_next, runner)


@settings(SETTINGS, max_examples=examples(15))
@given(ranked_cases())
def test_no_row_stays_that_no_window_reaches(case: RankedCase) -> None:
    def inspect(runner: Runner, _: RankedLoops) -> None:
        watermarks = runner.state[0].watermarks()
        for joins, side, segment in resting(runner):
            plan, ranked = joins.family.plan, joins.ranked
            assert ranked is not None
            of_sides = {"a": watermarks[plan.stream_a], "b": watermarks[plan.stream_b]}
            longest = max(q.w_a_us if side == "a" else q.w_b_us for q in plan.queries)
            if plan.clock(side) != "key rows" and (now := ranked.reached(side, of_sides)) is not None:
                assert segment.t_min + longest > now

    check_ranked(replace(case, slack_us=0), inspect)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_queries_of_many_windows_share_the_rows_that_are_held(strategy: str) -> None:
    """Rows rest once under Mem-Opt, in slices of rows, and the longer window meets the longer slice alone."""
    queries = [counting(a_query(n, size, 1), "rows") for n, size in ((1, 3), (2, 8))]
    plan = build_plan(queries, STREAMS, objective=Objective(strategy))  # type: ignore[arg-type]
    runner = Runner(STREAMS)
    runner.step({1: a_table(STREAMS[1], rows_at(*range(1, 21)))}, [plan])
    runner.step({2: a_table(STREAMS[2], rows_at(20))}, heartbeats=[Heartbeat(1, 100), Heartbeat(2, 100)])

    assert sum(runner.results.values()) == 3 + 8
    (family,) = plan.families
    if strategy == "mem-opt":
        assert [(s.w_start_us, s.w_end_us) for s in family.joins[0].chain_a] == [(0, 3), (3, 8)]
        held = runner.state_rows(family.id, "a")
        assert [sorted(rows) for rows in held] == [[17, 18, 19], [12, 13, 14, 15, 16]]


def test_nothing_is_given_before_the_counted_stream_is_past_it() -> None:
    plan = build_plan([counting(a_query(1, 1, 1), "rows")], STREAMS)
    runner = Runner(STREAMS)
    runner.step({1: a_table(STREAMS[1], rows_at(1)), 2: a_table(STREAMS[2], rows_at(5))}, [plan])
    assert not runner.results
    waiting = list(absence_counters(runner.state[0].families, runner.state[0].clocks))
    assert [(c.side, c.undecided) for c in waiting] == [("a", 1), ("b", 1)]
    # A row of the same time may still come before it is past.
    runner.step({1: a_table(STREAMS[1], rows_at(5, first=1))})
    assert not runner.results
    runner.step({}, heartbeats=[Heartbeat(1, 6)])
    assert set(runner.results) == {(1, 1, 0)}


def test_rows_of_before_a_reset_pair_no_more() -> None:
    plan = build_plan([counting(a_query(1, 5, 1), "rows")], STREAMS)
    runner = Runner(STREAMS)
    runner.step({1: a_table(STREAMS[1], rows_at(100, 101, 102))}, [plan], [Heartbeat(2, 50)])
    runner.step({}, heartbeats=[Heartbeat(1, None)])
    runner.step({1: a_table(STREAMS[1], rows_at(60, 61, first=3)), 2: a_table(STREAMS[2], rows_at(60))})
    runner.step({}, heartbeats=[Heartbeat(1, 200), Heartbeat(2, 200)])
    assert set(runner.results) == {(1, 3, 0)}


def test_many_rows_are_counted_as_one_by_one() -> None:
    """Thousands of rows: kernels and merged segments, which small cases do not reach."""
    generator = np.random.default_rng(7)
    queries = [counting(a_query(1, 50, 1), "rows"), counting(a_query(2, 2, 1), "key rows")]
    plan = build_plan(queries, STREAMS)
    runner = Runner(STREAMS, buckets=2, slack_us=None)
    times = {i: np.sort(generator.integers(0, 3000, 6000)) for i in STREAMS}
    keys = {i: generator.integers(0, 40, 6000) for i in STREAMS}
    for begin in range(0, 6000, 500):
        batch = {
            i: a_table(
                STREAMS[i],
                [
                    Row(n, int(times[i][n]), {"k": int(keys[i][n]), "m": "x", "v": 1, "w": 1})
                    for n in range(begin, begin + 500)
                ],
            )
            for i in STREAMS
        }
        runner.step(batch, [plan] if not begin else ())
    runner.step({}, heartbeats=[Heartbeat(i, 10_000) for i in STREAMS])
    expected = set()
    for b in range(6000):
        up_to = int(np.searchsorted(times[1], times[2][b], side="right"))
        alike = np.flatnonzero(keys[1][:up_to] == keys[2][b])
        at_once = alike[times[1][alike] == times[2][b]]
        expected |= {(1, a, b) for a in {*alike[alike >= up_to - 50], *at_once}}
        expected |= {(2, a, b) for a in {*alike[-2:], *at_once}}
    assert set(runner.results) == expected
    assert not any(runner.late.values())


def test_of_many_keys_those_of_a_batch_are_looked_at() -> None:
    """A batch of 50 rows among 4,000 keys writes what it changes, and little that has left stays."""
    plan = build_plan([counting(a_query(1, 1, 1), "key rows")], STREAMS)
    runner = Runner(STREAMS, stored=True)
    (family,) = plan.families
    written = []
    for batch in range(120):
        keys = range(4000) if not batch else [(batch * 50 + n) * 7 % 4000 for n in range(50)]
        first = 0 if not batch else 4000 + 50 * (batch - 1)
        rows = [
            Row(first + n, batch * 10, {"k": key, "m": "x", "v": 1, "w": 1}) for n, key in enumerate(keys)
        ]
        before = set(runner.segments[0])
        runner.step(
            {1: a_table(STREAMS[1], rows)}, [plan] if not batch else (), [Heartbeat(2, batch * 10 + 5)]
        )
        new = runner.segments[0].keys() - before
        written.append(sum(len(runner.segments[0][name]) for name in new))
        ranked = runner.state[0].families[family.id].ranked
        assert ranked is not None
        assert sum(len(segment) for segment in ranked.rankings["a"].segments) <= 2 * 4000
    held = sum(map(len, runner.state_rows(family.id, "a")))
    # Of 9,950 rows those have left that are not the last of their key, but for a quarter of a segment, and
    # those of the batches since the last look.
    assert 4000 <= held < 4000 / 0.75 * 1.25
    assert np.median(written) * 5 < written[0]
