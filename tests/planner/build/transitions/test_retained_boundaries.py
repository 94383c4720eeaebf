"""Chains that are cut by hand, and what departed queries leave in a chain."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.values.plan import Boundaries, FamilyPlan, Plan, Strategy
from catalog.values.query import Query
from planner.build.build_plan import build_plan
from planner.build.check_plan import check_plan
from planner.build.objective import Objective
from planner.build.transitions.retained_boundaries import boundaries_of, retained_boundaries
from planner.errors import InvalidPlan
from planner.families.families import SIDES, SideName, side_chain, side_window_us
from tests.builders import SECOND_US, a_query_s
from tests.planner.applied import render_text
from tests.planner.values import STREAMS

LOW, HIGH = '"v" < 0.2', '"v" > 0.9'
FAMILY = build_plan([a_query_s(1)], STREAMS).families[0].id
STRATEGIES: tuple[Strategy, ...] = ("unshared", "pullup", "pushdown", "mem-opt", "cpu-opt")


def us(*seconds: float) -> tuple[int, ...]:
    return tuple(round(s * SECOND_US) for s in seconds)


def both(*seconds: float) -> Boundaries:
    return Boundaries(us(*seconds), us(*seconds))


def ends(plan: Plan, side: SideName = "a") -> list[float]:
    (family,) = plan.families
    return [s.w_end_us / SECOND_US for s in side_chain(family.joins[0], side)]


def pinned(queries: list[Query], *seconds: float, previous: Plan | None = None) -> Plan:
    return build_plan(queries, STREAMS, previous, objective=Objective(pinned={FAMILY: both(*seconds)}))


def test_a_pinned_chain_has_its_own_boundaries_and_ends_at_the_largest_window() -> None:
    queries = [a_query_s(1, 10), a_query_s(2, 30, filter_a=LOW)]
    plan = pinned(queries, 15, 30)
    assert ends(plan) == [15, 30]
    assert plan.families[0].given
    first, second = plan.families[0].joins[0].chain_a
    assert (first.keep, second.keep) == (None, (0,))


def test_a_pinned_chain_goes_on_with_windows_that_come_and_go() -> None:
    short, long = a_query_s(1, 10), a_query_s(2, 30)
    plan = pinned([short, long], 10, 15, 30)
    longer = pinned([short, long, a_query_s(3, 60)], 10, 15, 30, previous=plan)
    assert ends(longer) == [10, 15, 30, 60]
    inside = pinned([short, long, a_query_s(4, 20)], 10, 15, 30, previous=longer)
    assert ends(inside) == [10, 15, 30]
    assert ends(pinned([short], 10, 15, 30, previous=inside)) == [10]


def test_a_pinned_chain_that_its_strategy_would_choose_is_not_called_given() -> None:
    assert not pinned([a_query_s(1, 10), a_query_s(2, 30)], 10, 30).families[0].given


def left_after(
    before: list[Query], after: list[Query], strategy: Strategy = "mem-opt"
) -> tuple[Plan, dict[str, Boundaries]]:
    first = build_plan(before, STREAMS, objective=Objective(strategy, cost_model="paper"))
    left = retained_boundaries(first, after)
    return build_plan(
        after, STREAMS, first, objective=Objective(strategy, cost_model="paper"), left=left
    ), left


def test_what_a_departed_query_left_stays_without_rows_or_queries() -> None:
    short, middle, long = a_query_s(1, 10), a_query_s(2, 30, filter_a=LOW), a_query_s(3, 60)
    plan, left = left_after([short, middle, long], [short])
    assert left == {FAMILY: both(30, 60)}
    assert ends(plan) == [10, 30, 60]
    first, second, third = plan.families[0].joins[0].chain_a
    assert first.keep is None
    assert [s.keep for s in (second, third)] == [(), ()]
    (family,) = plan.families
    assert [(q.id, slices) for q, slices in family.slices_reached(family.joins[0], "a")] == [(1, 1)]
    last = render_text(plan).splitlines()[-1].split()
    assert " ".join(last) == "slice 3 [30s, 1m) queries none keep nothing keep nothing"


def test_a_clean_up_gives_the_chain_of_the_strategy() -> None:
    short, long = a_query_s(1, 10), a_query_s(3, 60)
    plan, _ = left_after([short, long], [short])
    cleaned = build_plan([short], STREAMS, plan)
    assert ends(cleaned) == [10]
    assert not cleaned.families[0].given
    assert retained_boundaries(cleaned, [short]) == {}


def test_a_window_that_comes_where_one_was_left_takes_its_boundary() -> None:
    short, long = a_query_s(1, 10), a_query_s(2, 60)
    plan, _ = left_after([short, long], [short])
    again = [short, a_query_s(3, 60)]
    assert retained_boundaries(plan, again) == {}


@pytest.mark.parametrize("strategy", ["unshared", "pushdown", "pullup"])
def test_joins_that_are_no_state_slice_chain_leave_nothing_apart(strategy: Strategy) -> None:
    low, high, long = a_query_s(1, 10, filter_a=LOW), a_query_s(2, 20, filter_a=HIGH), a_query_s(3, 60)
    plan, _ = left_after([low, high, long], [low, high], strategy)
    assert (
        plan.families[0].joins
        == build_plan([low, high], STREAMS, objective=Objective(strategy, cost_model="paper"))
        .families[0]
        .joins
    )


def test_nothing_is_left_of_a_family_that_has_gone() -> None:
    first = build_plan([a_query_s(1, 10)], STREAMS)
    assert retained_boundaries(first, []) == {}
    assert retained_boundaries(None, [a_query_s(1)]) == {}


def test_boundaries_that_nobody_gave_are_refused() -> None:
    plan = pinned([a_query_s(1, 10), a_query_s(2, 30)], 15, 30)
    (family,) = plan.families
    with pytest.raises(InvalidPlan, match="Mem-Opt must have a slice for each distinct window"):
        check_plan(replace(plan, families=(replace(family, given=False),)), None)


some_queries = st.lists(
    st.builds(
        lambda i, a, b, f: a_query_s(i, a, b, filter_a=f),
        st.integers(1, 9),
        st.sampled_from([5, 10, 20, 30]),
        st.sampled_from([5, 10, 20, 30]),
        st.sampled_from([None, LOW, HIGH]),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda q: q.id,
)
some_ends = st.lists(st.sampled_from([1, 7, 10, 15, 25, 40, 90]), unique=True, max_size=4).map(
    lambda seconds: us(*sorted(seconds))
)


@given(
    some_queries,
    some_queries,
    st.sampled_from(STRATEGIES),
    st.builds(Boundaries, some_ends, some_ends),
    st.booleans(),
)
def test_every_version_is_a_plan_that_passes_its_check(
    before: list[Query], after: list[Query], strategy: Strategy, cut: Boundaries, keeps: bool
) -> None:
    """`build_plan` checks what it builds; here are the boundaries that must be in it, and no others."""
    kept = {q.id: q for q in before}
    after = [kept.get(q.id, q) for q in after]
    first = build_plan(
        before,
        STREAMS,
        objective=Objective(strategy, pinned={FAMILY: cut} if cut else {}, cost_model="paper"),
    )
    left = retained_boundaries(first, after) if keeps else {}
    second = build_plan(
        after,
        STREAMS,
        first,
        objective=Objective(strategy, pinned={FAMILY: cut} if cut else {}, cost_model="paper"),
        left=left,
    )
    if not cut:
        return
    found = boundaries_of(only(second))
    for side in SIDES:
        largest = max(side_window_us(q, side) for q in only(second).queries)
        stays = left.get(FAMILY, Boundaries()).side(side)
        end = max(largest, *stays, 0)
        assert set(found.side(side)) == {largest, *stays, *(at for at in cut.side(side) if at < end)}


def only(plan: Plan) -> FamilyPlan:
    (family,) = plan.families
    return family
