"""JSON lines files: an object a line, a missing key is NULL, other keys are ignored, blank lines too."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from catalog.arrow_types import arrow_schema
from catalog.values.stream import Stream
from service.errors import UnusableFile
from service.inputs.formats.facts import FileFacts, facts_of
from service.inputs.formats.text_input import text_input
from service.inputs.formats.values import JsonConstant, UnfitValueError, expected, from_json


def inspect_jsonl(stream: Stream, path: str) -> FileFacts:
    """Return the facts of a JSON lines file; every row is parsed.

    Raises:
        UnusableFile: A line is malformed (the first is named), or no row has the event time.
    """
    table = _parse(stream, path, [column.name for column in stream.columns])
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


def _parse(stream: Stream, path: str, columns: Sequence[str]) -> pa.Table:
    rows, lines = _objects(path)
    types = {column.name: column.type for column in stream.columns}
    declared = arrow_schema(stream)
    arrays: list[pa.Array] = []
    misfits: list[tuple[int, str]] = []
    for name in columns:
        try:
            arrays.append(from_json([row.get(name) for row in rows], types[name]))
        except UnfitValueError as error:
            problem = f'column "{name}": {json.dumps(error.value)[:80]} is not {expected(types[name])}'
            misfits.append((error.index, problem))
    if misfits:
        index, problem = min(misfits)
        raise UnusableFile(f"row {index + 1} (line {lines[index]}), {problem}")
    return pa.table(arrays, schema=pa.schema([declared.field(name) for name in columns]))


def _objects(path: str) -> tuple[list[dict[str, object]], list[int]]:
    """All objects of a file, and the line number of each."""
    try:
        with text_input(path) as source:
            text = source.read().decode("utf-8-sig")
    except FileNotFoundError:
        raise
    except UnicodeDecodeError as error:
        raise UnusableFile(f"it is not UTF-8 text (byte {error.start})") from error
    except (pa.ArrowException, OSError, EOFError) as error:
        raise UnusableFile(f"it cannot be read ({error})") from error

    rows: list[dict[str, object]] = []
    lines: list[int] = []
    decode = json.JSONDecoder(
        parse_constant=JsonConstant
    ).raw_decode  # half the time of loads, which looks for white space around
    # Only \n ends a line: str.splitlines would also cut at U+2028, which JSON strings may hold.
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.strip(" \t\r")
        if not line:
            continue
        try:
            row, end = decode(line)
        except (ValueError, RecursionError):
            row, end = None, -1
        if end != len(line):
            raise UnusableFile(f"row {len(rows) + 1} (line {number}) is not JSON: {line[:80]!r}")
        if not isinstance(row, dict):
            raise UnusableFile(f"row {len(rows) + 1} (line {number}) is not a JSON object: {line[:80]!r}")
        rows.append(row)
        lines.append(number)
    return rows, lines
