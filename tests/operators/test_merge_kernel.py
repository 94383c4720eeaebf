from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.keys import Int64s
from operators.merge_kernel import merge_pairs
from tests.operators.cases import REPEATABLE


def pair_buffers(size: int) -> tuple[Int64s, Int64s, Int64s]:
    """Return a start position and two buffers."""
    return np.zeros(3, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)


sorted_keys = st.lists(st.integers(-3, 12), max_size=25).map(sorted)


@settings(REPEATABLE, max_examples=300)
@given(sorted_keys, sorted_keys, st.integers(1, 9))
def test_pairs_come_in_full_buffers_until_the_males_are_at_their_end(
    female: list[int], males: list[int], size: int
) -> None:
    start, female_rows, male_rows = pair_buffers(size)
    found: list[tuple[int, int]] = []
    counts = []
    while start[1] < len(males):
        count = merge_pairs(
            np.array(female, np.int64), np.array(males, np.int64), start, female_rows, male_rows
        )
        found += zip(female_rows[:count].tolist(), male_rows[:count].tolist(), strict=True)
        counts.append(count)
    assert found == [(i, j) for j, m in enumerate(males) for i, f in enumerate(female) if f == m]
    assert all(count == size for count in counts[:-1])


@pytest.mark.parametrize("gap", [1, 2, 3, 7, 8, 9, 1000])
def test_a_gallop_over_any_gap_stops_at_the_first_row_not_below_the_key(gap: int) -> None:
    female = np.array([*range(gap), gap, gap, gap + 5], np.int64)
    start, female_rows, male_rows = pair_buffers(10)
    count = merge_pairs(female, np.array([gap, gap + 4, gap + 5], np.int64), start, female_rows, male_rows)
    assert female_rows[:count].tolist() == [gap, gap + 1, gap + 2]
    assert male_rows[:count].tolist() == [0, 0, 2]


def test_keys_at_the_ends_of_int64_are_compared_as_such() -> None:
    ends = np.array([-(2**63), 2**63 - 1], np.int64)
    start, female_rows, male_rows = pair_buffers(4)
    assert merge_pairs(ends, ends, start, female_rows, male_rows) == 2
