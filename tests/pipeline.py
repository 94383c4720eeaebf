"""The job in this process, without Spark: the workers' own code, under one plan version after another.

    rows or pieces ── PACK ── packets ── CHAIN, per bucket ── report, segments, result files

Reading and packing, and each bucket are timed separately. The time that
Spark adds to a batch is the same for every plan. Several pipelines over the same rows take turns batch by
batch, so that other work of the machine affects all of them alike.
"""

from __future__ import annotations

import itertools
import pickle
import time
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from catalog.values.counters.family_counters import SliceCounters
from catalog.values.plan import Plan
from catalog.values.routes.counts.query_rows import summed_rows
from catalog.values.stream import GeneratorSource, Stream
from operators.pack.pack import packer
from service.commit.reporting.bucket_report import BucketReport
from service.inputs.partitions import ROW_BITS, ChunksPartition, FilesPartition
from service.inputs.sources.generated.generator import chunk_us, generator_pieces
from service.job.in_process.in_process_job import InProcessJob
from service.job.packets import packets

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of a stream that have been read, with ``_pos``."""

    stream_id: int
    table: pa.Table


#: What a batch has of a stream: rows, or what a reader's task is given to read them.
Piece = Rows | FilesPartition | ChunksPartition


@dataclass(frozen=True)
class Ran:
    """A batch that was run.

    Attributes:
        pack_s: CPU seconds of reading and packing.
        bucket_s: CPU seconds of joining, storing and writing, by bucket.
        wall_s: Seconds of wall clock of packing and all buckets.
        reports: What the buckets report.
    """

    pack_s: float
    bucket_s: tuple[float, ...]
    wall_s: float
    reports: tuple[BucketReport, ...]

    @property
    def chain_s(self) -> float:
        """CPU seconds of all buckets."""
        return sum(self.bucket_s)

    @property
    def cpu_s(self) -> float:
        """CPU seconds of packing and all buckets."""
        return self.pack_s + self.chain_s

    @cached_property
    def slices(self) -> tuple[SliceCounters, ...]:
        """Counters of every slice of every bucket."""
        return tuple(counters for report in self.reports for counters in report.slices.counters())

    @property
    def state_rows(self) -> int:
        """Rows held at the end of the batch."""
        return sum(counters.rows for counters in self.slices)

    @property
    def state_bytes(self) -> int:
        """Encoded bytes held at the end of the batch."""
        return sum(counters.bytes for counters in self.slices)

    @property
    def segments(self) -> int:
        """Segments held at the end of the batch."""
        return sum(counters.segments for counters in self.slices)

    @property
    def pairs(self) -> int:
        """Joined pairs written; one may be a result of several queries."""
        return sum(file.rows for report in self.reports for file in report.files)

    @cached_property
    def results(self) -> Counter[int]:
        """Results per query id."""
        return Counter(dict(summed_rows([rows for report in self.reports for rows in report.query_rows])))

    @cached_property
    def input_rows(self) -> dict[int, int]:
        """Rows read per stream id."""
        return {counters.stream_id: counters.rows for counters in self.reports[0].streams}


@dataclass(slots=True)
class Pipeline(InProcessJob):
    """A job, batch after batch, timed.

    Attributes:
        batch: Number of the next batch.
        watermark_us: Event time below which rows of the next batch may be late; None before the first.
    """

    batch: int = 0
    watermark_us: int | None = None

    def step(self, pieces: Sequence[Piece], plan: Plan | None = None) -> Ran:
        """Run one batch.

        Args:
            pieces: What there is to read, of different streams.
            plan: Version that takes effect in this batch.
        """
        if plan is not None:
            self.change(plan)
        began_s, began_wall_s = time.process_time(), time.perf_counter()
        packets = self.pack(self.batch, pieces, self.watermark_us)
        packed_s = time.process_time()
        reports, bucket_s = [], []
        for bucket in range(self.buckets):
            bucket_began_s = time.process_time()
            reports.append(self.join(bucket, packets[bucket]))
            bucket_s.append(time.process_time() - bucket_began_s)
        wall_s = time.perf_counter() - began_wall_s
        self.discard_results(reports)
        self.batch += 1
        self.watermark_us = min(
            (s.watermark_us for s in reports[0].streams if s.watermark_us is not None), default=None
        )
        return Ran(packed_s - began_s, tuple(bucket_s), wall_s, tuple(reports))

    def _pack(
        self, order: int, batch: int, piece: Piece, late_bound_us: int | None, into: dict[int, list[bytes]]
    ) -> None:
        if not isinstance(piece, Rows):
            InProcessJob._pack(self, order, batch, piece, late_bound_us, into)
            return
        compiled = packer(pickle.loads(self._asked[piece.stream_id]))
        payloads = compiled.pack(piece.table, order, batch, late_bound_us)
        for rows in packets(range(self.buckets), [p.encode() for p in payloads], order):
            for bucket, packet in zip(*(column.to_pylist() for column in rows.columns), strict=True):
                into[bucket].append(packet)


def generated(stream: Stream, batch: int, batch_s: float) -> ChunksPartition:
    """Return what a generated stream brings in a batch of so much event time."""
    source = stream.source
    assert isinstance(source, GeneratorSource)
    start, end = (round(n * batch_s * 1_000_000 / chunk_us(source)) for n in (batch, batch + 1))
    pieces = generator_pieces(stream, source, start, end)
    times = [piece.t_max_us for piece in pieces if piece.t_max_us is not None]
    rows = sum(piece.rows for piece in pieces)
    return ChunksPartition(stream.id, start << ROW_BITS, max(times, default=None), rows, start, end)


def race(
    plans: Mapping[Name, Plan],
    batches: Iterable[Sequence[Piece]],
    directory: Path,
    *,
    buckets: int = 1,
    turn: int = 1,
) -> dict[Name, list[Ran]]:
    """Run several plans over the same batches, taking turns; who begins changes from turn to turn.

    Args:
        plans: Plans by name.
        batches: Pieces of each batch.
        directory: Where segments and result files go for a moment.
        buckets: Number of buckets.
        turn: Batches of a turn.
    """
    pipelines = {name: Pipeline(plan, buckets, directory) for name, plan in plans.items()}
    ran: dict[Name, list[Ran]] = {name: [] for name in plans}
    names, left = list(plans), iter(batches)
    while some := list(itertools.islice(left, turn)):
        for name in names:
            ran[name] += [pipelines[name].step(pieces) for pieces in some]
        names.append(names.pop(0))
    for pipeline in pipelines.values():
        pipeline.close()
    return ran


def check_results(ran: Mapping[Name, Sequence[Ran]]) -> None:
    """Check that plans of the same queries gave the same number of results of each.

    Raises:
        RuntimeError: They did not.
    """
    totals = {name: sum((batch.results for batch in batches), Counter()) for name, batches in ran.items()}
    if len({tuple(sorted(total.items())) for total in totals.values()}) > 1:
        raise RuntimeError(f"the plans do not agree on the results per query: {totals}")
