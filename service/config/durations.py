"""Lengths of time as people write them: ``5s``, ``1.5 min``, ``2 hours``; a bare number is seconds."""

from __future__ import annotations

import re
from decimal import Decimal

from catalog.errors import InvalidInput

#: Microseconds of a unit, under every name it goes by.
UNITS_US = {
    name: micros
    for names, micros in (
        ("us µs microsecond microseconds", 1),
        ("ms millisecond milliseconds", 1_000),
        ("s sec secs second seconds", 1_000_000),
        ("m min mins minute minutes", 60_000_000),
        ("h hr hrs hour hours", 3_600_000_000),
        ("d day days", 86_400_000_000),
    )
    for name in names.split()
}

_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zµ]*)\s*", re.IGNORECASE)


class InvalidDuration(InvalidInput):
    """A text is not a length of time."""

    code = "invalid-duration"


def parse_duration_us(text: str | int | float) -> int:
    """Return a length of time in µs.

    >>> parse_duration_us("1.5 min"), parse_duration_us(5), parse_duration_us("0")
    (90000000, 5000000, 0)

    Raises:
        InvalidDuration: Not a number with a known unit, or negative.
    """
    match = _DURATION.fullmatch(str(text)) if not isinstance(text, bool) else None
    if match is None or (match[2] and match[2].lower() not in UNITS_US):
        raise InvalidDuration(
            f'"{text}" is not a length of time', hint='Write a number and a unit, such as "5s" or "10 min".'
        )
    return int(Decimal(match[1]) * UNITS_US[match[2].lower() or "s"])


def format_duration(micros: int) -> str:
    """Return the shortest exact text in one unit.

    >>> format_duration(90_000_000), format_duration(7_200_000_000), format_duration(5)
    ('90s', '2h', '5us')
    """
    for unit in ("d", "h", "min", "s", "ms"):
        if micros and micros % UNITS_US[unit] == 0:
            return f"{micros // UNITS_US[unit]}{unit}"
    return f"{micros}us" if micros else "0s"
