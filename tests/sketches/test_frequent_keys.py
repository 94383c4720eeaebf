from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.operators.cases import SETTINGS
from tests.sketches.frequent_keys import FrequentKeys

batches = st.lists(st.lists(st.integers(0, 12) | st.integers(-(2**63), 2**63 - 1), max_size=30), max_size=6)


def summary_of(parts: list[list[int]], capacity: int) -> FrequentKeys:
    frequent = FrequentKeys(capacity)
    for part in parts:
        frequent.update(np.array(part, np.int64))
    return frequent


def check(frequent: FrequentKeys, rows: list[int]) -> None:
    exact = Counter(rows)
    counters = dict(zip(frequent.keys.tolist(), frequent.counts.tolist(), strict=True))
    assert frequent.rows == len(rows)
    assert len(counters) <= frequent.capacity
    assert sorted(counters) == frequent.keys.tolist()
    assert frequent.error * (frequent.capacity + 1) <= len(rows) - sum(counters.values())
    for key, count in exact.items():
        assert count - frequent.error <= counters.get(key, 0) <= count


@settings(SETTINGS, max_examples=examples(300))
@given(batches, st.integers(1, 8))
def test_counters_are_too_low_by_at_most_the_error_whatever_the_batches(
    parts: list[list[int]], capacity: int
) -> None:
    check(summary_of(parts, capacity), [key for part in parts for key in part])


@settings(SETTINGS, max_examples=examples(300))
@given(batches, batches, st.integers(1, 8))
def test_a_merge_keeps_the_bound(one: list[list[int]], other: list[list[int]], capacity: int) -> None:
    merged = summary_of(one, capacity).merge(summary_of(other, capacity))
    check(merged, [key for part in one + other for key in part])


def test_every_key_above_its_share_is_kept() -> None:
    random = np.random.default_rng(3)
    rows = np.concatenate((random.integers(10, 10**9, 50_000), np.repeat(np.arange(5), 700)))
    random.shuffle(rows)
    frequent = FrequentKeys(100)
    for part in np.array_split(rows, 20):
        frequent.update(part)
    assert len(rows) / 101 < 700
    assert set(range(5)) <= set(frequent.keys.tolist())


def test_counts_stand_for_as_many_rows() -> None:
    by_counts, by_rows = FrequentKeys(3), FrequentKeys(3)
    by_counts.update(np.array([5, 6, 5]), np.array([2, 1, 3]))
    by_rows.update(np.array([5, 5, 6, 5, 5, 5]))
    assert by_counts.keys.tolist() == by_rows.keys.tolist() == [5, 6]
    assert by_counts.counts.tolist() == by_rows.counts.tolist() == [5, 1]


def test_rows_cannot_be_taken_back() -> None:
    with pytest.raises(ValueError, match="cannot take rows back"):
        FrequentKeys(3).update(np.array([1]), np.array([-1]))
    with pytest.raises(ValueError, match="capacity must be at least 1"):
        FrequentKeys(0)
