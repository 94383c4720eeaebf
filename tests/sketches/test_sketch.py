from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.kernels.keys import Int64s
from tests.examples import examples
from tests.operators.cases import SETTINGS
from tests.sketches.sketch import AgmsSketch, HashSketch, update_together

Sketch = AgmsSketch | HashSketch
KINDS: dict[str, Callable[[int], Sketch]] = {
    "agms": lambda seed: AgmsSketch(20, 3, seed=seed),
    "hash": lambda seed: HashSketch(16, 5, seed=seed),
}
both = pytest.mark.parametrize("kind", KINDS)
frequencies = st.dictionaries(
    st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5), st.integers(-1000, 1000), max_size=12
)


def add(sketch: Sketch, frequencies: dict[int, int]) -> Sketch:
    sketch.update(np.array(list(frequencies), np.int64), np.array(list(frequencies.values()), np.int64))
    return sketch


def zipf(seed: int, rows: int, skew: float, domain: int = 4096) -> Int64s:
    weights = 1.0 / np.arange(1, domain + 1) ** skew
    return np.random.default_rng(seed).multinomial(rows, weights / weights.sum())


@both
@settings(SETTINGS, max_examples=examples(100))
@given(frequencies, frequencies, st.integers(0, 2**32))
def test_the_merge_of_two_sketches_is_the_sketch_of_both_streams(
    kind: str, one: dict[int, int], other: dict[int, int], seed: int
) -> None:
    left, right = add(KINDS[kind](seed), one), add(KINDS[kind](seed), other)
    merged = left.merge(right)  # type: ignore[arg-type]  # both are of one kind
    assert np.array_equal(merged.counters, add(add(KINDS[kind](seed), one), other).counters)


@both
@settings(SETTINGS, max_examples=examples(100))
@given(frequencies, st.integers(0, 2**32))
def test_rows_taken_back_leave_nothing(kind: str, rows: dict[int, int], seed: int) -> None:
    sketch = add(add(KINDS[kind](seed), rows), {key: -count for key, count in rows.items()})
    assert not sketch.counters.any()


@both
@settings(SETTINGS, max_examples=examples(50))
@given(st.lists(st.integers(-20, 20), max_size=60), st.integers(0, 60), st.randoms(use_true_random=False))
def test_neither_order_nor_batches_nor_counts_matter(
    kind: str, keys: list[int], cut: int, random: object
) -> None:
    at_once, in_parts, counted = (KINDS[kind](9) for _ in range(3))
    at_once.update(np.array(keys, np.int64))
    shuffled = list(keys)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis types it as object
    in_parts.update(np.array(shuffled[:cut], np.int64))
    in_parts.update(np.array(shuffled[cut:], np.int64))
    counted.update(*np.unique(np.array(keys, np.int64), return_counts=True))
    assert np.array_equal(at_once.counters, in_parts.counters)
    assert np.array_equal(at_once.counters, counted.counters)


@both
@settings(SETTINGS, max_examples=examples(100))
@given(st.integers(-(2**63), 2**63 - 1), st.integers(1, 10**6), st.integers(1, 10**6), st.integers(0, 2**32))
def test_the_join_of_one_key_is_exact(kind: str, key: int, rows_a: int, rows_b: int, seed: int) -> None:
    a, b = add(KINDS[kind](seed), {key: rows_a}), add(KINDS[kind](seed), {key: rows_b})
    assert a.join_size(b) == rows_a * rows_b  # type: ignore[arg-type]  # both are of one kind


@pytest.mark.parametrize("skew", [0.0, 1.0, 1.5])
def test_estimates_are_unbiased_and_as_noisy_as_proved(skew: float) -> None:
    f, g = zipf(1, 20_000, skew, 500), np.roll(zipf(2, 20_000, skew, 500), 7)
    domain = np.arange(500, dtype=np.int64)
    exact = float(f @ g)
    one, size = 25, 400
    agms, hashed = [], []
    for seed in range(size):
        a, b = AgmsSketch(one, 1, seed=seed), AgmsSketch(one, 1, seed=seed)
        update_together([a, b], domain, [f, g])
        agms.append(a.join_size(b))
        c, d = HashSketch(one, 1, seed=seed), HashSketch(one, 1, seed=seed)
        c.update(domain, f)
        d.update(domain, g)
        hashed.append(c.join_size(d))
    # Var <= (F2(f) F2(g) + (f·g)²) / s1 for both, four-wise independence being all it needs.
    deviation = np.sqrt((float(f @ f) * float(g @ g) + exact**2) / one)
    for estimates in (agms, hashed):
        assert abs(np.mean(estimates) - exact) < 4 * deviation / np.sqrt(size)
        assert np.std(estimates) < 1.25 * deviation


