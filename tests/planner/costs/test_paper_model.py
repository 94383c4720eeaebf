"""The general model against the paper's equations, term by term, and against joins of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.plan import FamilyPlan, Strategy
from catalog.values.query import Query
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.costs.cost import Cost
from planner.costs.cost_models import CostModels
from planner.costs.paper_model import PaperModel
from planner.costs.rates import FamilyRates
from planner.explain.explicit_chain import explicit_chain
from planner.families.families import Family
from tests.builders import SECOND_US, a_query_s
from tests.planner.costs.paper import (
    PaperCost,
    TwoQueries,
    loads_of_family,
    merge_difference,
    pullup_cost,
    pushdown_cost,
    state_slice_cost,
    unshared_cost,
)
from tests.planner.values import PAPER, STREAMS, rates_of

SIGMA = '"v" < 0.2'
RESIDUAL = 'a."v" < b."v"'

fractions = st.floats(0.0, 1.0)
two_queries = st.builds(
    lambda rate, w1, more, sigma, join: TwoQueries(rate, w1, w1 + more, sigma, join),
    st.floats(0.0, 1000.0),
    st.integers(1, 3600),
    st.integers(1, 3600),
    fractions,
    fractions,
)


def planned(queries: list[Query], strategy: Strategy = "mem-opt") -> FamilyPlan:
    (family,) = build_plan(queries, STREAMS, objective=Objective(strategy, cost_model="paper")).families
    return family


def unplanned(family: FamilyPlan) -> Family:
    return Family(family.id, family.queries, family.filters_a, family.filters_b)


def cost(family: FamilyPlan, rates: FamilyRates, model: PaperModel = PAPER) -> Cost:
    return CostModels(model, model).family_cost(family, rates)


def as_paper_cost(cost: Cost) -> PaperCost:
    """The same terms under the equations' names."""
    terms = cost.comparisons
    assert terms.system == 0.0
    return PaperCost(cost.memory_rows, terms.probe, terms.purge, terms.filter, terms.route, terms.union)


def assert_equal(found: PaperCost, expected: PaperCost) -> None:
    for name in PaperCost.__slots__:
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-9, abs=1e-9), name


@pytest.mark.parametrize(
    ("strategy", "equation"),
    [
        ("pullup", pullup_cost),
        ("pushdown", pushdown_cost),
        ("mem-opt", state_slice_cost),
    ],
)
@settings(deadline=None)
@given(setting=two_queries)
def test_the_model_reduces_to_equations_1_to_3_term_by_term(
    strategy: Strategy, equation: Callable[[TwoQueries], PaperCost], setting: TwoQueries
) -> None:
    family = planned([a_query_s(1, setting.w1_s), a_query_s(2, setting.w2_s, filter_a=SIGMA)], strategy)
    rates = rates_of(
        unplanned(family),
        setting.rate_per_s,
        selectivity=setting.filter_selectivity,
        join_selectivity=setting.join_selectivity,
    )
    assert_equal(as_paper_cost(cost(family, rates)), equation(setting))


@settings(deadline=None)
@given(setting=two_queries)
def test_which_side_is_called_a_does_not_matter(setting: TwoQueries) -> None:
    family = planned([a_query_s(1, setting.w1_s), a_query_s(2, setting.w2_s, filter_b=SIGMA)], "pushdown")
    assert {join.partition.side for join in family.joins if join.partition} == {"b"}
    rates = rates_of(
        unplanned(family),
        setting.rate_per_s,
        selectivity=setting.filter_selectivity,
        join_selectivity=setting.join_selectivity,
    )
    assert_equal(as_paper_cost(cost(family, rates)), pushdown_cost(setting))


query_lists = st.lists(
    st.tuples(
        st.integers(1, 60),
        st.integers(1, 60),
        st.sampled_from([None, SIGMA, '"v" > 0.9']),
        st.sampled_from([None, SIGMA]),
        st.sampled_from([None, RESIDUAL]),
    ),
    min_size=1,
    max_size=6,
).map(
    lambda shapes: [
        a_query_s(n, w_a, w_b, filter_a=f_a, filter_b=f_b, residual=residual)
        for n, (w_a, w_b, f_a, f_b, residual) in enumerate(shapes, start=1)
    ]
)


