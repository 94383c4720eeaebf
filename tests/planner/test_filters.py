from __future__ import annotations

from catalog.values.plan import PlannedFilter
from planner.filters import assign_bits, keep_bits


def test_new_filters_take_bits_in_the_order_of_their_texts() -> None:
    filters, next_bit = assign_bits({"b": ("y",), "a": ("x",)}, (), 5)
    assert filters == (PlannedFilter(5, "a", ("x",)), PlannedFilter(6, "b", ("y",)))
    assert next_bit == 7


def test_a_filter_that_left_frees_no_bit() -> None:
    filters, next_bit = assign_bits({"c": ()}, [PlannedFilter(0, "a", ()), PlannedFilter(1, "b", ())], 2)
    assert filters == (PlannedFilter(2, "c", ()),)
    assert next_bit == 3


def test_one_query_without_a_filter_keeps_every_row() -> None:
    assert keep_bits([2, None, 1]) is None
    assert keep_bits([2, 1, 2]) == (1, 2)
