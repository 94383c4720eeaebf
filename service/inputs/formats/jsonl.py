"""JSON lines files: an object a line, a missing key is NULL, other keys are ignored, blank lines too.

Keys are columns without regard to case, as the names in headers of CSV and Parquet files are. An object in
which a column, or any key, stands twice is refused: one of its values would be lost.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from catalog.arrow_types import arrow_schema
from catalog.values.stream import FilesSource, Stream
from service.errors import UnusableFile
from service.inputs.formats.facts import FileFacts, facts_of, folded_name, refuse_other_unit
from service.inputs.formats.options import option_that_reads
from service.inputs.formats.text_input import MAX_ROW_BYTES, text_blocks
from service.inputs.formats.values import (
    JsonConstant,
    TextForm,
    UnfitValueError,
    exact_number,
    expected,
    from_json,
    json_text,
    needs_digits,
)

#: Characters of a value or a line that an error repeats.
_SHOWN: Final = 80


def inspect_jsonl(stream: Stream, path: str) -> FileFacts:
    """Return the facts of a JSON lines file; every row is parsed.

    Raises:
        UnusableFile: A line is malformed (the first is named), no row has the event time, or its event times
            are most likely of another unit.
    """
    table = _parse(stream, path, [column.name for column in stream.columns], judge_unit=True)
    times = table.column(stream.event_time)
    if table.num_rows and times.null_count == table.num_rows:
        raise UnusableFile(f'it is of another schema: no row has the event time "{stream.event_time}"')
    return facts_of(stream, table.num_rows, times)


def read_jsonl(stream: Stream, path: str, columns: Sequence[str], first_row: int, rows: int) -> pa.Table:
    """Return a run of rows of a JSON lines file.

    Raises:
        UnusableFile: As `inspect_jsonl`, or it holds fewer rows.
    """
    table = _parse(stream, path, columns).slice(first_row, rows)
    if table.num_rows != rows:
        raise UnusableFile(f"it has fewer than {first_row + rows} rows")
    return table


def _parse(stream: Stream, path: str, columns: Sequence[str], *, judge_unit: bool = False) -> pa.Table:
    rows, lines = _objects(stream, path)
    types = {column.name: column.type for column in stream.columns}
    declared = arrow_schema(stream)
    form = TextForm.of(stream)
    arrays: list[pa.Array] = []
    misfits: list[tuple[int, str]] = []
    for name in columns:
        try:
            arrays.append(from_json([row.get(name) for row in rows], types[name], form))
        except UnfitValueError as error:
            shown = json_text(error.value, _SHOWN)
            wanted = expected(types[name], form)
            if types[name] == "timestamp":  # numbers are spelt in one way in JSON
                wanted += option_that_reads(error.value, "timestamp", form)
            misfits.append((error.index, f'column "{name}": {shown} is not {wanted}'))
    if judge_unit:
        refuse_other_unit(stream, (row.get(stream.event_time) for row in rows))
    if misfits:
        index, problem = min(misfits)
        raise UnusableFile(f"row {index + 1} (line {lines[index]}), {problem}")
    return pa.table(arrays, schema=pa.schema([declared.field(name) for name in columns]))


def _objects(stream: Stream, path: str) -> tuple[list[dict[str, Any]], list[int]]:
    """All objects of a file with the columns as keys, and the line number of each."""
    assert isinstance(stream.source, FilesSource)
    text = "".join(text_blocks(path, stream.source.dialect.encoding))
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    decode = json.JSONDecoder(
        object_pairs_hook=_object,
        parse_constant=JsonConstant,
        parse_float=exact_number if needs_digits(stream) else None,
    ).raw_decode  # half the time of loads, which looks for white space around
    # Only \n ends a line: str.splitlines would also cut at U+2028, which JSON strings may hold.
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.strip(" \t\r")
        if not line:
            continue
        place = f"row {len(rows) + 1} (line {number})"
        if len(line) > MAX_ROW_BYTES:
            raise UnusableFile(f"{place} is longer than {MAX_ROW_BYTES >> 20} MB")
        try:
            row, end = decode(line)
        except _KeyTwiceError as error:
            raise UnusableFile(f'{place}: the key "{error}" stands twice; keep one of them') from error
        except (ValueError, RecursionError):
            row, end = None, -1
        if end != len(line):
            raise UnusableFile(f"{place} is not JSON: {line[:_SHOWN]!r}")
        if not isinstance(row, dict):
            raise UnusableFile(f"{place} is not a JSON object: {line[:_SHOWN]!r}")
        rows.append(row)
        lines.append(number)
    return _with_columns(stream, rows, lines), lines


class _KeyTwiceError(Exception):
    """A key stands twice in an object."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _KeyTwiceError(next(key for key in keys if keys.count(key) > 1))
    return found


def _with_columns(stream: Stream, rows: list[dict[str, Any]], lines: Sequence[int]) -> list[dict[str, Any]]:
    """Rows whose keys are named as the columns are; most files name them so."""
    columns = {folded_name(column.name): column.name for column in stream.columns}
    names = set(chain.from_iterable(rows))
    others = {
        name: columns[folded_name(name)]
        for name in names.difference(columns.values())
        if folded_name(name) in columns
    }
    if not others:
        return rows
    renamed: list[dict[str, Any]] = []
    for index, row in enumerate(rows):
        found = {others.get(name, name): value for name, value in row.items()}
        if len(found) < len(row):
            named = [others.get(name, name) for name in row]
            twice = next(name for name in named if named.count(name) > 1)
            raise UnusableFile(
                f'row {index + 1} (line {lines[index]}) has column "{twice}" twice, in keys that differ by '
                "case; keep one of them"
            )
        renamed.append(found)
    return renamed