@settings(deadline=None)
@given(query_lists, st.floats(0, 1e3), st.floats(0, 1e3), fractions, fractions)
def test_joins_of_their_own_cost_what_unshared_cost_says(
    queries: list[Query], rate_a: float, rate_b: float, selectivity: float, join: float
) -> None:
    family = planned(queries, "unshared")
    rates = rates_of(unplanned(family), rate_a, rate_b, selectivity=selectivity, join_selectivity=join)
    loads = loads_of_family(
        family,
        {1: rate_a, 2: rate_b},
        {f.bit: selectivity for f in family.filters_a},
        {f.bit: selectivity for f in family.filters_b},
        join_selectivity=join,
    )
    # The closed form takes a residual to judge all pairs of the filtered rows, as the joins do.
    assert_equal(as_paper_cost(cost(family, rates)), unshared_cost(loads))


@settings(deadline=None)
@given(query_lists, fractions, fractions)
def test_one_query_costs_the_same_sliced_pushed_down_and_alone(
    queries: list[Query], selectivity: float, join: float
) -> None:
    only = queries[:1]
    costs = []
    for strategy in ("unshared", "mem-opt", "cpu-opt"):
        family = planned(only, strategy)  # type: ignore[arg-type]  # a tuple of literals
        rates = rates_of(unplanned(family), 10, 20, selectivity=selectivity, join_selectivity=join)
        costs.append(as_paper_cost(cost(family, rates, PaperModel())))
    assert_equal(costs[1], costs[0])
    assert_equal(costs[2], costs[0])


@settings(deadline=None)
@given(query_lists, fractions, fractions)
def test_sharing_by_slices_holds_no_more_than_any_alternative(
    queries: list[Query], selectivity: float, join: float
) -> None:
    """Theorems 3 and 4: a row is held once, as long as some query can use it."""
    held = {}
    for strategy in ("unshared", "pullup", "pushdown", "mem-opt", "cpu-opt"):
        family = planned(queries, strategy)  # type: ignore[arg-type]  # a tuple of literals
        rates = rates_of(unplanned(family), 10, 20, selectivity=selectivity, join_selectivity=join)
        held[strategy] = cost(family, rates).memory_rows
        assert cost(family, rates).memory_bytes == pytest.approx(10 * held[strategy])
    assert all(held["mem-opt"] <= rows * (1 + 1e-9) for rows in held.values()), held


@settings(deadline=None)
@given(
    st.floats(0.1, 100.0),
    st.lists(st.integers(1, 30), min_size=1, max_size=6),
    fractions,
    st.floats(0.0, 10.0),
)
def test_merging_differs_by_what_section_5_2_says(
    rate: float, widths: list[int], join: float, c_sys: float
) -> None:
    """Slices that do not start at 0, no selections."""
    windows = [5]
    for width in widths:
        windows.append(windows[-1] + width)
    family = planned([a_query_s(n, w) for n, w in enumerate(windows, start=1)])
    ends = [5 * SECOND_US, windows[-1] * SECOND_US]
    merged = replace(family, joins=explicit_chain(family, ends, ends))
    rates = rates_of(unplanned(family), rate, join_selectivity=join)
    model = PaperModel(c_sys)
    one, other = cost(merged, rates, model), cost(family, rates, model)
    difference = merge_difference(rate, widths, join, c_sys=c_sys)
    assert one.memory_rows == pytest.approx(other.memory_rows)
    for term in ("probe", "purge", "route", "union", "filter", "system"):
        found = getattr(one.comparisons, term) - getattr(other.comparisons, term)
        size = max(abs(getattr(one.comparisons, term)), 1.0)
        assert found == pytest.approx(getattr(difference, term), rel=1e-9, abs=1e-9 * size), term


