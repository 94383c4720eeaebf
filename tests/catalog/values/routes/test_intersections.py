"""Intersections give the same answers as the sets that they represent."""

from __future__ import annotations

import random

import numpy as np
import pytest

from catalog.errors import InvariantBroken
from catalog.values.routes.intersections import Intersections, first_difference, joined
from catalog.values.routes.query_sets import QuerySets
from catalog.values.routes.route_table import RouteTable, combined, merged, numbers_having
from tests.catalog.values.routes.test_query_sets import SIZES, some_ids, some_sets


def some_intersections(rng: random.Random, ids: tuple[int, ...], count: int) -> Intersections:
    """Return intersections of two left and two right sets; some of these may be unused."""
    left, right = (QuerySets.of(ids, rng.sample(some_sets(rng, len(ids), 3), 2)) for _ in "ab")
    places = np.array([[rng.randrange(2), rng.randrange(2)] for _ in range(count)], dtype=np.int64)
    return Intersections(left, right, *places.reshape(count, 2).T)


@pytest.mark.parametrize("queries", SIZES)
@pytest.mark.parametrize("count", [0, 1, 60])
def test_answers_are_those_of_listed_sets(queries: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catalog.values.routes.intersections._AT_ONCE", 7)
    rng = random.Random(queries + count)
    ids = some_ids(rng, queries)
    found = some_intersections(rng, ids, count)
    listed = found.listed()
    assert len(found) == len(listed) == count
    assert found.compact().listed().ids() == listed.ids()
    for query_id in (*rng.sample(ids, min(queries, 5)), 10**6):
        assert np.array_equal(found.having(query_id), listed.having(query_id))
    some = np.array(rng.sample(range(count), count // 3), dtype=np.int64)
    assert found.take(some).listed().ids() == listed.take(some).ids()
    for kept in (set(ids), set(rng.sample(ids, queries // 2)), {10**6}):
        assert np.array_equal(found.subsets_of(kept), listed.subsets_of(kept))
    order = (*rng.sample(ids, queries - queries // 3), 10**6)
    assert found.among(order).listed().ids() == listed.among(order).ids()


def test_few_sets_are_listed() -> None:
    sets = QuerySets.of((1, 2, 3), [0b011, 0b110, 0b101])
    places = np.array([0, 1, 2])
    few = Intersections(sets, sets, places, places)
    assert isinstance(few.compact(), QuerySets)
    every = Intersections(sets, sets, np.repeat(places, 3), np.tile(places, 3))
    assert isinstance(every.compact(), Intersections)


@pytest.mark.parametrize("seed", range(6))
def test_sets_of_both_kinds_are_joined(seed: int) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)
    ids = some_ids(rng, rng.choice(SIZES))
    parts: list[QuerySets | Intersections] = [
        some_intersections(rng, ids, rng.randrange(5)) for _ in range(rng.randrange(4))
    ]
    parts += [QuerySets.of(ids, some_sets(rng, len(ids), 1)) for _ in range(rng.randrange(4))]
    parts = rng.sample(parts, len(parts)) or [some_intersections(rng, ids, 0)]
    found = joined(parts)
    assert found.listed().ids() == [members for part in parts for members in part.listed().ids()]
    assert isinstance(found, QuerySets) == all(isinstance(part, QuerySets) for part in parts)


@pytest.mark.parametrize("seed", range(20))
def test_the_first_difference_is_that_of_listed_sets(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    print(f"seed {seed}")
    monkeypatch.setattr("catalog.values.routes.intersections._AT_ONCE", 3)
    rng = random.Random(seed)
    ids = some_ids(rng, 3)
    one = some_intersections(rng, ids, 12)
    other = Intersections(one.left, one.right, one.of_left.copy(), one.of_right.copy())
    for place in rng.sample(range(12), rng.randrange(3)):
        other.of_left[place] = 1 - other.of_left[place]
    unlike = (place for place in range(12) if one.listed().ids()[place] != other.listed().ids()[place])
    expected = next(unlike, None)
    assert first_difference(one, other) == expected
    assert first_difference(one.listed(), other) == expected


@pytest.mark.parametrize("queries", SIZES)
@pytest.mark.parametrize("count", [0, 1, 60])
def test_a_table_is_read_as_it_was_written(queries: int, count: int) -> None:
    rng = random.Random(queries + count)
    ids = some_ids(rng, queries)
    sets = some_intersections(rng, ids, count)
    table = RouteTable(np.array(rng.sample(range(2**62), count), dtype=np.int64), sets)
    found = RouteTable.decode(table.encode())
    assert isinstance(found.sets, Intersections)
    assert (found.sets.queries, found.ids()) == (ids, table.ids())
    for query_id in (*ids[:50], 10**6):
        expected = [number for number, members in table.ids().items() if query_id in members]
        assert numbers_having(table.encode(), query_id).tolist() == expected


@pytest.mark.parametrize("seed", range(10))
def test_tables_of_both_kinds_become_one(seed: int) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)
    numbers: dict[tuple[int, ...], int] = {}
    expected: dict[int, tuple[int, ...]] = {}
    tables = []
    for _ in range(rng.randint(1, 5)):
        sets = some_intersections(rng, tuple(rng.sample(range(1, 9), 4)), rng.randint(1, 20))
        own = [numbers.setdefault(members, 100 - len(numbers)) for members in sets.listed().ids()]
        expected |= dict(zip(own, sets.listed().ids(), strict=True))
        tables.append(RouteTable(np.array(own), rng.choice([sets, sets.listed()])))
    found = combined(tables)
    assert found.numbers.tolist() == sorted(expected)
    assert found.ids() == expected


def test_a_number_stands_for_one_set() -> None:
    sets = QuerySets.of((7, 3), [0b01, 0b11, 0b10])
    alike = Intersections(sets, sets, np.array([0, 0]), np.array([0, 1]))
    assert merged([RouteTable(np.array([4, 4]), alike)] * 2).ids() == {4: (7,)}
    unlike = Intersections(sets, sets, np.array([0, 1]), np.array([0, 1]))
    with pytest.raises(InvariantBroken, match="route 4 already has a different set of queries") as broken:
        merged([RouteTable(np.array([4, 4]), unlike)])
    assert broken.value.detail == "Known: [7]; now: [3, 7]."
