"""Maps the fields of a CSV header to columns; finds the source option that helps if columns are missing."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from catalog.values.stream import Dialect, Stream
from service.errors import UnusableFile
from service.inputs.formats.findings.facts import match_columns

_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_DELIMITERS: Final = (",", ";", "\t", "|")
#: Number of lines at the start of a file that are searched for a header.
_LOOKED_AT: Final = 20
#: Characters of a header that an error repeats.
_SHOWN: Final = 200


def fields_of(row: str, dialect: Dialect) -> list[str]:
    """Return the fields of one row, without spaces around them, as DuckDB reads a header."""
    try:
        fields = next(
            csv.reader(
                io.StringIO(row, newline=""),
                delimiter=dialect.delimiter,
                quotechar=dialect.quote,
                quoting=csv.QUOTE_NONE if dialect.quote is None else csv.QUOTE_MINIMAL,
                escapechar=dialect.escape,
                doublequote=dialect.escape is None,
                skipinitialspace=dialect.delimiter != " ",
            ),
            [],
        )
        return [field.strip() for field in fields]
    except csv.Error as error:
        raise UnusableFile(f"its header cannot be read ({error})") from error


def named_fields(stream: Stream, header: Sequence[str], text: str, dialect: Dialect) -> dict[str, str]:
    """Return the name in the header for each of the stream's columns.

    Args:
        stream: The stream.
        header: Fields of the header.
        text: Beginning of the file.
        dialect: Dialect of the file.

    Raises:
        UnusableFile: A column is missing or appears twice; the error shows the header, and the option with
            which the file can be read.
    """
    try:
        return match_columns(stream, header)
    except UnusableFile as error:
        if not text.strip():
            raise UnusableFile(f"{error.primary}; the file is empty") from error
        shown = dialect.delimiter.join(header)
        shown = shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + "…"
        option = _option_that_reads(stream, text, dialect)
        hint = "" if option is None else f"; it can be read with {option}"
        raise UnusableFile(f"{error.primary}; the header found is {shown}{hint}") from error


def _option_that_reads(stream: Stream, text: str, dialect: Dialect) -> str | None:
    """Return the source options, as text, with which all columns are found, or None if there are none."""
    lines = _LINE_END.split(text, maxsplit=_LOOKED_AT)[:_LOOKED_AT]
    for skipped, line in enumerate(lines):
        for delimiter in (dialect.delimiter, *_DELIMITERS):
            if delimiter == dialect.quote:
                continue
            if _has_all(stream, line, replace(dialect, delimiter=delimiter)):
                options = [f'delimiter: "{_escaped(delimiter)}"'] if delimiter != dialect.delimiter else []
                options += [f"skip_rows: {skipped + dialect.skip_rows}"] if skipped else []
                return ", ".join(options) or None
    first = fields_of(lines[0], dialect)
    if dialect.header and len(first) == len(stream.columns) and any(c.isdigit() for c in lines[0]):
        return "header: false"
    return None


def _has_all(stream: Stream, line: str, dialect: Dialect) -> bool:
    try:
        match_columns(stream, fields_of(line, dialect))
    except UnusableFile:
        return False
    return True


def _escaped(delimiter: str) -> str:
    return "\\t" if delimiter == "\t" else delimiter
