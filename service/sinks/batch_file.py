"""Atomic writing of a file of results.

A file's name contains its batches and query, so it is unique. The rows of a committed batch never change, so
writing the file again replaces it with the same bytes. Until a file is complete it has a hidden name, which
readers of directories skip; then it is renamed.

    alerts/batch-000000042-q17.ndjson
    alerts/_lost-q17.json               only if results were lost: their number, and the last batch
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.values.sink import FilesSink, SinkFormat, SinkRecord
from service.errors import SinkFailed
from service.results.result_formats import csv_text, ndjson

#: Rows in memory at a time, by format: a row group of Parquet, about 10 MB of text.
ROWS_AT_A_TIME = {"parquet": 122_880, "ndjson": 10_000, "csv": 10_000}


def write_batch_file(exports: Path, sink: FilesSink, name: str, parts: Iterator[pa.RecordBatch]) -> Path:
    """Write results into the directory of a sink.

    When the call returns, the file's bytes are durable. Its name is durable only after ``sync_directory``.

    Args:
        exports: Directory of all exports.
        sink: The sink.
        name: Name of the file.
        parts: The results, at least one part.

    Returns:
        The file.

    Raises:
        OSError: The file cannot be written.
        SinkFailed: The path contains a link that leads out of the directory of exports.
    """
    return _write(_directory(exports, sink), name, lambda file: _WRITERS[sink.format](file, parts))


def write_lost_file(exports: Path, sink: FilesSink, record: SinkRecord) -> None:
    """Report lost results in the directory of a sink, unless they are reported there already.

    Raises:
        OSError: The file cannot be written.
        SinkFailed: The path contains a link that leads out of the directory of exports.
    """
    directory, name = _directory(exports, sink), f"_lost-q{record.series}.json"
    facts = {"query": record.query, "batches": record.lost, "rows": record.lost_rows}
    text = json.dumps(facts | {"last_batch": record.lost_batch}).encode() + b"\n"
    file = directory / name
    if not file.exists() or file.read_bytes() != text:
        _write(directory, name, lambda partial: partial.write(text))


def sync_directory(directory: Path) -> None:
    """Sync a directory's entries to disk."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _directory(exports: Path, sink: FilesSink) -> Path:
    """Return the directory of a sink; make it if it is missing."""
    directory = exports / sink.path
    if not directory.resolve().is_relative_to(exports.resolve()):
        raise SinkFailed(f'path "{sink.path}" leads out of the directory of exports')
    _make(directory)
    return directory


def _write(directory: Path, name: str, write: Callable[[IO[bytes]], object]) -> Path:
    final = directory / name
    partial = directory / f".{name}.tmp"
    try:
        with partial.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(final)
    except BaseException:
        # Free the space of the unusable partial file, since the disk may be full.
        partial.unlink(missing_ok=True)
        raise
    return final


def _write_parquet(file: IO[bytes], parts: Iterator[pa.RecordBatch]) -> None:
    first = next(parts)
    with pq.ParquetWriter(file, first.schema) as writer:
        for group in _row_groups(chain((first,), parts)):
            writer.write_table(group)


def _row_groups(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Combine parts to row groups whose size does not depend on the size of the parts."""
    size = ROWS_AT_A_TIME["parquet"]
    held: list[pa.RecordBatch] = []
    for part in parts:
        held.append(part)
        while sum(each.num_rows for each in held) >= size:
            table = pa.Table.from_batches(held)
            yield table.slice(0, size)
            held = table.slice(size).to_batches()
    if held:
        yield pa.Table.from_batches(held)


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
    """Make a directory, and sync the new entries to disk."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for path in missing:
        sync_directory(path.parent)
