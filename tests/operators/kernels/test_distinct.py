"""Numbering of distinct values: as numpy numbers them by sorting."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from operators.kernels.keys import EVERY_PLACE, numbered, numbered_if_few
from tests.examples import examples
from tests.operators.cases import SETTINGS

words = st.sampled_from(
    [st.integers(0, 3), st.integers(0, 2**64 - 1), st.sampled_from([0, 1 << 63])]
).flatmap(lambda values: hnp.arrays(np.uint64, st.integers(0, 300), elements=values))


@settings(SETTINGS, max_examples=examples(100))
@given(words, st.sampled_from([EVERY_PLACE, 0, 1, 1 << 63 | 2]))
def test_codes_and_values_are_those_of_sorting(values: np.ndarray, live: int) -> None:
    codes, found = numbered(values, live)
    assert (codes.dtype, found.dtype) == (np.int64, np.uint64)
    assert sorted(found.tolist()) == np.unique(values & np.uint64(live)).tolist()
    assert found[codes].tolist() == (values & np.uint64(live)).tolist()


@settings(SETTINGS, max_examples=examples(100))
@given(words, st.integers(1, 300))
def test_few_values_are_numbered_and_more_are_not(values: np.ndarray, most: int) -> None:
    few = numbered_if_few(values, most)
    distinct = np.unique(values)
    assert (few is not None) == (len(distinct) <= most)
    if few is not None:
        assert few[1][few[0]].tolist() == values.tolist()
