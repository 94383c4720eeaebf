"""Streams: what flows in, how it is typed and where it comes from.

A stream's event time is one of its columns, int64 microseconds UTC inside Sluice. Its watermark is
``max(event time seen) - lateness`` (design: Semantics), so a stream declares how far out of order it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

NAME_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")

#: Canonical column types, ``decimal(p,s)`` with 1 <= p <= 38 besides.
SIMPLE_TYPES = ("boolean", "int", "bigint", "double", "string", "date", "timestamp")


@dataclass(frozen=True, slots=True)
class Column:
    """One typed column of a stream.

    Attributes:
        name: Column name, unique in its stream without regard to case.
        type: Canonical type: one of ``SIMPLE_TYPES`` or ``decimal(p,s)``.
    """

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class FilesSource:
    """A directory that grows by whole files, or one file.

    Attributes:
        format: File format.
        path: Directory (or glob, or file) to read; absolute once the stream is registered.
        max_files_per_batch: Files admitted to one micro-batch; None aligns streams by event time.
    """

    format: Literal["parquet", "jsonl", "csv"]
    path: str
    max_files_per_batch: int | None = None
    type: Literal["files"] = "files"


@dataclass(frozen=True, slots=True)
class HttpSource:
    """Events posted to the API, kept in the embedded event log."""

    type: Literal["http"] = "http"


@dataclass(frozen=True, slots=True)
class GeneratedColumn:
    """Generator of one column that is not the event time.

    Attributes:
        name: Column of the stream.
        distribution: ``uniform`` (``low`` to ``high``), ``normal`` (mean ``low``, deviation ``high``),
            ``zipf`` (exponent ``skew`` over ``cardinality`` values), ``choice`` (over ``values``)
            or ``sequence`` (row number).
        low: Lower bound, or mean.
        high: Upper bound (exclusive for integers), or standard deviation.
        cardinality: Number of distinct values of ``zipf``.
        skew: Zipf exponent.
        values: Values of ``choice``, as text that casts to the column's type.
    """

    name: str
    distribution: Literal["uniform", "normal", "zipf", "choice", "sequence"] = "uniform"
    low: float = 0.0
    high: float = 1.0
    cardinality: int = 1000
    skew: float = 1.2
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GeneratorSource:
    """Synthetic rows with Poisson arrivals, the same for the same seed.

    Attributes:
        rate_per_s: Mean rows per second of event time.
        seed: Seed of every random choice.
        columns: How each column is filled; a column not named is uniform over its type's default.
        rows: Stop after about so many rows; None runs forever (in step with the wall clock).
        start_us: Event time of the first row, µs UTC; None is the moment of registration.
    """

    rate_per_s: float
    seed: int = 0
    columns: tuple[GeneratedColumn, ...] = ()
    rows: int | None = None
    start_us: int | None = None
    type: Literal["generator"] = "generator"


Source = FilesSource | HttpSource | GeneratorSource


@dataclass(frozen=True, slots=True)
class Stream:
    """A registered stream.

    Attributes:
        id: Never reused; 0 before the catalog has given one.
        name: Unique name.
        columns: Typed columns in declared order.
        event_time: Name of the event-time column, of type ``timestamp``.
        lateness_us: How far behind the newest event time a row may come, µs.
        source: Where rows come from.
        idle_timeout_us: Wall-clock µs without rows after which a heartbeat advances the watermark.
        start: Where reading begins when a query first uses the stream.
        initial_position: Position that an offset without this stream stands for.
        max_ahead_us: How far ahead of the wall clock a row may be when it comes, µs; None for any.
    """

    id: int
    name: str
    columns: tuple[Column, ...]
    event_time: str
    lateness_us: int
    source: Source
    idle_timeout_us: int | None = None
    start: Literal["earliest", "latest"] = "earliest"
    initial_position: int = 0
    max_ahead_us: int | None = None

    def column(self, name: str) -> Column | None:
        """Return the column of that name (case-insensitive), or None."""
        folded = name.lower()
        return next((c for c in self.columns if c.name.lower() == folded), None)
