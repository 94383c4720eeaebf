"""Costs of joins in rings: Equations 1 and 2 of the paper, and the table of invalidations."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.values.policies.probe import Invalidation, Probe
from tests.bench.oblivious.ring_costs import JoinRates, RingWork, expired_rows, ring_work, rings_looked_at

INVALIDATIONS: tuple[Invalidation, ...] = get_args(Invalidation)
rates_per_s = st.floats(0.1, 1e4)


@given(rates_per_s, rates_per_s, rates_per_s, rates_per_s, st.integers(1, 4096))
def test_equations_1_and_2(a: float, b: float, w_a: float, w_b: float, cells: int) -> None:
    c_ins, c_inv, c_scan = 3.0, 2.0, 1.0
    rates = JoinRates(a, b, w_a, w_b)
    # Cinv of the equations: a comparison to find the head, and one for the row that has expired.
    loops = ring_work(rates, Probe("loops")).cost(c_ins, c_inv / 2, c_scan)
    hashed = ring_work(rates, Probe("hash", cells)).cost(c_ins, c_inv / 2, c_scan)
    assert loops == pytest.approx((a + b) * (c_inv + c_ins) + a * b * (w_a + w_b) * c_scan)
    assert hashed == pytest.approx((a + b) * (c_inv + c_ins) + a * b * (w_a + w_b) / cells * c_scan)


def test_invalidations_cost_looks_and_save_rows() -> None:
    rates = JoinRates(1, 100, 30, 30)
    asked = {how: Probe("hash", 100, how) for how in INVALIDATIONS}
    assert [rings_looked_at(how, 100) for how in INVALIDATIONS] == [1, 2, 100, 200]
    assert [round(expired_rows(rates, p, "b"), 2) for p in asked.values()] == [10_000, 99.01, 100, 0.99]
    assert ring_work(JoinRates(0, 0, 1, 1), Probe("loops")) == RingWork(0, 0, 0, 0)
    assert expired_rows(JoinRates(0, 5, 1, 1), asked["probe"], "b") == 0
