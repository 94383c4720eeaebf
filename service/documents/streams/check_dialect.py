"""Check of the options of text files when a stream is registered, before its first file is read."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from datetime import datetime, time
from typing import Final, Literal
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from catalog.values.stream import Dialect
from service.errors import InvalidStream

#: Options that JSON lines files have, too.
_OF_JSON: Final = frozenset({"encoding", "timestamp_format", "date_format", "timezone"})
#: Options by format; CSV has all options.
_OPTIONS: Final[dict[str, frozenset[str]]] = {"parquet": frozenset(), "jsonl": _OF_JSON}
#: One character of ASCII that cannot be part of a number, a word or a line end.
_MARK: Final = re.compile(r"[\t -/:-@\[-`{-~]")
_DATE: Final = re.compile(r"%[YyGcxDsj]")
_MOMENT: Final = datetime(2013, 1, 31, 5, 15)


def check_dialect(
    dialect: Dialect, file_format: Literal["parquet", "jsonl", "csv"], given: Sequence[str]
) -> None:
    """Refuse options that do not fit each other or the format.

    Args:
        dialect: The options.
        file_format: Format of the files.
        given: Names of the options that the document contains.

    Raises:
        InvalidStream: An option does not fit; the error's ``path`` names it.
    """
    for name in given:
        if name not in _OPTIONS.get(file_format, given):
            kinds = "CSV and JSON lines files" if name in _OF_JSON else "CSV files"
            raise _unfit(name, f"is for {kinds}", "Leave it out, or correct the format.")
    _check_marks(dialect)
    if any("\n" in text or "\r" in text for text in dialect.null_values):
        raise _unfit("null_values", "contains a line end", "Remove the line end.")
    try:
        "a".encode(dialect.encoding)  # refuses codecs that are not encodings of text, such as rot13
        codecs.getincrementaldecoder(dialect.encoding)
    except (LookupError, ValueError) as error:
        hint = "Write the name of an encoding, such as utf-8, utf-16, latin-1 or cp1252."
        raise _unfit("encoding", f'is not the name of an encoding: "{dialect.encoding}"', hint) from error
    if dialect.timezone is not None:
        _check_timezone(dialect.timezone)
    if dialect.timestamp_format is not None:
        _check_format("timestamp_format", dialect.timestamp_format, "%d.%m.%Y %H:%M:%S")
    if dialect.date_format is not None:
        read = _check_format("date_format", dialect.date_format, "%d.%m.%Y")
        if read != datetime.combine(_MOMENT, time()):
            problem = f'must be a full date without a time: "{dialect.date_format}"'
            raise _unfit("date_format", problem, "Write a format such as %d.%m.%Y.")


def _check_marks(dialect: Dialect) -> None:
    marks = {
        "delimiter": dialect.delimiter,
        "quote": dialect.quote,
        "escape": dialect.escape,
        "decimal_point": dialect.decimal_point,
        "thousands": dialect.thousands,
    }
    for name, mark in marks.items():
        # Thousands may also be separated by typographic spaces.
        if (
            mark is None
            or _MARK.fullmatch(mark)
            or (name == "thousands" and mark in "\u00a0\u2009\u202f" and mark)
        ):
            continue
        raise _unfit(
            name,
            f"is not one punctuation mark: {mark!r}",
            "Write one character of ASCII, such as ; or a tab.",
        )
    if dialect.quote is None and dialect.escape is not None:
        raise _unfit(
            "escape",
            "is used inside quotes, but the quote character is switched off",
            "Leave it out, or give a quote.",
        )
    pairs = (("quote", "delimiter"), ("escape", "delimiter"), ("decimal_point", "thousands"))
    for first, second in pairs:
        if marks[first] is not None and marks[first] == marks[second]:
            raise _unfit(
                first, f"and {second} are the same: {marks[first]!r}", "Give two different characters."
            )


def _check_timezone(name: str) -> None:
    try:
        ZoneInfo(name)
        pc.assume_timezone(pa.array([0], pa.timestamp("us")), name)
    # ZoneInfo raises KeyError, or OSError for the name of a folder; Arrow checks its own database.
    except (KeyError, OSError, ValueError) as error:
        hint = "Write the name of a zone, such as Europe/Berlin, America/New_York or UTC."
        raise _unfit("timezone", f'is not the name of a time zone: "{name}"', hint) from error


def _check_format(name: str, text: str, example: str) -> datetime:
    """Format and parse a fixed moment and return the result; refuse a format that fails."""
    hint = f"Write a format such as {example}."
    if _DATE.search(text) is None:
        raise _unfit(name, f'has no year: "{text}"', hint)
    try:
        return datetime.strptime(_MOMENT.strftime(text), text)
    except (ValueError, re.error) as error:
        raise _unfit(name, f'cannot be read: "{text}" ({error})', hint) from error


def _unfit(name: str, problem: str, hint: str) -> InvalidStream:
    return InvalidStream(f"option {name} {problem}", hint=hint, path=("source", name))
