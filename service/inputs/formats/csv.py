"""CSV files: a header line, commas, double quotes; an empty field without quotes is NULL."""

from __future__ import annotations

import csv as stdlib_csv
import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.csv as pcsv

from catalog.arrow_types import arrow_schema, arrow_type
from catalog.values.stream import Stream
from service.errors import UnusableFile
from service.inputs.formats.facts import FileFacts, facts_of, match_columns
from service.inputs.formats.text_input import text_input
from service.inputs.formats.values import UnfitValueError, expected, from_text


def inspect_csv(stream: Stream, path: str) -> FileFacts:
    """Return the facts of a CSV file; every row is parsed.

    Raises:
        UnusableFile: It has no header, lacks a column, or a row is malformed (the first is named).
    """
    table = _parse(stream, path, [column.name for column in stream.columns])
    return facts_of(stream, table.num_rows, table.column(stream.event_time))


def read_csv(stream: Stream, path: str, columns: Sequence[str], first_row: int, rows: int) -> pa.Table:
    """Return a run of rows of a CSV file.

    Raises:
        UnusableFile: As `inspect_csv`, or it holds fewer rows.
    """
    table = _parse(stream, path, columns).slice(first_row, rows)
    if table.num_rows != rows:
        raise UnusableFile(f"it has fewer than {first_row + rows} rows")
    return table


def _parse(stream: Stream, path: str, columns: Sequence[str]) -> pa.Table:
    """All rows of the given columns, read as text first so that a bad value can be named."""
    names = match_columns(stream, _header(path))
    wanted = [names[name] for name in columns]
    bad: list[str] = []

    def refuse(row: pcsv.InvalidRow) -> str:
        number = "" if row.number is None else f" {row.number}"
        bad.append(
            f"line{number} has {row.actual_columns} fields, not {row.expected_columns}: {row.text[:80]!r}"
        )
        return "error"

    try:
        with text_input(path) as source:
            table = pcsv.read_csv(
                source,
                read_options=pcsv.ReadOptions(use_threads=False),
                parse_options=pcsv.ParseOptions(newlines_in_values=True, invalid_row_handler=refuse),
                convert_options=pcsv.ConvertOptions(
                    include_columns=wanted,
                    column_types={name: pa.string() for name in wanted},
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, EOFError) as error:
        reason = bad[0] if bad else str(error).partition("\n")[0]
        raise UnusableFile(f"it is no sound CSV file: {reason}") from error

    types = {column.name: column.type for column in stream.columns}
    declared = arrow_schema(stream)
    arrays: list[pa.ChunkedArray] = []
    misfits: list[tuple[int, str]] = []
    for name in columns:
        try:
            arrays.append(_typed(table.column(names[name]), types[name]))
        except UnfitValueError as error:
            problem = f'column "{name}": {str(error.value)[:80]!r} is not {expected(types[name])}'
            misfits.append((error.index + 1, problem))
    if misfits:
        row, problem = min(misfits)
        raise UnusableFile(f"row {row}, {problem}")
    return pa.table(arrays, schema=pa.schema([declared.field(name) for name in columns]))


def _typed(text: pa.ChunkedArray, column_type: str) -> pa.ChunkedArray:
    arrays, seen = [], 0
    for chunk in text.chunks:
        try:
            arrays.append(from_text(chunk, column_type))
        except UnfitValueError as error:
            raise UnfitValueError(seen + error.index, error.value) from error
        seen += len(chunk)
    return pa.chunked_array(arrays, arrow_type(column_type))


def _header(path: str) -> list[str]:
    """Column names of the header line."""
    try:
        with (
            text_input(path) as source,
            io.TextIOWrapper(source, "utf-8-sig") as text,
        ):
            return next(stdlib_csv.reader(text), [])
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, stdlib_csv.Error) as error:
        raise UnusableFile(f"its header cannot be read ({error})") from error
