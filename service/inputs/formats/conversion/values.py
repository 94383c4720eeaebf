"""Converts text and JSON to the declared types, a column at a time.

The fast path converts a whole column in Arrow. Only if this fails, the first unfit value is searched. Values
are read as in DuckDB, but exactly or not at all: no number is rounded to fit its column, ``0x10`` is not a
number and ``1e400`` is not infinite.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from types import NoneType
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from catalog.columns.arrow_types import arrow_type
from catalog.times.durations import MAX_TIME_US, MIN_TIME_US
from catalog.values.stream import FilesSource, Stream, TimeUnit
from service.inputs.formats.conversion.times import (
    DAY_US,
    UNIT_NAMES,
    check_range,
    check_times,
    number_us,
    times_from_numbers,
    times_from_text,
)

_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class JsonConstant(float):
    """``NaN`` or ``Infinity`` in a file written by Python; JSON has neither."""


_JSON_KINDS: Final[dict[str, frozenset[type]]] = {
    "boolean": frozenset({bool}),
    "int": frozenset({int}),
    "bigint": frozenset({int}),
    "double": frozenset({int, float, Decimal, JsonConstant, str}),
    "string": frozenset({str}),
    "date": frozenset({str}),
    "timestamp": frozenset({int, float, Decimal, str}),
    "decimal": frozenset({int, float, Decimal, str}),
}

_JSON_KINDS_OF_FILES: Final = _JSON_KINDS | {
    "boolean": frozenset({bool, str}),
    "int": frozenset({int, float, Decimal, str}),
    "bigint": frozenset({int, float, Decimal, str}),
}

_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
#: An integer, possibly with a plus sign or a fraction of zero.
_WHOLE: Final = r"^\+?(-?[0-9]+)(?:\.0*)?$"
#: Type to which integers with an exponent are converted first: it can hold all integers of 64 bits.
_WITH_EXPONENT: Final = pa.decimal128(38, 18)
#: Limit for the exponent of integers and decimals, since the digits of a number take space in proportion to
#: its exponent.
_MAX_EXPONENT: Final = 100
_WITH_OFFSET: Final = r":.*(Z|UTC|[+-])"
_WHITE: Final = " \t\n\r\v\f"
_INFINITE: Final = r"^[+-]?inf(inity)?$"
_TRUE: Final = ("true", "t", "yes", "y", "1")
_FALSE: Final = ("false", "f", "no", "n", "0")
_EXPECTED: Final = {
    "boolean": "true or false",
    "int": "an integer from -2147483648 to 2147483647",
    "bigint": "an integer of 64 bits",
    "double": 'a number, "NaN", "Infinity" or "-Infinity"',
    "string": "a string",
    "date": 'a date such as "2013-01-31"',
    "timestamp": 'a time of the years 1 to 9999 such as "2013-01-31T05:15:00Z"',
}


@dataclass(frozen=True, slots=True)
class TextForm:
    """Spelling of numbers and times in text, from the ``Dialect`` of a source and its stream's time unit.

    Attributes:
        is_of_file: Whether JSON may have numbers and booleans in quotes, 1.0 for an integer, and dates such
            as 2013/1/31. Files may have such values because DuckDB reads them; events may not, because their
            client can correct them.
    """

    timestamp_format: str | None = None
    date_format: str | None = None
    timezone: str | None = None
    decimal_point: str = "."
    thousands: str | None = None
    time_unit: TimeUnit | None = None
    is_of_file: bool = False

    @classmethod
    def of(cls, stream: Stream) -> Self:
        """Return the spelling of numbers and times that a stream declares."""
        if not isinstance(stream.source, FilesSource):
            return cls(time_unit=stream.time_unit)
        dialect = stream.source.dialect
        return cls(
            dialect.timestamp_format,
            dialect.date_format,
            dialect.timezone,
            dialect.decimal_point,
            dialect.thousands,
            stream.time_unit,
            is_of_file=True,
        )


PLAIN: Final = TextForm()

# Errors of Arrow, Decimal and datetime for values that do not fit (ArrowInvalid is a ValueError).
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


def expected(column_type: str, form: TextForm = PLAIN) -> str:
    """Describe the JSON values of a canonical type, in words that can follow "expected"."""
    if column_type == "timestamp":
        kind = "an integer" if form.time_unit is None else "a number"
        return f"{_expected_time(form)}, or {kind} of {UNIT_NAMES[form.time_unit or 'us']} since 1970 UTC"
    return _expected(column_type, form)


def expected_text(column_type: str, form: TextForm = PLAIN) -> str:
    """Describe the values of a type in a text file, and name the option that allows another spelling."""
    if column_type == "timestamp" and form.time_unit is not None:
        return expected(column_type, form)
    if column_type == "timestamp":
        return f"{_expected_time(form)} (numbers since 1970 need time_unit: s, ms, us or ns)"
    wanted = _expected(column_type, form)
    if form.decimal_point != "." and (column_type == "double" or column_type.startswith("decimal")):
        wanted += f" with {form.decimal_point!r} before the fraction"
    return wanted


def _expected(column_type: str, form: TextForm) -> str:
    if column_type == "date" and form.date_format is not None:
        return f'a date in the format "{form.date_format}"'
    if column_type.startswith("decimal"):
        precision, scale = column_type[len("decimal(") : -1].split(",")
        return f"a number of at most {int(precision) - int(scale)} digits before and {scale} behind the point"
    return _EXPECTED[column_type]


def _expected_time(form: TextForm) -> str:
    wanted = _EXPECTED["timestamp"]
    if form.timestamp_format is not None:
        wanted = f'a time in the format "{form.timestamp_format}"'
    return wanted if form.timezone is None else f"{wanted}, of the zone {form.timezone}"


def exact_number(text: str) -> Decimal | float:
    """Return a number of JSON with all its digits, or infinity if its exponent is too large for a decimal."""
    try:
        return Decimal(text)
    except InvalidOperation:  # its exponent has 19 digits
        return float(text)


def json_text(value: object, most: int) -> str:
    """Return a value as JSON, cut to a number of characters, with unpaired surrogates escaped."""
    if (
        isinstance(value, float | Decimal)
        and math.isinf(float(value))
        and not isinstance(value, JsonConstant)
    ):
        return "a number beyond the range of a double"
    try:
        text = (
            str(value) if isinstance(value, Decimal) else json.dumps(value, default=str, ensure_ascii=False)
        )
    except RecursionError:
        text = "an array or object of very many levels"
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= most else text[: most - 1] + "…"


def needs_digits(stream: Stream) -> bool:
    """Return whether numbers in a stream's JSON must be read by `exact_number`, which takes longer."""
    return stream.time_unit is not None or any(c.type.startswith("decimal") for c in stream.columns)