def test_the_merge_difference_is_the_printed_one_but_for_the_operator_that_stays() -> None:
    """State-Slice §5.2, (a) less (b) for three slices of 6 s, λ = 20/s each, S_1 = 0.05, C_sys = 1.5."""
    printed = 40 * 2 - 2 * 20 * 20 * 6 * 0.05 * 2 + 1.5 * 3 * 40
    found = merge_difference(20, [1, 2, 3], 0.05, c_sys=1.5)
    assert (found.purge, found.route, found.system) == (-80, pytest.approx(480), -120)
    assert -found.total == pytest.approx(printed - 1.5 * 40)
    # Two slices: 2 λ (1 + C_sys) saved, 2 λ² ΔW S_1 paid: even at ΔW = (1 + C_sys) / (λ S_1).
    assert merge_difference(20, [1, 1.5], 0.05, c_sys=1.5).total == pytest.approx(0)


def test_section_5_2_with_two_rates() -> None:
    """λ_A = 10, λ_B = 30, slices [5, 8) and [8, 12) merged: what the equation's terms say, by hand."""
    family = planned([a_query_s(n, w) for n, w in enumerate((5, 8, 12), start=1)])
    ends = [5 * SECOND_US, 12 * SECOND_US]
    merged = replace(family, joins=explicit_chain(family, ends, ends))
    rates = rates_of(unplanned(family), 10.0, 30.0, join_selectivity=0.1)
    before, after = (cost(f, rates, PaperModel(c_sys=0.5)).comparisons for f in (family, merged))
    assert before.purge - after.purge == pytest.approx(40)
    assert before.route - after.route == pytest.approx(-2 * 10 * 30 * 7 * 0.1)
    assert before.system - after.system == pytest.approx(0.5 * 40)
    assert (before.probe, before.union) == pytest.approx((after.probe, after.union))


def test_theorem_3_with_two_rates() -> None:
    """State-Slice §5.1: the slices of a Mem-Opt chain hold (λ_A + λ_B) w_N rows together."""
    family = planned([a_query_s(n, w) for n, w in enumerate((5, 8, 12), start=1)])
    assert cost(family, rates_of(unplanned(family), 10.0, 30.0)).memory_rows == pytest.approx(40 * 12)


def test_merging_at_the_start_saves_unions_too() -> None:
    family = planned([a_query_s(1, 10), a_query_s(2, 30)])
    whole = [30 * SECOND_US]
    merged = replace(family, joins=explicit_chain(family, whole, whole))
    rates = rates_of(unplanned(family), 10.0)
    assert cost(family, rates).comparisons.union == 20
    assert cost(merged, rates).comparisons.union == 0


def test_a_selection_that_several_queries_share_is_judged_once_per_pair() -> None:
    """q1 and q3 share σ: slice 1's pairs are judged for both at once, slice 2's for q3, slice 3's by none."""
    queries = [a_query_s(1, 10, filter_a=SIGMA), a_query_s(2, 20), a_query_s(3, 30, filter_a=SIGMA)]
    family = planned(queries)
    rates = rates_of(unplanned(family), 10.0, join_selectivity=0.1)
    # 2 λ² 20 S_1 pairs in slices 1 and 2, and λ rows of a between slices 2 and 3.
    assert cost(family, rates).comparisons.filter == pytest.approx(2 * 100 * 20 * 0.1 + 10)


def test_system_overhead_is_paid_per_slice_by_every_row_of_the_join() -> None:
    family = planned([a_query_s(1, 10), a_query_s(2, 20), a_query_s(3, 30)])
    rates = rates_of(unplanned(family), 10.0, 30.0)
    assert cost(family, rates, PaperModel(c_sys=0.5)).comparisons.system == 0.5 * 3 * (10 + 30)


def test_a_negative_overhead_is_refused() -> None:
    with pytest.raises(ValueError, match="c_sys is -1"):
        PaperModel(-1)
