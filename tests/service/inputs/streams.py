"""Streams and rows that the tests of inputs share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from catalog.store.store import Store
from catalog.values.stream import Column, FilesSource, Source, Stream
from service.inputs.inputs import Inputs
from service.inputs.partitions import Lane
from service.inputs.reading.read import read_partition
from tests.builders import a_stream

TS_K_V = (Column("ts", "timestamp"), Column("k", "bigint"), Column("v", "double"))
EVERY_TYPE = (
    Column("ts", "timestamp"),
    Column("b", "boolean"),
    Column("i", "int"),
    Column("l", "bigint"),
    Column("x", "double"),
    Column("s", "string"),
    Column("d", "date"),
    Column("m", "decimal(10,2)"),
)


def stream_of(
    source: Source | None = None, *, stream_id: int = 1, name: str = "S", columns: tuple[Column, ...] = TS_K_V
) -> Stream:
    return replace(a_stream(stream_id, name=name, source=source), columns=columns)


def files_stream(
    path: Path, file_format: str = "parquet", columns: tuple[Column, ...] = TS_K_V, **options
) -> Stream:
    return stream_of(FilesSource(file_format, str(path), **({"settle_us": 0} | options)), columns=columns)


def read_all(store: Store, stream: Stream, columns: list[str] | None = None) -> pa.Table:
    """Return all rows that a stream has listed."""
    inputs = Inputs(store, None)
    (parts,) = inputs.partitions([(Lane(stream), 0, inputs.end(stream))])
    return pa.concat_tables([read_partition(stream, p, columns) for p in parts])


def reasons(store: Store, stream: Stream) -> dict[str, str | None]:
    """Return why files were set aside, by name."""
    return {
        Path(f.path).name: f.reason for f in store.source_files.page(stream.id) if f.verdict == "set-aside"
    }


def rows_from(first: int, count: int) -> pa.Table:
    """Rows whose time, key and value all tell their number."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "ts": pa.array(numbers, pa.int64()).cast(pa.timestamp("us")),
            "k": pa.array(numbers, pa.int64()),
            "v": pa.array([n / 2 for n in numbers], pa.float64()),
        }
    )
