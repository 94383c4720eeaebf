from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bench.paper.savings import STEPS, Savings, figure_11, merge_difference, savings
from tests.planner.costs.paper import PaperCost, TwoQueries, pullup_cost, pushdown_cost, state_slice_cost

fractions = st.floats(0.0, 1.0)


@settings(deadline=None)
@given(st.floats(0.01, 1.0), st.floats(0.01, 1.0), st.floats(0.01, 1.0))
def test_equation_4_follows_from_equations_1_to_3_at_large_rates(
    rho: float, sigma: float, join: float
) -> None:
    # So large a λ that the terms linear in it vanish, as Eq. 4 leaves them out.
    setting = TwoQueries(1e9, rho * 1000, 1000, sigma, join)
    up, down, sliced = (f(setting) for f in (pullup_cost, pushdown_cost, state_slice_cost))

    def saved(alternative: PaperCost, what: str) -> float:
        cost = getattr(alternative, what)
        return float((cost - getattr(sliced, what)) / cost)

    found = savings(rho, sigma, join)
    assert found.memory_over_pullup == pytest.approx(saved(up, "memory_rows"), abs=1e-9)
    assert found.memory_over_pushdown == pytest.approx(saved(down, "memory_rows"), abs=1e-9)
    assert found.cpu_over_pullup == pytest.approx(saved(up, "cpu_comparisons_per_s"), abs=1e-6)
    assert found.cpu_over_pushdown == pytest.approx(saved(down, "cpu_comparisons_per_s"), abs=1e-6)


def test_equation_4_at_the_middle_of_table_3() -> None:
    # Over pull-up 400 of 2,400 rows and 48,000 of 115,200 comparisons, over push-down 400 of 2,400 and 4,800
    # of 72,000: the terms of Equations 1-3 at λ = 40/s, those linear in λ left out.
    found = savings(10 / 30, 0.5, 0.1)
    assert found.memory_over_pullup == pytest.approx(1 / 6)
    assert found.memory_over_pushdown == pytest.approx(1 / 6)
    assert found.cpu_over_pullup == pytest.approx(5 / 12)
    assert found.cpu_over_pushdown == pytest.approx(1 / 15)


def test_without_selection_memory_is_that_of_pull_up_and_cpu_savings_grow_with_the_join() -> None:
    """State-Slice §4.3, the base case S_σ = 1."""
    found = [savings(0.5, 1.0, join) for join in (0.0, 0.025, 0.1, 0.4)]
    assert [s.memory_over_pullup for s in found] == [0.0] * 4
    assert [s.cpu_over_pullup for s in found] == pytest.approx([0, 0.0375 / 1.05, 0.15 / 1.2, 0.6 / 1.8])


@settings(deadline=None)
@given(fractions, fractions, fractions)
def test_slicing_never_costs_more(rho: float, sigma: float, join: float) -> None:
    found = savings(rho, sigma, join)
    for name in Savings.__slots__:
        assert 0 <= getattr(found, name) <= 1, name


def test_the_ends_of_the_surfaces() -> None:
    """Up to half the memory and all CPU of pull-up can be saved, of push-down a third and a half."""
    assert savings(0, 0, 0) == Savings(0, 0, 0, 0.5, 0.0, 1.0, 0.0)
    assert savings(1, 0, 0.4).memory_over_pushdown == pytest.approx(1 / 3)
    assert savings(1, 1, 0) == Savings(1, 1, 0, 0.0, 1 / 3, 0.0, 0.0)
    assert savings(0, 1, 1).cpu_over_pushdown == 0.5


def test_figure_11_has_a_point_for_each_setting() -> None:
    points = figure_11()
    assert len({(p.rho, p.filter_selectivity, p.join_selectivity) for p in points}) == 3 * STEPS**2
    assert all(p == savings(p.rho, p.filter_selectivity, p.join_selectivity) for p in points)


def test_the_merge_difference_is_the_printed_one_but_for_the_operator_that_stays() -> None:
    """State-Slice §5.2, (a) less (b) for three slices of 6 s, λ = 20/s each, S_1 = 0.05, C_sys = 1.5."""
    printed = 40 * 2 - 2 * 20 * 20 * 6 * 0.05 * 2 + 1.5 * 3 * 40
    found = merge_difference(20, [1, 2, 3], 0.05, c_sys=1.5)
    assert (found.purge, found.route, found.system) == (-80, pytest.approx(480), -120)
    assert printed == pytest.approx(-220)
    assert -found.total == pytest.approx(printed - 1.5 * 40)


def test_merging_pays_below_a_width() -> None:
    # Two slices: 2 λ (1 + C_sys) saved, 2 λ² ΔW S_1 paid: even at ΔW = (1 + C_sys) / (λ S_1).
    assert merge_difference(20, [1, 1.5], 0.05, c_sys=1.5).total == pytest.approx(0)
    assert merge_difference(20, [1, 1], 0.05, c_sys=1.5).total < 0
    assert merge_difference(20, [1, 2], 0.05, c_sys=1.5).total > 0
    assert merge_difference(20, [5], 0.05).total == 0
