from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.kernels.keys import Int64s
from tests.examples import examples
from tests.operators.cases import SETTINGS
from tests.sketches.sketch import HashSketch
from tests.sketches.skimmed_sketch import SkimmedSketch, paper_threshold, skim_dense, skimmed_join_size
from tests.sketches.test_sketch import zipf

DOMAIN = np.arange(4096, dtype=np.int64)


def sketch_of(frequencies: Int64s, seed: int, buckets: int = 256, tables: int = 9) -> HashSketch:
    sketch = HashSketch(buckets, tables, seed=seed)
    sketch.update(np.arange(len(frequencies), dtype=np.int64), frequencies)
    return sketch


def whole(skimmed: SkimmedSketch) -> Int64s:
    """Put the dense frequencies back."""
    sketch = skimmed.sparse.copy()
    sketch.update(skimmed.keys, skimmed.frequencies)
    return sketch.counters


@settings(SETTINGS, max_examples=examples(60))
@given(
    st.lists(st.integers(0, 50) | st.integers(0, 100_000), min_size=1, max_size=200),
    st.integers(0, 2**32),
    st.none() | st.floats(0.5, 1e5),
)
def test_what_is_skimmed_and_what_is_left_are_the_whole(
    frequencies: list[int], seed: int, threshold: float | None
) -> None:
    sketch = sketch_of(np.array(frequencies, np.int64), seed, buckets=16, tables=5)
    before = sketch.counters.copy()
    skimmed = skim_dense(sketch, np.arange(len(frequencies)), threshold=threshold)
    assert np.array_equal(sketch.counters, before)
    assert np.array_equal(whole(skimmed), before)
    assert (skimmed.frequencies != 0).all()
    assert (np.diff(skimmed.keys) > 0).all()


@pytest.mark.parametrize("seed", range(5))
def test_dense_keys_are_found_and_their_frequencies_known_within_the_threshold(seed: int) -> None:
    frequencies = zipf(seed, 1_000_000, 1.0)
    skimmed = skim_dense(sketch_of(frequencies, seed), DOMAIN)
    limit = skimmed.threshold
    # As the paper proves of its larger T, with high probability: whatever has 3 T is found, nothing below T
    # is, and no f̂ is off by T. With T at one standard deviation of a table, one key in 50 may do otherwise.
    errors = np.abs(frequencies[skimmed.keys] - skimmed.frequencies)
    assert set(np.flatnonzero(frequencies >= 3 * limit)) <= set(skimmed.keys)
    assert (frequencies[skimmed.keys] < limit).mean() <= 0.02
    assert (errors >= limit).mean() <= 0.02
    assert errors.max() < 2 * limit


def test_rounds_lower_the_threshold_below_the_noise_of_the_sketch() -> None:
    sketch = sketch_of(zipf(3, 1_000_000, 1.5), 3)
    once = skim_dense(sketch, DOMAIN, threshold=sketch.noise())
    skimmed = skim_dense(sketch, DOMAIN)
    assert skimmed.threshold < sketch.noise() / 10
    assert len(skimmed.keys) > len(once.keys)
    assert skimmed.sparse.self_join_size() < once.sparse.self_join_size()


def test_the_papers_threshold_skims_once() -> None:
    frequencies = zipf(4, 1_000_000, 1.5)
    limit = paper_threshold(1_000_000, 256)
    skimmed = skim_dense(sketch_of(frequencies, 4), DOMAIN, threshold=limit)
    assert limit == 62_500
    assert skimmed.threshold == limit
    assert skimmed.keys.tolist() == np.flatnonzero(frequencies >= 2 * limit).tolist() == [0, 1]


