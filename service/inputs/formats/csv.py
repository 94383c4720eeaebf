"""Reads CSV files in their source's dialect, and checks every row.

Rows are found block by block (``delimited``), their wanted fields become columns of text, and the text is
converted to the declared types. An error names the row and its line number in an editor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from catalog.columns.arrow_types import arrow_schema
from catalog.values.stream import FilesSource, Stream
from service.errors import UnusableFile
from service.inputs.formats.conversion.options import MOST_NAMED, null_values_that_read, option_that_reads
from service.inputs.formats.conversion.times import are_plausible, numbers_in
from service.inputs.formats.conversion.values import TextForm, UnfitValueError, expected_text, from_text
from service.inputs.formats.delimited.header import fields_of, named_fields
from service.inputs.formats.findings.bad_rows import BadRow, unfit_values
from service.inputs.formats.findings.facts import FileFacts, facts_of, refuse_other_unit, rows_ahead

if TYPE_CHECKING:
    from service.inputs.formats.delimited.rows import FoundRows

#: Characters of a value that an error repeats.
_SHOWN: Final = 80


def inspect_csv(
    stream: Stream, path: str, bad: list[BadRow] | None = None, latest_us: int | None = None
) -> FileFacts:
    """Parse every row of a CSV file, and return the number of rows and their event-time range.

    Args:
        stream: The file's stream.
        path: The file.
        bad: List to which bad rows are appended; the result does not count them. If None, a bad row makes the
            whole file unusable.
        latest_us: Latest event time that is allowed, µs UTC; a later row is bad. None allows any.

    Raises:
        UnusableFile: The file has no header, lacks a column, has a bad row (the first is named), or its event
            times are most likely in another unit.
    """
    file = _File(stream, path, [column.name for column in stream.columns], bad, latest_us)
    times = [file.typed(found).column(stream.event_time).chunk(0) for found in file.batches()]
    times_of_all = pa.chunked_array(times, pa.timestamp("us"))
    facts = facts_of(stream, len(times_of_all), times_of_all)
    if stream.time_unit is not None and (bad or not are_plausible(facts.t_min_us, facts.t_max_us)):
        # The converted times do not show which texts were numbers, so the file is read again; this is rare.
        again = _File(stream, path, [stream.event_time], None if bad is None else [])
        refuse_other_unit(stream, numbers_in(again.texts()))
    return facts


def read_csv(
    stream: Stream,
    path: str,
    columns: Sequence[str],
    first_row: int,
    rows: int,
    *,
    skips: bool = False,
    latest_us: int | None = None,
) -> pa.Table:
    """Return a run of rows of a CSV file.

    Args:
        stream: The file's stream.
        path: The file.
        columns: Columns to return.
        first_row: Number of good rows before the first row to return.
        rows: Number of rows.
        skips: Whether to skip bad rows.
        latest_us: As in `inspect_csv`; applies if bad rows are skipped.

    Raises:
        UnusableFile: As in `inspect_csv`, or the file has fewer rows than requested.
    """
    # A fault in any column makes a row bad, so all columns are read.
    wanted = [c.name for c in stream.columns] if skips else columns
    file = _File(stream, path, wanted, [] if skips else None, latest_us)
    tables = [file.schema.empty_table()]
    left, seen = rows, 0
    for found in file.batches():
        table = file.typed(found) if skips or seen + found.rows > first_row else None
        count = found.rows if table is None else table.num_rows
        if table is not None and seen + count > first_row:
            tables.append(table.slice(max(first_row - seen, 0), left))
            left -= tables[-1].num_rows
        seen += count
        if not left:
            break
    if left:
        raise UnusableFile(f"it has fewer than {first_row + rows} rows")
    return pa.concat_tables(tables).select(list(columns))


class _File:
    """A file and the columns to read from it.

    Attributes:
        schema: Names and types of these columns.
    """

    def __init__(
        self,
        stream: Stream,
        path: str,
        columns: Sequence[str],
        bad: list[BadRow] | None = None,
        latest_us: int | None = None,
    ):
        assert isinstance(stream.source, FilesSource)
        self._stream, self._latest_us = stream, latest_us
        self._dialect = stream.source.dialect
        self._form = TextForm.of(stream)
        # Imported here because its compiled scan loads numba, which would delay the API's first answer.
        from service.inputs.formats.delimited.rows import CsvRows

        self._rows, self._bad = CsvRows(path, stream.source), bad
        declared = arrow_schema(stream)
        self.schema = pa.schema([declared.field(name) for name in columns])
        types = {column.name: column.type for column in stream.columns}
        self._columns = [(name, types[name]) for name in columns]
        self._slots = self._find(stream, columns)

    def _find(self, stream: Stream, columns: Sequence[str]) -> np.typing.NDArray[np.int64]:
        """Return, for each field of a row, its index among the wanted columns, or -1 if it is not wanted."""
        if self._dialect.header:
            header = fields_of(self._rows.header(), self._dialect)
            names = named_fields(stream, header, self._rows.head, self._dialect)
        else:
            header = [column.name for column in stream.columns]
            names = {name: name for name in header}
        slots = np.full(len(header), -1, np.int64)
        slots[[header.index(names[name]) for name in columns]] = np.arange(len(columns))
        return slots

    def batches(self) -> Iterator[FoundRows]:
        """Yield the rows."""
        return self._rows.batches(self._slots, self._bad)

    def texts(self) -> pa.ChunkedArray:
        """Return the text of the first wanted column of all rows."""
        nulls = self._dialect.null_values
        texts = [found.text(0, nulls, keeps_quoted=False) for found in self.batches()]
        return pa.chunked_array(texts, pa.string())

    def typed(self, found: FoundRows) -> pa.Table:
        """Convert the wanted columns of the rows yielded last to their declared types.

        Raises:
            UnusableFile: A value is not of its column's type, or a time is not allowed; the error names the
                first such value.
        """
        texts = [
            found.text(
                slot,
                self._dialect.null_values,
                keeps_quoted=column_type == "string",
                takes_spaced=self._takes_spaced(column_type),
            )
            for slot, (_, column_type) in enumerate(self._columns)
        ]
        sound = np.ones(found.rows, np.bool_)
        while True:
            arrays: list[pa.Array] = []
            faults: dict[int, tuple[str, str]] = {}
            places = np.flatnonzero(sound)
            for slot, ((name, column_type), text) in enumerate(zip(self._columns, texts, strict=True)):
                kept = text if len(places) == found.rows else text.filter(pa.array(sound))
                try:
                    arrays.append(from_text(kept, column_type, self._form))
                except UnfitValueError as error:
                    spaced = None if self._takes_spaced(column_type) else found.spaced(slot)
                    for index, value in self._unfit(kept, column_type, error):
                        if (place := int(places[index])) in faults:
                            continue
                        reason = f"{str(value)[:_SHOWN]!r} is not {expected_text(column_type, self._form)}"
                        if spaced is not None and spaced[place]:
                            reason += "; remove the spaces after the closing quote"
                        elif len(faults) + len(self._bad or ()) < MOST_NAMED:
                            reason += option_that_reads(value, column_type, self._form)
                            reason += null_values_that_read(value, self._dialect.null_values)
                        faults[place] = (name, reason)
            if not faults:
                table = pa.table(arrays, schema=self.schema)
                event_time = self._stream.event_time
                times = table.column(event_time) if event_time in table.column_names else None
                ahead = {} if times is None else rows_ahead(self._stream, times, self._latest_us)
                faults = {int(places[index]): (event_time, reason) for index, reason in ahead.items()}
            if not faults:
                return table
            for index, (name, reason) in sorted(faults.items()):
                if self._bad is None:
                    raise UnusableFile(f'{self._rows.place(index)}, column "{name}": {reason}')
                self._bad.append(self._rows.bad_row(index, name, reason))
                sound[index] = False

    def _takes_spaced(self, column_type: str) -> bool:
        """Return whether spaces may follow a quoted value: as in DuckDB, only for text and ISO 8601 times."""
        return column_type == "string" or (column_type == "timestamp" and self._form.timestamp_format is None)

    def _unfit(self, text: pa.Array, column_type: str, first: UnfitValueError) -> list[tuple[int, object]]:
        """Return index and text of all unfit values, or of only the first if bad rows are not skipped."""
        if self._bad is None:
            return [(first.index, first.value)]
        return unfit_values(
            len(text), lambda start, end: from_text(text.slice(start, end - start), column_type, self._form)
        )
