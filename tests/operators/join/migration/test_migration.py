"""From the joins of one plan version to those of the next: where rows go, which segments stay as they are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.values.plan import Plan, Strategy
from catalog.values.query import Query
from operators.join.migration.migration import first_copies
from operators.segments.layout import SIDES
from operators.segments.segment import Segment
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from tests.builders import a_query, a_stream
from tests.operators.cases import ALL_STRATEGIES
from tests.operators.durable import DurableRunner
from tests.operators.harness import Runner
from tests.operators.queries import Row, a_table

STREAMS = {1: a_stream(1), 2: a_stream(2)}
#: Rows of a by position: event time 10 n, v = n. Rows 0 and 1 pass ``v < 5`` only, 5 and 6 ``v > 2`` only.
LOW, HIGH = '"v" < 5', '"v" > 2'
SHORT, LONG, LOWER = a_query(1, 30), a_query(2, 100, filter_a=HIGH), a_query(3, 60, filter_a=LOW)


def planned(queries: Sequence[Query], strategy: Strategy, previous: Plan | None = None) -> Plan:
    return build_plan(queries, STREAMS, previous, objective=Objective(strategy, cost_model="paper"))


def rows_of_a(numbers: Sequence[int]) -> dict[int, object]:
    return {1: a_table(STREAMS[1], [Row(n, 10 * n, {"k": 1, "m": None, "v": n, "w": None}) for n in numbers])}


def rows_of_b(*times: int) -> dict[int, object]:
    rows = [Row(ts, ts, {"k": 1, "m": None, "v": 0, "w": None}) for ts in times]
    return {2: a_table(STREAMS[2], rows)}


def running(queries: Sequence[Query], strategy: Strategy, *, stored: bool = False) -> Runner:
    """Rows 0 to 6 of a, in two batches, and b at 60: its windows of 30 and 60 have passed some of them."""
    runner = Runner(STREAMS, stored=stored)
    runner.step(rows_of_a(range(4)), [planned(queries, strategy)])
    runner.step({**rows_of_a(range(4, 7)), **rows_of_b(60)})
    return runner


def held(runner: Runner, side: str = "a") -> dict[str, list[set[int]]]:
    """Return the positions in each slice of each join."""
    assert runner.plan is not None
    (family,) = runner.plan.families
    return {join: runner.state_rows(family.id, side, join) for join in runner.joins(family.id)}


def segments(runner: Runner, join: str, side: str) -> list[Segment]:
    assert runner.plan is not None
    chain = runner.state[0].families[runner.plan.families[0].id].chains[join]
    return [s for state in chain.slices[side] for s in state.segments]


def change(runner: Runner, queries: Sequence[Query], strategy: Strategy) -> None:
    runner.step({}, [planned(queries, strategy, runner.plan)])


#: What each strategy holds of a at b's watermark 60: rows 4 to 6 are within 30 of it, all but 0 within 60.
HELD = {
    "mem-opt": {"shared": [{4, 5, 6}, {1, 2, 3}, set()]},
    "unshared": {"q1": [{4, 5, 6}], "q2": [{3, 4, 5, 6}], "q3": [{1, 2, 3, 4}]},
    "pushdown": {"p1": [set()], "p2": [{1, 2}], "p3": [{3, 4, 5, 6}]},
}


@pytest.mark.parametrize("strategy", list(HELD))
def test_each_strategy_holds_a_row_where_its_queries_are(strategy: Strategy) -> None:
    assert held(running([SHORT, LONG, LOWER], strategy)) == HELD[strategy]


def test_selection_pull_up_holds_rows_that_no_query_can_use() -> None:
    runner = running([LONG, a_query(4, 100, filter_a='"v" IS NULL')], "pullup")
    assert held(runner) == {"shared": [{0, 1, 2, 3, 4, 5, 6}]}
    assert held(running([LONG], "mem-opt")) == {"shared": [{3, 4, 5, 6}]}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(HELD, HELD)))
@pytest.mark.parametrize("stored", [False, True])
def test_a_change_of_strategy_brings_every_row_to_where_it_would_have_been(
    before: Strategy, after: Strategy, stored: bool
) -> None:
    runner = running([SHORT, LONG, LOWER], before, stored=stored)
    change(runner, [SHORT, LONG, LOWER], after)
    assert held(runner) == HELD[after]
    assert held(runner, "b") == held(running([SHORT, LONG, LOWER], after), "b")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([SHORT, LONG, LOWER], [SHORT, LOWER]),
        ([SHORT, LONG, LOWER], [SHORT, LONG]),
        ([SHORT, LONG], [SHORT, a_query(5, 30, filter_a=HIGH), LONG]),
    ],
)
@pytest.mark.parametrize("strategy", ALL_STRATEGIES)
def test_queries_that_stay_keep_their_rows_when_others_come_or_go(
    strategy: Strategy, before: list[Query], after: list[Query]
) -> None:
    """Under push-down a row may belong to another join once its class has gone, or there is a new one."""
    runner = running(before, strategy)
    change(runner, after, strategy)
    runner.step(rows_of_b(61))
    expected = running(before, "mem-opt")
    expected.step(rows_of_b(61))
    staying = {q.id for q in before} & {q.id for q in after}
    assert {r for r in runner.results if r[0] in staying} == {r for r in expected.results if r[0] in staying}


def test_a_query_that_left_and_came_back_at_one_boundary_gets_what_others_held() -> None:
    wide = a_query(6, 100)
    runner = running([SHORT, wide], "unshared")
    without = planned([wide], "unshared", runner.plan)
    back = planned([wide, a_query(SHORT.id, 70, backfill="state")], "unshared", without)
    runner.step(rows_of_b(61), [without, back])
    assert {a for q, a, b in runner.results if (q, b) == (SHORT.id, 61)} == {0, 1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize("before", ALL_STRATEGIES)
def test_rows_that_only_pull_up_held_do_not_outlive_it(before: Strategy) -> None:
    runner = running([SHORT, LONG, LOWER], before)
    change(runner, [SHORT, LONG, LOWER], "pullup")
    change(runner, [SHORT, LONG, LOWER], "unshared")
    assert held(runner) == HELD["unshared"]


def test_a_join_that_stays_keeps_its_segments() -> None:
    runner = running([SHORT, LONG], "unshared")
    before = {(join, side): segments(runner, join, side) for join in ("q1", "q2") for side in SIDES}
    assert len(before["q1", "a"]) == 1
    change(runner, [SHORT, LONG, LOWER], "unshared")
    for (join, side), kept in before.items():
        assert [id(s) for s in segments(runner, join, side)] == [id(s) for s in kept]


def test_a_slice_that_stays_keeps_its_segments() -> None:
    runner = running([SHORT, LONG], "mem-opt")
    before = segments(runner, "shared", "a")
    change(runner, [SHORT, a_query(4, 60), LONG], "mem-opt")
    assert {id(s) for s in segments(runner, "shared", "a")} == {id(s) for s in before}


def test_rows_that_a_new_join_takes_over_whole_are_not_written_again() -> None:
    """The harness refuses to rewrite a stored id; here it must not write a copy under another one either."""
    runner = running([a_query(1, 100)], "mem-opt", stored=True)
    written = set(runner.segments[0])
    change(runner, [a_query(1, 100)], "unshared")
    assert set(runner.segments[0]) == written
    assert {s.id for s in segments(runner, "q1", "a")} <= written


def test_joins_that_want_the_same_rows_share_them_and_a_replay_knows_it() -> None:
    """Rows 0 to 4 pass the filter of q3 and q4: both get one view of them, and later one more bit for it."""
    twice = [a_query(1, 100, columns_a=("v",)), LOWER, a_query(4, LOWER.a.window_us, filter_a=LOW)]
    runner = DurableRunner(STREAMS)
    runner.step(rows_of_a(range(7)), [planned(twice, "mem-opt")])
    written = set(runner.committed[0].segments)
    runner.crash = "before-commit"
    change(runner, twice, "unshared")
    (patch,) = set(runner.committed[0].segments) - written
    (low,), (again,) = segments(runner, "q3", "a"), segments(runner, "q4", "a")
    assert low is again
    assert (set(low.pos.tolist()), low.values[1][0]) == ({0, 1, 2, 3, 4}, patch)
    runner.crash = "never"
    runner.step(rows_of_b(60))
    # What both joins cut is one, whether it was read back or stayed in memory.
    runner.crash = "before-commit"
    change(runner, [*twice, a_query(5, 100, filter_a=HIGH, backfill="state")], "unshared")
    runner.step(rows_of_b(61))
    assert {a for q, a, b in runner.results if (q, b) == (5, 61)} == {3, 4, 5, 6}
    assert {a for q, a, b in runner.results if (q, b) == (4, 61)} == {1, 2, 3, 4}


@pytest.mark.parametrize("before", ["unshared", "pushdown", "mem-opt", "pullup"])
@pytest.mark.parametrize("after", ["unshared", "pushdown", "mem-opt", "pullup"])
def test_a_backfilled_query_gets_the_rows_that_others_hold_for_it(before: Strategy, after: Strategy) -> None:
    """Its filter is new to the rows: v + w > 4 is NULL without w, v > 2 holds for rows 3 to 6."""
    first = [a_query(1, 30, columns_a=("v",)), a_query(3, 60, filter_a=LOW, columns_a=("v",))]
    runner = running(first, before)
    new = a_query(4, 55, filter_a=HIGH, backfill="state")
    runner.step(rows_of_b(64), [planned([*first, new], after, runner.plan)])
    # Row 3 was held by q3, rows 4 to 6 by q1; row 0 and what nobody held is not there.
    assert {a for q, a, b in runner.results if (q, b) == (4, 64)} == {3, 4, 5, 6}


def test_a_filter_evaluated_on_held_rows_stays_known_to_all_copies() -> None:
    """q4 brings a new filter; copies in joins that stay must know it too when the next change pools them."""
    first = [a_query(1, 70, columns_a=("v",)), a_query(2, 80, columns_a=("v",))]
    runner = running(first, "unshared")
    with_new = [*first, a_query(4, 90, filter_a=HIGH, backfill="state")]
    change(runner, with_new, "unshared")
    change(runner, with_new, "mem-opt")
    runner.step(rows_of_b(65))
    assert {a for q, a, b in runner.results if (q, b) == (4, 65)} == {3, 4, 5, 6}


@given(
    pieces=st.lists(st.lists(st.integers(0, 40), unique=True, max_size=30), min_size=1, max_size=6),
    apart=st.sampled_from([1, 7, 10**6]),
    first=st.integers(0, 2**30),
)
def test_rows_of_several_joins_are_found_once_however_their_positions_lie(
    pieces: list[list[int]], apart: int, first: int
) -> None:
    positions = [
        np.array([(first + row % 3 * apart << 32) + row // 3 for row in rows], dtype=np.int64)
        for rows in pieces
    ]
    seen: set[int] = set()
    for pos, new in zip(positions, first_copies(positions), strict=True):
        assert new.tolist() == [p not in seen for p in pos.tolist()]
        seen |= set(pos.tolist())
