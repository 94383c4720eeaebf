"""Finds the complete rows of a CSV file block by block, and returns the text of their wanted fields.

Between two batches, the position is at the start of a row, where the next scan begins. A row that is cut off
by the end of a block is scanned again together with the next block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from catalog.values.stream import FilesSource
from service.errors import UnusableFile
from service.inputs.formats.delimited.scan import (
    OPEN_QUOTE,
    OTHER_WIDTH,
    QUOTED,
    SOUND,
    SPACED,
    TEXT_AFTER_QUOTE,
    Bytes,
    Places,
    copy_fields,
    count_lines,
    end_of_row,
    scan_rows,
)
from service.inputs.formats.findings.bad_rows import BadRow
from service.inputs.formats.text_input import MAX_ROW_BYTES, text_blocks

#: Maximum number of fields that one scan finds; each takes 17 bytes of memory.
_MAX_FIELDS: Final = 1 << 20
#: Characters of a row that an error repeats.
_SHOWN: Final = 80
#: Bytes at the start of the text that are searched for a header if the first line is not one.
_HEAD_BYTES: Final = 1 << 16
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True, slots=True, eq=False)
class FoundRows:
    """Rows that were found in a block, and the positions of their wanted fields.

    Attributes:
        data: The block.
        rows: Number of rows.
        row_starts: Start of each row; this and the following arrays are filled by `scan_rows`.
        begins: Start of each field.
        ends: End of each field.
        flags: ``QUOTED``, ``ESCAPED`` and ``SPACED`` of each field.
        quote: Quote character, -1 for none.
        escape: Escape character inside of quotes.
    """

    data: Bytes
    rows: int
    row_starts: Places
    begins: Places
    ends: Places
    flags: Bytes
    quote: int
    escape: int

    def text(
        self, slot: int, null_values: Sequence[str], *, keeps_quoted: bool, takes_spaced: bool = True
    ) -> pa.Array:
        """Return one wanted field of the rows.

        Args:
            slot: Number of the wanted field.
            null_values: Texts that are NULL.
            keeps_quoted: Whether a quoted field with one of these texts stays text instead of becoming NULL.
            takes_spaced: Whether spaces may follow a quoted field. If not, the text of a quoted field
                followed by spaces includes its quotes and one space, so that it is not valid for any type, as
                in DuckDB.

        Returns:
            string[rows].
        """
        rows = self.rows
        begins, ends, flags = self.begins, self.ends, self.flags
        if not takes_spaced and (spaced := self.spaced(slot)).any():
            begins, ends, flags = begins.copy(), ends.copy(), flags.copy()
            begins[:rows, slot] -= spaced
            ends[:rows, slot] += 2 * spaced
            flags[:rows, slot][spaced] = 0
        size = int((ends[:rows, slot] - begins[:rows, slot]).sum())
        offsets, out = np.empty(rows + 1, np.int32), np.empty(size, np.uint8)
        copy_fields(self.data, begins, ends, flags, slot, rows, self.escape, offsets, out)
        text = pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(out))
        is_null = np.zeros(rows, np.bool_)
        if "" in null_values:
            is_null |= offsets[1:] == offsets[:-1]
        if others := [value for value in null_values if value]:
            is_null |= pc.is_in(text, pa.array(others)).to_numpy(zero_copy_only=False)
        if keeps_quoted:
            is_null &= (self.flags[:rows, slot] & QUOTED) == 0
        return pc.if_else(pa.array(is_null), None, text) if is_null.any() else text

    def spaced(self, slot: int) -> NDArray[np.bool_]:
        """Return bool[rows]: true if spaces follow the closing quote of the wanted field."""
        found: NDArray[np.bool_] = (self.flags[: self.rows, slot] & SPACED) != 0
        return found


class CsvRows:
    """Rows of a file; they can be read once.

    Attributes:
        head: Beginning of the text after the skipped lines.
    """

    def __init__(self, path: str, source: FilesSource):
        dialect = source.dialect
        self._delimiter = ord(dialect.delimiter)
        self._quote = -1 if dialect.quote is None else ord(dialect.quote)
        self._escape = self._quote if dialect.escape is None else ord(dialect.escape)
        self._blocks = text_blocks(path, source)
        self._data, self._at, self._final = b"", 0, False
        #: Lines before the buffered data; rows before the last batch; the last batch itself.
        self._lines, self._rows = 0, 0
        self._found: FoundRows | None = None
        #: The last offset whose line was determined, and the number of lines before it.
        self._counted = (0, 0)
        self._bad: list[BadRow] | None = None
        self._more()
        self._skip(dialect.skip_rows)
        self.head = self._data[self._at : self._at + _HEAD_BYTES].decode("utf-8", "replace")

    def header(self) -> str:
        """Take the first row as the header, and return its text, or "" if the file has no row.

        Row 1 is the row after the header.

        Raises:
            UnusableFile: The row is malformed.
        """
        found = self._scan(np.empty(0, np.int64), width=0, most=1)
        text = self._data[int(found.row_starts[0]) : self._at].decode() if found.rows else ""
        self._found = None
        return text

    def batches(self, slots: Places, bad: list[BadRow] | None = None) -> Iterator[FoundRows]:
        """Yield the remaining rows of the file, in batches.

        Args:
            slots: Wanted fields, as in `scan_rows`.
            bad: List to which malformed rows are appended, instead of being yielded. A malformed row whose
                end cannot be found is always an error. If None, every malformed row is an error.

        Raises:
            UnusableFile: A row is malformed; the error names the first such row.
        """
        wanted = int(slots.max(initial=-1)) + 1
        self._bad = bad
        while (found := self._scan(slots, width=len(slots), most=_MAX_FIELDS // max(wanted, 1))).rows:
            yield found

    def place(self, index: int) -> str:
        """Return the number of a row of the last batch and its line number in an editor, as text."""
        assert self._found is not None
        return self._named(self._rows + index, int(self._found.row_starts[index]))

    def bad_row(self, index: int, column: str, reason: str) -> BadRow:
        """Return a row of the last batch as a skipped row; call with ascending indexes."""
        found = self._found
        assert found is not None
        start = int(found.row_starts[index])
        end = int(found.row_starts[index + 1]) if index + 1 < found.rows else self._at
        return BadRow(self._rows + index + 1, self._line(start), column, reason, self._text(start, end))

    def _named(self, row: int, at: int) -> str:
        return f"row {row + 1} (line {self._line(at)})"

    def _line(self, at: int) -> int:
        """Return the line number of an offset; cheap if offsets ascend from call to call."""
        known, lines = self._counted if self._counted[0] <= at else (0, 0)
        data = np.frombuffer(self._data, np.uint8)
        self._counted = at, lines + count_lines(data[known:], at - known)
        return self._lines + self._counted[1] + 1

    def _text(self, start: int, end: int) -> str:
        return self._data[start:end].decode("utf-8", "replace").rstrip("\r\n")

    def _scan(self, slots: Places, *, width: int, most: int) -> FoundRows:
        """Find the next rows: at least one row, or none if the file has ended."""
        wanted = int(slots.max(initial=-1)) + 1
        if self._found is not None:
            self._rows += self._found.rows
        starts = np.empty(most, np.int64)
        begins, ends = np.empty((most, wanted), np.int64), np.empty((most, wanted), np.int64)
        flags = np.empty((most, wanted), np.uint8)
        while True:
            data = np.frombuffer(self._data, np.uint8)
            rows, following, fault, fact = scan_rows(
                data, self._at, self._final, self._delimiter, self._quote, self._escape,
                width, slots, starts, begins, ends, flags,
            )  # fmt: skip
            if rows == 0:
                if fault != SOUND and self._bad is None:
                    self._refuse(following, fault, fact, width)
                if fault != SOUND and self._passed_over(following, fault, fact, width):
                    continue
                if self._final:
                    break
                if len(data) - following > MAX_ROW_BYTES:
                    self._refuse_long(following)
                self._at = following
                self._more()
                continue
            break
        if len(data) > MAX_ROW_BYTES:
            sizes = np.diff(starts[:rows], append=following)
            if sizes.max() > MAX_ROW_BYTES:
                row = int(sizes.argmax())
                self._refuse_long(int(starts[row]), row)
        self._at = following
        self._found = FoundRows(data, rows, starts, begins, ends, flags, self._quote, self._escape)
        return self._found

    def _passed_over(self, at: int, fault: int, fact: int, width: int) -> bool:
        """Skip a malformed row; return False if more data is needed to find its end."""
        assert self._bad is not None
        data = np.frombuffer(self._data, np.uint8)
        end = end_of_row(data, at, self._final, self._delimiter, self._quote, self._escape)
        if fault == OPEN_QUOTE or (end < 0 and self._final):
            self._refuse(at, fault, fact, width)
        if end < 0:
            return False
        reason = self._reason(at, fault, fact, width)
        self._bad.append(BadRow(self._rows + 1, self._line(at), None, reason, self._text(at, end)))
        self._rows += 1
        self._at = end
        return True

    def _more(self) -> None:
        """Append the next block of the file to the data that is not yet scanned."""
        block = next(self._blocks, None)
        self._final = block is None
        if block is not None:
            self._lines += count_lines(np.frombuffer(self._data, np.uint8), self._at)
            self._data = self._data[self._at :] + block.encode()
            self._at = 0
            self._counted = (0, 0)

    def _skip(self, lines: int) -> None:
        skipped = 0
        while skipped < lines:
            found = _LINE_END.search(self._data, self._at)
            if found is not None:
                self._at = found.end()
                skipped += 1
            elif self._final:
                self._at = len(self._data)
                return
            elif len(self._data) - self._at > MAX_ROW_BYTES:
                raise UnusableFile(f"line {skipped + 1} is longer than {MAX_ROW_BYTES >> 20} MB")
            else:
                self._more()

    def _refuse(self, at: int, fault: int, fact: int, width: int) -> NoReturn:
        between = " " if fault == OTHER_WIDTH else ": "
        raise UnusableFile(f"{self._named(self._rows, at)}{between}{self._reason(at, fault, fact, width)}")

    def _reason(self, at: int, fault: int, fact: int, width: int) -> str:
        if fault == OPEN_QUOTE:
            text = self._shown(fact)
            return f"the quote before {text} is never closed; if it is text, write it twice in a quoted field"
        if fault == TEXT_AFTER_QUOTE:
            return f"text follows a closing quote: {self._shown(at)}"
        return f"has {fact} fields, not {width}: {self._shown(at)}"

    def _refuse_long(self, at: int, row: int = 0) -> None:
        limit = f"{MAX_ROW_BYTES >> 20} MB"
        raise UnusableFile(
            f"{self._named(self._rows + row, at)} is longer than {limit}, or a quote in it is never closed"
        )

    def _shown(self, at: int) -> str:
        """Return the text from an offset to the end of its line, shortened, for an error."""
        found = _LINE_END.search(self._data, at)
        line = self._data[at : len(self._data) if found is None else found.start()]
        return repr(line.decode("utf-8", "replace")[:_SHOWN])
