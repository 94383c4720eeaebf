"""Numbering distinct values: as numpy does by sorting them."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from operators.kernels import distinct as distinct_kernel
from operators.kernels.distinct import EVERY_PLACE, numbered, numbered_if_few
from tests.operators.cases import REPEATABLE

words = st.sampled_from(
    [st.integers(0, 3), st.integers(0, 2**64 - 1), st.sampled_from([0, 1 << 63])]
).flatmap(lambda values: hnp.arrays(np.uint64, st.integers(0, 300), elements=values))


@settings(REPEATABLE, max_examples=100)
@given(words, st.sampled_from([EVERY_PLACE, 0, 1, 1 << 63 | 2]), st.sampled_from([1, 2, 300, 4096]))
def test_codes_and_values_are_those_of_sorting(values: np.ndarray, live: int, most: int) -> None:
    distinct, inverse = np.unique(values & np.uint64(live), return_inverse=True)
    with patch.object(distinct_kernel, "MOST_DISTINCT", most):
        codes, found = numbered(values, live)
    assert found.tolist() == distinct.tolist()
    assert codes.tolist() == inverse.tolist()


@settings(REPEATABLE, max_examples=100)
@given(words, st.integers(1, 300))
def test_few_values_are_numbered_and_more_are_not(values: np.ndarray, most: int) -> None:
    few = numbered_if_few(values, most)
    distinct = np.unique(values)
    assert (few is not None) == (len(distinct) <= most)
    if few is not None:
        assert few[1][few[0]].tolist() == values.tolist()
