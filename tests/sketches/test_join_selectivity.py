from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.kernels.keys import Int64s, mix
from tests.examples import examples
from tests.operators.cases import SETTINGS
from tests.sketches.join_selectivity import KeySketch, join_selectivity

ROWS = 100_000


def hashes(keys: Int64s) -> Int64s:
    """Spread keys over all of int64, as text and composite keys are."""
    return mix(keys.astype(np.int64).view(np.uint64)).view(np.int64)


def exact_selectivity(a: Int64s, b: Int64s) -> float:
    keys_a, counts_a = np.unique(a, return_counts=True)
    keys_b, counts_b = np.unique(b, return_counts=True)
    _, at_a, at_b = np.intersect1d(keys_a, keys_b, return_indices=True)
    return float(counts_a[at_a] @ counts_b[at_b]) / (len(a) * len(b))


def zipf_rows(seed: int, skew: float, domain: int = 100_000) -> Int64s:
    weights = 1.0 / np.arange(1, domain + 1) ** skew
    return np.random.default_rng(seed).choice(domain, ROWS, p=weights / weights.sum())


@pytest.mark.parametrize("keys", [1, 10, 400, 20_000, 10**6])
def test_uniform_keys_of_any_number(keys: int) -> None:
    random = np.random.default_rng(keys)
    a, b = hashes(random.integers(0, keys, ROWS)), hashes(random.integers(0, keys, ROWS))
    assert join_selectivity(a, b) == pytest.approx(exact_selectivity(a, b), rel=0.15)


@pytest.mark.parametrize("skew", [0.8, 1.0, 1.5])
@pytest.mark.parametrize("shift", [0, 3, 100])
def test_skewed_keys_and_shifted_ones(skew: float, shift: int) -> None:
    a, b = hashes(zipf_rows(1, skew)), hashes(zipf_rows(2, skew) + shift)
    assert join_selectivity(a, b) == pytest.approx(exact_selectivity(a, b), rel=0.03)


def test_a_key_of_each_row_joins_next_to_nothing() -> None:
    a, b = hashes(np.arange(ROWS)), hashes(np.arange(ROWS) + ROWS)
    assert 0 <= join_selectivity(a, b) < 1e-6


@settings(SETTINGS, max_examples=examples(50))
@given(
    st.lists(st.integers(-3, 10) | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40),
    st.lists(st.integers(-3, 10) | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40),
)
def test_a_few_rows_are_as_good_as_exact(a: list[int], b: list[int]) -> None:
    one, other = np.array(a, np.int64), np.array(b, np.int64)
    assert join_selectivity(one, other) == pytest.approx(exact_selectivity(one, other), abs=1e-12)


def test_batches_and_merged_parts_estimate_the_same_join() -> None:
    rows, other_rows = hashes(zipf_rows(3, 1.2)), hashes(zipf_rows(4, 1.2))
    in_batches, first, second, other = (KeySketch() for _ in range(4))
    for part in np.array_split(rows, 13):
        in_batches.update(part)
    first.update(rows[:40_000])
    second.update(rows[40_000:])
    other.update(other_rows)
    merged = first.merge(second)
    assert merged.rows == in_batches.rows == ROWS
    assert np.array_equal(merged.sketch.counters, in_batches.sketch.counters)
    exact = exact_selectivity(rows, other_rows)
    for sketch in (merged, in_batches):
        assert sketch.selectivity(other) == pytest.approx(exact, rel=0.02)
    assert in_batches.join_size(other).pairs == pytest.approx(exact * ROWS**2, rel=0.02)


def test_every_dense_key_is_a_candidate() -> None:
    sketch = KeySketch(buckets=256)
    rows = hashes(zipf_rows(5, 1.0))
    sketch.update(rows)
    keys, counts = np.unique(rows, return_counts=True)
    assert set(keys[counts > len(rows) / 257]) <= set(sketch.frequent.keys)
    assert set(keys[counts > 3 * sketch.sketch.noise()]) <= set(sketch.skimmed().keys)


def test_a_stream_without_rows_has_no_selectivity() -> None:
    with pytest.raises(ValueError, match="without rows"):
        join_selectivity(np.zeros(0, np.int64), np.arange(3))