def test_estimated_frequencies_are_within_the_noise() -> None:
    f = zipf(5, 1_000_000, 1.0)
    domain = np.arange(len(f), dtype=np.int64)
    sketch = HashSketch(512, 11, seed=6)
    sketch.update(domain, f)
    assert sketch.self_join_size() == pytest.approx(float(f @ f), rel=0.1)
    assert sketch.noise() == pytest.approx(np.sqrt(float(f @ f) / 512), rel=0.05)
    errors = np.abs(sketch.frequencies(domain) - f)
    # Chebyshev: a table errs by more than 3 sigma with at most 1/9; six of eleven with less than 1e-3.
    assert (errors > 3 * sketch.noise()).mean() < 1e-3
    assert (errors > sketch.noise()).mean() < 0.02


@settings(SETTINGS, max_examples=examples(100))
@given(frequencies, st.integers(1, 6), st.floats(-500, 500), st.integers(0, 2**32))
def test_frequent_keys_are_those_whose_frequency_says_so(
    rows: dict[int, int], tables: int, at_least: float, seed: int
) -> None:
    sketch = HashSketch(4, tables, seed=seed)
    add(sketch, rows)
    keys = np.array([*rows, 3, 4], np.int64)
    expected = np.flatnonzero(sketch.frequencies(keys) >= at_least)
    assert sketch.frequent_among(keys, at_least).tolist() == expected.tolist()


def test_frequencies_are_medians_of_the_tables() -> None:
    sketch = HashSketch(8, 5, seed=2)
    add(sketch, {key: key for key in range(60)})
    single = []
    for key in range(60):
        probe = HashSketch(8, 5, seed=2)
        add(probe, {key: 1})
        single.append(int(np.median((probe.counters * sketch.counters).sum(axis=1))))
    assert sketch.frequencies(np.arange(60)).tolist() == single


@settings(SETTINGS, max_examples=examples(100))
@given(frequencies, frequencies, st.integers(0, 2**32))
def test_a_join_with_known_frequencies_is_the_join_with_their_sketch(
    known: dict[int, int], rows: dict[int, int], seed: int
) -> None:
    sketch, other = HashSketch(16, 5, seed=seed), HashSketch(16, 5, seed=seed)
    add(sketch, rows)
    add(other, known)
    sizes = sketch.join_sizes_with(np.array(list(known), np.int64), np.array(list(known.values()), np.int64))
    assert sizes.tolist() == other.join_sizes(sketch).tolist()


def test_a_small_agms_sketch_is_the_first_part_of_a_large_one() -> None:
    large, small = AgmsSketch(50, 4, seed=8), AgmsSketch(20, 3, seed=8)
    rows = {key: key * key for key in range(100)}
    assert np.array_equal(add(large, rows).counters[:3, :20], add(small, rows).counters)


def test_several_streams_updated_together_are_each_what_they_are_alone() -> None:
    keys = np.arange(3000, dtype=np.int64) - 1500
    streams = [zipf(seed, 9000, 1.0, 3000) for seed in range(3)]
    together = [AgmsSketch(7, 3, seed=4) for _ in streams]
    update_together(together, keys, streams)
    for sketch, counts in zip(together, streams, strict=True):
        alone = AgmsSketch(7, 3, seed=4)
        alone.update(keys, counts)
        assert np.array_equal(alone.counters, sketch.counters)


@both
def test_sketches_of_other_seeds_cannot_be_compared(kind: str) -> None:
    for operation in ("join_size", "merge"):
        with pytest.raises(ValueError, match="different shapes or seeds"):
            getattr(KINDS[kind](1), operation)(KINDS[kind](2))


def test_sketches_of_other_shapes_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="different shapes or seeds"):
        AgmsSketch(6, 2, seed=1).join_size(AgmsSketch(4, 3, seed=1))
    with pytest.raises(ValueError, match="different shapes or seeds"):
        HashSketch(6, 2, seed=1).join_size(HashSketch(4, 3, seed=1))


def test_a_sketch_without_counters_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="tables must be at least 1"):
        HashSketch(4, 0, seed=1)
    with pytest.raises(ValueError, match="averages must be at least 1"):
        AgmsSketch(0, 4, seed=1)
    with pytest.raises(ValueError, match="2 counts for 3 keys"):
        HashSketch(4, 1, seed=1).update(np.arange(3), np.arange(2))
