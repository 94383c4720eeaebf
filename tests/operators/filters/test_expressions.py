from __future__ import annotations

import math
import resource
from decimal import Decimal

import pyarrow as pa
import pytest

from catalog.sql_text import quoted
from catalog.values.plan import PlannedFilter
from operators.errors import ExpressionFailed, expression_digest, find_failed_expression
from operators.filters import expressions, limits
from operators.filters.expressions import evaluate_filters, evaluate_residuals
from operators.pack.lineage_words import evaluate_lineage


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


def test_the_expression_that_takes_too_long_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "TIME_LIMIT_S", 0.1)
    monkeypatch.setattr(limits, "_LOOK_S", 0.01)
    slow = "length(replace(replace(\"s\", 'a', 'bb'), 'bb', 'ccc')) > 5"
    rows = pa.table({"s": ["a" * 1_000] * 200_000})
    with pytest.raises(ExpressionFailed, match=r"takes more than 0\.1 s for 200,000 rows") as caught:
        evaluate_filters(rows, ["\"s\" = 'a'", slow, '"s" IS NULL'])
    assert slow in str(caught.value)
    assert find_failed_expression(f"trace ... {caught.value}\n at line 5") == expression_digest(slow)
    (few,) = evaluate_filters(rows.slice(0, 2), [slow])
    assert few.tolist() == [True, True], "the next evaluation is not interrupted"


def test_lineage_names_the_filter_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "TIME_LIMIT_S", 0.1)
    slow = "length(replace(replace(\"s\", 'a', 'bb'), 'bb', 'ccc')) > 5"
    filters = [PlannedFilter(0, "\"s\" = 'a'", ("s",), None), PlannedFilter(1, slow, ("s",), None)]
    with pytest.raises(ExpressionFailed) as caught:
        evaluate_lineage(pa.table({"s": ["a" * 1_000] * 200_000}), [filters])
    assert caught.value.digest == expression_digest(slow)


def test_the_expression_that_takes_too_much_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GROWTH_BYTES", 100 << 20)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    large = "length(replace(\"s\", 'a', 'bb')) > 5"
    rows = pa.table({"s": ["a" * 200_000] * 2_000})
    with pytest.raises(ExpressionFailed, match="takes too much memory") as caught:
        evaluate_filters(rows, ["\"s\" = 'a'", large])
    assert caught.value.digest == expression_digest(large)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
