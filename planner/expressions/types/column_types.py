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

    >>> key_type("int", "bigint"), key_type("decimal(5,2)", "bigint"), key_type("int", "double")
    ('bigint', 'decimal(21,2)', None)
    """
    if left == right:
        return left
    common = common_type(left, right) if as_decimal(left) and as_decimal(right) else None
    return None if common == "double" else common


def equality(left: str, left_type: str, right: str, right_type: str) -> str | None:
    """Return a condition that makes no unequal values of two types equal, or None if there is no such form.

    >>> equality("a.s", "string", "b.i", "int"), equality("a.d", "date", "b.ts", "timestamp")
    ('CAST(a.s AS DECIMAL(38,28)) = b.i', '(a.d = b.ts) IS TRUE')
    >>> equality("a.n", "bigint", "b.v", "double")  # compared as doubles, 2^53 + 1 would be equal to 2^53
    '(a.n = b.v) IS TRUE AND CAST(b.v AS BIGINT) = a.n'
    """
    compared = f"({left} = {right}) IS TRUE"
    for one, type_, other, to in ((left, left_type, right, right_type), (right, right_type, left, left_type)):
        if type_ == "string":
            exact = as_decimal(to)
            wide = f"decimal(38,{MAX_PRECISION - exact[0] + exact[1]})" if exact else to
            return f"CAST({one} AS {duckdb_type('timestamp' if to == 'date' else wide)}) = {other}"
        if type_ == "boolean" and is_numeric(to):
            return f"CAST({one} AS INT) = {other}"
        if type_ == "double" and as_decimal(to):
            return f"{compared} AND CAST({one} AS {duckdb_type(to)}) = {other}"
    return compared if common_type(left_type, right_type) else None


def duckdb_type(type_: str) -> str:
    """Return DuckDB's name of a type."""
    return {"string": "VARCHAR", "int": "INTEGER"}.get(type_, type_.upper())
