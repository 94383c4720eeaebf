from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from catalog.errors import InvariantBroken
from catalog.values.routes.counts.query_rows import summed_rows
from catalog.values.routes.query_sets import QuerySets
from catalog.values.routes.route_table import RouteTable
from operators.lineage.routes import RouteCounts, add_up, query_keys, route_numbers
from tests.operators.route_totals import route_totals

IDS = (4, 1, 9)


def counts(pairs: dict[int, int], numbers: dict[int, int] | None = None) -> RouteCounts:
    """Return the routes of pairs by set of queries, under other numbers if given."""
    sets = QuerySets.of(IDS, list(pairs))
    given = route_numbers(sets, query_keys(IDS))
    if numbers is not None:
        given = np.array([numbers[one] for one in pairs], dtype=np.int64)
    return RouteCounts.of(RouteTable(given, sets), np.array(list(pairs.values()), dtype=np.int64))


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
    assert len(found.table()) == len(total)
    assert route_totals(found) == route_totals(expected)
    assert found.table().ids() == expected.table().ids()
    assert dict(summed_rows([found.query_rows()])) == rows


def test_no_pairs_take_no_route() -> None:
    none = add_up(IDS, [])
    assert (len(none.table()), route_totals(none), none.table().ids()) == (0, {}, {})
    assert summed_rows([none.query_rows()]) == ()


def test_two_sets_cannot_share_a_number() -> None:
    twice = add_up(IDS, [counts({0b01: 2, 0b10: 3}, {0b01: 8, 0b10: 7}), counts({0b11: 1}, {0b11: 8})])
    with pytest.raises(InvariantBroken, match="route 8 already has a different set of queries"):
        twice.table()
    with pytest.raises(InvariantBroken, match="route 8 already has a different set of queries"):
        twice.among(np.array([8]))
    assert twice.among(np.array([7])).ids() == {7: (1,)}
