"""Types of expressions: the canonical column types, and also ``interval`` and ``null``, which no column has.

Widening follows DuckDB, which evaluates the expressions: int < bigint < decimal < double, date < timestamp.
"""

from __future__ import annotations

import re

MAX_PRECISION = 38
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_INTEGER_DIGITS = {"int": 10, "bigint": 19}


def decimal_parts(type_: str) -> tuple[int, int] | None:
    """Return (precision, scale) of a decimal type, or None for any other type.

    >>> decimal_parts("decimal(10,2)")
    (10, 2)
    """
    found = _DECIMAL.fullmatch(type_)
    return (int(found[1]), int(found[2])) if found else None


def is_integer(type_: str) -> bool:
    """Return whether the type is int or bigint."""
    return type_ in _INTEGER_DIGITS


def is_numeric(type_: str) -> bool:
    """Return whether the type is a number."""
    return is_integer(type_) or type_ == "double" or decimal_parts(type_) is not None


def is_time(type_: str) -> bool:
    """Return whether the type is date or timestamp."""
    return type_ in ("date", "timestamp")


def as_decimal(type_: str) -> tuple[int, int] | None:
    """Return (precision, scale) for all values of an exact numeric type, or None for any other type."""
    return (_INTEGER_DIGITS[type_], 0) if is_integer(type_) else decimal_parts(type_)


def common_type(left: str, right: str) -> str | None:
    """Return the type to which values of both types widen, or None if there is no such type.

    >>> common_type("int", "decimal(4,2)"), common_type("date", "timestamp"), common_type("int", "string")
    ('decimal(12,2)', 'timestamp', None)
    """
    if left == right or right == "null":
        return left
    if left == "null":
        return right
    if is_integer(left) and is_integer(right):
        return "bigint"
    if is_time(left) and is_time(right):
        return "timestamp"
    if not (is_numeric(left) and is_numeric(right)):
        return None
    exact = as_decimal(left), as_decimal(right)
    if exact[0] is None or exact[1] is None:
        return "double"
    scale = max(exact[0][1], exact[1][1])
    precision = max(exact[0][0] - exact[0][1], exact[1][0] - exact[1][1]) + scale
    return f"decimal({precision},{scale})" if precision <= MAX_PRECISION else "double"


def key_type(left: str, right: str) -> str | None:
    """Return the common type of two key columns, or None if their values cannot be compared exactly.

    >>> key_type("int", "bigint"), key_type("decimal(5,2)", "decimal(9,1)"), key_type("int", "double")
    ('bigint', 'decimal(10,2)', None)
    """
    both = decimal_parts(left) is not None and decimal_parts(right) is not None
    if left == right or (is_integer(left) and is_integer(right)) or both:
        common = common_type(left, right)
        return None if common == "double" != left else common
    return None


def duckdb_type(type_: str) -> str:
    """Return DuckDB's name of a type."""
    return {"string": "VARCHAR", "int": "INTEGER"}.get(type_, type_.upper())