@settings(SETTINGS, max_examples=examples(60))
@given(
    st.dictionaries(st.integers(0, 4000), st.integers(1000, 10**6), max_size=4),
    st.dictionaries(st.integers(0, 4000), st.integers(1000, 10**6), max_size=4),
    st.integers(0, 2**32),
)
def test_a_join_of_few_keys_is_exact(one: dict[int, int], other: dict[int, int], seed: int) -> None:
    streams = np.zeros((2, len(DOMAIN)), np.int64)
    for row, counts in zip(streams, (one, other), strict=True):
        row[list(counts)] = list(counts.values())
    a, b = (skim_dense(sketch_of(row, seed, buckets=4096, tables=11), DOMAIN) for row in streams)
    assert skimmed_join_size(a, b).pairs == float(streams[0] @ streams[1])


@pytest.mark.parametrize("skew", [0.0, 0.5, 1.0, 1.5])
@pytest.mark.parametrize("shift", [0, 10, 50])
def test_the_error_is_within_the_bound_for_what_is_left(skew: float, shift: int) -> None:
    for seed in range(5):
        f, g = zipf(seed, 500_000, skew), np.roll(zipf(seed + 100, 500_000, skew), shift)
        a, b = (skim_dense(sketch_of(x, seed), DOMAIN) for x in (f, g))
        rest_f, rest_g = f.copy(), g.copy()
        rest_f[a.keys] -= a.frequencies
        rest_g[b.keys] -= b.frequencies
        left, right = (np.zeros(len(DOMAIN)) for _ in range(2))
        left[a.keys], right[b.keys] = a.frequencies, b.frequencies

        def deviation(x: np.ndarray, y: np.ndarray) -> float:
            x, y = x.astype(float), y.astype(float)
            return float(np.sqrt(((x @ x) * (y @ y) + (x @ y) ** 2) / 256))

        # Three sketched parts; the median of nine is beyond 2 deviations of one table with less than 2%, were
        # these at their bounds.
        bound = 2 * (deviation(left, rest_g) + deviation(rest_f, right) + deviation(rest_f, rest_g))
        estimate = skimmed_join_size(a, b)
        assert estimate.dense_dense == left @ right
        assert abs(estimate.pairs - float(f @ g)) <= bound


def test_skimming_is_several_times_as_accurate_on_skewed_streams() -> None:
    errors: dict[str, list[float]] = {"hash": [], "skimmed": []}
    for seed in range(15):
        f, g = zipf(seed, 500_000, 1.5), np.roll(zipf(seed + 100, 500_000, 1.5), 20)
        a, b = sketch_of(f, seed, buckets=64, tables=5), sketch_of(g, seed, buckets=64, tables=5)
        exact = float(f @ g)
        errors["hash"].append(abs(a.join_size(b) - exact))
        estimate = skimmed_join_size(skim_dense(a, DOMAIN), skim_dense(b, DOMAIN))
        errors["skimmed"].append(abs(estimate.pairs - exact))
    assert np.median(errors["skimmed"]) < np.median(errors["hash"]) / 2


def test_candidates_that_leave_a_dense_key_out_leave_it_in_the_sketch() -> None:
    frequencies = zipf(6, 1_000_000, 1.5)
    sketch = sketch_of(frequencies, 6)
    skimmed = skim_dense(sketch, np.array([5, 1, 1, 3]))
    assert 0 not in skimmed.keys
    assert np.array_equal(whole(skimmed), sketch.counters)
    assert skimmed.sparse.frequencies(np.array([0]))[0] == pytest.approx(frequencies[0], rel=0.05)


def test_an_empty_stream_has_nothing_dense_and_joins_nothing() -> None:
    empty = skim_dense(HashSketch(8, 3, seed=1), np.zeros(0, np.int64))
    full = skim_dense(sketch_of(zipf(1, 1000, 1.0), 1, buckets=8, tables=3), DOMAIN)
    assert not len(empty.keys)
    assert skimmed_join_size(empty, full).pairs == skimmed_join_size(full, empty).pairs == 0


def test_sketches_of_other_seeds_cannot_be_joined() -> None:
    a, b = (skim_dense(HashSketch(8, 3, seed=seed), DOMAIN) for seed in (1, 2))
    with pytest.raises(ValueError, match="different shapes or seeds"):
        skimmed_join_size(a, b)
