"""Results as bytes, a function for each format; in text a value of each type looks like this.

timestamp        2026-01-01T00:00:00.000000Z
date             2026-01-01
decimal(p,s)     text with all its digits, since JSON numbers are read as doubles
double           number; NaN, Infinity and -Infinity as those texts, which JSON has no numbers for
bigint           number, all its digits (a reader that takes it for a double loses some beyond 2**53)
NULL             null; in CSV nothing, where the empty string is ""
"""

from __future__ import annotations

import io
import json
import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

#: Python's names of the doubles that JSON lacks, and ours.
_NON_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def rows_for_json(table: pa.Table) -> list[dict[str, Any]]:
    """Return one dict per row, of values that the json module writes as they are meant."""
    columns = [_json_values(column) for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def json_line(row: dict[str, Any]) -> str:
    """Return a row as one line of JSON, without line end."""
    return json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def ndjson(table: pa.Table) -> bytes:
    """Return the rows as one JSON object per line."""
    return "".join(json_line(row) + "\n" for row in rows_for_json(table)).encode()


def csv_text(table: pa.Table, *, header: bool = True) -> bytes:
    """Return the rows as CSV (RFC 4180), with a header unless they go on where others stopped."""
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
    """The column as text where JSON and CSV have no value for its type, else as it is."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return pc.strftime(column, "%Y-%m-%dT%H:%M:%SZ")
    if pa.types.is_date(kind):
        return pc.strftime(column, "%Y-%m-%d")
    if pa.types.is_decimal(kind):
        # Arrow's own cast writes 1E-8 for small ones.
        return pa.array([None if v is None else format(v, "f") for v in column.to_pylist()], pa.string())
    return column


def _has_non_finite(column: pa.ChunkedArray) -> bool:
    return pa.types.is_floating(column.type) and pc.all(pc.is_finite(column), min_count=0).as_py() is False
