from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.operators.cases import SETTINGS
from tests.sketches.sketch import HashSketch
from tests.sketches.sketch_kernel import UInt64s, cubes_of

words = st.integers(0, 2**64 - 1)


def multiply(a: int, b: int) -> int:
    """Multiply polynomials over GF(2), then divide by x^64 + x^4 + x^3 + x + 1."""
    product = 0
    for bit in range(64):
        if b >> bit & 1:
            product ^= a << bit
    for bit in range(127, 63, -1):
        if product >> bit & 1:
            product ^= (1 << 64 | 0x1B) << (bit - 64)
    return product


def cubes(keys: list[int]) -> UInt64s:
    return cubes_of(np.array(keys, dtype=np.uint64))


@settings(SETTINGS, max_examples=examples(200))
@given(st.lists(words, max_size=20))
def test_cubes_are_those_of_the_field_of_2_to_the_64_elements(keys: list[int]) -> None:
    assert cubes(keys).tolist() == [multiply(multiply(k, k), k) for k in keys]


@settings(SETTINGS, max_examples=examples(400))
@given(st.sets(words | st.integers(0, 40), min_size=2, max_size=4).filter(lambda s: len(s) % 2 == 0))
def test_no_two_and_no_four_columns_add_up_to_zero_so_signs_are_four_wise_independent(keys: set[int]) -> None:
    # The first row of the columns (1, v, v³) is all ones, so an odd number of them never adds up to zero.
    key = np.array(sorted(keys), dtype=np.uint64)
    assert np.bitwise_xor.reduce(key) != 0 or np.bitwise_xor.reduce(cubes_of(key)) != 0


def test_four_keys_that_add_up_to_zero_differ_in_their_cubes() -> None:
    assert 1 ^ 2 ^ 4 ^ 7 == 0
    assert np.bitwise_xor.reduce(cubes([1, 2, 4, 7])) != 0


def test_products_of_up_to_four_signs_average_to_zero_over_seeds() -> None:
    keys = np.array([0, 1, -1, 2**63 - 1], np.int64)
    signs = np.array([[one_sign(seed, key) for key in keys] for seed in range(2000)])
    for together in ([0], [0, 1], [1, 2, 3], [0, 1, 2, 3]):
        mean = signs[:, together].prod(axis=1).mean()
        assert abs(mean) < 5 / np.sqrt(2000), f"signs {together}: {mean}"


def one_sign(seed: int, key: np.int64) -> int:
    sketch = HashSketch(1, 1, seed=seed)
    sketch.update(np.array([key]))
    return int(sketch.counters[0, 0])


def test_two_keys_share_a_bucket_once_in_buckets_times() -> None:
    keys = np.array([0, 1, 2**32, 2**32 + 1, -1, 77], np.int64)
    buckets, tables = 8, 4000
    sketch = HashSketch(buckets, tables, seed=3)
    places = []
    for key in keys:
        sketch.counters[:] = 0
        sketch.update(np.array([key]))
        assert (np.abs(sketch.counters).sum(axis=1) == 1).all()
        places.append(np.abs(sketch.counters).argmax(axis=1))
        counts = np.bincount(places[-1], minlength=buckets)
        assert np.abs(counts - tables / buckets).max() < 5 * np.sqrt(tables / buckets)
    deviation = np.sqrt(tables / buckets)
    for one, other in [*pairwise(places), (places[0], places[2]), (places[1], places[3])]:
        assert abs((one == other).sum() - tables / buckets) < 5 * deviation
