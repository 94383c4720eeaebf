"""Results as bytes, one function per format; text formats write the values of each type as follows.

timestamp        2026-01-01T00:00:00.000000Z
date             2026-01-01
decimal(p,s)     text with all its digits, since JSON numbers are read as doubles
double           number; the texts NaN, Infinity and -Infinity, for which JSON has no numbers
bigint           number with all its digits (a reader that uses doubles loses digits beyond 2**53)
NULL             null; an empty field in CSV, where the empty string is ""

In JSON lines and server-sent events a result punctuation has the form below, and other rows omit its column:

{"_punctuation":{"item_id":180}}

Texts are built column by column and joined into lines in one step. For JSON lines of six columns this takes
4 µs per row, compared with 16 to 25 µs row by row.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from json.encoder import encode_basestring
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from catalog.values.query import PUNCTUATION_OUTPUT

#: Names of the doubles for which JSON has no numbers, by Python's name.
_NON_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}

#: Characters that must be escaped in a JSON string.
_ESCAPED = r'["\\\x00-\x1f]'


def rows_for_json(table: pa.Table) -> list[dict[str, Any]]:
    """Return one dict per row, with values that the json module writes correctly."""
    columns = [_json_values(column) for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def json_line(row: dict[str, Any]) -> str:
    """Return a row as one line of JSON, without line end."""
    return json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def result_line(row: dict[str, Any]) -> str:
    """Return a row of ``rows_for_json`` as the line that ``ndjson`` would write."""
    if PUNCTUATION_OUTPUT not in row:
        return json_line(row)
    pattern = row[PUNCTUATION_OUTPUT]
    if pattern is not None:
        return f'{{"{PUNCTUATION_OUTPUT}":{pattern}}}'
    return json_line({name: value for name, value in row.items() if name != PUNCTUATION_OUTPUT})


def ndjson(table: pa.Table) -> bytes:
    """Return the rows as one JSON object per line."""
    return _joined([*_line_parts(table), "\n"], table.num_rows)


def events(table: pa.Table, name: str, ids: Sequence[pa.Array | str]) -> bytes:
    r"""Return the rows as server-sent events, each with an object as its data.

    >>> events(pa.table({"k": [7, 8]}), "result", ["3.", pa.array(["1", "2"])])
    b'event: result\ndata: {"k":7}\nid: 3.1\n\nevent: result\ndata: {"k":8}\nid: 3.2\n\n'

    Args:
        table: The rows.
        name: Name of the events; result punctuations have the name ``punctuation``.
        ids: Parts of the ids of the events, in order: a part is a text that all ids have in common, or an
            array with one text per event.
    """
    names: list[pa.Array | pa.ChunkedArray | str] = [f"event: {name}\ndata: "]
    if PUNCTUATION_OUTPUT in table.column_names:
        ordinary = pc.is_null(table.column(PUNCTUATION_OUTPUT))
        names = ["event: ", pc.if_else(ordinary, name, "punctuation"), "\ndata: "]
    return _joined([*names, *_line_parts(table), "\nid: ", *ids, "\n\n"], table.num_rows)


def json_array(table: pa.Table) -> bytes:
    """Return the rows as a JSON array of objects."""
    return b"[" + _joined([*_object_parts(table), ","], table.num_rows)[:-1] + b"]"


def csv_text(table: pa.Table, *, header: bool = True) -> bytes:
    """Return the rows as CSV (RFC 4180); without a header they can be appended to earlier rows."""
    target = io.BytesIO()
    texts = [_csv_column(column) for column in table.columns]
    options = csv.WriteOptions(include_header=header, quoting_style="needed")
    csv.write_csv(pa.table(texts, names=table.column_names), target, options)
    return target.getvalue()


def arrow_stream(table: pa.Table) -> bytes:
    """Return the rows as an Arrow IPC stream, in their own types."""
    target = io.BytesIO()
    with pa.ipc.new_stream(target, table.schema) as writer:
        writer.write_table(table)
    return target.getvalue()


def parquet(table: pa.Table) -> bytes:
    """Return the rows as a Parquet file, in their own types."""
    target = io.BytesIO()
    pq.write_table(table, target)
    return target.getvalue()


def _line_parts(table: pa.Table) -> list[pa.Array | pa.ChunkedArray | str]:
    """Return the text parts of each row's JSON object; result punctuations have their own form."""
    if PUNCTUATION_OUTPUT not in table.column_names:
        return _object_parts(table)
    patterns = table.column(PUNCTUATION_OUTPUT).cast(pa.large_string())
    rows = _lines(_object_parts(table.drop_columns(PUNCTUATION_OUTPUT)))
    start, end = (pa.scalar(text, pa.large_string()) for text in (f'{{"{PUNCTUATION_OUTPUT}":', "}"))
    own = pc.binary_join_element_wise(start, patterns, end, pa.scalar("", pa.large_string()))
    return [pc.coalesce(own, rows)]


