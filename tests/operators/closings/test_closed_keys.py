"""The number of closings between two searches is the cheapest one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.values.policies.punctuation_policy import PurgePrices
from operators.closings.closed_keys import ClosedKeys, closings_until_search
from operators.closings.contract import SideContract
from operators.segments.layout import SideLayout

PER_ROW = PurgePrices(2e-9, 1e-9, 0.0)


@given(
    rows=st.integers(10_000, 1_000_000),
    closings=st.integers(1, 500),
    males=st.integers(1, 5_000),
    killed=st.floats(0.1, 5.0),
)
def test_no_number_of_closings_is_cheaper(rows: int, closings: int, males: int, killed: float) -> None:
    found = closings_until_search(PER_ROW, rows, 1, closings, males, killed)
    most = rows / (4 * killed)
    # A male comes closings / males after the one before, and is compared with the rows that are dead by then.
    number = np.arange(1, int(most) + 2)
    compared = males / closings * killed * np.cumsum(number - 1.0)
    cost = (PER_ROW.per_searched_row * rows + PER_ROW.per_probed_row * compared) / number
    best = min(number[np.argmin(cost)], most)
    assert found == pytest.approx(max(best, 16), abs=1)


def test_a_male_costs_the_same_for_each_segment_that_it_is_merged_with() -> None:
    merged = PurgePrices(2e-9, 0.0, 5e-9)
    alike = PurgePrices(2e-9, 4 * 5e-9 / 100_000, 0.0)
    counts = (30, 100_000, 0.5)
    assert closings_until_search(merged, 100_000, 4, *counts) == closings_until_search(
        alike, 100_000, 4, *counts
    )


def test_without_males_rows_are_searched_when_a_quarter_may_be_dead() -> None:
    assert closings_until_search(PER_ROW, 4000, 1, 10, 0, 2.0) == 500
    assert closings_until_search(PER_ROW, 0, 0, 10, 0, 2.0) == 16


def test_a_search_counts_the_rows_that_each_closing_has_killed() -> None:
    layout = SideLayout({"k": "bigint"}, "ts", ("k",), ("bigint",), (), None)
    contract = SideContract("B", frozenset({"k"}), False, False, None, False, 0)
    closed = ClosedKeys(contract, layout, 10, unpurged=99, males=7, dead=20)
    closed.end_search(found=69, left=30, kept=500)
    assert (closed.killed, closed.dead, closed.unpurged, closed.males) == (0.5, 30, 0, 0)
    closed.unpurged = 9
    # Some of the dead rows have left with their window.
    closed.end_search(found=25, left=25, kept=500)
    assert closed.killed == 0.1


def test_rows_are_searched_early_once_they_are_twice_as_many() -> None:
    layout = SideLayout({"k": "bigint"}, "ts", ("k",), ("bigint",), (), None)
    contract = SideContract("B", frozenset({"k"}), False, False, None, False, 0)
    closed = ClosedKeys(contract, layout, 10, unpurged=16, kept=500)
    assert not closed.is_search_due(999, 1, PER_ROW)
    assert closed.is_search_due(1000, 1, PER_ROW)
    assert not closed.is_search_due(1000, 1, PER_ROW, after=17)
