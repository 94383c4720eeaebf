"""``backfill: state`` gives the held rows of the design's section 1, under every strategy and chain.

``World`` compares, after every batch and for every row in every slice, the set of queries that may use the
row with that of ``tests.operators.held``; what is kept beyond that (slack, merged slices, pulled-up
selections) is masked. Here are the cases in which rows are handed on, and examples worked out by hand.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.plan import Plan, Strategy
from catalog.values.query import Query
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from tests.builders import a_query, a_stream
from tests.examples import examples
from tests.operators.backfill_chains import backfill_chains
from tests.operators.cases import ALL_STRATEGIES, SETTINGS, Case, cases, plan_versions
from tests.operators.chains import rechained
from tests.operators.durable import Crash
from tests.operators.queries import Row
from tests.operators.world import World

STREAMS = {1: a_stream(1), 2: a_stream(2)}
LOW, HIGH = '"v" < 5', '"v" > 2'
CRASHES: tuple[Crash, ...] = ("never", "before-commit", "after-commit")


def replayed(case: Case, chain: int | None, crash: Crash) -> None:
    world = World(case.streams, case.buckets, case.slack_us)
    plans: list[Plan] = []
    for step in case.steps:
        changes = plan_versions(step, case, plans[-1] if plans else None)
        plans += changes
        chosen = changes if chain is None else [rechained(plan, chain) for plan in changes]
        flowing = [s.id for s in plans[-1].streams]
        world.batch(step.by_stream(flowing), chosen, step.queries, step.heartbeats, crash)


@settings(SETTINGS, max_examples=examples(120, short=15))
@given(backfill_chains(), st.one_of(st.none(), st.integers(0, 999)), st.sampled_from(CRASHES))
def test_rows_are_handed_on_as_the_design_says(case: Case, chain: int | None, crash: Crash) -> None:
    replayed(case, chain, crash)


@settings(SETTINGS, max_examples=examples(60, short=7))
@given(cases(activations=True), st.one_of(st.none(), st.integers(0, 999)))
def test_rows_of_any_family_are_handed_on_as_the_design_says(case: Case, chain: int | None) -> None:
    replayed(case, chain, "never")


def a_world(before: Sequence[Query], strategy: Strategy, slack_us: int | None) -> World:
    """Rows 0 to 6 of a at 0, 10, ... 60 with v = 0, 1, ... 6; then b's watermark is 60."""
    world = World(STREAMS, slack_us=slack_us)
    world.batch(
        {1: [_row(n, 10 * n, n) for n in range(7)]},
        [build_plan(before, STREAMS, objective=Objective(strategy, cost_model="paper"))],
        before,
    )
    world.batch({2: [_row(0, 60, 0)]})
    return world


def changed(world: World, queries: Sequence[Query], strategy: Strategy, probe_us: int) -> dict[int, set[int]]:
    """Change the plan, let b's row at ``probe_us`` probe, and return the rows that each query got."""
    plan = build_plan(queries, STREAMS, world.plan, objective=Objective(strategy, cost_model="paper"))
    position = probe_us
    world.batch({2: [_row(position, probe_us, 0)]}, [plan], queries)
    found: dict[int, set[int]] = {}
    for query_id, a, b in world.runner.results:
        if b == position:
            found.setdefault(query_id, set()).add(a)
    return found


def _row(pos: int, ts: int, v: int) -> Row:
    return Row(pos, ts, {"k": 1, "m": None, "v": v, "w": None})


both = pytest.mark.parametrize(("before", "after"), list(itertools.product(ALL_STRATEGIES, repeat=2)))
slacks = pytest.mark.parametrize("slack_us", [0, 100])


@both
@slacks
def test_an_updated_query_gets_what_its_old_definition_held(
    before: Strategy, after: Strategy, slack_us: int
) -> None:
    """Of rows that pass v < 5 (0 to 4), the old window of 30 reaches 60 from row 4 only."""
    world = a_world([a_query(1, 30, filter_a=LOW)], before, slack_us)
    update = a_query(2, 100, backfill="state")
    assert changed(world, [update], after, 61) == {2: {4}}


@both
@slacks
def test_an_updated_query_gets_what_any_query_of_the_plan_before_held(
    before: Strategy, after: Strategy, slack_us: int
) -> None:
    """The old definition holds row 4, q2 the rows that pass v > 2 within 60: 3 to 6. Both stay apart."""
    stays = a_query(2, 60, filter_a=HIGH)
    world = a_world([a_query(1, 30, filter_a=LOW), stays], before, slack_us)
    update = a_query(3, 100, backfill="state")
    assert changed(world, [stays, update], after, 61)[3] == {3, 4, 5, 6}


@both
def test_a_filter_of_the_update_is_asked_of_held_rows(before: Strategy, after: Strategy) -> None:
    """The old one held rows 1 to 6 with v; of those the new filter v < 5 takes 1 to 4."""
    world = a_world([a_query(1, 60, columns_a=("v",))], before, 0)
    assert changed(world, [a_query(2, 100, filter_a=LOW, backfill="state")], after, 61) == {2: {1, 2, 3, 4}}


@both
def test_rows_without_a_column_that_the_update_needs_are_not_held(before: Strategy, after: Strategy) -> None:
    """q1 kept v, so its update may need v; the update of q2 needs w, which nobody kept."""
    world = a_world([a_query(1, 60, columns_a=("v",)), a_query(2, 60)], before, 0)
    first = [a_query(3, 60, columns_a=("v",), backfill="state")]
    first += [a_query(4, 60, columns_a=("w",), backfill="state")]
    assert changed(world, first, after, 60) == {3: {1, 2, 3, 4, 5, 6}}
    # From its activation on it is complete: a row that comes now has w.
    world.batch({1: [_row(7, 60, 0)]})
    assert {(4, 7, 0)} == {r for r in world.runner.results if r[0] == 4 and r[2] == 0}


@both
def test_a_paused_query_resumes_with_what_others_held_meanwhile(before: Strategy, after: Strategy) -> None:
    """While q1 rests only q2 holds: of the rows with v > 2, those that its window of 20 reaches from 62."""
    rests, stays = a_query(1, 100), a_query(2, 20, filter_a=HIGH)
    world = a_world([rests, stays], before, 0)
    assert changed(world, [stays], after, 62) == {2: {5, 6}}
    assert changed(world, [stays, a_query(3, 100, backfill="state")], before, 63)[3] == {5, 6}


def test_nobody_holds_what_a_query_without_backfill_did_not_get() -> None:
    """q2 came later and takes every row, but is entitled only to what was processed since."""
    world = a_world([a_query(1, 10)], "pullup", 100)
    changed(world, [a_query(1, 10), a_query(2, 100)], "pullup", 61)
    got = changed(world, [a_query(2, 100), a_query(3, 100, backfill="state")], "mem-opt", 62)
    # q1 holds row 6 alone: 60 + 10 > 61; row 5 is in the state of the pulled-up join, and masked.
    assert got == {3: {6}}
