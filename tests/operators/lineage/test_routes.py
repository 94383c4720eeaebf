from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.plan import FamilyPlan
from catalog.values.query import UNBOUNDED_US
from operators.lineage import intersections, routes
from operators.lineage.lineage import RowClasses
from operators.lineage.routes import Router, query_key, router, rows_per_query
from tests.builders import a_query
from tests.operators.segment_builders import a_family

ALL = RowClasses(None, (2**62 - 1,))


def router_of(family: FamilyPlan) -> Router:
    """Return the router of a join for all queries of a family."""
    return router(family, range(len(family.queries)))


def sets_of(
    router: Router, distances: list[int], a: RowClasses = ALL, b: RowClasses = ALL
) -> list[tuple[int, ...]]:
    """Return the query ids of pairs at these distances; pair n joins row n of both sides."""
    codes, sets = router.masks(np.array(distances, dtype=np.int64), a, b)
    ids = router.numbered(sets)[1].ids()
    return [ids[int(code)] for code in codes]


def test_a_distance_is_covered_by_the_windows_beyond_it() -> None:
    family = router_of(a_family(a_query(1, 10, 2), a_query(2, 30, 5), a_query(3, 1, UNBOUNDED_US)))
    assert sets_of(family, [0, 1, 9, 10, 29, 30]) == [(1, 2, 3), (1, 2), (1, 2), (2,), (2,), ()]
    assert sets_of(family, [-1, -2, -4, -5, -(2**60)]) == [(1, 2, 3), (2, 3), (2, 3), (3,), (3,)]


def test_a_join_routes_to_its_own_queries_only() -> None:
    """Pairs of a join of q2 and q3 are not q1's, whichever join makes those."""
    family = a_family(a_query(1, 100), a_query(2, 10), a_query(3, 30, 5))
    own = router(family, [1, 2])
    assert own.bounds_a.tolist() == [10, 30]
    assert own.bounds_b.tolist() == [5, 10]
    assert sets_of(own, [5, 20, 50, -7]) == [(2, 3), (3,), (), (2,)]


def test_both_rows_must_serve_the_query() -> None:
    family = router_of(a_family(a_query(1, 10), a_query(2, 30)))
    a = RowClasses(np.array([0, 1, 1]), (0b01, 0b11))
    b = RowClasses(np.array([1, 1, 0]), (0b00, 0b10))
    assert sets_of(family, [5, 5, 5], a, b) == [(), (2,), ()]
    assert sets_of(family, [5, 20, 20], RowClasses(None, (0b10,)), a) == [(), (2,), (2,)]


@pytest.mark.parametrize("limit", [1, 1 << 20])
def test_large_tables_of_combinations_give_the_same_sets(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intersections, "MAX_DIRECT_COMBINATIONS", limit)
    family = router_of(a_family(*(a_query(n, 10 * n) for n in range(1, 6))))
    random = np.random.default_rng(3)
    masks = tuple(range(32))
    a, b = (RowClasses(random.integers(0, 32, 200), masks) for _ in "ab")
    distances = random.integers(-60, 60, 200).tolist()
    assert a.codes is not None
    assert b.codes is not None
    expected = [
        tuple(q for q in range(1, 6) if int(x) & int(y) & 1 << (q - 1) and 10 * q > abs(d))
        for d, x, y in zip(distances, a.codes, b.codes, strict=True)
    ]
    assert sets_of(family, distances, a, b) == expected


def numbers_of(family: FamilyPlan, *sets: int) -> list[int]:
    """Return the routes of sets of a family's queries."""
    numbers: list[int] = router_of(family).numbered(sets)[0].tolist()
    return numbers


def test_a_route_is_named_by_its_query_ids_alone() -> None:
    one = a_family(a_query(1, 10), a_query(7, 30))
    other = a_family(a_query(7, 30), a_query(9, 30), a_query(1, 10))
    assert [q.id for q in one.queries] != [q.id for q in other.queries]
    places = {q.id: 1 << place for place, q in enumerate(other.queries)}
    assert numbers_of(one, 0b10, 0b11) == numbers_of(other, places[7], places[1] | places[7])
    assert len({0, *numbers_of(one, 0b01, 0b10, 0b11)}) == 4
    assert numbers_of(one, 0) == [0]


def test_route_numbers_are_the_same_in_every_version() -> None:
    """Stored results are read by them."""
    family = a_family(a_query(1, 10), a_query(2, 20), a_query(3, 30))
    assert numbers_of(family, 0b1, 0b111) == ROUTES
    assert numbers_of(family, 0b110) == [query_key(2) ^ query_key(3)]


ROUTES = [8898586205396736955, 4149683294348667661]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_nested_sets_are_the_sets_of_the_same_pairs(data: st.DataObject) -> None:
    """Numbers, rows per query and members are the same as with a set built for each pair."""
    count = data.draw(st.integers(1, 70))
    windows = [(data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40))) for _ in range(count)]
    family = a_family(*(a_query(n, a, b) for n, (a, b) in enumerate(windows, 1)))
    members = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1)))
    compiled = router(family, members, ends_us=((3, 7, 50), (5, 50)))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    pairs = data.draw(st.integers(0, 200))
    distances = rng.integers(-45, 45, pairs)

    def classes() -> RowClasses:
        masks = tuple(rng.integers(0, 2**62, 5).tolist())
        masks = (*(mask | mask << 60 for mask in masks), (1 << count) - 1)
        if rng.random() < 0.3:
            return RowClasses(None, masks[-1:])
        return RowClasses(rng.integers(0, len(masks), pairs), tuple(m & (1 << count) - 1 for m in masks))

    a, b = classes(), classes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intersections, "MAX_DIRECT_COMBINATIONS", data.draw(st.sampled_from([1, 1 << 20])))
        patch.setattr(routes, "FEW_COMBINATIONS", data.draw(st.sampled_from([1, 1 << 12])))
        codes, sets = compiled.masks(distances, a, b)
        places, nested = compiled.nested(compiled.distance_classes(distances), a, b)
    numbers, listed = compiled.numbered(sets)
    own = nested.numbers(compiled.keys)
    assert np.array_equal(own[places], numbers[codes])
    every = nested.intersections().listed()
    assert np.array_equal(every.words[places], listed.words[codes])
    rows = np.bincount(places, minlength=len(nested))
    assert np.array_equal(
        nested.rows_per_query(rows), rows_per_query(listed, np.bincount(codes, minlength=len(sets)))
    )
    some = np.flatnonzero(rng.random(len(nested)) < 0.5)
    assert np.array_equal(nested.take(some).numbers(compiled.keys), own[some])
    assert np.array_equal(nested.take(some).intersections().listed().words, every.words[some])
