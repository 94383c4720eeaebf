r"""Compiled search for the beginnings and ends of CSV fields in a block of bytes.

    data    1,"a ""b",c\n2,
            ^ ^ ^      ^         begin of each wanted field; the second row is incomplete

A field is quoted if its first character other than spaces is the quote. Inside of quotes everything is text
except the escape, which makes the next character literal. Only spaces may follow the closing quote; they are
flagged, since not every type allows them. A line end is a line feed, a carriage return or both. Empty lines
are skipped, except if rows have one field. The rules are those of DuckDB's strict mode
(``tests/service/inputs/formats/test_files_against_duckdb.py``).
"""

from __future__ import annotations

from typing import Final

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]

#: Reasons why scanning ends at a row.
SOUND: Final = 0
OPEN_QUOTE: Final = 1
TEXT_AFTER_QUOTE: Final = 2
OTHER_WIDTH: Final = 3

#: Flags of a field: it was quoted; it has escapes to be removed; spaces follow its closing quote.
QUOTED: Final = 1
ESCAPED: Final = 2
SPACED: Final = 4

_LF: Final = 10
_CR: Final = 13
_SPACE: Final = 32

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_BYTES_OUT = types.Array(types.uint8, 1, "C")
_INT64S = types.Array(types.int64, 1, "C")
_INT64S_READ = types.Array(types.int64, 1, "C", readonly=True)
_INT32S = types.Array(types.int32, 1, "C")
_TABLE = types.Array(types.int64, 2, "C")
_FLAGS = types.Array(types.uint8, 2, "C")
_FOUR = types.UniTuple(types.int64, 4)  # type: ignore[no-untyped-call]  # numba has no type hints


@numba.njit(
    _FOUR(
        _BYTES, types.int64, types.boolean, types.int64, types.int64, types.int64,
        types.int64, _INT64S_READ, _INT64S, _TABLE, _TABLE, _FLAGS,
    ),
    nogil=True,
    cache=True,
)  # fmt: skip
def scan_rows(
    data: Bytes,
    start: int,
    final: bool,
    delimiter: int,
    quote: int,
    escape: int,
    width: int,
    slots: Places,
    row_starts: Places,
    begins: Places,
    ends: Places,
    flags: Bytes,
) -> tuple[int, int, int, int]:
    """Find the wanted fields of complete rows, until the data or the arrays end or a row is malformed.

    Args:
        data: uint8[n], text in UTF-8.
        start: Place where the first row begins.
        final: Whether no data follows, so that the end of the data ends a row.
        delimiter: Character between fields.
        quote: Quote character, -1 for none.
        escape: Escape character inside of quotes; may be the quote.
        width: Number of fields of a row, 0 for any number; an additional empty field at the end is ignored.
        slots: int64[fields], column of ``begins`` for a field, -1 for a field that is not wanted.
        row_starts: int64[rows], filled with the place where each row begins.
        begins: int64[rows, wanted], filled with the place where each field begins, without its quote.
        ends: int64[rows, wanted], filled with the place where each field ends, exclusive.
        flags: uint8[rows, wanted], filled with ``QUOTED``, ``ESCAPED`` and ``SPACED``.

    Returns:
        Four numbers: the number of rows found; the offset of the next row; the fault of the next row, or
        ``SOUND``; the next row's number of fields for ``OTHER_WIDTH``, the offset of any other fault, or 0.
    """
    n = len(data)
    at = start
    rows = 0
    while rows < len(row_starts) and at < n:
        row = at
        if width != 1 and (data[at] == _LF or data[at] == _CR):
            at += 1
            continue
        field = 0
        while True:  # a field
            begin = at
            flag = 0
            while begin < n and data[begin] == _SPACE and delimiter != _SPACE:
                begin += 1
            if begin < n and data[begin] == quote:
                flag = QUOTED
                opening = begin
                begin += 1
                at = begin
                closed = False
                while at < n:
                    byte = data[at]
                    if byte == escape and (escape != quote):
                        if at + 1 >= n:
                            break
                        flag |= ESCAPED
                        at += 2
                    elif byte == quote:
                        if escape == quote and at + 1 < n and data[at + 1] == quote:
                            flag |= ESCAPED
                            at += 2
                        elif escape == quote and at + 1 >= n and not final:
                            break
                        else:
                            closed = True
                            break
                    else:
                        at += 1
                if not closed:
                    if final:
                        return rows, row, OPEN_QUOTE, opening
                    return rows, row, SOUND, 0
                end = at
                at += 1
                while at < n and data[at] == _SPACE and delimiter != _SPACE:
                    flag |= SPACED
                    at += 1
                if at < n and data[at] != delimiter and data[at] != _LF and data[at] != _CR:
                    return rows, row, TEXT_AFTER_QUOTE, at
            else:
                begin = at
                while at < n and data[at] != delimiter and data[at] != _LF and data[at] != _CR:
                    at += 1
                end = at
            if at >= n and not final:
                return rows, row, SOUND, 0
            if field < len(slots):
                slot = slots[field]
                if slot >= 0:
                    begins[rows, slot] = begin
                    ends[rows, slot] = end
                    flags[rows, slot] = flag
            field += 1
            if at < n and data[at] == delimiter:
                at += 1
                if at >= n and not final:
                    return rows, row, SOUND, 0
                continue
            break
        if width > 0 and field != width and not (field == width + 1 and flag == 0 and begin == end):
            return rows, row, OTHER_WIDTH, field
        if at < n and data[at] == _CR:
            if at + 1 >= n and not final:
                return rows, row, SOUND, 0
            at += 1
            if at < n and data[at] == _LF:
                at += 1
        elif at < n:
            at += 1
        row_starts[rows] = row
        rows += 1
    return rows, at, SOUND, 0


