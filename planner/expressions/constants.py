"""Constants in bound texts: literals as values that Python orders as DuckDB does, and back."""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Decimal
from typing import Literal

from catalog.sql_text import text_literal
from planner.expressions.value_sets import Value

#: What constants are: ``double`` where both sides are compared as doubles, ``order`` for two expressions
#: compared with each other (as if their difference were compared with 0), "" where there is none.
Domain = Literal["number", "double", "string", "date", "timestamp", "boolean", "order", ""]

#: Decimal digits that a double keeps apart: such numbers compare alike as decimals and as doubles.
DOUBLE_DIGITS = 15

_EXACT = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
#: An expression may begin and end as a literal does: 'a' || 'b'.
_TEXT = re.compile(r"'(?:[^']|'')*'")
_DATE = re.compile(r"DATE '([^']*)'")
_TIMESTAMP = re.compile(r"TIMESTAMP '([^']*)'")
_LEAST_INTEGER = re.compile(r"CAST\((-[0-9]+) AS (?:INTEGER|BIGINT)\)")
_DOUBLE = re.compile(r"-?[0-9.]+e[+-]?[0-9]+")


def constant(text: str) -> tuple[Domain, Value] | None:
    """Return a literal of a bound text as its domain and value, None if it is none that compares safely.

    Numbers are exact, or doubles where written with an exponent. A fraction has at most 15 digits: longer
    ones differ as decimals where they do not as doubles.

    >>> constant("1.50"), constant("'x'"), constant('"v"')
    (('number', Decimal('1.50')), ('string', 'x'), None)
    >>> constant("'a' || 'b'"), constant("'a''b'")
    (None, ('string', "a'b"))
    """
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    if _TEXT.fullmatch(text):
        return "string", text[1:-1].replace("''", "'")
    if _EXACT.fullmatch(text):
        digits = text.lstrip("-").replace(".", "").lstrip("0")
        return None if "." in text and len(digits) > DOUBLE_DIGITS else ("number", Decimal(text))
    if text in ("TRUE", "FALSE"):
        return "boolean", text == "TRUE"
    if (found := _DATE.fullmatch(text)) is not None:
        return "date", date.fromisoformat(found[1])
    if (found := _TIMESTAMP.fullmatch(text)) is not None:
        return "timestamp", datetime.fromisoformat(found[1])
    if (found := _LEAST_INTEGER.fullmatch(text)) is not None:
        return "number", Decimal(found[1])
    return ("double", float(text)) if _DOUBLE.fullmatch(text) else None


def constant_text(value: Value, domain: Domain) -> str:
    """Return the text of a constant, the inverse of ``constant``.

    >>> constant_text(Decimal("-1.5"), "number"), constant_text(Decimal(-(2**31)), "number")
    ('-1.5', 'CAST(-2147483648 AS INTEGER)')
    """
    if isinstance(value, str):
        return text_literal(value)
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if domain == "double":
        text = repr(value)
        return text if "e" in text else f"{text}e0"
    if value in (-(2**31), -(2**63)):  # DuckDB reads minus and a number too large.
        return f"CAST({value:f} AS {'INTEGER' if value == -(2**31) else 'BIGINT'})"
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def short_decimal(value: float) -> str | None:
    """Return a double as a decimal of at most 15 digits, None if it has none that is the same double.

    >>> short_decimal(2e-1), short_decimal(1e3), short_decimal(1e300)
    ('0.2', '1000', None)
    """
    exact = Decimal(repr(value + 0.0))  # -0.0 is 0.0.
    # 15 digits, 22 of them behind the point at most: up to there a power of ten is a double, too.
    if exact and not -7 <= exact.adjusted() < DOUBLE_DIGITS:
        return None
    text = constant_text(exact, "number")
    return text if len(text.replace(".", "").strip("-0")) <= DOUBLE_DIGITS else None
