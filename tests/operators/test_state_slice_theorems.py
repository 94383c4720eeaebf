"""Theorems 3 (§5.1) and 4 (§6.1) of State-Slice (VLDB 2006): the rows in a Mem-Opt chain after every batch.

Theorem 4 says that the state is minimal. A row that some query can still use may have to be joined, and no
other has to be, so the tests ask for exactly these rows, each in the slice that Lemma 1 (§4.1) names.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.plan import FamilyPlan, Plan, Strategy
from operators.segments.layout import SIDES
from planner.build.build_plan import build_plan
from tests.builders import a_query, a_stream
from tests.examples import examples
from tests.operators.backfill_chains import backfill_chains
from tests.operators.cases import SETTINGS, Case, Step, cases, check
from tests.operators.chains import a_chain
from tests.operators.harness import Runner
from tests.operators.oracle import NestedLoops, family_of, side_of
from tests.operators.queries import Row, a_table

#: The theorems are about Mem-Opt's chain.
MEM_OPT: tuple[Strategy, ...] = ("mem-opt",)


def _one_join(plan: Plan) -> Plan:
    """Merge every chain into one slice: a join with the largest window."""

    def merged(family: FamilyPlan) -> FamilyPlan:
        (join,) = family.joins
        chain_a = a_chain(family.queries, "a", [max(q.w_a_us for q in family.queries)])
        chain_b = a_chain(family.queries, "b", [max(q.w_b_us for q in family.queries)])
        return replace(family, joins=(replace(join, chain_a=chain_a, chain_b=chain_b),))

    return replace(plan, families=tuple(merged(family) for family in plan.families))


def _without_selections(case: Case) -> Case:
    queries = case.steps[0].queries
    assert queries is not None
    plain = [
        a_query(q.id, q.a.window_us, q.b.window_us, streams=(q.a.stream_id, q.b.stream_id), key=q.key)
        for q in queries
    ]
    steps = (replace(case.steps[0], queries=tuple(plain)), *case.steps[1:])
    return replace(case, steps=steps, slack_us=0)


@settings(SETTINGS, max_examples=examples(60, short=7))
@given(cases(family=0))
def test_theorem_3_a_chain_holds_the_rows_of_one_join_with_the_largest_window(case: Case) -> None:
    case = _without_selections(case)
    queries = case.steps[0].queries
    assert queries is not None
    plan = build_plan(queries, case.streams)
    chain, join = Runner(case.streams, case.buckets), Runner(case.streams, case.buckets)
    family = plan.families[0].id
    for number, step in enumerate(case.steps):
        rows = step.by_stream([s.id for s in plan.streams])
        tables = {i: a_table(case.streams[i], arrived) for i, arrived in rows.items()}
        chain.step(tables, [plan] if number == 0 else [])
        join.step(tables, [_one_join(plan)] if number == 0 else [])
        for side in SIDES:
            (whole,) = join.state_rows(family, side)
            # state_rows has checked that no row is in two slices.
            assert set().union(*chain.state_rows(family, side)) == whole
    assert chain.results == join.results


def _exactly_the_usable_rows(runner: Runner, oracle: NestedLoops) -> None:
    assert runner.plan is not None
    for family in {family_of(q) for q in oracle.queries}:
        plan = _family_plan(runner.plan, family[:2], family[2])
        for side in SIDES:
            opposite = oracle.watermark(family[1] if side == "a" else family[0])
            times = {known.row.pos: known.row.ts for known in oracle.known.get(family, {}).get(side, [])}
            chain = plan.joins[0].chain_a if side == "a" else plan.joins[0].chain_b
            expected: list[set[int]] = [set() for _ in chain]
            for pos in oracle.usable(family, side):
                passed_by = 0 if opposite is None else max(0, opposite - times[pos])
                expected[sum(s.w_end_us <= passed_by for s in chain)].add(pos)
            assert runner.state_rows(plan.id, side) == expected, (family, side)


def _family_plan(plan: Plan, streams: tuple[int, int], key: tuple[tuple[str, str], ...]) -> FamilyPlan:
    return next(f for f in plan.families if (f.stream_a, f.stream_b) == streams and f.key == key)


@settings(SETTINGS, max_examples=examples(120, short=15))
@given(st.one_of(cases(activations=True, strategies=MEM_OPT), backfill_chains(MEM_OPT)))
def test_theorem_4_each_slice_holds_exactly_the_rows_that_some_query_can_still_use(case: Case) -> None:
    check(replace(case, slack_us=0), _exactly_the_usable_rows)


@settings(SETTINGS, max_examples=examples(80, short=10))
@given(st.one_of(cases(activations=True, family=0, strategies=MEM_OPT), backfill_chains(MEM_OPT)))
def test_theorem_4_with_slack_holds_no_row_longer_than_the_slack(case: Case) -> None:
    def bounded(runner: Runner, oracle: NestedLoops) -> None:
        assert runner.plan is not None
        for family in {family_of(q) for q in oracle.queries}:
            plan = _family_plan(runner.plan, family[:2], family[2])
            slack_us = runner.state[0].families[plan.id].family.joins[0].slacks["a"]
            if case.slack_us is None:
                finite = [
                    side_of(q, s).window_us for q in oracle.queries for s in SIDES if family_of(q) == family
                ]
                assert slack_us <= max(finite) / 40
            for side in SIDES:
                held = set().union(*runner.state_rows(plan.id, side))
                assert oracle.usable(family, side) <= held <= oracle.usable(family, side, slack_us)

    check(case, bounded)


@pytest.mark.parametrize(("slack_us", "held"), [(0, 1), (None, 3)])
def test_rows_within_the_slack_stay_together(slack_us: int | None, held: int) -> None:
    """Three rows of one batch span 10 µs, which the default slack of a 400 µs window does not split."""
    streams = {1: a_stream(1), 2: a_stream(2)}
    values = {"k": 1, "m": None, "v": None, "w": None}
    runner = Runner(streams, slack_us=slack_us)
    rows = [Row(n, ts, values) for n, ts in enumerate((100, 105, 110))]
    runner.step({1: a_table(streams[1], rows)}, [build_plan([a_query(1, 400)], streams)])
    runner.step({2: a_table(streams[2], [Row(0, 507, values)])})
    assert runner.plan is not None
    assert [len(s) for s in runner.state_rows(runner.plan.families[0].id, "a")] == [held]
    assert runner.results == {(1, 2, 0): 1}


def test_selections_that_no_query_shares_leave_no_row_behind() -> None:
    """A row that only the short query can use is gone once that query's window has passed it."""
    streams = {1: a_stream(1), 2: a_stream(2)}
    short, long = a_query(1, 5, filter_a='"v" < 5'), a_query(2, 30, filter_a='"v" > 2')
    rows = [(1, Row(n, 0, {"k": 1, "m": None, "v": v, "w": None})) for n, v in enumerate((0, 4, 8, None))]
    steps = (
        Step((short, long), tuple(rows)),
        Step(None, ((2, Row(0, 5, {"k": 1, "m": None, "v": 0, "w": 0})),)),
    )
    runner = check(Case(streams, steps, 1, 0, False), _exactly_the_usable_rows).runner
    assert runner.plan is not None
    assert runner.state_rows(runner.plan.families[0].id, "a") == [set(), {1, 2}]
