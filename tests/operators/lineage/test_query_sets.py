from __future__ import annotations

import random

import numpy as np
import pytest

from operators.lineage.query_sets import QuerySets, query_key, query_keys

SIZES = [1, 8, 63, 64, 65, 130, 1000]


def some_sets(rng: random.Random, queries: int, count: int) -> list[int]:
    """Return sets of queries, sparse and dense ones, the empty and the full one among them."""
    sets = {0, (1 << queries) - 1}
    for _ in range(count):
        one = rng.getrandbits(queries)
        sets |= {
            one,
            one & rng.getrandbits(queries) & rng.getrandbits(queries),
            one | rng.getrandbits(queries),
        }
    return sorted(sets)


def some_ids(rng: random.Random, queries: int) -> tuple[int, ...]:
    return tuple(rng.sample(range(1, 10 * queries + 1), queries))


def members(ids: tuple[int, ...], one: int) -> tuple[int, ...]:
    """Return the ids of a set, one by one."""
    return tuple(sorted(query_id for place, query_id in enumerate(ids) if one >> place & 1))


@pytest.mark.parametrize("queries", SIZES)
def test_sets_have_the_ids_of_their_bits(queries: int) -> None:
    rng = random.Random(queries)
    ids = some_ids(rng, queries)
    sets = some_sets(rng, queries, 200)
    found = QuerySets.of(ids, sets)
    assert len(found) == len(sets)
    assert found.ids() == [members(ids, one) for one in sets]
    again = QuerySets.of_bytes(ids, found.bytes_of_each())
    assert np.array_equal(again.words, found.words)
    some = np.array([0, len(sets) - 1], dtype=np.int64)
    assert found.take(some).ids() == [(), tuple(sorted(ids))]


def test_more_sets_than_are_spread_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operators.lineage.query_sets._SPREAD_AT_ONCE", 7)
    rng = random.Random(7)
    ids = some_ids(rng, 70)
    sets = some_sets(rng, 70, 20)
    order = tuple(rng.sample(ids, 70))
    found = QuerySets.of(ids, sets)
    assert found.ids() == found.among(order)[0].ids() == [members(ids, one) for one in sets]


def test_no_sets_are_no_trouble() -> None:
    none = QuerySets.of((3, 1), [])
    assert none.ids() == none.bytes_of_each() == []
    assert len(none.numbers(query_keys((3, 1)))) == len(none.among((1, 2))[0]) == 0
    assert none.rows_per_query(np.zeros(0, dtype=np.int64)).tolist() == [0, 0]


@pytest.mark.parametrize("queries", SIZES)
def test_a_number_is_the_xor_of_the_members_keys(queries: int) -> None:
    rng = random.Random(queries)
    ids = some_ids(rng, queries)
    sets = some_sets(rng, queries, 50)
    for one, number in zip(sets, QuerySets.of(ids, sets).numbers(query_keys(ids)).tolist(), strict=True):
        expected = 0
        for query_id in members(ids, one):
            expected ^= query_key(query_id)
        assert number == expected
        assert 0 <= number < 2**63
        assert (number == 0) == (one == 0)


@pytest.mark.parametrize("seed", range(3))
def test_no_two_sets_have_the_same_number(seed: int) -> None:
    """As random as they may be, and as alike: a set differs from the next by one query or two."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    ids = tuple(range(seed * 1000 + 1, seed * 1000 + 1001))
    sets = {rng.getrandbits(1000) for _ in range(20_000)}
    one = rng.getrandbits(1000)
    sets |= {one ^ (1 << i) ^ (1 << j) for i in range(1000) for j in range(i, i + 20) if j < 1000}
    sets |= {(1 << end) - (1 << start) for start in range(1000) for end in range(start + 1, 1001, 37)}
    numbers = QuerySets.of(ids, sorted(sets)).numbers(query_keys(ids))
    assert len(np.unique(numbers)) == len(sets) > 40_000


@pytest.mark.parametrize("queries", SIZES)
def test_another_order_has_the_same_members_and_numbers(queries: int) -> None:
    rng = random.Random(queries)
    ids = some_ids(rng, queries)
    found = QuerySets.of(ids, some_sets(rng, queries, 50))
    order = (*rng.sample(ids, queries), 10**6, 10**6 + 1)
    other, whole = found.among(order)
    assert whole.all()
    assert other.ids() == found.ids()
    assert np.array_equal(other.numbers(query_keys(order)), found.numbers(query_keys(ids)))


def test_fewer_queries_leave_some_sets_whole() -> None:
    found = QuerySets.of((5, 2, 9), [0b001, 0b110, 0b111, 0])
    kept, whole = found.among((9, 2))
    assert kept.ids() == [(), (2, 9), (2, 9), ()]
    assert whole.tolist() == found.subsets_of(frozenset((2, 9))).tolist() == [False, True, False, True]


@pytest.mark.parametrize("queries", SIZES)
def test_rows_per_query_are_those_of_a_plain_loop(queries: int) -> None:
    rng = random.Random(queries)
    ids = some_ids(rng, queries)
    sets = some_sets(rng, queries, 60)
    rows = [rng.choice((1, 2, 5, 10**12)) for _ in sets]
    expected = [sum(n for one, n in zip(sets, rows, strict=True) if one >> q & 1) for q in range(queries)]
    found = QuerySets.of(ids, sets).rows_per_query(np.array(rows, dtype=np.int64))
    assert found.tolist() == expected
