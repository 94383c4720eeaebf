"""Converts text and numbers to times: ISO 8601 or a declared format, with an offset or in a declared zone.

The fast path converts a whole column in Arrow. Columns that Arrow refuses, such as a mixture of times with
and without an offset, are converted value by value. The rules are those of DuckDB, but a time that does not
exist in its zone is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import ROUND_FLOOR, Decimal
from functools import partial
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.times.durations import MAX_TIME_US, MIN_TIME_US
from catalog.values.stream import TimeUnit

DAY_US: Final = 86_400_000_000
TIMES: Final = (pa.timestamp("us"), pa.timestamp("us", "UTC"))
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

#: Number of units in a second, by unit.
PER_SECOND: Final[dict[TimeUnit, int]] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
UNIT_NAMES: Final[dict[TimeUnit, str]] = {
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
}
#: Range of event times in real files, seconds since 1970: from 1990 to 2200.
_PLAUSIBLE_S: Final = (631_152_000, 7_258_118_400)
#: Maximum number of digits before the decimal point of a number that may be a time.
_MAX_DIGITS: Final = 24
_NUMBERS: Final = (int, float, Decimal)

#: Arrow does not convert local times from this year on. It knows only the clock changes that the time zone
#: data lists, which end in 2037, and not the rule for later years.
_ARROW_ZONES_END: Final = datetime(2037, 1, 1)

_ISO: Final = re.compile(
    r"\s*(\d{4})([-/])(\d{1,2})\2(\d{1,2})"
    r"(?:[T ]+(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:[.,](\d{1,12}))?)?"
    r"\s*(Z|[Uu][Tt][Cc]|[+-]\d{2}(?::?\d{2}(?::?\d{2})?)?)?)?\s*",
    re.ASCII,
)
_NUMBER: Final = r"^\s*[+-]?[0-9]+(\.[0-9]*)?\s*$"


def check_times(micros: pa.Array) -> pa.Array:
    """Return times, int64[n] µs, as timestamps.

    Raises:
        ValueError: A time is outside the years 1 to 9999.
    """
    check_range(micros, MIN_TIME_US, MAX_TIME_US)
    return micros.view(TIMES[0])


def check_range(values: pa.Array, least: int, most: int) -> None:
    """Refuse numbers out of a range.

    Raises:
        ValueError: A number is out of the range.
    """
    extremes = pc.min_max(values)
    first, last = extremes["min"].as_py(), extremes["max"].as_py()
    if first is not None and not (least <= first and last <= most):
        raise ValueError(f"{first} to {last}")


def times_from_text(
    values: pa.Array,
    time_format: str | None = None,
    zone: str | None = None,
    unit: TimeUnit | None = None,
    *,
    is_strict: bool = False,
) -> pa.Array:
    """Return timestamps from their text.

    Args:
        values: string[n].
        time_format: Format in the directives of ``strftime``; None for ISO 8601.
        zone: Zone of times without an offset; None for UTC.
        unit: Unit of numbers since 1970 UTC; None if numbers are not times.
        is_strict: Whether variants of ISO 8601 such as 2013/1/31 24:00 are refused; has no effect with a
            format.

    Raises:
        ValueError: A text is not a time, or its time does not exist in its zone.
    """
    if unit is not None and pc.all(pc.match_substring_regex(values, _NUMBER)).as_py() is not False:
        return _times_from_digits(pc.utf8_trim_whitespace(values), unit)
    if time_format is None:
        for parsed in TIMES:  # in a real column, either all times have a zone or none has
            try:
                found = values.cast(parsed)
            except pa.ArrowInvalid:
                continue
            if parsed.tz is None and zone is not None:
                if pc.any(pc.greater_equal(found, pa.scalar(_ARROW_ZONES_END, found.type))).as_py():
                    break
                # A local time that occurs twice, when clocks are set back, is read as the later one, as in
                # DuckDB and PostgreSQL.
                found = pc.assume_timezone(found, zone, ambiguous="latest", nonexistent="raise")
            # Arrow accepts years before 1, and an offset may move a time out of the years 1 to 9999.
            return check_times(found.cast(TIMES[0]).view(pa.int64()))
    texts = values.dictionary_encode()  # each distinct text is converted once: many rows share a second
    iso = _strict_iso if is_strict else _iso
    read = iso if time_format is None else partial(_formatted, time_format)
    micros = [_text_us(text, read, zone, unit) for text in texts.dictionary.to_pylist()]
    return check_times(pa.array(micros, pa.int64()).take(texts.indices))


def times_from_numbers(values: pa.Array, unit: TimeUnit) -> pa.Array:
    """Return timestamps from integers that count a unit of time since 1970 UTC, rounded down to µs.

    Args:
        values: int64[n].
        unit: Unit of the integers.

    Raises:
        ValueError: A time is outside the years 1 to 9999.
    """
    if unit == "ns":
        nanos = values.fill_null(0).to_numpy(zero_copy_only=False)
        mask = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
        return check_times(pa.array(np.floor_divide(nanos, 1000), pa.int64(), mask=mask))
    return check_times(pc.multiply_checked(values, pa.scalar(10**6 // PER_SECOND[unit], pa.int64())))


def number_us(number: int | Decimal, unit: TimeUnit) -> int:
    """Return the time of a number, µs UTC, rounded down.

    >>> number_us(Decimal("1.5"), "ms"), number_us(-1, "ns")
    (1500, -1)
    """
    if isinstance(number, int):
        return number * 10**6 // PER_SECOND[unit]
    if not (number.is_finite() and number.adjusted() < _MAX_DIGITS):
        raise ValueError(number)
    return int((number * 10**6 / PER_SECOND[unit]).to_integral_value(ROUND_FLOOR))


#: Mean length of a year of the Gregorian calendar.
_YEAR_US = 31_556_952 * 1_000_000


@dataclass(frozen=True, slots=True)
class OtherUnit:
    """Numbers that are read as times in one unit, but are most likely in another unit.

    Attributes:
        unit: Their most likely unit.
        taken_for: Unit in which they are read.
        number: The first such number.
    """

    unit: TimeUnit
    taken_for: TimeUnit
    number: int | float | Decimal

    def __str__(self) -> str:
        year = year_of(int(self.number) * 10**6 // PER_SECOND[self.taken_for])
        return (
            f"{self.number} {UNIT_NAMES[self.taken_for]} since 1970 is in the year {year}; the number most "
            f"likely counts {UNIT_NAMES[self.unit]}"
        )


def other_unit(times: Iterable[object], unit: TimeUnit | None) -> OtherUnit | None:
    """Return the most likely unit of times if they are read in another unit, or None otherwise.

    Numbers for times from 1990 to 2200 have a different number of digits in each unit. Another unit is most
    likely if at least half of the numbers, read in that unit, are times from 1990 to 2200. 0 is ignored,
    since it is the same time in every unit. Text has no unit.

    Args:
        times: Numbers, text and None.
        unit: Unit in which numbers are read; None for µs.

    >>> found = other_unit([0, 1714550400000, 17, None, "2024-05-01"], "us")
    >>> found.unit, found.number
    ('ms', 1714550400000)
    >>> other_unit([1714550400000, 1714550460000], "ms"), other_unit([0, 17], "us")
    (None, None)
    """
    taken_for: TimeUnit = unit or "us"
    most = 10**_MAX_DIGITS
    numbers = [t for t in times if isinstance(t, _NUMBERS) and t and -most < t < most]
    counts = np.array(numbers, np.float64)
    for other, per_second in PER_SECOND.items():
        fits = (counts >= _PLAUSIBLE_S[0] * per_second) & (counts < _PLAUSIBLE_S[1] * per_second)
        if other != taken_for and fits.any() and 2 * fits.sum() >= len(fits):
            return OtherUnit(other, taken_for, numbers[int(fits.argmax())])
    return None


def are_plausible(t_min_us: int | None, t_max_us: int | None) -> bool:
    """Return whether times, µs UTC, are from 1990 to 2200, as times of real files are."""
    first_s, last_s = _PLAUSIBLE_S
    return (
        t_min_us is None or t_max_us is None or (first_s <= t_min_us // 10**6 and t_max_us // 10**6 < last_s)
    )


def numbers_in(texts: pa.ChunkedArray) -> list[int | float]:
    """Return the texts that are numbers, as numbers."""
    found = texts.filter(pc.match_substring_regex(texts, _NUMBER))
    found = pc.utf8_ltrim(pc.utf8_trim_whitespace(found), characters="+")
    try:
        return list(found.cast(pa.int64()).to_pylist())
    except pa.ArrowInvalid:  # a fraction, or too many digits
        return list(found.cast(pa.float64()).to_pylist())


def unit_of(value: object, unit: TimeUnit | None) -> TimeUnit | None:
    """Return the unit, other than the given one, in which a number is a plausible time, or None.

    >>> unit_of(1714550400000, "s"), unit_of("17", "s")
    ('ms', None)
    """
    if isinstance(value, str):
        value = next(iter(numbers_in(pa.chunked_array([[value]]))), None)
    found = other_unit([value], unit)
    return None if found is None else found.unit


def year_of(time_us: Any) -> int:
    """Return the approximate year of a time, µs UTC, also beyond the range of Python's dates.

    >>> year_of(1714550400000), year_of(1714550400000000000)
    (1970, 56301)
    """
    return 1970 + int(time_us // _YEAR_US)


def _times_from_digits(texts: pa.Array, unit: TimeUnit) -> pa.Array:
    try:
        return times_from_numbers(texts.cast(pa.int64()), unit)
    except pa.ArrowInvalid:  # a fraction, a plus sign, or too many digits
        micros = [None if text is None else number_us(Decimal(text), unit) for text in texts.to_pylist()]
        return check_times(pa.array(micros, pa.int64()))


def _text_us(
    text: str | None, read: Callable[[str], datetime], zone: str | None, unit: TimeUnit | None
) -> int | None:
    if text is None:
        return None
    if unit is not None and re.match(_NUMBER, text):
        return number_us(Decimal(text.strip()), unit)
    moment = read(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC if zone is None else ZoneInfo(zone))
        before, after = moment.utcoffset(), moment.replace(fold=1).utcoffset()
        assert before is not None
        assert after is not None
        if before < after:
            raise ValueError(f"clocks in {zone} are set forward past {text}")
        moment = moment.replace(fold=1)
    delta = moment - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def _formatted(time_format: str, text: str) -> datetime:
    return datetime.strptime(text.strip(), time_format)


def _strict_iso(text: str) -> datetime:
    if text[4:5] != "-":  # not 20130131, which could also be a number
        raise ValueError(text)
    return datetime.fromisoformat(text)


def _iso(text: str) -> datetime:
    found = _ISO.fullmatch(text)
    if found is None:
        raise ValueError(text)
    year, _, month, day, hour, minute, second, fraction, offset = found.groups()
    micro = int((fraction or "")[:6].ljust(6, "0"))
    clock = (int(hour or 0), int(minute or 0), int(second or 0), micro)
    days = 0
    if clock == (24, 0, 0, 0):
        clock, days = (0, 0, 0, 0), 1
    return datetime(int(year), int(month), int(day), *clock, tzinfo=_offset(offset)) + timedelta(days)


def _offset(text: str | None) -> timezone | None:
    if text is None or text.upper() in ("Z", "UTC"):
        return None if text is None else UTC
    digits = text[1:].replace(":", "").ljust(6, "0")
    seconds = int(digits[:2]) * 3600 + int(digits[2:4]) * 60 + int(digits[4:])
    return timezone(timedelta(seconds=-seconds if text[0] == "-" else seconds))
