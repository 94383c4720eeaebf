"""Primitives between plans: written out for single changes, and as a property for any two plans."""

from __future__ import annotations

from dataclasses import astuple, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errors import InvariantBroken
from catalog.values.plan import Boundaries, Plan, Strategy
from catalog.values.primitive import (
    CloseJoin,
    Extend,
    Merge,
    OpenJoin,
    Primitive,
    SetFilter,
    SetRoutes,
    Split,
    Truncate,
    inverse,
)
from catalog.values.query import UNBOUNDED_US, Query
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.build.transitions.diff import Shape, diff, rows_moved, shapes
from tests.builders import SECOND_US, a_query_s
from tests.planner.applied import apply_primitives
from tests.planner.values import STREAMS

LOW, HIGH = '"v" < 0.2', '"v" > 0.9'
FAMILY = build_plan([a_query_s(1)], STREAMS).families[0].id
STRATEGIES: tuple[Strategy, ...] = ("unshared", "pullup", "pushdown", "mem-opt", "cpu-opt")


def plan(queries: list[Query], previous: Plan | None = None, strategy: Strategy = "mem-opt") -> Plan:
    return build_plan(queries, STREAMS, previous, objective=Objective(strategy, cost_model="paper"))


def steps(old: list[Query], new: list[Query]) -> list[Primitive]:
    """What leads from the one to the other on side a and for routes; b has the same windows, no filters."""
    first = plan(old)
    return [s for s in diff(first, plan(new, first)) if getattr(s, "side", "a") == "a"]


def at(kind: type[Split] | type[Merge], seconds: int) -> Primitive:
    return kind(FAMILY, "shared", "a", seconds * SECOND_US)


def test_the_same_queries_need_no_step() -> None:
    first = plan([a_query_s(1), a_query_s(2, 20)])
    assert diff(first, plan([a_query_s(1), a_query_s(2, 20)], first)) == ()


def test_a_query_inside_the_chain_splits_a_slice() -> None:
    old = [a_query_s(1, 10), a_query_s(2, 30)]
    assert steps(old, [*old, a_query_s(3, 20)]) == [at(Split, 20), SetRoutes(FAMILY, "shared", (1, 2, 3))]


def test_a_query_that_leaves_merges_two_slices() -> None:
    old = [a_query_s(1, 10), a_query_s(2, 30), a_query_s(3, 20)]
    assert steps(old, old[:2]) == [at(Merge, 20), SetRoutes(FAMILY, "shared", (1, 2))]


def test_a_longer_window_extends_the_chain() -> None:
    old = [a_query_s(1, 10)]
    assert steps(old, [*old, a_query_s(2, 30)]) == [
        Extend(FAMILY, "shared", "a", 10 * SECOND_US, 30 * SECOND_US),
        SetRoutes(FAMILY, "shared", (1, 2)),
    ]


def test_the_longest_window_takes_its_slice_along() -> None:
    old = [a_query_s(1, 10), a_query_s(2, 30)]
    assert steps(old, old[:1]) == [
        Truncate(FAMILY, "shared", "a", 30 * SECOND_US, 10 * SECOND_US),
        SetRoutes(FAMILY, "shared", (1,)),
    ]


def test_another_longest_window_extends_and_merges() -> None:
    assert steps([a_query_s(1, 10), a_query_s(2, 30)], [a_query_s(1, 10), a_query_s(3, 60)]) == [
        Extend(FAMILY, "shared", "a", 30 * SECOND_US, 60 * SECOND_US),
        at(Merge, 30),
        SetRoutes(FAMILY, "shared", (1, 3)),
    ]


def test_a_filter_changes_what_a_slice_keeps() -> None:
    old = [a_query_s(1, 10), a_query_s(2, 30, filter_a=LOW)]
    assert steps(old, [*old, a_query_s(3, 30, filter_a=HIGH)]) == [
        SetFilter(FAMILY, "shared", "a", 10 * SECOND_US, 30 * SECOND_US, (0, 1)),
        SetRoutes(FAMILY, "shared", (1, 2, 3)),
    ]


def test_the_first_plan_opens_its_joins_and_the_last_closes_them() -> None:
    first = plan([a_query_s(1, 10)])
    window = 10 * SECOND_US
    assert diff(None, first) == (
        OpenJoin(FAMILY, "shared"),
        Extend(FAMILY, "shared", "a", 0, window),
        Extend(FAMILY, "shared", "b", 0, window),
        SetRoutes(FAMILY, "shared", (1,)),
    )
    assert diff(first, plan([], first)) == (CloseJoin(FAMILY, "shared"),)


def test_pulling_selections_up_merges_all_slices_and_lets_every_row_in() -> None:
    queries = [a_query_s(1, 10, filter_a=LOW), a_query_s(2, 30, filter_a=LOW)]
    first = plan(queries)
    found = diff(first, plan(queries, first, "pullup"))
    assert found == (
        at(Merge, 10),
        SetFilter(FAMILY, "shared", "a", 0, 30 * SECOND_US, None),
        Merge(FAMILY, "shared", "b", 10 * SECOND_US),
    )


def test_joins_of_other_rows_are_closed_before_others_open() -> None:
    queries = [a_query_s(1, 10), a_query_s(2, 30, filter_a=LOW)]
    first = plan(queries)
    found = diff(first, plan(queries, first, "unshared"))
    assert [astuple(s)[1] for s in found if isinstance(s, (CloseJoin, OpenJoin))] == ["shared", "q1", "q2"]
    assert found[0] == CloseJoin(FAMILY, "shared")


