"""Values from text and JSON: declared types against what people write, a column at a time.

The fast path converts a whole column in Arrow; only when that fails is the first culprit looked for.
A timestamp is ISO 8601 with ``Z``, an offset or neither (then UTC), in JSON also an integer of µs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from types import NoneType
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from catalog.arrow_types import arrow_type
from catalog.durations import MAX_TIME_US, MIN_TIME_US

_DAY_US: Final = 86_400_000_000

_TIMES: Final = (pa.timestamp("us"), pa.timestamp("us", "UTC"))
_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class JsonConstant(float):
    """``NaN`` or ``Infinity`` as a file spells it that was written by Python; JSON has neither."""


_JSON_KINDS: Final[dict[str, frozenset[type]]] = {
    "boolean": frozenset({bool}),
    "int": frozenset({int}),
    "bigint": frozenset({int}),
    "double": frozenset({int, float, JsonConstant, str}),
    "string": frozenset({str}),
    "date": frozenset({str}),
    "timestamp": frozenset({int, str}),
    "decimal": frozenset({int, float, str}),
}

_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")

_EXPECTED: Final = {
    "boolean": "true or false",
    "int": "an integer from -2147483648 to 2147483647",
    "bigint": "an integer of 64 bits",
    "double": 'a number, "NaN", "Infinity" or "-Infinity"',
    "string": "a string",
    "date": 'a date such as "2013-01-31"',
    "timestamp": 'a time of the years 1 to 9999 such as "2013-01-31T05:15:00Z", '
    "or an integer of microseconds since 1970 UTC",
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
    if column_type == "timestamp":
        return _times(values)
    found = values.cast(arrow_type(column_type))
    return _dates(found) if column_type == "date" else found


def _dates(values: pa.Array) -> pa.Array:
    """Refuse dates of the year 0, which Arrow reads."""
    _check_range(values.view(pa.int32()), MIN_TIME_US // _DAY_US, MAX_TIME_US // _DAY_US)
    return values


def _check_range(values: pa.Array, least: int, most: int) -> None:
    extremes = pc.min_max(values)
    first, last = extremes["min"].as_py(), extremes["max"].as_py()
    if first is not None and not (least <= first and last <= most):
        raise ValueError(f"{first} to {last}")


def _times(values: pa.Array) -> pa.Array:
    for parsed in _TIMES:  # all without a zone, or all with one: what real columns are
        try:
            found = values.cast(parsed).cast(_TIMES[0])
        except pa.ArrowInvalid:
            continue
        # Arrow reads years before 1, and an offset may lead out of the year 1 or 9999.
        _check_range(found.view(pa.int64()), MIN_TIME_US, MAX_TIME_US)
        return found
    micros = pa.array([None if text is None else _iso_us(text) for text in values.to_pylist()], pa.int64())
    _check_range(micros, MIN_TIME_US, MAX_TIME_US)
    return micros.cast(_TIMES[0])


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
    if base == "double":
        return _json_doubles(values, kinds)
    if base == "date":
        return _dates(pa.array(values, pa.string()).cast(pa.date32()))
    if base == "decimal":
        return pa.array([_decimal(v) for v in values], arrow_type(column_type))
    if base == "timestamp":
        return _json_times(values, kinds)
    return pa.array(values, arrow_type(column_type))


def _json_doubles(values: Sequence[object], kinds: set[type]) -> pa.Array:
    if kinds != {float}:
        return pa.array([_double(v) for v in values], pa.float64())
    found = pa.array(values, pa.float64())
    if not pc.all(pc.is_finite(found)).as_py():  # 1e999
        raise ValueError(values)
    return found


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
    if not isinstance(value, int | float):
        return None
    number = float(value)
    if not (isinstance(value, JsonConstant) or math.isfinite(number)):
        raise ValueError(value)
    return number


def _decimal(value: object) -> Decimal | None:
    if value is None:
        return None
    text = str(value)  # so that the 0.1 of JSON stays 0.1
    if _DECIMAL.fullmatch(text) is None:  # Decimal also takes "1_0", " 1", other scripts' digits and "NaN"
        raise ValueError(value)
    return Decimal(text)
