from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from catalog.errors import InvariantBroken
from operators.lineage.query_sets import QuerySets, query_keys
from operators.lineage.route_table import RouteTable, add_up

IDS = (4, 1, 9)


def counts(pairs: dict[int, int], numbers: dict[int, int] | None = None) -> RouteTable:
    """Return the routes of pairs by set of queries, under other numbers if given."""
    sets = QuerySets.of(IDS, list(pairs))
    given = sets.numbers(query_keys(IDS))
    if numbers is not None:
        given = np.array([numbers[one] for one in pairs], dtype=np.int64)
    return RouteTable(given, sets, np.array(list(pairs.values()), dtype=np.int64))


@pytest.mark.parametrize("seed", range(5))
def test_lots_of_pairs_add_up(seed: int) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)
    lots = [{one: rng.randint(1, 9) for one in rng.sample(range(1, 8), rng.randint(0, 7))} for _ in range(4)]
    total: Counter[int] = Counter()
    rows: Counter[int] = Counter()
    for lot in lots:
        total.update(lot)
    for one, pairs in total.items():
        rows.update({query_id: pairs for place, query_id in enumerate(IDS) if one >> place & 1})
    found = add_up(IDS, [counts(lot) for lot in lots])
    expected = counts(dict(total))
    assert len(found) == len(total)
    assert found.totals() == expected.totals()
    assert found.ids() == expected.ids()
    assert found.query_rows() == rows


def test_no_pairs_take_no_route() -> None:
    none = add_up(IDS, [])
    assert (len(none), none.totals(), none.ids(), none.query_rows()) == (0, {}, {}, {})


def test_two_sets_cannot_share_a_number() -> None:
    with pytest.raises(InvariantBroken, match="route 8 stands for two sets of queries"):
        add_up(IDS, [counts({0b01: 2, 0b10: 3}, {0b01: 8, 0b10: 7}), counts({0b11: 1}, {0b11: 8})])


@pytest.mark.parametrize("queries", [1, 64, 65, 300])
@pytest.mark.parametrize("routes", [1, 500])
def test_a_table_is_read_as_it_was_written(queries: int, routes: int) -> None:
    rng = random.Random(queries + routes)
    ids = tuple(rng.sample(range(1, 10_000), queries))
    sets = QuerySets.of(ids, sorted({rng.getrandbits(queries) | 1 for _ in range(routes)}))
    pairs = np.array([rng.randint(1, 1000) for _ in range(len(sets))], dtype=np.int64)
    table = RouteTable(sets.numbers(query_keys(ids)), sets, pairs)
    found = RouteTable.decode(table.encode())
    assert found.sets.queries == ids
    assert found.ids() == table.ids()
    assert found.totals() == table.totals()
