from __future__ import annotations

import random

import numpy as np
import pytest

from catalog.values.routes.query_sets import QuerySets

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
    some = np.array([0, len(sets) - 1], dtype=np.int64)
    assert found.take(some).ids() == [(), tuple(sorted(ids))]


def test_more_sets_than_are_spread_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catalog.values.routes.query_sets._SPREAD_AT_ONCE", 7)
    rng = random.Random(7)
    ids = some_ids(rng, 70)
    sets = some_sets(rng, 70, 20)
    order = tuple(rng.sample(ids, 70))
    found = QuerySets.of(ids, sets)
    assert found.ids() == found.among(order).ids() == [members(ids, one) for one in sets]


def test_no_sets_are_no_trouble() -> None:
    none = QuerySets.of((3, 1), [])
    assert none.ids() == []
    assert len(none.among((1, 2))) == 0


@pytest.mark.parametrize("queries", SIZES)
def test_another_order_has_the_same_members(queries: int) -> None:
    rng = random.Random(queries)
    ids = some_ids(rng, queries)
    found = QuerySets.of(ids, some_sets(rng, queries, 50))
    order = (*rng.sample(ids, queries), 10**6, 10**6 + 1)
    assert found.among(order).ids() == found.ids()


@pytest.mark.parametrize("queries", SIZES)
@pytest.mark.parametrize("runs", [0, 10**6])
def test_sets_copied_run_by_run_are_those_that_are_spread(
    queries: int, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog.values.routes.query_sets._MOST_RUNS", runs)
    rng = random.Random(queries)
    ids = tuple(sorted(some_ids(rng, queries)))
    sets = some_sets(rng, queries, 50)
    gone = set(rng.sample(ids, queries // 3))
    order = (*(query_id for query_id in ids if query_id not in gone), 10**6)
    found = QuerySets.of(ids, sets).among(order)
    left = [tuple(query_id for query_id in members(ids, one) if query_id not in gone) for one in sets]
    assert found.ids() == left


def test_fewer_queries_leave_some_sets_whole() -> None:
    found = QuerySets.of((5, 2, 9), [0b001, 0b110, 0b111, 0])
    assert found.among((9, 2)).ids() == [(), (2, 9), (2, 9), ()]
    assert found.subsets_of(frozenset((2, 9))).tolist() == [False, True, False, True]


@pytest.mark.parametrize("queries", SIZES)
def test_sets_have_their_members(queries: int) -> None:
    rng = random.Random(queries)
    ids = some_ids(rng, queries)
    found = QuerySets.of(ids, some_sets(rng, queries, 20))
    for query_id in (*rng.sample(ids, min(queries, 9)), 10**6):
        assert found.having(query_id).tolist() == [query_id in of_set for of_set in found.ids()]