def from_text(values: pa.Array, column_type: str, form: TextForm = PLAIN) -> pa.Array:
    """Return a column from its text.

    Args:
        values: string[n]; a NULL stays NULL.
        column_type: Canonical type.
        form: Spelling of numbers and times.

    Raises:
        UnfitValueError: A text is not of the type; the error names the first such text.
    """
    try:
        return _text(values, column_type, form)
    except _UNFIT as error:
        index = _first_unfit(len(values), lambda n: _text(values.slice(0, n), column_type, form))
        raise UnfitValueError(index, values[index].as_py()) from error


def from_json(values: Sequence[object], column_type: str, form: TextForm = PLAIN) -> pa.Array:
    """Return a column from JSON values, None for NULL.

    Raises:
        UnfitValueError: A value is not of the type; the error names the first such value.
    """
    try:
        return _json(values, column_type, form)
    except _UNFIT as error:
        index = _first_unfit(len(values), lambda n: _json(values[:n], column_type, form))
        raise UnfitValueError(index, values[index]) from error


def _first_unfit(count: int, convert: Callable[[int], object]) -> int:
    """Return the index of the first unfit value, by bisecting for the longest prefix that converts."""
    good, bad = 0, count
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            convert(middle)
            good = middle
        except _UNFIT:
            bad = middle
    return good


