from __future__ import annotations

import random

import numpy as np
import pytest

from catalog.values.routes.query_sets import QuerySets
from operators.lineage.routes import query_key, query_keys, route_numbers, rows_per_query
from tests.catalog.values.routes.test_query_sets import SIZES, members, some_ids, some_sets


def test_no_sets_are_no_trouble() -> None:
    none = QuerySets.of((3, 1), [])
    assert len(route_numbers(none, query_keys((3, 1)))) == 0
    assert rows_per_query(none, np.zeros(0, dtype=np.int64)).tolist() == [0, 0]


@pytest.mark.parametrize("queries", SIZES)
def test_another_order_has_the_same_numbers(queries: int) -> None:
    rng = random.Random(queries)
    ids = some_ids(rng, queries)
    found = QuerySets.of(ids, some_sets(rng, queries, 50))
    order = (*rng.sample(ids, queries), 10**6, 10**6 + 1)
    other = found.among(order)
    assert np.array_equal(route_numbers(other, query_keys(order)), route_numbers(found, query_keys(ids)))


@pytest.mark.parametrize("queries", SIZES)
def test_a_number_is_the_xor_of_the_members_keys(queries: int) -> None:
    rng = random.Random(queries)
    ids = some_ids(rng, queries)
    sets = some_sets(rng, queries, 50)
    for one, number in zip(
        sets, route_numbers(QuerySets.of(ids, sets), query_keys(ids)).tolist(), strict=True
    ):
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
    numbers = route_numbers(QuerySets.of(ids, sorted(sets)), query_keys(ids))
    assert len(np.unique(numbers)) == len(sets) > 40_000


@pytest.mark.parametrize("queries", SIZES)
def test_rows_per_query_are_those_of_a_plain_loop(queries: int) -> None:
    rng = random.Random(queries)
    ids = some_ids(rng, queries)
    sets = some_sets(rng, queries, 60)
    rows = [rng.choice((1, 2, 5, 10**12)) for _ in sets]
    expected = [sum(n for one, n in zip(sets, rows, strict=True) if one >> q & 1) for q in range(queries)]
    found = rows_per_query(QuerySets.of(ids, sets), np.array(rows, dtype=np.int64))
    assert found.tolist() == expected
