from __future__ import annotations

from catalog.values.plan import PlannedFilter, Threshold
from planner.families.filters import assign_bits, keep_bits, weaker_filters
from tests.builders import a_query_s
from tests.planner.values import family_of


def test_new_filters_take_bits_in_the_order_of_their_texts() -> None:
    filters, next_bit = assign_bits({"b": ("y",), "a": ("x",)}, (), 5)
    assert filters == (PlannedFilter(5, "a", ("x",)), PlannedFilter(6, "b", ("y",)))
    assert next_bit == 7


def test_a_filter_that_left_frees_no_bit() -> None:
    filters, next_bit = assign_bits({"c": ()}, [PlannedFilter(0, "a", ()), PlannedFilter(1, "b", ())], 2)
    assert filters == (PlannedFilter(2, "c", ()),)
    assert next_bit == 3


def test_a_filter_of_the_previous_plan_is_kept_and_only_a_new_one_is_read() -> None:
    old = PlannedFilter(3, "not read", ("v",), Threshold("v", ">", 1))
    filters, next_bit = assign_bits({"not read": ("v",), '"v" > 2': ("v",)}, [old], 4)
    assert filters[0] is old
    assert (filters[1].bit, filters[1].threshold) == (4, Threshold("v", ">", 2))
    assert next_bit == 5


def test_one_query_without_a_filter_keeps_every_row() -> None:
    assert keep_bits([2, None, 1]) is None
    assert keep_bits([2, 1, 2]) == (1, 2)


def test_a_filter_that_implies_another_of_the_set_is_left_out() -> None:
    weaker = {1: frozenset({0}), 2: frozenset({0, 1})}
    assert keep_bits([0, 1, 2], weaker) == (0,)
    assert keep_bits([1, 2, 3], weaker) == (1, 3)
    assert keep_bits([2], weaker) == (2,)


def test_of_filters_that_imply_each_other_one_is_kept() -> None:
    weaker = {0: frozenset({1, 2}), 1: frozenset({0, 2}), 2: frozenset({0, 1})}
    assert keep_bits([0, 1, 2], weaker) == (0,)
    assert keep_bits([1, 2], weaker) == (1,)


def test_implications_are_found_by_side_up_to_so_many_filters() -> None:
    queries = [a_query_s(1, filter_a='"v" > 10'), a_query_s(2, filter_a='"v" > 5', filter_b='"v" > 7')]
    family = family_of(queries)
    assert {f.sql: f.bit for f in family.filters_a} == {'"v" > 10': 0, '"v" > 5': 1}
    assert weaker_filters(family, "a") == {0: frozenset({1})}
    assert weaker_filters(family, "b") == {}
    many = family_of([a_query_s(n, filter_a=f'"v" > {n}') for n in range(1, 101)])
    assert weaker_filters(many, "a") == {}
