"""Bloom filters of keys: nothing in them is missed, and little else is found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.lazy.bloom_filter import bloom_filter, rows_in_filter

_KEYS = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3))


@given(_KEYS, _KEYS)
def test_every_key_of_a_filter_is_found(keys: list[int], others: list[int]) -> None:
    words = bloom_filter(np.array(sorted(keys), dtype=np.int64))
    asked = np.array([*keys, *others], dtype=np.int64)
    found = rows_in_filter(asked, words).tolist()
    assert found == sorted(set(found))
    assert set(range(len(keys))) <= set(found)


@pytest.mark.parametrize("kind", ["numbers that follow each other", "multiples", "hashes"])
def test_few_other_keys_are_found(kind: str) -> None:
    rng = np.random.default_rng(7)
    if kind == "hashes":
        keys, others = np.sort(rng.integers(-(2**62), 2**62, 50_000)), rng.integers(-(2**62), 2**62, 500_000)
    else:
        step = 1 if kind == "numbers that follow each other" else 1 << 20
        keys, others = np.arange(50_000) * step, np.arange(50_000, 550_000) * step
    words = bloom_filter(keys)
    assert words.nbytes <= 3.1 * len(keys)
    assert len(rows_in_filter(others, words)) < len(others) / 5_000


def test_repeated_keys_take_no_room() -> None:
    assert len(bloom_filter(np.repeat(np.arange(4), 10_000))) == len(bloom_filter(np.arange(4)))
    assert rows_in_filter(np.array([5, 9]), bloom_filter(np.zeros(0, dtype=np.int64))).tolist() == []
