"""Outer, semi and anti joins in the chain against nested loops, on random cases."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from hypothesis import given, settings

from catalog.values.batch import AbsenceCounters
from catalog.values.query import Query
from operators.bucket.counters import absence_counters
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from tests.builders import QueryFacts, a_query, a_stream
from tests.examples import examples
from tests.operators.cases import SETTINGS, Case, Step, cases, check
from tests.operators.harness import Runner
from tests.operators.oracle import NestedLoops
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

    def count(runner: Runner, _oracle: NestedLoops) -> None:
        nonlocal absent
        absent += sum(c.absent for c in counted(runner))

    queries = {
        query.id: query for step in case.steps for query in (*(step.between or ()), *(step.queries or ()))
    }
    found = check(replace(case, stored=False), count).results
    assert absent == sum(
        rows for (q, a, b), rows in found.items() if None in (a, b) and queries[q].kind != "semi"
    )


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
            routes = output.routes[family].table.ids()
            columns = (table.column(n).cast("int64").to_pylist() for n in ("_pos_a", "_event_time", "_route"))
            found += [(pos, time_us, routes[route]) for pos, time_us, route in zip(*columns, strict=True)]
        return sorted(found)

    # A match behind counts at the row's own time, one ahead at the match's; who has the row gets it no more.
    assert results([row(0, 10_000)], 5_000) == [(0, 10_000, (3, 4))]
    assert results([], 11_000, 11_500) == [(0, 11_000, (1, 2))]
    assert results([row(1, 14_000)], 11_700, 16_500, 17_000) == [(1, 14_000, (2, 3, 4))]
    assert results([row(2, 20_000)], 17_500, 21_000) == [(2, 20_000, (2, 3, 4)), (2, 21_000, (1,))]
