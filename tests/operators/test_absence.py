"""Outer, semi and anti joins in the chain against nested loops, on random cases."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Unpack

import pytest
from hypothesis import given, settings

from catalog.values.counters.family_counters import AbsenceCounters
from catalog.values.plan import Strategy
from catalog.values.query import JoinKind, Query
from operators.bucket.counters import absence_counters, slice_table, unmatched_counters
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from tests.builders import QueryFacts, a_query, a_stream
from tests.examples import examples
from tests.operators.cases import ALL_STRATEGIES, SETTINGS, Case, Step, cases, check
from tests.operators.harness import Runner
from tests.operators.oracle import NestedLoops, family_of
from tests.operators.queries import Row, a_table


@settings(SETTINGS, max_examples=examples(100, short=12))
@given(cases(absence=True))
def test_absent_and_matched_rows_are_those_of_nested_loops(case: Case) -> None:
    check(case)


@settings(SETTINGS, max_examples=examples(100, short=12))
@given(cases(absence=True, family=0))
def test_queries_of_one_family_judge_the_same_rows(case: Case) -> None:
    check(case)


@settings(SETTINGS, max_examples=examples(100, short=12))
@given(cases(absence=True, activations=True))
def test_queries_that_come_and_go_judge_rows_since_they_came(case: Case) -> None:
    check(case)


def counted(runner: Runner) -> list[AbsenceCounters]:
    return [c for b in runner.state for c in absence_counters(b.families, b.clocks)]


@settings(SETTINGS, max_examples=examples(50, short=6))
@given(cases(absence=True))
def test_absent_rows_are_counted_as_results(case: Case) -> None:
    absent = 0
    unmatched = Counter[int]()

    def count(runner: Runner, _oracle: NestedLoops) -> None:
        nonlocal absent
        absent += sum(c.absent for c in counted(runner))
        for counters in (c for b in runner.state for c in unmatched_counters(b.families)):
            unmatched[counters.query_id] += counters.rows

    queries = {
        query.id: query for step in case.steps for query in (*(step.between or ()), *(step.queries or ()))
    }
    found = check(replace(case, stored=False), count).results
    assert absent == sum(
        rows for (q, a, b), rows in found.items() if None in (a, b) and queries[q].kind != "semi"
    )
    of_outer = Counter[int]()
    for (q, a, b), rows in found.items():
        if None in (a, b) and queries[q].kind == "outer":
            of_outer[q] += rows
    assert unmatched == of_outer


def row(pos: int, ts: int, k: int | None = 1, v: int = 0) -> Row:
    return Row(pos, ts, {"k": k, "m": "x", "v": v, "w": 0})


def case(*steps: Step, slack_us: int | None = None) -> Case:
    return Case({i: a_stream(i) for i in (1, 2, 3)}, steps, 1, slack_us, stored=True)


def anti(number: int, w_us: int, **facts: Unpack[QueryFacts]) -> Query:
    return a_query(number, w_us, **(facts | {"kind": "anti", "preserved": ("a",)}))


def test_a_query_judges_none_of_the_rows_that_were_there_before_it() -> None:
    first, second = anti(1, 4_000), anti(2, 4_000, backfill="state")
    # Rows of both plan versions come to lie in one segment: four small ones are merged.
    before = [Step((first,) if n == 0 else None, ((1, row(n, n)),)) for n in range(4)]
    after = [Step((first, second) if n == 4 else None, ((1, row(n, n)),)) for n in range(4, 12)]
    found = check(case(*before, *after, Step(None, ((2, row(0, 9_000, k=7)),)))).results
    assert sorted(pos for query, pos, _ in found if query == 1) == list(range(12))
    assert sorted(pos for query, pos, _ in found if query == 2) == list(range(4, 12))


def test_a_late_row_without_a_key_is_absent_nowhere() -> None:
    found = check(
        case(
            Step((anti(1, 10),), ((1, row(0, 50, k=None)), (2, row(0, 0)))),
            Step(None, ((1, row(1, 20, k=None)),)),
            Step(None, ((2, row(1, 500)),)),
        )
    ).results
    assert list(found) == [(1, 0, None)]


def test_a_row_with_matches_in_several_joins_is_given_once_with_the_first() -> None:
    queries = (
        a_query(1, 8_000, filter_a='"v" < 5', kind="semi", preserved=("b",)),
        a_query(2, 4_000, kind="semi", preserved=("b",)),
    )
    # The stream is split by its filter, so both joins serve query 2, and each merges segments of its own.
    resting = [Step(queries if n == 0 else None, ((2, row(n, n)),), strategy="pushdown") for n in range(8)]
    both = Step(None, ((1, row(0, 40, v=9)), (1, row(1, 30, v=1))))
    found = check(case(*resting, both)).results
    assert sorted(found.elements()) == [(query, None, pos) for query in (1, 2) for pos in range(8)]


def test_rows_are_undecided_until_the_longest_window_has_passed_them() -> None:
    queries = (anti(1, 10), anti(2, 40))
    # One row has no key; b's watermark passes the rows one after the other.
    came = tuple((1, row(n, ts, k=None if n == 3 else n)) for n, ts in enumerate((0, 5, 5, 9, 30)))
    told: list[list[tuple[str, int, int]]] = []

    def tell(runner: Runner, _oracle: NestedLoops) -> None:
        told.append([(c.side, c.undecided, c.absent) for c in counted(runner)])

    times = (15, 39, 40, 45, 49, 69, 70)
    steps = [Step(None, ((2, row(n, ts, k=99)),)) for n, ts in enumerate(times)]
    check(replace(case(Step(queries, came), *steps), stored=False), tell)
    assert told == [
        [("a", 5, 0)],
        [("a", 5, 3)],
        [("a", 5, 1)],
        [("a", 4, 2)],
        [("a", 2, 2)],
        [("a", 1, 1)],
        [("a", 1, 0)],
        [("a", 0, 1)],
    ]


def test_semi_joins_that_get_a_row_at_one_time_share_its_result() -> None:
    streams = {i: a_stream(i) for i in (1, 2)}
    windows_us = {1: 2_000, 2: 4_000, 3: 8_000, 4: 9_000}
    queries = [a_query(n, w_us, kind="semi", preserved=("a",)) for n, w_us in windows_us.items()]
    plan = build_plan(queries, streams, objective=Objective("mem-opt", cost_model="paper"))
    runner = Runner(streams)

    def results(rows_a: list[Row], *times_us: int) -> list[tuple[int, int, tuple[int, ...]]]:
        """Return position, time and queries of what a batch gives."""
        rows_b = [row(10 * runner.batch + n, ts) for n, ts in enumerate(times_us)]
        rows = {1: a_table(streams[1], rows_a), 2: a_table(streams[2], rows_b)}
        (output,) = runner.step(rows, [plan] if runner.batch == 0 else [])
        found = []
        for family, table in output.results.items():
            routes = output.routes[family].table().ids()
            columns = (table.column(n).cast("int64").to_pylist() for n in ("_pos_a", "_event_time", "_route"))
            found += [(pos, time_us, routes[route]) for pos, time_us, route in zip(*columns, strict=True)]
        return sorted(found)

    # A match behind counts at the row's own time, one ahead at the match's; who has the row gets it no more.
    assert results([row(0, 10_000)], 5_000) == [(0, 10_000, (3, 4))]
    assert results([], 11_000, 11_500) == [(0, 11_000, (1, 2))]
    assert results([row(1, 14_000)], 11_700, 16_500, 17_000) == [(1, 14_000, (2, 3, 4))]
    assert results([row(2, 20_000)], 17_500, 21_000) == [(2, 20_000, (2, 3, 4)), (2, 21_000, (1,))]


def held(runner: Runner, side: str) -> set[int]:
    """Return the positions of the rows that rest on a side of families with absence, in any join."""
    assert runner.plan is not None
    ids = [family.id for family in runner.plan.families if family.judges_absence]
    slices = [rows for i in ids for join in runner.joins(i) for rows in runner.state_rows(i, side, join)]
    return set().union(*slices)


@settings(SETTINGS, max_examples=examples(100))
@given(cases(absence=True, family=0, activations=True))
def test_rows_that_a_query_still_needs_do_not_leave(case: Case) -> None:
    def look(runner: Runner, oracle: NestedLoops) -> None:
        for side in ("a", "b"):
            families = {family_of(query) for query in oracle.queries if query.kind != "inner"}
            needed = {pos for family in families for pos in oracle.usable(family, side)}
            assert needed <= held(runner, side)

    check(case, look)


def test_a_judged_row_rests_in_one_bucket_and_its_partners_in_all() -> None:
    rows = tuple((1 + number % 2, row(number // 2, 100 + number)) for number in range(40))
    spread = a_query(1, kind="outer", preserved=("b",), spreads=True)
    ran = check(replace(case(Step((spread,), rows)), buckets=3)).runner

    def held(side: str) -> list[int]:
        families = [joins for bucket in ran.state for joins in bucket.families.values()]
        return [sum(s.rows for _, of, _, s in joins.slices() if of == side) for joins in families]

    assert held("a") == [20, 20, 20]
    assert sum(held("b")) == 20
    assert min(held("b")) > 0


@pytest.mark.parametrize("strategy", ALL_STRATEGIES)
def test_a_row_leaves_with_its_match_once_no_query_needs_it(strategy: Strategy) -> None:
    steps = (
        Step((anti(1, 10), anti(2, 40)), ((1, row(0, 100)), (1, row(1, 101, k=2))), strategy=strategy),
        # The match is near enough for the longer window alone, and the shorter one has not passed.
        Step(None, ((2, row(0, 85)),)),
        Step(None, ((2, row(1, 112, k=3)),)),
        # Now it has, and a second match has rows searched.
        Step(None, ((2, row(2, 113, k=2)),)),
    )
    rests: list[set[int]] = []
    check(case(*steps), lambda runner, _: rests.append(held(runner, "a")))
    assert rests == [{0, 1}, {0, 1}, {0, 1}, set()]


def test_semi_and_anti_joins_hold_and_touch_fewer_rows_than_inner_ones() -> None:
    rows = [
        tuple((s, row(10 * n + i, 100 + n, k=i % 3)) for i in range(10) for s in (1, 2)) for n in range(20)
    ]
    rested, touched, gone = {}, Counter[str](), Counter[str]()
    kinds: tuple[JoinKind, ...] = ("inner", "semi", "anti")
    for kind in kinds:
        query = a_query(1, 8, kind=kind, preserved=() if kind == "inner" else ("a",))

        def look(runner: Runner, _oracle: NestedLoops, kind: str = kind) -> None:
            slices = [c for b in runner.state for c in slice_table(b.families, b.clocks).counters()]
            rested[kind] = sum(c.lying for c in slices)
            touched[kind] += sum(c.touched for c in slices)
            gone[kind] += sum(c.left for c in slices)

        check(
            replace(case(*(Step((query,) if n == 0 else None, r) for n, r in enumerate(rows))), stored=False),
            look,
        )
    assert rested == {"inner": 160, "semi": 80, "anti": 80}
    assert touched["semi"] == touched["anti"] < touched["inner"]
    assert gone == Counter(semi=200, anti=200)


def test_a_query_that_enters_finds_no_rows_that_may_have_left() -> None:
    # The row of a has its match and has left; the new query asks for rows of b, of which it was a partner.
    former, entering = anti(1, 40), a_query(2, 40, kind="anti", preserved=("b",), backfill="state")
    steps = (
        Step((former,), ((1, row(0, 100)), (2, row(0, 100)))),
        Step((former, entering), ((2, row(1, 101)),)),
        Step(None, ((1, row(1, 200, k=9)), (2, row(2, 200, k=8)))),
    )
    found = check(case(*steps)).results
    assert list(found) == [(2, None, 1)]


def test_first_matches_and_marks_are_counted() -> None:
    told: list[tuple[int, int]] = []
    steps = (
        Step((anti(1, 40), anti(2, 40, filter_a='"v" < 5')), ((1, row(0, 100)), (1, row(1, 100, v=7)))),
        Step(None, ((2, row(0, 90)),)),
        # Nearer, but both rows have left with their first match.
        Step(None, ((2, row(1, 105)),)),
        Step(None, ((2, row(2, 300, k=9)),)),
    )

    def tell(runner: Runner, _oracle: NestedLoops) -> None:
        told.append((sum(c.matched for c in counted(runner)), sum(c.marks for c in counted(runner))))

    check(replace(case(*steps), stored=False), tell)
    # The first query matches both rows, the second one of them.
    assert told == [(0, 0), (3, 3), (0, 3), (0, 0)]
