"""Finds options of text files with which a rejected value could be read.

'1.234,50'             decimal_point: ",", thousands: "."
'01.11.2025 09:15:00'  timestamp_format: "%d.%m.%Y %H:%M:%S"
'01/02/2025 09:15'     timestamp_format: "%d/%m/%Y %H:%M" or "%m/%d/%Y %H:%M"
'n/a'                  null_values: ["", "n/a"]
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from service.inputs.formats.conversion.times import unit_of
from service.inputs.formats.conversion.values import TextForm, UnfitValueError, from_text

#: Maximum number of bad rows per file for which a helpful option is searched; each search takes 1 to 3 ms.
MOST_NAMED: Final = 100
#: Pairs of decimal point and thousands separator.
_NUMBERS: Final = (
    *((",", None), (".", None)),
    *((".", ","), (",", "."), (",", " "), (",", "\u00a0"), (",", "\u202f"), (".", " "), (".", "'")),
)
_DATE: Final = re.compile(r"(\d{1,4})([./-])(\d{1,2})\2(\d{2,4})(T|, |\s)?(.*)", re.ASCII)
_DATES: Final = ("%d{0}%m{0}%Y", "%m{0}%d{0}%Y", "%Y{0}%m{0}%d", "%d{0}%m{0}%y", "%m{0}%d{0}%y")
_CLOCKS: Final = ("", "%H:%M:%S", "%H:%M", "%H:%M:%S.%f", "%I:%M:%S %p", "%I:%M %p")
_OFFSETS: Final = ("", "%z", " %z")
#: Texts that programs and people use for a missing value, in lower case.
_ABSENT: Final = frozenset(
    ("n/a", "#n/a", "na", "n.a.", "null", "#null!", "none", "nil", "\\n", "-", "--", "?", "unknown")
)


def option_that_reads(value: object, column_type: str, form: TextForm) -> str:
    """Return the source options that would read a value, as the end of a sentence, or "" if there are none.

    If a time does not exist in its time zone, because clocks are set forward past it, the text says that
    instead.

    >>> option_that_reads("1.234,50", "decimal(10,2)", TextForm())
    '; it can be read with decimal_point: ",", thousands: "."'
    >>> option_that_reads("12 apples", "int", TextForm())
    ''
    >>> option_that_reads("1714550400000", "timestamp", TextForm(time_unit="s"))
    '; it can be read with time_unit: ms in the stream'
    """
    unit = unit_of(value, form.time_unit) if column_type == "timestamp" else None
    if unit is not None:
        return f"; it can be read with time_unit: {unit} in the stream"
    if not isinstance(value, str):
        return ""
    if column_type == "timestamp" and _is_left_out(value, form):
        return f"; clocks in {form.timezone} are set forward past it"
    if column_type == "timestamp":
        found = _formats(value.strip(), form)
    elif column_type == "date":
        found = _date_formats(value.strip(), form)
    elif column_type in ("int", "bigint", "double") or column_type.startswith("decimal"):
        found = _numbers(value, column_type, form)
    else:
        found = ""
    return f"; it can be read with {found}" if found else ""


def null_values_that_read(value: object, null_values: Sequence[str]) -> str:
    """Return the option that reads a value such as n/a as NULL, as the end of a sentence, or "" for others.

    >>> null_values_that_read("n/a", ("",))
    '; it can be read as NULL with null_values: ["", "n/a"]'
    >>> null_values_that_read("12 apples", ("",))
    ''
    """
    if not isinstance(value, str) or value.lower() not in _ABSENT:
        return ""
    return f"; it can be read as NULL with null_values: {json.dumps([*null_values, value])}"


def _numbers(value: str, column_type: str, form: TextForm) -> str:
    """Return the options with which a text is a number; list alternatives that give different numbers."""
    found: dict[object, str] = {}
    for point, separator in _NUMBERS:
        read = _read(value, column_type, replace(form, decimal_point=point, thousands=separator))
        if read is None or read in found:
            continue
        options = [f'decimal_point: "{point}"'] if point != form.decimal_point else []
        if separator != form.thousands:
            options.append("thousands: null" if separator is None else f'thousands: "{separator}"')
        found[read] = ", ".join(options)
    return " or ".join(found.values())


def _is_left_out(value: str, form: TextForm) -> bool:
    """Return whether a time is refused only because it does not exist in its zone."""
    if form.timezone is None or _read(value, "timestamp", form) is not None:
        return False
    return _read(value, "timestamp", replace(form, timezone=None)) is not None


def _date_formats(text: str, form: TextForm) -> str:
    """Return the option that reads a date, with two formats if day and month cannot be distinguished."""
    found = _DATE.fullmatch(text)
    formats = [] if found is None else [date.format(found[2]) for date in _DATES]
    return _option(
        "date_format",
        (each for each in formats if _read(text, "date", replace(form, date_format=each)) is not None),
    )


def _formats(text: str, form: TextForm) -> str:
    """Return the option that reads a time, with two formats if day and month cannot be distinguished."""
    return _option("timestamp_format", _formats_of_time(text, form))


def _option(name: str, formats: Iterable[str]) -> str:
    told = " or ".join(f'"{each}"' for each in formats)
    return f"{name}: {told}" if told else ""


def _formats_of_time(text: str, form: TextForm) -> Iterator[str]:
    found = _DATE.fullmatch(text)
    if found is None:
        return
    between, clock = found[5] or "", found[6]
    for date in _DATES:
        for hours in _CLOCKS:
            for offset in _OFFSETS if hours else ("",):
                time_format = f"{date.format(found[2])}{between}{hours}{offset}"
                other = replace(form, timestamp_format=time_format)
                if bool(clock) == bool(hours) and _read(text, "timestamp", other) is not None:
                    yield time_format


def _read(text: str, column_type: str, form: TextForm) -> object:
    """Return the value of a text, or None if it cannot be read."""
    try:
        return from_text(pa.array([text]), column_type, form)[0].as_py()
    except UnfitValueError:
        return None
