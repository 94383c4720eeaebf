"""Values from text and JSON: declared types against what people write, a column at a time.

The fast path converts a whole column in Arrow; only when that fails is the first culprit looked for.
A timestamp is ISO 8601 with ``Z``, an offset or neither (then UTC), in JSON also an integer of µs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from types import NoneType
from typing import Final

import pyarrow as pa

from catalog.arrow_types import arrow_type

#: Event times of the years 1 to 9999, µs UTC: what Python, DuckDB and ISO 8601 can all write.
MIN_TIME_US: Final = -62_135_596_800_000_000
MAX_TIME_US: Final = 253_402_300_799_999_999

_TIMES: Final = (pa.timestamp("us"), pa.timestamp("us", "UTC"))
_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_JSON_KINDS: Final[dict[str, frozenset[type]]] = {
    "boolean": frozenset({bool}),
    "int": frozenset({int}),
    "bigint": frozenset({int}),
    "double": frozenset({int, float, str}),
    "string": frozenset({str}),
    "date": frozenset({str}),
    "timestamp": frozenset({int, str}),
    "decimal": frozenset({int, float, str}),
}

_EXPECTED: Final = {
    "boolean": "true or false",
    "int": "an integer from -2147483648 to 2147483647",
    "bigint": "an integer of 64 bits",
    "double": 'a number, "NaN", "Infinity" or "-Infinity"',
    "string": "a string",
    "date": 'a date such as "2013-01-31"',
    "timestamp": 'a time such as "2013-01-31T05:15:00Z", or an integer of microseconds since 1970 UTC',
}

# What Arrow, Decimal and datetime raise for values that do not fit (ArrowInvalid is a ValueError).
_UNFIT: Final = (ValueError, ArithmeticError, TypeError, pa.ArrowException)


class UnfitValueError(ValueError):
    """A value is not of its column's type.

    Attributes:
        index: 0-based index of the first such value.
        value: The value.
    """

    def __init__(self, index: int, value: object):
        super().__init__(f"value {index} does not fit: {value!r}")
        self.index = index
        self.value = value


def expected(column_type: str) -> str:
    """Return what a value of a canonical type looks like in JSON, to be put after "expected"."""
    if column_type.startswith("decimal"):
        precision, scale = column_type[len("decimal(") : -1].split(",")
        return f"a number of at most {int(precision) - int(scale)} digits before and {scale} behind the point"
    return _EXPECTED[column_type]


def from_text(values: pa.Array, column_type: str) -> pa.Array:
    """Return a column from its text.

    Args:
        values: string[n], NULL for NULL.
        column_type: Canonical type.

    Raises:
        UnfitValueError: A text is not of the type; it names the first.
    """
    try:
        return _text(values, column_type)
    except _UNFIT as error:
        index = _first_unfit(len(values), lambda n: _text(values.slice(0, n), column_type))
        raise UnfitValueError(index, values[index].as_py()) from error


def from_json(values: Sequence[object], column_type: str) -> pa.Array:
    """Return a column from JSON values, None for NULL.

    Raises:
        UnfitValueError: A value is not of the type; it names the first.
    """
    try:
        return _json(values, column_type)
    except _UNFIT as error:
        index = _first_unfit(len(values), lambda n: _json(values[:n], column_type))
        raise UnfitValueError(index, values[index]) from error


def _first_unfit(count: int, convert: Callable[[int], object]) -> int:
    """Bisect for the longest prefix that converts: the value behind it is the culprit."""
    good, bad = 0, count
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            convert(middle)
            good = middle
        except _UNFIT:
            bad = middle
    return good


def _text(values: pa.Array, column_type: str) -> pa.Array:
    return _times(values) if column_type == "timestamp" else values.cast(arrow_type(column_type))


def _times(values: pa.Array) -> pa.Array:
    for parsed in _TIMES:  # all without a zone, or all with one: what real columns are
        try:
            return values.cast(parsed).cast(_TIMES[0])
        except pa.ArrowInvalid:
            continue
    micros = [None if text is None else _iso_us(text) for text in values.to_pylist()]
    return pa.array(micros, pa.int64()).cast(_TIMES[0])


def _iso_us(text: str) -> int:
    if text[4:5] != "-":  # not 20130131, which could also be a number
        raise ValueError(text)
    moment = datetime.fromisoformat(text)
    delta = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def _json(values: Sequence[object], column_type: str) -> pa.Array:
    base = column_type.partition("(")[0]
    kinds = set(map(type, values)) - {NoneType}
    if not kinds <= _JSON_KINDS[base]:
        raise TypeError(column_type)
    if base == "double" and kinds != {float}:
        return pa.array([_double(v) for v in values], pa.float64())
    if base == "date":
        return pa.array(values, pa.string()).cast(pa.date32())
    if base == "decimal":
        return pa.array([_decimal(v) for v in values], arrow_type(column_type))
    if base == "timestamp":
        return _json_times(values, kinds)
    return pa.array(values, arrow_type(column_type))


def _json_times(values: Sequence[object], kinds: set[type]) -> pa.Array:
    if int not in kinds:
        return _times(pa.array(values, pa.string()))
    if str in kinds:
        values = [_iso_us(v) if isinstance(v, str) else v for v in values]
    for value in values:
        if isinstance(value, int) and not MIN_TIME_US <= value <= MAX_TIME_US:
            raise ValueError(value)
    return pa.array(values, pa.int64()).view(_TIMES[0])


def _double(value: object) -> float | None:
    if isinstance(value, str):
        if value not in _NOT_FINITE:
            raise ValueError(value)
        return _NOT_FINITE[value]
    return float(value) if isinstance(value, int | float) else None


def _decimal(value: object) -> Decimal | None:
    if value is None:
        return None
    number = Decimal(str(value))  # str, so that the 0.1 of JSON stays 0.1
    if not number.is_finite():
        raise ValueError(value)
    return number