def _object_parts(table: pa.Table) -> list[pa.Array | pa.ChunkedArray | str]:
    """Return the parts of each row's JSON object: texts common to all rows, and columns of texts."""
    parts: list[pa.Array | pa.ChunkedArray | str] = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        parts += [("," if parts else "{") + json.dumps(name, ensure_ascii=False) + ":", _json_texts(column)]
    return [*parts, "}"] if parts else ["{}"]


def _joined(parts: Sequence[pa.Array | pa.ChunkedArray | str], rows: int) -> bytes:
    """Concatenate the parts of each row, and then all rows, into one text."""
    if not rows:
        return b""
    lines = _lines(parts)
    chunks = lines.chunks if isinstance(lines, pa.ChunkedArray) else [lines]
    return b"".join(_text_of(chunk) for chunk in chunks)


def _lines(parts: Sequence[pa.Array | pa.ChunkedArray | str]) -> pa.Array | pa.ChunkedArray:
    """Concatenate the parts of each row into one text per row."""
    texts = [
        pa.scalar(part, pa.large_string()) if isinstance(part, str) else part.cast(pa.large_string())
        for part in parts
    ]
    return pc.binary_join_element_wise(*texts, pa.scalar("", pa.large_string()))


def _text_of(lines: pa.LargeStringArray) -> memoryview:
    """Return all values, concatenated: a view of the array's memory."""
    if not len(lines):
        return memoryview(b"")
    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, np.int64)
    return memoryview(data)[ends[lines.offset] : ends[lines.offset + len(lines)]]


def _json_texts(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Return the JSON text of each value."""
    kind = column.type
    if pa.types.is_floating(kind):
        texts = [
            "null" if v is None else repr(v) if math.isfinite(v) else f'"{_NON_FINITE[repr(v)]}"'
            for v in column.to_pylist()
        ]
        return pa.array(texts, pa.large_string())
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.large_string()).fill_null("null")
    texts_of = _text_column(column).cast(pa.large_string())
    if pc.any(pc.match_substring_regex(texts_of, _ESCAPED)).as_py():
        encoded = ["null" if v is None else encode_basestring(v) for v in texts_of.to_pylist()]
        return pa.array(encoded, pa.large_string())
    quote, nothing = pa.scalar('"', pa.large_string()), pa.scalar("", pa.large_string())
    return pc.binary_join_element_wise(quote, texts_of, quote, nothing).fill_null("null")


def _json_values(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = _text_column(column).to_pylist()
    if _has_non_finite(column):
        return [v if v is None or math.isfinite(v) else _NON_FINITE[str(v)] for v in values]
    return values


def _csv_column(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    if _has_non_finite(column):
        texts = [None if v is None else _NON_FINITE.get(repr(v), repr(v)) for v in column.to_pylist()]
        return pa.array(texts, pa.string())
    return _text_column(column)


def _text_column(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Return the column as text if JSON and CSV have no values of its type, else unchanged."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        # Takes half the time of strftime for the same text.
        text = pc.replace_substring(column.cast(pa.large_string()), " ", "T", max_replacements=1)
        return pc.binary_join_element_wise(text, *(pa.scalar(t, pa.large_string()) for t in ("Z", "")))
    if pa.types.is_date(kind):
        return column.cast(pa.string())
    if pa.types.is_decimal(kind):
        # Arrow's own cast writes small decimals in scientific notation, such as 1E-8.
        return pa.array([None if v is None else format(v, "f") for v in column.to_pylist()], pa.string())
    return column


def _has_non_finite(column: pa.ChunkedArray) -> bool:
    return pa.types.is_floating(column.type) and pc.all(pc.is_finite(column), min_count=0).as_py() is False
