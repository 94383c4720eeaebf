"""Inspectors by file format, named as in a stream's source.

Readers must not import this module: the inspector of Parquet loads DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeAlias

import duckdb

from catalog.values.stream import FilesSource, Stream
from service.inputs.formats.csv import inspect_csv
from service.inputs.formats.findings.bad_rows import BadRow
from service.inputs.formats.findings.facts import FileFacts
from service.inputs.formats.jsonl import inspect_jsonl
from service.inputs.formats.parquet_footer import inspect_parquet

#: Function of a path, a list for bad rows and the latest allowed event time, µs UTC. It returns the row count
#: and event-time range of the file, or raises `UnusableFile`.
Inspect: TypeAlias = Callable[[str, list[BadRow] | None, int | None], FileFacts]


@contextmanager
def inspecting(stream: Stream, source: FilesSource) -> Iterator[Inspect]:
    """Yield the inspector of the source's format."""
    match source.format:
        case "parquet":
            with duckdb.connect(config={"threads": 1}) as connection:
                yield partial(inspect_parquet, connection, stream)
        case "csv":
            yield partial(inspect_csv, stream)
        case "jsonl":
            yield partial(inspect_jsonl, stream)
