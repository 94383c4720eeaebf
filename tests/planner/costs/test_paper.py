"""The paper's equations against each other: Eq. 4 is derived in the paper on its own from Eq. 1-3."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.build.build_plan import build_plan
from tests.builders import a_query_s
from tests.planner.costs.paper import (
    JoinLoad,
    PaperCost,
    TwoQueries,
    loads_of_family,
    pullup_cost,
    pushdown_cost,
    state_slice_cost,
    unshared_cost,
)
from tests.planner.values import STREAMS

fractions = st.floats(0.01, 1.0)
settings = st.builds(
    lambda rate, ratio, w2, sigma, join: TwoQueries(rate, ratio * w2, w2, sigma, join),
    st.floats(1.0, 1000.0),
    fractions,
    st.floats(1.0, 3600.0),
    fractions,
    fractions,
)
close = pytest.approx


def quadratic(cost: PaperCost, linear_terms: int, setting: TwoQueries) -> float:
    """C_p without its terms linear in the rate, which Eq. 4 leaves out."""
    return cost.cpu_comparisons_per_s - linear_terms * setting.rate_per_s


def test_a_worked_example() -> None:
    # λ = 10/s, W1 = 6 s, W2 = 60 s, S_σ = 0.5, S_1 = 0.1
    setting = TwoQueries(10, 6, 60, 0.5, 0.1)
    assert pullup_cost(setting) == PaperCost(1200, 12_000, 20, 1200, 1200)
    # probe 2*0.5*100*6 + 2*0.5*100*60, route 2*0.5*100*60*0.1, union 2*100*6*0.1
    assert pushdown_cost(setting) == PaperCost(1.5 * 60 + 1.5 * 600, 6600, 30, 10, 600, 120)
    # memory 120 + 1.5*540, probe 1200 + 2*0.5*100*54, filter 10 + 120
    assert state_slice_cost(setting) == PaperCost(930, 6600, 40, 130, 0, 20)
    assert pullup_cost(setting).cpu_comparisons_per_s == 14_420


def test_the_middle_of_table_3() -> None:
    # λ = 40/s, W1 = 10 s, W2 = 30 s, S_σ = 0.5, S_1 = 0.1; terms in the order of the paper's equations
    setting = TwoQueries(40, 10, 30, 0.5, 0.1)
    up, down, sliced = (f(setting) for f in (pullup_cost, pushdown_cost, state_slice_cost))
    assert (up.memory_rows, down.memory_rows, sliced.memory_rows) == (2400, 600 + 1800, 800 + 1200)
    assert up.cpu_comparisons_per_s == close(96_000 + 80 + 9_600 + 9_600)
    assert down.cpu_comparisons_per_s == close(40 + 16_000 + 48_000 + 120 + 4_800 + 3_200)
    assert sliced.cpu_comparisons_per_s == close(32_000 + 40 + 32_000 + 160 + 80 + 3_200)


def test_the_motivation_example() -> None:
    """State-Slice §1: 1 min and 60 min, 1% pass: 60 times the state of Q1, 100 times that of Q2.

    The latter holds for the rows of A alone: Q2 by itself keeps all of B's, by Equation 1's terms.
    """
    setting = TwoQueries(1, 60, 3600, 0.01, 0.1)
    q1, q2 = (unshared_cost([load]) for load in (JoinLoad(1, 1, 60, 60), JoinLoad(1, 1, 3600, 3600, 0.01)))
    assert pullup_cost(setting).memory_rows == 60 * q1.memory_rows == 7200
    rows_of_a = q2.memory_rows - 3600
    assert pullup_cost(setting).memory_rows - 3600 == close(100 * rows_of_a)
    assert pullup_cost(setting).memory_rows == close(1.98 * q2.memory_rows, rel=1e-3)
    assert state_slice_cost(setting).memory_rows == close(2 * 60 + 1.01 * 3540)


@given(settings)
def test_equations_1_and_2_are_the_denominators_of_equation_4(setting: TwoQueries) -> None:
    """For memory in units of λ W2 (Eq. 1 of 2 λ W2), for the terms in λ² in units of 2 λ² W2."""
    rate, w2 = setting.rate_per_s, setting.w2_s
    rho, sigma, join = setting.w1_s / w2, setting.filter_selectivity, setting.join_selectivity
    down, unit = pushdown_cost(setting), 2 * rate**2 * w2
    assert down.memory_rows / (rate * w2) == close(1 + 2 * rho + (1 - rho) * sigma)
    assert down.probe_per_s / unit == close(rho * (1 - sigma) + sigma)
    assert down.route_per_s / unit == close(sigma * join)
    assert down.union_per_s / unit == close(rho * join)
    assert quadratic(pullup_cost(setting), 2, setting) / unit == close(1 + 2 * join)


@given(settings)
def test_memory_savings_are_those_of_equation_4(setting: TwoQueries) -> None:
    rho, sigma = setting.w1_s / setting.w2_s, setting.filter_selectivity
    up, down, sliced = (f(setting).memory_rows for f in (pullup_cost, pushdown_cost, state_slice_cost))
    assert (up - sliced) / up == close((1 - rho) * (1 - sigma) / 2, abs=1e-9)
    assert (down - sliced) / down == close(rho / (1 + 2 * rho + (1 - rho) * sigma), abs=1e-9)


@given(settings)
def test_cpu_savings_are_those_of_equation_4(setting: TwoQueries) -> None:
    rho, sigma, join = setting.w1_s / setting.w2_s, setting.filter_selectivity, setting.join_selectivity
    up = quadratic(pullup_cost(setting), 2, setting)
    down = quadratic(pushdown_cost(setting), 4, setting)
    sliced = quadratic(state_slice_cost(setting), 7, setting)
    saved_up = ((1 - rho) * (1 - sigma) + (2 - rho) * join) / (1 + 2 * join)
    saved_down = sigma * join / (rho * (1 - sigma) + sigma + sigma * join + rho * join)
    assert (up - sliced) / up == close(saved_up, abs=1e-9)
    assert (down - sliced) / down == close(saved_down, abs=1e-9)


@given(settings)
def test_without_selection_the_chain_holds_what_one_join_of_the_largest_window_holds(
    setting: TwoQueries,
) -> None:
    all_pass = TwoQueries(setting.rate_per_s, setting.w1_s, setting.w2_s, 1.0, setting.join_selectivity)
    assert state_slice_cost(all_pass).memory_rows == close(pullup_cost(all_pass).memory_rows)


@given(settings)
def test_one_unfiltered_query_alone_costs_equation_1_without_its_router_and_filter(
    setting: TwoQueries,
) -> None:
    alone = unshared_cost([JoinLoad(setting.rate_per_s, setting.rate_per_s, setting.w2_s, setting.w2_s)])
    shared = pullup_cost(setting)
    assert alone.memory_rows == close(shared.memory_rows)
    assert alone.probe_per_s == close(shared.probe_per_s)
    assert alone.purge_per_s == close(shared.purge_per_s)
    assert alone.filter_per_s == alone.route_per_s == alone.union_per_s == 0


def test_unshared_costs_add_up_over_queries_with_their_own_windows_filters_and_rates() -> None:
    q1 = JoinLoad(10, 20, 3, 4)
    q2 = JoinLoad(10, 20, 5, 1, selectivity_a=0.5, join_selectivity=0.1, residual=True)
    cost = unshared_cost([q1, q2])
    assert cost.memory_rows == (10 * 3 + 20 * 4) + (5 * 5 + 20 * 1)
    assert cost.probe_per_s == 10 * 20 * 7 + 5 * 20 * 6
    assert cost.purge_per_s == 30 + 25
    assert cost.filter_per_s == 10 + 5 * 20 * 6 * 0.1


def test_loads_take_rates_by_stream_and_selectivities_by_bit() -> None:
    queries = [a_query_s(1, 10, 20, filter_a='"v" < 0.2'), a_query_s(2, 30, filter_b='"v" > 0.5')]
    (family,) = build_plan(queries, STREAMS).families
    loads = loads_of_family(family, {1: 5.0, 2: 7.0}, {0: 0.2}, {0: 0.5}, horizon_s=25)
    assert loads == (JoinLoad(5, 7, 10, 20, 0.2, None), JoinLoad(5, 7, 25, 25, None, 0.5))


def test_an_unbounded_window_holds_without_end_unless_there_is_a_horizon() -> None:
    assert unshared_cost([JoinLoad(1, 1, math.inf, 1)]).memory_rows == math.inf
    assert unshared_cost([JoinLoad(0, 1, math.inf, 1)]) == PaperCost(1, 0, 1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((-1, 1, 2, 0.5, 0.5), "rate_per_s is -1"),
        ((1, 3, 2, 0.5, 0.5), "0 <= w1_s <= w2_s"),
        ((1, 1, 2, 1.5, 0.5), "filter_selectivity is 1.5"),
        ((1, 1, 2, 0.5, -0.1), "join_selectivity is -0.1"),
    ],
)
def test_an_impossible_setting_is_refused_by_name(values: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TwoQueries(*values)
