"""Synthetic workloads, generated so that their statistics are known exactly.

Two streams A and B: Poisson arrivals and uniformly distributed keys. The columns ``v`` and ``u`` are
independent and uniform over [0, 1), so that ``A.v < 0.2`` passes a fifth of the rows. The columns ``x0``,
``x1`` ... are only selected, and make rows wider.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from catalog.values.query import Query
from catalog.values.statistics import (
    FamilyProfile,
    FilterProfile,
    Measure,
    Profile,
    StreamProfile,
)
from catalog.values.stream import Column, FilesSource, Stream
from planner.bind.bind import bind
from planner.families.families import families
from service.inputs.partitions import FilesPartition
from service.job.in_process.in_process_job import write_piece

SECOND_US: Final = 1_000_000
#: Bytes of a stored row without its columns: key, event time and position, in narrowed types
#: (``encoding.row_codec``).
_ROW_BYTES: Final = 12
_COLUMN_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter of one side, ``column < below``.

    Attributes:
        column: ``v`` or ``u``.
        below: Exclusive upper bound. It equals the filter's selectivity, because values are uniform over
            [0, 1).
    """

    column: str
    below: float

    def text(self, stream: str) -> str:
        """Return the filter in CQL."""
        return f"{stream}.{self.column} < {self.below}"


@dataclass(frozen=True, slots=True)
class WindowQuery:
    """A join query of A and B.

    Attributes:
        w_a_s: Window on A, seconds.
        w_b_s: Window on B, seconds.
        filter_a: Filter on A, or None.
        filter_b: Filter on B, or None.
        columns: Number of columns ``x0``, ``x1`` ... that the query selects from each side.
    """

    w_a_s: float
    w_b_s: float
    filter_a: Selection | None = None
    filter_b: Selection | None = None
    columns: int = 0

    def cql(self) -> str:
        """Return the query's text."""
        carried = [f"{s}.x{n} AS {s.lower()}_x{n}" for n in range(self.columns) for s in "AB"]
        selected = ", ".join(["A.ts AS ats", "B.ts AS bts", "A.k", *carried])
        sides = (("A", self.filter_a), ("B", self.filter_b))
        where = " AND ".join(["A.k = B.k", *(f.text(s) for s, f in sides if f is not None)])
        windows = (
            f"{s} [RANGE {round(w * 1000)} MILLISECONDS]" for s, w in (("A", self.w_a_s), ("B", self.w_b_s))
        )
        return f"SELECT {selected} FROM {', '.join(windows)} WHERE {where}"


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of input: its number from 0, and the rows read of A and of B."""

    number: int
    pieces: tuple[FilesPartition, ...]


@dataclass(frozen=True)
class SyntheticWorkload:
    """Streams and queries with known statistics.

    Attributes:
        name: Name that says what the workload is for.
        queries: Queries of the workload.
        rate_a: Rows per second of A.
        rate_b: Rows per second of B.
        batch_s: Event time that a batch covers, seconds.
        keys: Number of distinct keys, which are equally frequent.
        columns: Number of columns ``x0``, ``x1`` ... of each stream.
        buckets: Number of buckets of the job.
        seed: Seed of the random rows.
    """

    name: str
    queries: tuple[WindowQuery, ...]
    rate_a: float
    rate_b: float
    batch_s: float
    keys: int
    columns: int = 0
    buckets: int = 2
    seed: int = 0

    @property
    def longest_window_s(self) -> float:
        """The longest window of any query, seconds."""
        return max(w for q in self.queries for w in (q.w_a_s, q.w_b_s))

    @property
    def batches_to_fill(self) -> int:
        """Number of batches that fill every window, plus a few more."""
        return int(1.05 * self.longest_window_s / self.batch_s) + 3

    @cached_property
    def streams(self) -> dict[str, Stream]:
        """The two streams by name."""
        carried = [Column(f"x{n}", "double") for n in range(self.columns)]
        columns = (
            Column("ts", "timestamp"),
            Column("k", "bigint"),
            Column("v", "double"),
            Column("u", "double"),
            *carried,
        )
        source = FilesSource("parquet", "", 1)
        return {name: Stream(n, name, columns, "ts", 0, source) for n, name in ((1, "A"), (2, "B"))}

    @cached_property
    def bound_queries(self) -> tuple[Query, ...]:
        """The queries, bound to the streams."""
        return tuple(
            bind(query.cql(), self.streams, name=f"q{n}", query_id=n)
            for n, query in enumerate(self.queries, 1)
        )

    @cached_property
    def profile(self) -> Profile:
        """The workload's exact statistics, in the form in which a user states those of streams."""
        filters: dict[tuple[int, str], float] = {}
        for query, bound in zip(self.queries, self.bound_queries, strict=True):
            for selection, side in ((query.filter_a, bound.a), (query.filter_b, bound.b)):
                if selection is not None and side.filter is not None:
                    filters[side.stream_id, side.filter] = selection.below
        (family,) = families(self.bound_queries)
        return Profile(
            streams=tuple(
                StreamProfile(stream_id, Measure(rate), Measure(float(self._row_bytes(stream_id))))
                for stream_id, rate in ((1, self.rate_a), (2, self.rate_b))
            ),
            filters=tuple(FilterProfile(s, sql, Measure(x)) for (s, sql), x in sorted(filters.items())),
            families=(FamilyProfile(family, Measure(1.0 / self.keys)),),
            batch_s=Measure(self.batch_s),
            buckets=self.buckets,
        )

    def batches(self, directory: Path, *, at_once: int) -> Iterator[tuple[Batch, ...]]:
        """Yield batches without end, ``at_once`` at a time; remove their files when the next are requested.

        Args:
            directory: Directory for the files.
            at_once: Number of batches to write and yield together.
        """
        rng = np.random.default_rng(self.seed)
        streams, rates = self.streams.values(), (self.rate_a, self.rate_b)
        for first in itertools.count(step=at_once):
            written = []
            for number in range(first, first + at_once):
                a, b = (
                    self._piece(rng, s, r, number, directory) for s, r in zip(streams, rates, strict=True)
                )
                written.append(Batch(number, (a, b)))
            yield tuple(written)
            for batch in written:
                for piece in batch.pieces:
                    Path(piece.files[0].path).unlink()

    def _piece(
        self, rng: np.random.Generator, stream: Stream, rate: float, number: int, directory: Path
    ) -> FilesPartition:
        rows = max(int(rng.poisson(rate * self.batch_s)), 1)
        start, end = (round(n * self.batch_s * SECOND_US) for n in (number, number + 1))
        values = {
            "ts": pa.array(np.sort(rng.integers(start, end, rows))).cast(pa.timestamp("us")),
            "k": pa.array(rng.integers(0, self.keys, rows)),
        }
        values |= {c.name: pa.array(rng.random(rows)) for c in stream.columns if c.name not in values}
        return write_piece(directory, stream, number, pa.table(values), end)

    def _row_bytes(self, stream_id: int) -> int:
        """Bytes of a stored row: 8 bytes of lineage per 64 filters, and the columns that some query needs."""
        sides = [side for q in self.bound_queries for side in (q.a, q.b) if side.stream_id == stream_id]
        filters = len({side.filter for side in sides} - {None})
        stored = {column for side in sides for column in side.columns} - {"ts", "k"}
        return _ROW_BYTES + _COLUMN_BYTES * (-(-filters // 64) + len(stored))
