"""Whatever the strategy: every pair that serves a query is made for it, in exactly one join."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.plan import FamilyPlan, JoinPlan, PlannedQuery, Strategy
from catalog.values.query import Query
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.families.families import SideName, side_chain, side_filter, side_window_us
from planner.strategies.strategies import STRATEGIES
from tests.builders import SECOND_US, a_query_s
from tests.planner.values import STREAMS

LOW, MIDDLE, HIGH = '"v" < 0.2', '"v" = 0.5', '"v" > 0.9'

filters = st.sampled_from([None, LOW, MIDDLE, HIGH])
query_sets = st.lists(
    st.tuples(st.integers(1, 5), st.integers(1, 5), filters, filters), min_size=1, max_size=6
).map(
    lambda shapes: [
        a_query_s(n, w_a, w_b, filter_a=f_a, filter_b=f_b)
        for n, (w_a, w_b, f_a, f_b) in enumerate(shapes, start=1)
    ]
)


def planned(queries: list[Query], strategy: Strategy) -> FamilyPlan:
    (family,) = build_plan(queries, STREAMS, objective=Objective(strategy, cost_model="paper")).families
    return family


def serves(family: FamilyPlan, side: SideName, passed: frozenset[int]) -> set[int]:
    """Queries that a row may serve which passes these filters."""
    return {q.id for q in family.queries if (bit := side_filter(q, side)) is None or bit in passed}


def lineages(family: FamilyPlan, side: SideName) -> list[frozenset[int]]:
    bits = [f.bit for f in (family.filters_a if side == "a" else family.filters_b)]
    return [
        frozenset(chosen) for size in range(len(bits) + 1) for chosen in itertools.combinations(bits, size)
    ]


def holds(family: FamilyPlan, join: JoinPlan, side: SideName, age_us: int, serving: set[int]) -> bool:
    """Whether a row of that age rests in the join, by the rule of admission into its slice."""
    for number, piece in enumerate(side_chain(join, side)):
        if piece.w_start_us <= age_us < piece.w_end_us:
            if join.pulled_up:
                return True
            part = join.partition
            if part is not None and part.side == side:
                return bool(serving & set(part.one_of)) and not serving & set(part.none_of)
            reached = family.slices_reached(join, side)
            return any(q.id in serving for q, slices in reached if slices > number)
    return False


def answered(query: PlannedQuery, side: SideName, age_us: int, a: set[int], b: set[int]) -> bool:
    return query.id in a & b and age_us < side_window_us(query, side)


@settings(deadline=None)
@given(query_sets, st.sampled_from([*STRATEGIES]))
def test_every_pair_is_made_in_one_join_for_each_query_that_it_serves(
    queries: list[Query], strategy: Strategy
) -> None:
    family = planned(queries, strategy)
    for of_a, of_b in itertools.product(lineages(family, "a"), lineages(family, "b")):
        serving: dict[SideName, set[int]] = {
            "a": serves(family, "a", of_a),
            "b": serves(family, "b", of_b),
        }
        for side, other in (("a", "b"), ("b", "a")):
            for age_s in range(6):
                age_us = age_s * SECOND_US + 1
                makers = [
                    join
                    for join in family.joins
                    # The older row is held, the younger one comes as a male: it is admitted at age 0.
                    if holds(family, join, side, age_us, serving[side])
                    and holds(family, join, other, 0, serving[other])
                ]
                for query in family.queries:
                    found = sum(query.id in join.queries for join in makers)
                    if answered(query, side, age_us, serving["a"], serving["b"]):
                        assert found == 1, (query.id, side, age_s)


def test_pullup_is_one_slice_that_keeps_everything() -> None:
    (join,) = planned([a_query_s(1, 10, 5, filter_a=LOW), a_query_s(2, 30, 2, filter_a=HIGH)], "pullup").joins
    assert (join.id, join.queries, join.partition, join.pulled_up) == ("shared", (1, 2), None, True)
    assert [(s.w_end_us, s.keep) for s in join.chain_a] == [(30 * SECOND_US, None)]
    assert [(s.w_end_us, s.keep) for s in join.chain_b] == [(5 * SECOND_US, None)]


def test_unshared_queries_have_joins_named_for_them() -> None:
    first, second = planned([a_query_s(1, 10), a_query_s(2, 30, 2, filter_a=LOW)], "unshared").joins
    assert (first.id, first.queries, first.chain_a[0].keep) == ("q1", (1,), None)
    assert (second.id, second.queries, second.chain_a[0].keep) == ("q2", (2,), (0,))
    assert (second.chain_a[0].w_end_us, second.chain_b[0].w_end_us) == (30 * SECOND_US, 2 * SECOND_US)


def ranks(queries: list[Query]) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """Join id, one_of and none_of of each class of rows."""
    return [
        (j.id, j.partition.one_of, j.partition.none_of)
        for j in planned(queries, "pushdown").joins
        if j.partition
    ]


def test_pushdown_splits_rows_by_the_windows_that_they_need() -> None:
    queries = [a_query_s(1, 10), a_query_s(2, 30, filter_a=LOW), a_query_s(3, 20, filter_a=HIGH)]
    assert ranks(queries) == [("p1", (1,), (2, 3)), ("p2", (3,), (2,)), ("p3", (2,), ())]
    family = planned(queries, "pushdown")
    assert [j.queries for j in family.joins] == [(1,), (1, 3), (1, 2, 3)]
    bits = {f.sql: f.bit for f in family.filters_a}
    assert [j.chain_a[0].keep for j in family.joins] == [None, (bits[HIGH],), (bits[LOW],)]
    assert [j.chain_b[0].w_end_us // SECOND_US for j in family.joins] == [10, 20, 30]


def test_a_rank_whose_rows_all_serve_a_higher_one_has_no_join() -> None:
    """LOW occurs above, so whatever serves q2 serves q3: rows of q2's rank alone there are none."""
    queries = [a_query_s(1, 10), a_query_s(2, 20, filter_a=LOW), a_query_s(3, 30, filter_a=LOW)]
    assert ranks(queries) == [("p1", (1,), (2, 3)), ("p2", (2, 3), ())]


def test_without_filters_or_with_an_unfiltered_largest_query_nothing_is_split() -> None:
    for queries in (
        [a_query_s(1, 10), a_query_s(2, 30)],
        [a_query_s(1, 10, filter_a=LOW), a_query_s(2, 30)],
        [a_query_s(1, 10, filter_a=LOW)],
    ):
        (join,) = planned(queries, "pushdown").joins
        assert (join.id, join.partition, join.pulled_up) == ("shared", None, False)
        assert len(join.chain_a) == len(join.chain_b) == 1


def test_side_b_is_split_where_only_it_has_filters() -> None:
    joins = planned([a_query_s(1, 10), a_query_s(2, 30, filter_b=LOW)], "pushdown").joins
    assert [j.partition.side for j in joins if j.partition] == ["b", "b"]


def test_the_other_sides_filters_judge_rows_before_each_join() -> None:
    queries = [a_query_s(1, 10, filter_b=HIGH), a_query_s(2, 30, filter_a=LOW, filter_b=MIDDLE)]
    family = planned(queries, "pushdown")
    bits = {f.sql: f.bit for f in family.filters_b}
    assert [j.chain_b[0].keep for j in family.joins] == [(bits[HIGH],), tuple(sorted(bits.values()))]
