from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.slices.merge_kernel import merge_pairs
from tests.examples import examples
from tests.operators.cases import SETTINGS

#: Windows longer than any distance of the times used here.
ANY_US = 2**62


def merged(
    female: list[tuple[int, int]], males: list[tuple[int, int]], size: int, behind_us: int, ahead_us: int
) -> tuple[list[list[tuple[int, int]]], int]:
    """Return the pairs of rows (key, time), buffer by buffer, and how many have equal keys."""
    state = np.zeros(4, np.int64)
    female_rows, male_rows = np.empty(size, np.int64), np.empty(size, np.int64)
    columns = [np.array(column, np.int64) for rows in (female, males) for column in zip(*rows, strict=True)]
    buffers = []
    while state[1] < len(males):
        count = merge_pairs(*columns, behind_us, ahead_us, state, female_rows, male_rows)
        buffers.append(list(zip(female_rows[:count].tolist(), male_rows[:count].tolist(), strict=True)))
    return buffers, int(state[3])


def rows(keys: st.SearchStrategy[int]) -> st.SearchStrategy[list[tuple[int, int]]]:
    """Draw rows by key; mostly of few keys, so that runs are long, and often in the order of their times."""
    drawn = st.lists(st.tuples(keys, st.integers(-30, 60)), min_size=1, max_size=70)
    by_key = drawn.map(lambda found: sorted(found, key=lambda row: row[0]))
    return st.one_of(drawn.map(sorted), by_key)


@settings(SETTINGS, max_examples=examples(500))
@given(
    st.one_of(
        st.tuples(rows(st.integers(-3, 12)), rows(st.integers(-3, 12))),
        st.tuples(rows(st.integers(0, 1)), rows(st.integers(0, 1))),
    ),
    st.sampled_from((1, 2, 7, 100, 10_000)),
    st.sampled_from((1, 5, 40, ANY_US)),
    st.sampled_from((1, 5, 40, ANY_US)),
)
def test_pairs_come_in_full_buffers_until_the_males_are_at_their_end(
    both: tuple[list[tuple[int, int]], list[tuple[int, int]]], size: int, behind_us: int, ahead_us: int
) -> None:
    female, males = both
    buffers, touched = merged(female, males, size, behind_us, ahead_us)
    equal = [(i, j) for j, m in enumerate(males) for i, f in enumerate(female) if f[0] == m[0]]
    near = [(i, j) for i, j in equal if -ahead_us < males[j][1] - female[i][1] < behind_us]
    assert [pair for buffer in buffers for pair in buffer] == near
    assert touched == len(equal)
    assert all(len(buffer) == size for buffer in buffers[:-1])


@pytest.mark.parametrize("gap", [1, 2, 3, 7, 8, 9, 1000])
def test_a_gallop_over_any_gap_stops_at_the_first_row_not_below_the_key(gap: int) -> None:
    female = [(key, 0) for key in (*range(gap), gap, gap, gap + 5)]
    males = [(key, 0) for key in (gap, gap + 4, gap + 5)]
    assert merged(female, males, 10, 1, 1) == ([[(gap, 0), (gap + 1, 0), (gap + 2, 2)]], 3)


@pytest.mark.parametrize("repeats", [1, 15, 16, 17, 40])
def test_keys_at_the_ends_of_int64_are_compared_as_such(repeats: int) -> None:
    ends = [(key, n) for key in (-(2**63), 2**63 - 1) for n in range(repeats)]
    buffers, touched = merged(ends, ends, 4000, 1, 1)
    assert buffers == [[(n, n) for n in range(2 * repeats)]]
    assert touched == 2 * repeats**2