def _text(values: pa.Array, column_type: str, form: TextForm) -> pa.Array:
    if column_type == "string":
        return values
    if column_type == "timestamp":
        return times_from_text(
            values, form.timestamp_format, form.timezone, form.time_unit, is_strict=not form.is_of_file
        )
    if column_type == "date":
        if form.date_format is not None:
            return _days(times_from_text(values, form.date_format))
        return _text_dates(values) if form.is_of_file else _dates(values.cast(pa.date32()))
    if column_type == "boolean":
        return _text_booleans(values)
    if column_type == "double":
        return _text_doubles(values, form)
    if column_type in ("int", "bigint"):
        return _text_integers(values, arrow_type(column_type), form)
    return _cast_numbers(values, arrow_type(column_type), form)


def _cast_numbers(values: pa.Array, target: pa.DataType, form: TextForm) -> pa.Array:
    """Convert numbers, after removing the spaces around them and the dialect's separators."""
    if form.thousands is None and form.decimal_point == ".":
        try:
            return values.cast(target)
        except pa.ArrowInvalid:
            return pc.ascii_trim_whitespace(values).cast(target)
    return _plain_numbers(pc.ascii_trim_whitespace(values), form).cast(target)


def _plain_numbers(values: pa.Array, form: TextForm) -> pa.Array:
    """Return a dialect's numbers without thousands separators and with a decimal point."""
    point, separator = form.decimal_point, form.thousands
    if separator is not None:
        between, before = re.escape(separator), re.escape(point)
        # Groups have three digits, or two before the last group. 1,5 is not grouped but belongs to another
        # dialect.
        grouped = rf"^[+-]?[0-9]{{1,3}}({between}[0-9]{{2,3}})*{between}[0-9]{{3}}({before}[0-9]*)?$"
        is_plain = pc.invert(pc.match_substring(values, separator))
        fits = pc.or_(is_plain, pc.match_substring_regex(values, grouped))
        if not pc.all(fits, min_count=0).as_py():  # a column of NULLs would otherwise give NULL
            raise ValueError("groups of digits")
        values = pc.replace_substring(values, separator, "")
    if point != ".":
        if pc.any(pc.match_substring(values, ".")).as_py():
            raise ValueError("another decimal point")
        values = pc.replace_substring(values, point, ".")
    return values


def _text_integers(values: pa.Array, target: pa.DataType, form: TextForm) -> pa.Array:
    if pc.any(pc.match_substring(values, "x")).as_py() or pc.any(pc.match_substring(values, "X")).as_py():
        raise ValueError("hexadecimal digits")  # which Arrow reads
    try:
        return _cast_numbers(values, target, form)
    except pa.ArrowInvalid:
        plain = _plain_numbers(pc.ascii_trim_whitespace(values), form)
        try:
            return pc.replace_substring_regex(plain, _WHOLE, r"\1").cast(target)
        except pa.ArrowInvalid:  # 1E+06, as spreadsheets write it
            return plain.cast(_WITH_EXPONENT).cast(target)


def _text_doubles(values: pa.Array, form: TextForm) -> pa.Array:
    found = _cast_numbers(values, pa.float64(), form)
    infinite = pc.is_inf(found)
    if pc.any(infinite).as_py():
        texts = pc.ascii_trim_whitespace(values.filter(infinite))
        if not pc.all(pc.match_substring_regex(texts, _INFINITE, ignore_case=True)).as_py():
            raise ValueError("beyond the range of a double")
    return found


def _text_booleans(values: pa.Array) -> pa.Array:
    texts = pc.utf8_lower(values)
    found = pc.is_in(texts, pa.array(_TRUE))
    if not pc.all(pc.or_(found, pc.is_in(texts, pa.array((*_FALSE, None), pa.string())))).as_py():
        raise ValueError("neither true nor false")
    return pc.if_else(pc.is_null(texts), None, found) if texts.null_count else found


def _text_dates(values: pa.Array) -> pa.Array:
    try:
        return _dates(values.cast(pa.date32()))
    except pa.ArrowInvalid:  # 2013-1-2, 2013/01/02, or with a time, which is dropped
        if pc.any(pc.match_substring_regex(values, _WITH_OFFSET, ignore_case=True)).as_py():
            raise ValueError("a date that an offset may move") from None
        return _days(times_from_text(values))


def _days(times: pa.Array) -> pa.Array:
    return pc.floor_temporal(times, unit="day").cast(pa.date32())


