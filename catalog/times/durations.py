"""Lengths of time as people write them: ``5 MINUTES``, ``1 HOUR 30 MINUTES``, ``90s``, ``1.5 min``.

Months and years have no fixed length, so they are kept separate from microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from catalog.errors import InvalidDuration

_SECOND_US = 1_000_000
_UNITS_US = {
    ("us", "µs", "microsecond", "microseconds", "micros"): Decimal(1),
    ("ns", "nanosecond", "nanoseconds"): Decimal("0.001"),
    ("ms", "millisecond", "milliseconds", "millis"): Decimal(1_000),
    ("s", "sec", "secs", "second", "seconds"): Decimal(_SECOND_US),
    ("m", "min", "mins", "minute", "minutes"): Decimal(60 * _SECOND_US),
    ("h", "hr", "hrs", "hour", "hours"): Decimal(3_600 * _SECOND_US),
    ("d", "day", "days"): Decimal(86_400 * _SECOND_US),
    ("w", "week", "weeks"): Decimal(7 * 86_400 * _SECOND_US),
}
_US = {name: us for names, us in _UNITS_US.items() for name in names}
_MONTHS_OF_UNITS = {
    ("month", "months"): 1,
    ("quarter", "quarters"): 3,
    ("year", "years"): 12,
    ("decade", "decades"): 120,
    ("century", "centuries"): 1_200,
    ("millennium", "millenniums", "millennia"): 12_000,
}
_MONTHS = {name: months for names, months in _MONTHS_OF_UNITS.items() for name in names}
_NUMBER = re.compile(r"\s*\d+(?:\.\d+)?\s*")
_PART = re.compile(r"\s*([+-]?\s*(?:\d+(?:\.\d*)?|\.\d+))\s*([A-Za-zµ]*)")

#: Greatest length of time that is parsed, µs; like event times, it fits into int64.
_LIMIT_US = 2**62
#: Longest window, lateness or timeout, µs; the sum of this length and any event time is far within int64.
MAX_DURATION_US = 365_250 * 86_400 * _SECOND_US
#: First and last allowed event time, µs UTC: the years 1 to 9999, which Python, DuckDB and ISO 8601 can all
#: write.
MIN_TIME_US = -62_135_596_800_000_000
MAX_TIME_US = 253_402_300_799_999_999


@dataclass(frozen=True, slots=True)
class Duration:
    """A length of time.

    Attributes:
        months: Whole months.
        us: Microseconds in addition to the months.
    """

    months: int
    us: int


def duration(words: Sequence[str]) -> Duration | str:
    """Return the sum of lengths such as ``5 MINUTES``, or a text that says why they cannot be parsed.

    >>> duration(["1", "HOUR", "30", "MINUTES"])
    Duration(months=0, us=5400000000)
    >>> duration(["90s"])
    Duration(months=0, us=90000000)
    >>> duration(["5", "PARSECS"])
    'unknown unit of time "PARSECS"'
    """
    text = " ".join(words)
    months, us, position = 0, Decimal(0), 0
    if not text.strip(" -"):
        return "expected a length of time"
    while (part := _PART.match(text, position)) is not None:
        position = part.end()
        number, unit = Decimal(part[1].replace(" ", "")), part[2]
        if not unit:
            return f"{part[1]} has no unit of time"
        if unit.lower() in _MONTHS:
            count = number * _MONTHS[unit.lower()]
            if count != int(count):
                return f"{part[1]} {unit} is not a whole number of months"
            months += int(count)
        elif unit.lower() in _US:
            us += number * _US[unit.lower()]
        else:
            return f'unknown unit of time "{unit}"'
    if text[position:].strip():
        return f'"{text[position:].strip()}" is not a length of time'
    if us != us.to_integral_value():
        return "the length is not a whole number of microseconds"
    if abs(us) > _LIMIT_US or abs(months) > 12_000_000:
        return "the length is out of range"
    return Duration(months, int(us))


def parse_duration_us(text: str | int | float) -> int:
    """Return a length of time in µs; a number without a unit means seconds.

    >>> parse_duration_us("1.5 min"), parse_duration_us(5), parse_duration_us("0")
    (90000000, 5000000, 0)

    Raises:
        InvalidDuration: The text is not a series of numbers with units of fixed length, is negative, or
            exceeds 1,000 years.
    """
    written = f"{text} s" if _NUMBER.fullmatch(str(text)) else str(text)
    found = duration([written])
    if isinstance(text, bool) or isinstance(found, str) or found.months or found.us < 0:
        raise InvalidDuration(
            f'"{text}" is not a length of time', hint='Write a number and a unit, such as "5s" or "10 min".'
        )
    if found.us > MAX_DURATION_US:
        raise InvalidDuration(f'"{text}" is more than 1,000 years', hint="Write a shorter length of time.")
    return found.us


def format_duration(micros: int) -> str:
    """Format a length of time as the shortest exact text in a single unit.

    >>> format_duration(90_000_000), format_duration(7_200_000_000), format_duration(5)
    ('90s', '2h', '5us')
    """
    for unit in ("d", "h", "min", "s", "ms"):
        if micros and micros % _US[unit] == 0:
            return f"{micros // int(_US[unit])}{unit}"
    return f"{micros}us" if micros else "0s"
