"""Compilation of conditions: comparisons, AND, OR, NOT, IN, LIKE, IS."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from decimal import Decimal
from functools import reduce

from sqlglot import exp

from catalog.sql_text import text_literal
from planner.expressions.literals import is_date_text, number, time_literal
from planner.expressions.types import column_types as ct
from planner.expressions.types.typed import Compiler, Handlers, Typed, cast_to, columns_of
from planner.predicates.conditions import (
    All,
    AnyOf,
    Condition,
    Operand,
    compared,
    distinct_from,
    matched,
    null_test,
    one_of,
    opaque,
    truth_test,
)
from planner.predicates.constants import DOUBLE_DIGITS, short_decimal
from planner.sql.dialect.normalize import operands, pushed

_SYMBOLS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}
#: For each operator that compares NULL as a value: whether it is TRUE if both operands are NULL.
_DISTINCT = {"IS NOT DISTINCT FROM": True, "IS DISTINCT FROM": False}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LIKE: dict[type[exp.Expr], str] = {exp.Like: "LIKE", exp.ILike: "ILIKE"}


def comparison(compiler: Compiler, node: exp.Binary) -> Typed:
    """Compile a comparison; a constant is written on the right.

    10 < v -> "v" > 10
    v = .20 -> "v" = 0.2
    ts > '2013-01-31' -> "ts" > TIMESTAMP '2013-01-31 00:00:00'
    """
    symbol = _SYMBOLS[type(node)]
    left, right = comparable(compiler, node, compiler.compile(node.this), compiler.compile(node.expression))
    mirrored = left.sql > right.sql if bool(left.columns) == bool(right.columns) else not left.columns
    if mirrored:
        left, right, symbol = right, left, _MIRRORED.get(symbol, symbol)
    if symbol in _DISTINCT:
        predicate = distinct_from(left.in_condition, right.in_condition, _DISTINCT[symbol])
    else:
        predicate = compared(left.in_condition, symbol, right.in_condition)
    return _condition(f"{left.operand} {symbol} {right.operand}", (left, right), predicate)


def _condition(sql: str, parts: Iterable[Typed], predicate: Condition) -> Typed:
    """Return a condition over some expressions."""
    return Typed(sql, "boolean", columns_of(parts), form="comparison", predicate=predicate)


def comparable(compiler: Compiler, node: exp.Expr, left: Typed, right: Typed) -> tuple[Typed, Typed]:
    """Return both values in comparable types; a text literal compared with a date or time is converted.

    Raises:
        TypeMismatch: Values of these types cannot be compared.
    """
    left, right = _as_time(compiler, node, left, right), _as_time(compiler, node, right, left)
    left, right = _as_number(compiler, node, left, right), _as_number(compiler, node, right, left)
    common = ct.common_type(left.type, right.type)
    if common is None:
        compiler.mismatch(
            f"{left.type} does not compare with {right.type}", _comparison_hint(left, right), node
        )
    left, right = _in_one_type([left, right], common)
    return left, right


def _in_one_type(values: list[Typed], common: str) -> list[Typed]:
    """Return values to compare, converted where DuckDB would raise an error.

    Dates may be outside the range of timestamps. Decimals that no decimal of 38 digits holds together are
    compared as whole numbers.
    """
    types = {value.type for value in values}
    if common == "timestamp":
        return [_widened(value, common) for value in values]
    if common != "double" or "double" in types:
        return values
    scale = max(parts[1] for type_ in types if (parts := ct.as_decimal(type_)))
    return [_unscaled(value, scale) for value in values]


def _unscaled(value: Typed, scale: int) -> Typed:
    """Return an exact number times 10 to the power of ``scale``, as a whole number of any size."""
    parts = ct.as_decimal(value.type)
    if parts is None:
        return value
    digits = f"replace(CAST({value.sql} AS VARCHAR), '.', '') || '{'0' * (scale - parts[1])}'"
    return Typed(f"CAST({digits} AS BIGNUM)", value.type, value.columns)


def _widened(value: Typed, type_: str) -> Typed:
    if (type_, value.type) == ("timestamp", "date") and value.constant is not None:
        assert isinstance(value.constant.value, date)
        return time_literal(value.constant.value.isoformat(), type_) or value
    return value if value.type == "null" else cast_to(value, type_)


def _as_number(compiler: Compiler, node: exp.Expr, value: Typed, other: Typed) -> Typed:
    """Return a number literal in one form for all equal literals, such as 0.2, .20 and 2e-1.

    In a comparison with a double, a literal of at most 15 digits is written as a decimal: DuckDB converts it
    to the same double, and compares integers and short decimals with it as with the double. Longer decimals
    are cast to double, as DuckDB does.
    """
    found = value.constant
    if "double" not in (value.type, other.type) or not ct.is_numeric(other.type):
        return value
    if found is None or not isinstance(found.value, float | Decimal):
        exact_literal = not value.columns and value.sql.replace(".", "").lstrip("-").isdigit()
        return cast_to(value, "double") if exact_literal else value
    double = float(found.value)
    short = short_decimal(double)
    if ct.decimal_parts(value.type) is not None and (short is None or Decimal(short) != found.value):
        return cast_to(value, "double")
    decimal = ct.decimal_parts(other.type)
    if short is None or (decimal is not None and decimal[0] > DOUBLE_DIGITS):
        return number(compiler, node, f"{double!r}" if "e" in repr(double) else f"{double!r}e0")
    return number(compiler, node, short)


def _as_time(compiler: Compiler, node: exp.Expr, value: Typed, other: Typed) -> Typed:
    """Return a text literal as a date or timestamp if it is compared with one; other values are unchanged."""
    if value.literal is None or not ct.is_time(other.type):
        return value
    type_ = "date" if other.type == "date" and is_date_text(value.literal) else "timestamp"
    found = time_literal(value.literal, type_)
    if found is None:
        compiler.mismatch(
            f"{text_literal(value.literal)} is not a {other.type}",
            "Write '2013-01-31' for a date, '2013-01-31 06:00:00' for a timestamp (UTC).",
            node,
        )
    return found


def _comparison_hint(left: Typed, right: Typed) -> str:
    if left.form == "comparison" or right.form == "comparison":
        return "Write low < x AND x < high for a range."
    for value, other in ((left, right), (right, left)):
        if value.literal is not None and ct.is_numeric(other.type):
            if not value.literal.strip().lstrip("+-").replace(".", "", 1).isdecimal():
                return f"Write a number, or CAST({value.sql} AS DOUBLE) for nan and inf."
            return f"Write the number without quotes: {value.literal}."
        if value.literal is not None and other.type == "boolean":
            return "Write TRUE or FALSE without quotes."
        if value.type == "string" and not other.columns and ct.is_numeric(other.type):
            return f"Write '{other.sql}' to compare texts, or CAST(x AS {other.type.upper()}) for numbers."
        if value.type == "interval":
            return "Write INTERVAL '5' MINUTE for a length of time."
    return f"Cast one side: CAST(x AS {left.type.upper()})."


def condition(compiler: Compiler, node: exp.Expr, of: str) -> Typed:
    """Compile an expression of type boolean.

    Raises:
        TypeMismatch: The expression is not a condition.
    """
    value = compiler.compile(node)
    if value.type not in ("boolean", "null"):
        compiler.mismatch(
            f"{of} takes a condition, not {value.type}", "Write a comparison, such as x <> 0.", node
        )
    return value


def connected(compiler: Compiler, node: exp.Connector) -> Typed:
    """Compile a chain of AND or OR; each part is written once, and parts are sorted by text.

    i > 1 AND f AND i > 1 -> "f" AND "i" > 1
    """
    word = "AND" if isinstance(node, exp.And) else "OR"
    parts = [condition(compiler, part, word) for part in operands(node)]
    return conjunction(parts, word)


def conjunction(parts: list[Typed], word: str = "AND") -> Typed:
    """Connect conditions with AND or OR; each condition is written once, sorted by text."""
    by_text = {part.condition: part for part in parts}
    if len(by_text) == 1:
        return replace(parts[0], columns=columns_of(parts))
    texts = sorted(by_text)
    predicate = (All if word == "AND" else AnyOf)(tuple(by_text[text].meaning for text in texts))
    return Typed(f" {word} ".join(texts), "boolean", columns_of(parts), form="compound", predicate=predicate)


def negation(compiler: Compiler, node: exp.Not) -> Typed:
    """Compile NOT; it is pushed inwards as far as possible.

    NOT (v <= 10 OR f) -> "v" > 10 AND (NOT "f")
    NOT s LIKE 'a%' -> "s" NOT LIKE 'a%'
    """
    inner = pushed(node)
    if not isinstance(inner, exp.Not):
        return compiler.compile(inner)
    if isinstance(inner.this, exp.Is):
        return is_test(compiler, inner.this, negated=True)
    if isinstance(inner.this, exp.In):
        return membership(compiler, inner.this, negated=True)
    if isinstance(inner.this, exp.Like | exp.ILike | exp.Escape):
        return like(compiler, inner.this, negated=True)
    value = condition(compiler, inner.this, "NOT")
    predicate = opaque(value.in_condition, truth=False)
    return Typed(f"NOT {value.operand}", "boolean", value.columns, form="compound", predicate=predicate)


def between(compiler: Compiler, node: exp.Between) -> Typed:
    """Compile BETWEEN as two comparisons.

    v BETWEEN 1 AND 2 -> "v" <= 2 AND "v" >= 1
    """
    if node.args.get("symmetric"):
        compiler.refuse("BETWEEN SYMMETRIC", "Write BETWEEN low AND high.", node)
    return compiler.compile(pushed(node))


def is_test(compiler: Compiler, node: exp.Is, negated: bool = False) -> Typed:
    """Compile IS [NOT] NULL, TRUE or FALSE.

    v IS NULL -> "v" IS NULL
    (v > 1) IS TRUE -> ("v" > 1) IS TRUE
    """
    word = " NOT" if negated else ""
    value = compiler.compile(node.this)
    if isinstance(node.expression, exp.Null):
        predicate: Condition = null_test(value.in_condition, negated=negated)
        return _condition(f"{value.operand} IS{word} NULL", (value,), predicate)
    if not isinstance(node.expression, exp.Boolean):
        compiler.refuse("this form of IS", "Write IS NULL, IS TRUE or IS FALSE.", node)
    value = condition(compiler, node.this, "IS")
    truth = "TRUE" if node.expression.this else "FALSE"
    value = cast_to(value, "boolean")
    predicate = truth_test(value.in_condition, value.meaning, truth == "TRUE", negated=negated)
    return _condition(f"{value.operand} IS{word} {truth}", (value,), predicate)


def membership(compiler: Compiler, node: exp.In, negated: bool = False) -> Typed:
    """Compile [NOT] IN over a list; each value is written once, in ascending order.

    i IN (3, 1, 2, 1) -> "i" IN (1, 2, 3)
    """
    if not node.expressions or any(node.args.get(name) for name in ("query", "unnest", "field")):
        compiler.refuse("IN without a list of values", "Write x IN (1, 2, 3).", node)
    value = compiler.compile(node.this)
    items = [compiler.compile(item) for item in node.expressions]
    pairs = [
        comparable(compiler, item_node, value, item)
        for item_node, item in zip(node.expressions, items, strict=True)
    ]
    # DuckDB compares all values of the list in one type, which may be wider than the type in which it would
    # compare one of them alone.
    types = {value.type, *(right.type for _, right in pairs)}
    common = reduce(lambda wide, type_: ct.common_type(wide, type_) or wide, sorted(types))
    left, rights = value, [right for _, right in pairs]
    if common == "double" and common not in types:
        left, *rights = _in_one_type([value, *items], common)
    elif common == "timestamp" and len(types) > 1:
        left, rights = _widened(value, common), [_widened(right, common) for right in rights]
    listed = {right.sql: Operand(right.sql, right.columns, right.constant) for right in rights}
    texts = sorted(listed, key=lambda text: (len(text), text))
    text = f"{left.operand} {'NOT ' if negated else ''}IN ({', '.join(texts)})"
    predicate = one_of(left.in_condition, [listed[each] for each in texts], negated=negated)
    return _condition(text, (left, *rights), predicate)


def like(compiler: Compiler, node: exp.Like | exp.ILike | exp.Escape, negated: bool = False) -> Typed:
    """Compile [NOT] LIKE or ILIKE, with or without ESCAPE.

    s LIKE 'a!%' ESCAPE '!' -> "s" LIKE 'a!%' ESCAPE '!'
    """
    inner = node.this if isinstance(node, exp.Escape) else node
    word = _LIKE[type(inner)]
    value, pattern = compiler.compile(inner.this), compiler.compile(inner.expression)
    for part, part_node in ((value, inner.this), (pattern, inner.expression)):
        if part.type not in ("string", "null"):
            compiler.mismatch(
                f"LIKE takes a text, not {part.type}", "Cast the value: CAST(x AS VARCHAR).", part_node
            )
    value, pattern = cast_to(value, "string"), cast_to(pattern, "string")
    rest = pattern.operand
    if inner is node:
        return _matched(value, word, rest, pattern, negated)
    escape = compiler.compile(node.expression)
    if escape.literal is None or len(escape.literal) != 1:
        compiler.refuse("ESCAPE with other than one character", "Write ESCAPE '!'.", node.expression)
    # DuckDB raises an error for a pattern that ends with the escape character, and TRY does not catch it.
    if pattern.literal is None:
        compiler.refuse("ESCAPE with a pattern that is not a literal", "Write LIKE 'a!%' ESCAPE '!'.", node)
    if pattern.literal.replace(escape.literal * 2, "").endswith(escape.literal):
        compiler.mismatch(
            "the pattern ends with its escape character", "Write the character twice to match it.", node
        )
    return _matched(value, word, f"{rest} ESCAPE {escape.sql}", pattern, negated)


def _matched(value: Typed, word: str, rest: str, pattern: Typed, negated: bool) -> Typed:
    predicate = matched(value.in_condition, word, rest, [pattern.in_condition], negated=negated)
    sql = f"{value.operand} {'NOT ' if negated else ''}{word} {rest}"
    return _condition(sql, (value, pattern), predicate)


HANDLERS: Handlers = {
    **dict.fromkeys(_SYMBOLS, comparison),
    exp.And: connected,
    exp.Or: connected,
    exp.Not: negation,
    exp.Between: between,
    exp.Is: is_test,
    exp.In: membership,
    exp.Like: like,
    exp.ILike: like,
    exp.Escape: like,
}
