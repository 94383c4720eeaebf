"""A batch of results as one file, whole or not at all.

The name carries the batch and the query, so nothing else ever has it, and the rows of a committed batch
never change: writing it a second time puts the same bytes in its place. Until it is whole it has a hidden
name, which readers of directories leave out; then it is renamed. File and directory are on disk before the
call returns.

    alerts/batch-000000042-q17.ndjson
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.values.sink import FilesSink, SinkFormat
from service.errors import SinkFailed
from service.results.result_formats import csv_text, ndjson

#: Rows in memory at a time: a row group of Parquet, about 10 MB of text.
ROWS_AT_A_TIME = {"parquet": 122_880, "ndjson": 10_000, "csv": 10_000}


def batch_file_name(batch: int, query_id: int, form: SinkFormat) -> str:
    """Return the name of a batch's file.

    >>> batch_file_name(42, 17, "ndjson")
    'batch-000000042-q17.ndjson'
    """
    return f"batch-{batch:09}-q{query_id}.{form}"


def write_batch_file(
    exports: Path, sink: FilesSink, batch: int, query_id: int, parts: Iterator[pa.RecordBatch]
) -> Path:
    """Write the results of a batch into the directory of a sink.

    Args:
        exports: Directory of all exports.
        sink: The sink.
        batch: The batch.
        query_id: The query.
        parts: Its results in that batch, one part at least.

    Returns:
        The file.

    Raises:
        OSError: It cannot be written.
        SinkFailed: Somebody has put a link to elsewhere into the path.
    """
    directory = exports / sink.path
    if not directory.resolve().is_relative_to(exports.resolve()):
        raise SinkFailed(f'path "{sink.path}" leads out of the directory of exports')
    _make(directory)
    final = directory / batch_file_name(batch, query_id, sink.format)
    partial = directory / f".{final.name}.tmp"
    try:
        with partial.open("wb") as file:
            _WRITERS[sink.format](file, parts)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(final)
    except BaseException:
        # A disk that is full should not stay so for a file that nobody can use.
        partial.unlink(missing_ok=True)
        raise
    _sync(directory)
    return final


def _write_parquet(file: IO[bytes], parts: Iterator[pa.RecordBatch]) -> None:
    first = next(parts)
    with pq.ParquetWriter(file, first.schema) as writer:
        writer.write_batch(first)
        for part in parts:
            writer.write_batch(part)


def _write_ndjson(file: IO[bytes], parts: Iterator[pa.RecordBatch]) -> None:
    for part in parts:
        file.write(ndjson(pa.Table.from_batches([part])))


def _write_csv(file: IO[bytes], parts: Iterator[pa.RecordBatch]) -> None:
    for number, part in enumerate(parts):
        file.write(csv_text(pa.Table.from_batches([part]), header=number == 0))


_WRITERS: dict[SinkFormat, Callable[[IO[bytes], Iterator[pa.RecordBatch]], None]] = {
    "parquet": _write_parquet,
    "ndjson": _write_ndjson,
    "csv": _write_csv,
}


def _make(directory: Path) -> None:
    """Make a directory, and put what was made on disk."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for path in missing:
        _sync(path.parent)


def _sync(directory: Path) -> None:
    """Put a directory's entries on disk."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
