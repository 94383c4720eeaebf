from __future__ import annotations

import random

import numpy as np
import pytest

from catalog.errors import InvariantBroken
from catalog.values.routes.query_sets import QuerySets
from catalog.values.routes.route_table import RouteTable, combined, merged, numbers_having


@pytest.mark.parametrize("queries", [1, 64, 65, 300])
@pytest.mark.parametrize("routes", [0, 1, 500])
def test_a_table_is_read_as_it_was_written(queries: int, routes: int) -> None:
    rng = random.Random(queries + routes)
    ids = tuple(rng.sample(range(1, 10_000), queries))
    sets = QuerySets.of(ids, sorted({rng.getrandbits(queries) | 1 for _ in range(routes)}))
    numbers = np.array(rng.sample(range(2**62), len(sets)), dtype=np.int64)
    table = RouteTable(numbers, sets)
    found = RouteTable.decode(table.encode())
    assert found.sets.queries == ids
    assert found.ids() == table.ids()
    for query_id in (*ids, 10_001):
        expected = [number for number, members in table.ids().items() if query_id in members]
        assert numbers_having(table.encode(), query_id).tolist() == expected


def test_tables_are_merged_by_number() -> None:
    first = RouteTable(np.array([9, 4]), QuerySets.of((7, 3), [0b01, 0b11]))
    second = RouteTable(np.array([4, 5]), QuerySets.of((7, 3), [0b11, 0b10]))
    found = merged([first, second])
    assert found.numbers.tolist() == [4, 5, 9]
    assert found.ids() == {4: (3, 7), 5: (3,), 9: (7,)}


def test_a_number_stands_for_one_set() -> None:
    first = RouteTable(np.array([9, 4]), QuerySets.of((7, 3), [0b01, 0b11]))
    second = RouteTable(np.array([4]), QuerySets.of((7, 3), [0b10]))
    with pytest.raises(InvariantBroken, match="route 4 already has a different set of queries") as broken:
        merged([first, second])
    assert broken.value.detail == "Known: [3, 7]; now: [3]."


def test_tables_of_different_queries_become_one() -> None:
    routes = [{1: (5, 70), 2: (70,)}, {3: (2,), 4: tuple(range(100, 200))}, {2: (70,), 5: (2, 70)}]
    found = combined([RouteTable.of(some) for some in routes])
    assert found.ids() == {1: (5, 70), 2: (70,), 3: (2,), 4: tuple(range(100, 200)), 5: (2, 70)}
