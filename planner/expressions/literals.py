"""Compilation of literals: numbers, texts, dates, timestamps in UTC, and intervals."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from typing import Literal, cast

from sqlglot import exp

from catalog.sql_text import text_literal
from catalog.times.durations import Duration
from planner.expressions.types.column_types import duckdb_type
from planner.expressions.types.typed import Compiler, Handlers, Typed
from planner.predicates.constants import Constant

_INT_MAX, _BIGINT_MAX = 2**31 - 1, 2**63 - 1
_MAX_DIGITS = 38
_MAX_CHARACTERS = 400
_NUMBER = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def literal(compiler: Compiler, node: exp.Literal) -> Typed:
    """Compile a number or a text.

    007 -> 7
    'it''s' -> 'it''s'
    1.50 -> 1.5
    1e3 -> 1000.0e0
    """
    if node.is_string:
        constant = Constant("string", node.name)
        return Typed(text_literal(node.name), "string", literal=node.name, constant=constant)
    return number(compiler, node, node.name)


def number(compiler: Compiler, node: exp.Expr, text: str) -> Typed:
    """Compile a number with an optional sign."""
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    if _NUMBER.fullmatch(digits) is None or len(digits) > _MAX_CHARACTERS:
        compiler.refuse(
            f'the number "{text[:_MAX_CHARACTERS]}"', "Write digits such as 12, 1.5 or 1e3.", node
        )
    if "e" not in digits.lower():
        whole, _, fraction = digits.partition(".")
        whole, fraction = whole.lstrip("0") or "0", fraction.rstrip("0")
        size = len(whole) + len(fraction)
        value = int(sign + whole)
        if not fraction and -_BIGINT_MAX - 1 <= value <= _BIGINT_MAX:
            type_ = "int" if -_INT_MAX - 1 <= value <= _INT_MAX else "bigint"
            constant = Constant.decimal(str(value))
            # DuckDB would read a minus and then a number that is too large.
            if value in (-_INT_MAX - 1, -_BIGINT_MAX - 1):
                return Typed(f"CAST({value} AS {duckdb_type(type_)})", type_, constant=constant)
            return Typed(f"{sign}{whole}", type_, form=_form(sign), constant=constant)
        if size <= _MAX_DIGITS:
            type_ = f"decimal({size},{len(fraction)})"
            if fraction:
                text = f"{sign}{whole}.{fraction}"
                return Typed(text, type_, form=_form(sign), constant=Constant.decimal(text))
            return Typed(f"CAST({value} AS {type_.upper()})", type_)
    double = float(sign + digits)
    if math.isinf(double):
        compiler.refuse(f"the number {text}", "Write a number within the range of a double.", node)
    mantissa = repr(double)
    text = mantissa if "e" in mantissa else f"{mantissa}e0"
    return Typed(text, "double", form=_form(sign), constant=Constant("double", double))


def _form(sign: str) -> Literal["atom", "compound"]:
    """Return the form of a number: a negative number needs parentheses as an operand."""
    return "compound" if sign else "atom"


def boolean(compiler: Compiler, node: exp.Boolean) -> Typed:
    """Compile TRUE or FALSE.

    true -> TRUE
    """
    truth = bool(node.this)
    return Typed("TRUE" if truth else "FALSE", "boolean", constant=Constant("boolean", truth))


def null(compiler: Compiler, node: exp.Null) -> Typed:
    """Compile NULL.

    null -> NULL
    """
    return Typed("NULL", "null")


def interval(compiler: Compiler, node: exp.Interval) -> Typed:
    """Compile an interval literal.

    INTERVAL '5' MINUTE -> INTERVAL '300000000 microseconds'
    """
    return interval_literal(cast(Duration, node.meta["duration"]))


def interval_literal(length: Duration) -> Typed:
    """Return an interval as a literal of months and microseconds."""
    parts = [f"{length.months} months"] if length.months else []
    parts += [f"{length.us} microseconds"] if length.us or not length.months else []
    return Typed(f"INTERVAL '{' '.join(parts)}'", "interval")


def time_literal(value: str, type_: str) -> Typed | None:
    """Return a text as a date or timestamp literal, or None if it is not a date or time.

    >>> time_literal("2013-01-01T06:00:00+01:00", "timestamp").sql
    "TIMESTAMP '2013-01-01 05:00:00'"
    """
    text = value.strip()
    try:
        if type_ == "date":
            day = date.fromisoformat(text)
            return Typed(f"DATE '{day.isoformat()}'", "date", constant=Constant("date", day))
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    try:
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
    except OverflowError:
        return None
    constant = Constant("timestamp", moment)
    return Typed(f"TIMESTAMP '{moment.isoformat(sep=' ')}'", "timestamp", constant=constant)


def is_date_text(value: str) -> bool:
    """Return whether a text has the form of a date without a time of day."""
    return _DATE.fullmatch(value.strip()) is not None


HANDLERS: Handlers = {
    exp.Literal: literal,
    exp.Boolean: boolean,
    exp.Null: null,
    exp.Interval: interval,
}
