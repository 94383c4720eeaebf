"""CSV files, written as their source's dialect says, of which every row is judged.

Rows are found block by block (``delimited``), their wanted fields become columns of text, and these the
declared types. A fault names the row, and the line that an editor shows it in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from catalog.arrow_types import arrow_schema
from catalog.values.stream import FilesSource, Stream
from service.errors import UnusableFile
from service.inputs.formats.delimited.header import fields_of, named_fields
from service.inputs.formats.facts import FileFacts, facts_of
from service.inputs.formats.options import option_that_reads
from service.inputs.formats.values import TextForm, UnfitValueError, expected_text, from_text

if TYPE_CHECKING:
    from service.inputs.formats.delimited.rows import FoundRows

#: Characters of a value that an error repeats.
_SHOWN: Final = 80


def inspect_csv(stream: Stream, path: str) -> FileFacts:
    """Return the facts of a CSV file; every row is parsed.

    Raises:
        UnusableFile: It has no header, lacks a column, or a row is malformed (the first is named).
    """
    file = _File(stream, path, [column.name for column in stream.columns])
    times = [file.typed(found).column(stream.event_time).chunk(0) for found in file.batches()]
    times_of_all = pa.chunked_array(times, pa.timestamp("us"))
    return facts_of(stream, len(times_of_all), times_of_all)


def read_csv(stream: Stream, path: str, columns: Sequence[str], first_row: int, rows: int) -> pa.Table:
    """Return a run of rows of a CSV file.

    Raises:
        UnusableFile: As `inspect_csv`, or it holds fewer rows.
    """
    file = _File(stream, path, columns)
    tables = [file.schema.empty_table()]
    left, seen = rows, 0
    for found in file.batches():
        if seen + found.rows > first_row:
            table = file.typed(found).slice(max(first_row - seen, 0), left)
            tables.append(table)
            left -= table.num_rows
        seen += found.rows
        if not left:
            break
    if left:
        raise UnusableFile(f"it has fewer than {first_row + rows} rows")
    return pa.concat_tables(tables)


class _File:
    """A file of which some columns are wanted.

    Attributes:
        schema: Their names and types.
    """

    def __init__(self, stream: Stream, path: str, columns: Sequence[str]):
        assert isinstance(stream.source, FilesSource)
        self._dialect = stream.source.dialect
        self._form = TextForm.of(stream)
        # Its compiled scan loads numba, for which the first answer of the API must not wait.
        from service.inputs.formats.delimited.rows import CsvRows

        self._rows = CsvRows(path, self._dialect)
        declared = arrow_schema(stream)
        self.schema = pa.schema([declared.field(name) for name in columns])
        types = {column.name: column.type for column in stream.columns}
        self._columns = [(name, types[name]) for name in columns]
        self._slots = self._find(stream, columns)

    def _find(self, stream: Stream, columns: Sequence[str]) -> np.typing.NDArray[np.int64]:
        """Return the place among the wanted columns of each field, -1 for those that are not wanted."""
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
        return self._rows.batches(self._slots)

    def typed(self, found: FoundRows) -> pa.Table:
        """Return the wanted columns of the rows that were yielded last.

        Raises:
            UnusableFile: A value is not of its column's type; names the first.
        """
        arrays: list[pa.Array] = []
        misfits: list[tuple[int, str]] = []
        for slot, (name, column_type) in enumerate(self._columns):
            text = found.text(slot, self._dialect.null_values, keeps_quoted=column_type == "string")
            try:
                arrays.append(from_text(text, column_type, self._form))
            except UnfitValueError as error:
                shown = repr(str(error.value)[:_SHOWN])
                wanted = expected_text(column_type, self._form)
                wanted += option_that_reads(error.value, column_type, self._form)
                misfits.append((error.index, f'column "{name}": {shown} is not {wanted}'))
        if misfits:
            index, problem = min(misfits)
            raise UnusableFile(f"{self._rows.place(index)}, {problem}")
        return pa.table(arrays, schema=self.schema)
