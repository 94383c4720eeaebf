from __future__ import annotations

import math
from decimal import Decimal

import pyarrow as pa

from catalog.sql_text import quoted
from operators.lineage.expressions import evaluate_filters, evaluate_residuals


def test_null_counts_as_false() -> None:
    table = pa.table({"v": pa.array([1, None, 3])})
    less, null = evaluate_filters(table, ['"v" < 2', '"v" IS NULL'])
    assert less.tolist() == [True, False, False]
    assert null.tolist() == [False, True, False]


def test_no_rows_and_no_predicates_give_no_answers() -> None:
    table = pa.table({"v": pa.array([], pa.int32())})
    (none,) = evaluate_filters(table, ['"v" < 2'])
    assert none.tolist() == []
    assert evaluate_filters(pa.table({"v": pa.array([1])}), []) == []


def test_nan_equals_nan_and_zero_has_no_sign() -> None:
    table = pa.table({"v": pa.array([math.nan, 0.0, -0.0, None])})
    (nan, zero) = evaluate_filters(table, ["\"v\" = 'nan'::DOUBLE", '"v" = 0'])
    assert nan.tolist() == [True, False, False, False]
    assert zero.tolist() == [False, True, True, False]


def test_a_constant_has_an_answer_for_every_row() -> None:
    (always,) = evaluate_filters(pa.table({"ts": pa.array([1, 2])}), ["1 = 1"])
    assert always.tolist() == [True, True]


def test_names_may_hold_quotes_and_keywords() -> None:
    table = pa.table({'a "b"': pa.array([1]), "select": pa.array([2])})
    (both,) = evaluate_filters(table, [quoted('a "b"') + " + " + quoted("select") + " = 3"])
    assert both.tolist() == [True]


def test_residuals_see_the_columns_of_both_rows() -> None:
    a = {"v": pa.array([1, 5]), "d": pa.array([Decimal("1.50"), None])}
    b = {"v": pa.array([2, 2])}
    less, wide = evaluate_residuals(a, b, 2, ['a."v" < b."v"', 'a."d" > 1'])
    assert less.tolist() == [True, False]
    assert wide.tolist() == [True, False]


def test_a_side_without_columns_is_no_obstacle() -> None:
    (positive,) = evaluate_residuals({"v": pa.array([1, -1])}, {}, 2, ['a."v" > 0'])
    assert positive.tolist() == [True, False]
    (constant,) = evaluate_residuals({}, {}, 2, ["1 = 1"])
    assert constant.tolist() == [True, True]
