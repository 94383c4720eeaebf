"""Results as a byte stream; only a part of it is in memory at a time."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from service.results.result_formats import csv_text, ndjson


class StreamFormat(StrEnum):
    """Format of a stream."""

    PARQUET = "parquet"
    ARROW = "arrow"
    CSV = "csv"
    NDJSON = "ndjson"


def streamed(form: StreamFormat, schema: pa.Schema, tables: Iterable[pa.Table]) -> Iterator[bytes]:
    """Yield the bytes of a file with the tables, part by part.

    The file is complete when the iterator is exhausted. A truncated Parquet file or Arrow stream is not
    valid.

    Args:
        form: Format of the file.
        schema: Schema of the tables.
        tables: The rows in order.
    """
    match form:
        case StreamFormat.NDJSON:
            yield from map(ndjson, tables)
        case StreamFormat.CSV:
            yield csv_text(schema.empty_table())
            yield from (csv_text(table, header=False) for table in tables)
        case StreamFormat.ARROW:
            yield from _written(lambda target: pa.ipc.new_stream(target, schema), tables)
        case StreamFormat.PARQUET:
            yield from _written(lambda target: pq.ParquetWriter(target, schema), tables)


class _TableWriter(Protocol):
    def write_table(self, table: pa.Table) -> None: ...


class _Parts(io.RawIOBase):
    """An in-memory file from which the bytes written so far can be removed."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._at = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: bytes) -> int:  # type: ignore[override]  # RawIOBase takes any buffer
        self._parts.append(bytes(data))
        self._at += len(data)
        return len(data)

    def taken(self) -> bytes:
        """Return what was written since the last call."""
        data, self._parts = b"".join(self._parts), []
        return data


def _written(
    begin: Callable[[_Parts], AbstractContextManager[_TableWriter]], tables: Iterable[pa.Table]
) -> Iterator[bytes]:
    """Yield the bytes that a writer makes from the tables."""
    target = _Parts()
    with begin(target) as writer:
        yield target.taken()
        for table in tables:
            writer.write_table(table)
            yield target.taken()
    yield target.taken()
