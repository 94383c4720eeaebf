"""Sorting rows: as numpy sorts them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from operators.kernels.sort import sort_into_buckets
from tests.examples import examples
from tests.operators.cases import SETTINGS

FEW = st.integers(-3, 3)
ANY = st.integers(-(2**63), 2**63 - 1)
keys = st.sampled_from([FEW, ANY, st.integers(0, 70_000)]).flatmap(
    lambda values: hnp.arrays(np.int64, st.integers(0, 300), elements=values)
)


@settings(SETTINGS, max_examples=examples(100))
@given(keys, st.integers(1, 9), st.integers(0, 2**32))
def test_buckets_hold_their_valid_rows_by_key(key: np.ndarray, buckets: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    bucket, valid = rng.integers(0, buckets, len(key)), rng.random(len(key)) < 0.7
    order, starts = sort_into_buckets(key, bucket, valid, buckets)
    assert starts[0] == 0
    assert starts[-1] == len(order) == valid.sum()
    for b in range(buckets):
        rows = np.flatnonzero(valid & (bucket == b))
        expected = rows[np.argsort(key[rows], kind="stable")]
        assert order[starts[b] : starts[b + 1]].tolist() == expected.tolist()