@numba.njit(
    types.int64(
        _BYTES, _TABLE, _TABLE, _FLAGS, types.int64, types.int64, types.int64, _INT32S, _BYTES_OUT
    ),
    nogil=True,
    cache=True,
)  # fmt: skip
def copy_fields(
    data: Bytes,
    begins: Places,
    ends: Places,
    flags: Bytes,
    slot: int,
    rows: int,
    escape: int,
    offsets: NDArray[np.int32],
    out: Bytes,
) -> int:
    """Copy the texts of one wanted field, one after the other and without escapes.

    Args:
        data: As given to `scan_rows`.
        begins: As filled by `scan_rows`.
        ends: As filled by `scan_rows`.
        flags: As filled by `scan_rows`.
        slot: Column of these arrays.
        rows: Number of rows.
        escape: As given to `scan_rows`.
        offsets: int32[rows + 1], filled with the place in ``out`` where each text begins.
        out: uint8[...], filled with the texts; must have room for all fields of the column with their
            escapes.

    Returns:
        Bytes that were written.
    """
    to = 0
    for row in range(rows):
        offsets[row] = to
        at, end = begins[row, slot], ends[row, slot]
        if flags[row, slot] & ESCAPED:
            while at < end:
                if data[at] == escape and at + 1 < end:
                    at += 1
                out[to] = data[at]
                to += 1
                at += 1
        else:
            for place in range(at, end):
                out[to] = data[place]
                to += 1
    offsets[rows] = to
    return to


@numba.njit(types.int64(_BYTES, types.int64), nogil=True, cache=True)
def count_lines(data: Bytes, end: int) -> int:
    """Return the number of lines that end before a place, counted as an editor does."""
    lines = 0
    for at in range(end):
        if data[at] == _LF or (data[at] == _CR and not (at + 1 < len(data) and data[at + 1] == _LF)):
            lines += 1
    return lines


@numba.njit(
    types.int64(_BYTES, types.int64, types.boolean, types.int64, types.int64, types.int64),
    nogil=True,
    cache=True,
)
def end_of_row(data: Bytes, start: int, final: bool, delimiter: int, quote: int, escape: int) -> int:
    """Find the end of a possibly malformed row: with any number of fields, or text after a closing quote.

    Text after a closing quote extends to the next delimiter or line end, like unquoted text.

    Args:
        data: uint8[n], text in UTF-8.
        start: Offset of the row.
        final: True if no data follows.
        delimiter: Character between fields.
        quote: Quote character, -1 for none.
        escape: Escape character inside quotes; may be the quote.

    Returns:
        Offset after the row's line end; -1 if the data ends before the line end or inside quotes.
    """
    n = len(data)
    at = start
    while True:  # a field
        while at < n and data[at] == _SPACE and delimiter != _SPACE:
            at += 1
        if at < n and data[at] == quote:
            at += 1
            closed = False
            while at < n:
                if data[at] == escape and at + 1 < n and (escape != quote or data[at + 1] == quote):
                    at += 2
                elif data[at] == quote:
                    closed = at + 1 < n or final
                    at += 1
                    break
                else:
                    at += 1
            if not closed:
                return -1
        while at < n and data[at] != delimiter and data[at] != _LF and data[at] != _CR:
            at += 1
        if at >= n:
            return n if final else -1
        if data[at] == delimiter:
            at += 1
            continue
        if data[at] == _CR:
            if at + 1 >= n and not final:
                return -1
            return at + 2 if at + 1 < n and data[at + 1] == _LF else at + 1
        return at + 1
