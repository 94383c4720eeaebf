"""Tables of slice counters add up as the counters themselves do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.values.counters.add_up import add_up
from catalog.values.counters.family_counters import SliceCounters
from catalog.values.counters.slice_table import NUMBERS, SliceChain, SliceTable, add_up_slices

CHAINS: list[SliceChain] = [("f", "one", "a", 2), ("f", "one", "b", 3), ("g", "shared", "a", 1)]


def table(seed: int, chains: list[SliceChain], lazy: bool = False) -> SliceTable:
    counts = np.random.default_rng(seed).integers(0, 2**40, (sum(each[3] for each in chains), len(NUMBERS)))
    counts[:, 0] = lazy
    return SliceTable(tuple(chains), counts.astype("<i8").tobytes())


@given(st.integers(0, 4), st.booleans(), st.permutations(CHAINS), st.booleans())
def test_tables_add_up(buckets: int, alike: bool, chains: list[SliceChain], lazy: bool) -> None:
    tables = [table(n, chains if alike else chains[n % 2 :], lazy and n % 2 == 1) for n in range(buckets)]
    expected = add_up((each for one in tables for each in one.counters()), SliceCounters.KEY)
    assert add_up_slices(tables) == expected


def test_a_table_has_the_counters_of_each_slice() -> None:
    found = table(7, CHAINS, lazy=True)
    assert [(c.family, c.join, c.side, c.slice) for c in found.counters()] == [
        ("f", "one", "a", 1),
        ("f", "one", "a", 2),
        ("f", "one", "b", 1),
        ("f", "one", "b", 2),
        ("f", "one", "b", 3),
        ("g", "shared", "a", 1),
    ]
    for name in NUMBERS:
        assert [getattr(c, name) for c in found.counters()] == found.column(name).tolist()
    assert all(c.lazy_end is True for c in found.counters())


@pytest.mark.parametrize("chains", [[], [("f", "one", "a", 0)]])
def test_a_table_may_be_empty(chains: list[SliceChain]) -> None:
    empty = SliceTable(tuple(chains))
    assert empty.counters() == add_up_slices([empty]) == ()
    assert empty.column("results").sum() == 0
