from __future__ import annotations

from dataclasses import replace

import pytest

from planner.errors import UnknownFamily
from planner.families.families import families
from planner.families.texts.family_names import by_family, family_named, family_titles
from tests.builders import a_query_s

PLAIN = a_query_s(1)
TWO_KEYS = a_query_s(2, key=(("k", "k"), ("m", "m")))
SELF_JOIN = a_query_s(3, streams=(1, 1))
QUERIES = [PLAIN, TWO_KEYS, SELF_JOIN]
IDS = {q.id: family_named("A.k = B.k", [q]) for q in [PLAIN]}


@pytest.mark.parametrize("name", ["A.k = B.k", "b.k=a.K", '"A"."k" = "B"."k"', " A.k  =  B.k "])
def test_a_family_is_named_by_its_key_in_any_order_and_case(name: str) -> None:
    assert family_named(name, QUERIES) == IDS[1]


def test_a_family_is_named_by_its_id() -> None:
    assert family_named(IDS[1], QUERIES) == IDS[1]


def test_all_parts_of_a_key_count() -> None:
    both = family_named("B.m = A.m and A.k = B.k", QUERIES)
    assert both not in IDS.values()


def test_a_self_join_says_what_its_sides_are() -> None:
    # Here stream A is also a name of a side: the key alone is that of A and B.
    self_join = families([SELF_JOIN])
    assert [family_named("a.k = b.k (A a, A b)", QUERIES)] == list(self_join)
    assert family_named("a.k = b.k", QUERIES) == IDS[1]


def test_outer_semi_and_anti_joins_are_a_family_of_their_own() -> None:
    anti = replace(a_query_s(4), kind="anti", preserved=("a",))
    of_self = replace(a_query_s(5, streams=(1, 1)), kind="outer", preserved=("a", "b"))
    known = [*QUERIES, anti, of_self]
    absence, of_both = families([anti]), families([of_self])
    assert [family_named("B.k = A.k (Absence)", known)] == list(absence)
    assert [family_named("a.k = b.k  (A a, A b, absence)", known)] == list(of_both)
    assert [family_named(title, known) for title in family_titles(known).values()] == list(families(known))
    assert family_named("A.k = B.k", known) == IDS[1], "the key alone is that of the inner joins"
    assert [family_named("A.k = B.k", [anti])] == list(absence), "where there are any"
    with pytest.raises(UnknownFamily):
        family_named("A.k = B.k (absence)", QUERIES)


def test_an_unknown_family_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownFamily) as caught:
        family_named("A.x = C.y", QUERIES)
    assert caught.value.primary == 'family "A.x = C.y" does not exist'
    assert caught.value.hint


def test_what_is_given_waits_for_its_family_or_is_refused() -> None:
    assert by_family({"A.k = B.k": 1, "A.k = C.k": 2}, QUERIES, strict=False) == {IDS[1]: 1}
    with pytest.raises(UnknownFamily) as caught:
        by_family({"A.k = C.k": 2}, QUERIES)
    assert caught.value.path == ("A.k = C.k",)