def _dates(values: pa.Array) -> pa.Array:
    """Refuse dates of the year 0, which Arrow reads."""
    check_range(values.view(pa.int32()), MIN_TIME_US // DAY_US, MAX_TIME_US // DAY_US)
    return values


def _json(values: Sequence[object], column_type: str, form: TextForm) -> pa.Array:
    base = column_type.partition("(")[0]
    kinds = set(map(type, values)) - {NoneType}
    if not kinds <= (_JSON_KINDS_OF_FILES if form.is_of_file else _JSON_KINDS)[base]:
        raise TypeError(column_type)
    if base == "timestamp":
        return _json_times(values, kinds, form)
    if base == "decimal":
        return pa.array([_decimal(v, form) for v in values], arrow_type(column_type))
    if base == "double":
        return _json_doubles(values, kinds, form)
    if kinds == {str}:
        return _text(pa.array(values, pa.string()), column_type, form)
    if str in kinds:  # booleans and numbers, some in quotes
        values = [_text_of(v) for v in values]
        return _text(pa.array(values, pa.string()), column_type, form)
    if kinds & {float, Decimal}:
        values = [_integer(v) for v in values]
    return pa.array(values, arrow_type(column_type))


def _text_of(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(_integer(value))


def _integer(value: object) -> int | None:
    """Return the integer that a JSON number such as 7, 7.0 or 7e0 equals, or None if it is not a number."""
    if not isinstance(value, float | Decimal | int):
        return None
    if isinstance(value, Decimal) and not -_MAX_EXPONENT < value.adjusted() < _MAX_EXPONENT:
        raise ValueError(value)
    whole = int(value)
    if whole != value:
        raise ValueError(value)
    return whole


def _json_doubles(values: Sequence[object], kinds: set[type], form: TextForm) -> pa.Array:
    if kinds != {float}:
        return pa.array([_double(v, form) for v in values], pa.float64())
    found = pa.array(values, pa.float64())
    if not pc.all(pc.is_finite(found)).as_py():  # 1e999
        raise ValueError(values)
    return found


def _json_times(values: Sequence[object], kinds: set[type], form: TextForm) -> pa.Array:
    if kinds <= {str}:
        return _text(pa.array(values, pa.string()), "timestamp", form)
    unit = form.time_unit or "us"
    if kinds == {int}:
        return times_from_numbers(pa.array(values, pa.int64()), unit)
    if kinds & {float, Decimal} and form.time_unit is None:
        raise TypeError("a fraction of a time")  # its unit is not declared
    micros: list[int | None] = []
    for value in values:
        if isinstance(value, str):
            micros.append(_text(pa.array([value]), "timestamp", form).cast(pa.int64())[0].as_py())
        elif isinstance(value, int | Decimal):
            micros.append(number_us(value, unit))
        else:
            micros.append(None if value is None else number_us(Decimal(str(value)), unit))
    return check_times(pa.array(micros, pa.int64()))


def _double(value: object, form: TextForm) -> float | None:
    if isinstance(value, str):
        if value in _NOT_FINITE:
            return _NOT_FINITE[value]
        if not form.is_of_file:
            raise ValueError(value)
        if _DECIMAL.fullmatch(value) is None:
            return float(_text_doubles(pa.array([value]), form)[0].as_py())  # " 1.5", "nan", as in CSV
    elif not isinstance(value, int | float | Decimal):
        return None
    number = float(value)
    if not (isinstance(value, JsonConstant) or math.isfinite(number)):
        raise ValueError(value)
    return number


def _decimal(value: object, form: TextForm) -> Decimal | None:
    if value is None:
        return None
    if isinstance(value, Decimal):
        number = value
    else:
        text = str(value)  # keeps a JSON number of 0.1 exactly 0.1
        text = text.strip(_WHITE) if form.is_of_file else text
        # Decimal also takes "1_0", " 1", other scripts' digits and "NaN".
        if _DECIMAL.fullmatch(text) is None:
            raise ValueError(value)
        number = Decimal(text)
    if not -_MAX_EXPONENT < number.adjusted() < _MAX_EXPONENT and number:
        raise ValueError(value)
    return number