def test_a_split_moves_the_older_part_and_a_merge_the_later_slice() -> None:
    first = plan([a_query_s(1, 10), a_query_s(2, 30)])
    key = (FAMILY, "shared")
    shape = shapes(first)[key]
    held = {key: shape.with_side("a", tuple(replace(p, rows=100.0) for p in shape.a))}
    assert rows_moved(held, [at(Split, 25)]) == 25.0
    assert rows_moved(held, [at(Merge, 10)]) == 100.0
    assert rows_moved(held, [at(Merge, 10), at(Split, 20)]) == pytest.approx(100 + 200 / 3)
    assert rows_moved(held, [CloseJoin(*key)]) == 200.0


def test_rows_of_an_unbounded_slice_may_all_move() -> None:
    unbounded = replace(a_query_s(1), a=replace(a_query_s(1).a, window_us=UNBOUNDED_US))
    first = plan([unbounded])
    key = (FAMILY, "shared")
    shape = shapes(first)[key]
    held = {key: shape.with_side("a", tuple(replace(p, rows=100.0) for p in shape.a))}
    assert rows_moved(held, [at(Split, 10)]) == pytest.approx(100.0)


@pytest.mark.parametrize(
    "step",
    [
        at(Split, 10),
        at(Merge, 5),
        OpenJoin(FAMILY, "shared"),
        CloseJoin(FAMILY, "q1"),
        Extend(FAMILY, "shared", "a", 20 * SECOND_US, 30 * SECOND_US),
        Truncate(FAMILY, "shared", "a", 10 * SECOND_US, 10 * SECOND_US),
        SetFilter(FAMILY, "shared", "a", 0, SECOND_US, None),
    ],
)
def test_a_step_that_does_not_fit_is_refused(step: Primitive) -> None:
    with pytest.raises(InvariantBroken, match="does not fit"):
        apply_primitives(shapes(plan([a_query_s(1, 10)])), [step])


a_query_of_any_kind = st.builds(
    lambda i, w_a, w_b, f_a, f_b, streams: a_query_s(
        i, w_a, w_b, filter_a=f_a, filter_b=f_b, streams=streams
    ),
    st.integers(1, 12),
    st.sampled_from([5, 10, 20, 30]),
    st.sampled_from([5, 10, 20, 30]),
    st.sampled_from([None, LOW, HIGH]),
    st.sampled_from([None, LOW]),
    st.sampled_from([(1, 2), (1, 3), (2, 2)]),
)
some_queries = st.lists(a_query_of_any_kind, max_size=6, unique_by=lambda q: q.id)


@given(some_queries, some_queries, st.sampled_from(STRATEGIES), st.sampled_from(STRATEGIES))
def test_primitives_lead_from_any_plan_to_any_other(
    before: list[Query], after: list[Query], one: Strategy, other: Strategy
) -> None:
    # An id means one query forever.
    kept = {q.id: q for q in before}
    after = [kept.get(q.id, q) for q in after]
    old = plan(before, strategy=one)
    new = plan(after, old, other)
    assert apply_primitives(shapes(old), diff(old, new)) == shapes(new)
    assert apply_primitives({}, diff(None, new)) == shapes(new)
    assert Shape() not in shapes(new).values()


some_boundaries = st.lists(st.sampled_from([1, 7, 10, 15, 25, 40, 90]), unique=True, max_size=4).map(
    lambda seconds: tuple(sorted(s * SECOND_US for s in seconds))
)
pins = st.one_of(st.none(), st.builds(Boundaries, some_boundaries, some_boundaries))


@given(
    some_queries,
    some_queries,
    st.sampled_from(STRATEGIES),
    st.sampled_from(STRATEGIES),
    pins,
    pins,
)
def test_inverses_in_reverse_order_lead_back(
    before: list[Query],
    after: list[Query],
    one: Strategy,
    other: Strategy,
    first: Boundaries | None,
    second: Boundaries | None,
) -> None:
    kept = {q.id: q for q in before}
    after = [kept.get(q.id, q) for q in after]
    old = build_plan(
        before,
        STREAMS,
        objective=Objective(
            strategy=one, pinned={} if first is None else {FAMILY: first}, cost_model="paper"
        ),
    )
    new = build_plan(
        after,
        STREAMS,
        old,
        objective=Objective(
            strategy=other, pinned={} if second is None else {FAMILY: second}, cost_model="paper"
        ),
    )
    for start, target in ((old, new), (None, old)):
        there = diff(start, target)
        assert apply_primitives(shapes(start), there) == shapes(target)
        back = [inverse(step) for step in reversed(there)]
        # What was closed is gone: steps lead back from the first one that has an inverse on.
        closed = {(s.family, s.join) for s in there if isinstance(s, CloseJoin)}
        assert all(
            (s is None) == isinstance(t, CloseJoin) for s, t in zip(back, reversed(there), strict=True)
        )
        found = apply_primitives(shapes(target), [s for s in back if s is not None])
        assert found == {key: shape for key, shape in shapes(start).items() if key not in closed}


@given(some_queries, some_queries, st.sampled_from(STRATEGIES))
def test_the_inverse_of_an_inverse_is_the_step_itself(
    before: list[Query], after: list[Query], strategy: Strategy
) -> None:
    kept = {q.id: q for q in before}
    old = plan(before, strategy=strategy)
    for step in diff(old, plan([kept.get(q.id, q) for q in after], old, strategy)):
        there = inverse(step)
        if there is not None:
            back = inverse(there)
            assert back is None or astuple(back) == astuple(step)
