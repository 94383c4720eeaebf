"""Reads JSON lines files: one object per line; missing keys are NULL, other keys and blank lines are ignored.

Keys match columns without regard to case, like names in headers of CSV and Parquet files. An object in which
a column, or any key, appears twice is refused: one of its values would be lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from catalog.columns.arrow_types import arrow_schema
from catalog.values.stream import FilesSource, Stream
from service.errors import UnusableFile
from service.inputs.formats.conversion.options import MOST_NAMED, option_that_reads
from service.inputs.formats.conversion.values import (
    JsonConstant,
    TextForm,
    UnfitValueError,
    exact_number,
    expected,
    from_json,
    json_text,
    needs_digits,
)
from service.inputs.formats.findings.bad_rows import BadRow, unfit_values
from service.inputs.formats.findings.facts import (
    FileFacts,
    facts_of,
    folded_name,
    refuse_other_unit,
    rows_ahead,
)
from service.inputs.formats.text_input import MAX_ROW_BYTES, text_lines

#: Characters of a value or a line that an error repeats.
_SHOWN: Final = 80


def inspect_jsonl(
    stream: Stream, path: str, bad: list[BadRow] | None = None, latest_us: int | None = None
) -> FileFacts:
    """Parse every row of a JSON lines file, and return the number of rows and their event-time range.

    Args:
        stream: The file's stream.
        path: The file.
        bad: List to which bad rows are appended; the result does not count them. If None, a bad row makes the
            whole file unusable.
        latest_us: Latest event time that is allowed, µs UTC; a later row is bad. None allows any.

    Raises:
        UnusableFile: A row is bad (the error names the first), no row has the event time, or the event times
            are most likely in another unit.
    """
    names = [column.name for column in stream.columns]
    numbers: list[object] = []
    try:
        table = _parse(stream, path, names, bad, latest_us, kept=[stream.event_time], numbers=numbers)
    finally:
        refuse_other_unit(stream, numbers)
    times = table.column(stream.event_time)
    if table.num_rows and times.null_count == table.num_rows:
        raise UnusableFile(f'it is of another schema: no row has the event time "{stream.event_time}"')
    return facts_of(stream, table.num_rows, times)


def read_jsonl(
    stream: Stream,
    path: str,
    columns: Sequence[str],
    first_row: int,
    rows: int,
    *,
    skips: bool = False,
    latest_us: int | None = None,
) -> pa.Table:
    """Return a run of rows of a JSON lines file.

    Args:
        stream: The file's stream.
        path: The file.
        columns: Columns to return.
        first_row: Number of good rows before the first row to return.
        rows: Number of rows.
        skips: Whether to skip bad rows.
        latest_us: As in `inspect_jsonl`; applies if bad rows are skipped.

    Raises:
        UnusableFile: As in `inspect_jsonl`, or the file has fewer rows than requested.
    """
    # A fault in any column makes a row bad, so all columns are read.
    wanted = [column.name for column in stream.columns] if skips else columns
    table = _parse(stream, path, wanted, [] if skips else None, latest_us).slice(first_row, rows)
    if table.num_rows != rows:
        raise UnusableFile(f"it has fewer than {first_row + rows} rows")
    return table.select(list(columns))


@dataclass(slots=True)
class _Rows:
    """Consecutive lines of a JSON lines file, and the objects parsed from them.

    Attributes:
        bad: List to which bad rows are appended; if None, a bad row makes the whole file unusable.
        texts: The lines.
        first_line: Number of the first line.
        objects: Parsed rows.
        numbers: Row number of each parsed row, from 1.
        lines: Line number of each parsed row, from 1.
    """

    bad: list[BadRow] | None
    texts: list[str]
    first_line: int
    objects: list[dict[str, Any]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)

    def refuse(self, number: int, line: int, column: str | None, between: str, reason: str) -> None:
        """Leave a bad row out, or refuse the file because of it."""
        if self.bad is None:
            raise UnusableFile(f"row {number} (line {line}){between}{reason}")
        text = self.texts[line - self.first_line].strip(" \t\r")
        text = text if len(text) <= MAX_ROW_BYTES else text[:_SHOWN]
        self.bad.append(BadRow(number, line, column, reason, text))

    def refuse_some(self, found: Mapping[int, tuple[str, str, str]]) -> None:
        """Refuse rows by index; ``found`` maps an index to (column, between, reason) as in `refuse`."""
        if not found:
            return
        for index, (column, between, reason) in sorted(found.items()):
            self.refuse(self.numbers[index], self.lines[index], column, between, reason)
        kept = [index for index in range(len(self.objects)) if index not in found]
        self.objects = [self.objects[index] for index in kept]
        self.numbers = [self.numbers[index] for index in kept]
        self.lines = [self.lines[index] for index in kept]


def _parse(
    stream: Stream,
    path: str,
    columns: Sequence[str],
    bad: list[BadRow] | None = None,
    latest_us: int | None = None,
    *,
    kept: Sequence[str] | None = None,
    numbers: list[object] | None = None,
) -> pa.Table:
    """Return columns of all good rows: those of ``kept``, or all; put event times to ``numbers``."""
    declared = arrow_schema(stream)
    kept = columns if kept is None else kept
    tables = [pa.schema([declared.field(name) for name in kept]).empty_table()]
    for rows in _objects(stream, path, bad):
        if numbers is not None:
            times = (row.get(stream.event_time) for row in rows.objects)
            numbers.extend(time for time in times if not isinstance(time, str))
        if rows.objects:
            tables.append(_typed(stream, rows, columns, latest_us).select(list(kept)))
    return pa.concat_tables(tables)


def _typed(stream: Stream, rows: _Rows, columns: Sequence[str], latest_us: int | None) -> pa.Table:
    bad = rows.bad
    types = {column.name: column.type for column in stream.columns}
    declared = arrow_schema(stream)
    form = TextForm.of(stream)
    while True:
        arrays: list[pa.Array] = []
        misfits: dict[int, tuple[str, str, str]] = {}
        for name in columns:
            values = [row.get(name) for row in rows.objects]
            try:
                arrays.append(from_json(values, types[name], form))
            except UnfitValueError as error:
                for index, value in _unfit(values, types[name], form, error, bad):
                    wanted = expected(types[name], form)
                    is_named = len(misfits) + len(rows.bad or ()) < MOST_NAMED
                    if is_named and types[name] in ("timestamp", "date"):  # no option helps with JSON numbers
                        wanted += option_that_reads(value, types[name], form)
                    problem = f"{json_text(value, _SHOWN)} is not {wanted}"
                    misfits.setdefault(index, (name, f', column "{name}": ', problem))
        if not misfits and stream.event_time in columns:
            event_time = stream.event_time
            ahead = rows_ahead(stream, arrays[list(columns).index(event_time)], latest_us)
            misfits = {i: (event_time, f', column "{event_time}": ', reason) for i, reason in ahead.items()}
        if not misfits:
            return pa.table(arrays, schema=pa.schema([declared.field(name) for name in columns]))
        rows.refuse_some(misfits)


def _unfit(
    values: Sequence[object],
    column_type: str,
    form: TextForm,
    first: UnfitValueError,
    bad: list[BadRow] | None,
) -> list[tuple[int, object]]:
    """Return index and value of all unfit values, or of only the first if bad rows are not skipped."""
    if bad is None:
        return [(first.index, first.value)]
    return unfit_values(len(values), lambda start, end: from_json(values[start:end], column_type, form))


def _objects(stream: Stream, path: str, bad: list[BadRow] | None) -> Iterator[_Rows]:
    """Yield the objects of a file, some at a time, with the columns as keys."""
    assert isinstance(stream.source, FilesSource)
    decode = json.JSONDecoder(
        object_pairs_hook=_object,
        parse_constant=JsonConstant,
        parse_float=exact_number if needs_digits(stream) else None,
    ).raw_decode  # takes half the time of json.loads, which also looks for surrounding white space
    count = 0
    for first, texts in text_lines(path, stream.source, all_of_long=bad is not None):
        rows = _Rows(bad, texts, first)
        count = _decode(rows, count, decode)
        _name_columns(stream, rows)
        yield rows


def _decode(rows: _Rows, count: int, decode: Callable[[str], tuple[Any, int]]) -> int:
    """Decode lines behind ``count`` rows; return the number of rows at their end."""
    for number, text in enumerate(rows.texts, start=rows.first_line):
        line = text.strip(" \t\r")
        if not line and len(text) <= MAX_ROW_BYTES:
            continue
        count += 1
        if len(text) > MAX_ROW_BYTES:
            rows.refuse(count, number, None, " ", f"is longer than {MAX_ROW_BYTES >> 20} MB")
            continue
        try:
            row, end = decode(line)
        except _KeyTwiceError as error:
            key = json_text(str(error), _SHOWN)
            rows.refuse(count, number, None, ": ", f"the key {key} appears twice; keep one of them")
            continue
        except (ValueError, RecursionError):
            row, end = None, -1
        if end != len(line):
            rows.refuse(count, number, None, " ", f"is not JSON: {line[:_SHOWN]!r}")
        elif not isinstance(row, dict):
            rows.refuse(count, number, None, " ", f"is not a JSON object: {line[:_SHOWN]!r}")
        else:
            rows.objects.append(row)
            rows.numbers.append(count)
            rows.lines.append(number)
    return count


class _KeyTwiceError(Exception):
    """A key appears twice in an object."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _KeyTwiceError(next(key for key in keys if keys.count(key) > 1))
    return found


def _name_columns(stream: Stream, rows: _Rows) -> None:
    """Rename keys to the names of the columns; in most files the keys already have these names."""
    columns = {folded_name(column.name): column.name for column in stream.columns}
    names = set(chain.from_iterable(rows.objects))
    others = {
        name: columns[folded_name(name)]
        for name in names.difference(columns.values())
        if folded_name(name) in columns
    }
    if not others:
        return
    twice: dict[int, tuple[str, str, str]] = {}
    for index, row in enumerate(rows.objects):
        found = {others.get(name, name): value for name, value in row.items()}
        if len(found) < len(row):
            named = [others.get(name, name) for name in row]
            name = next(name for name in named if named.count(name) > 1)
            problem = f'has column "{name}" twice, in keys that differ by case; keep one of them'
            twice[index] = (name, " ", problem)
        else:
            rows.objects[index] = found
    rows.refuse_some(twice)
