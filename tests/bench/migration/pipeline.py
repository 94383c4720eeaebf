"""The job's pipeline in this process, without Spark, through one plan version after another.

    rows in memory ── packing.read ── packets ── ChainProcessor.process ── state in memory

The workers' own code, phase by phase: what the driver does for a batch (what is asked of streams pickled),
what reading and packing take, and what each bucket takes. So a batch that carries a migration can be
profiled; what Spark adds to a batch is the same whatever it carries.
"""

from __future__ import annotations

import pickle
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from catalog.store.codec import encode
from catalog.values.plan import ControlRecord, Plan
from catalog.values.stream import GeneratorSource, Stream
from operators.pack.pack_plan import pack_plan
from operators.segments.segment_files import SegmentFiles
from service.calibrate.memory_state import MemoryHandle
from service.commit.bucket_report import BucketReport
from service.inputs.partitions import ChunksPartition
from service.inputs.sources.generator import chunk_us, generator_pieces
from service.job import packing
from service.job.chain_processor import ChainOptions, ChainProcessor, forget_checkpoint
from service.job.chain_state import open_state
from service.job.reader_tasks import ControlPartition, PackPartition, compressed
from service.results.result_files import ResultWriter

_CACHE_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class Phases:
    """What a batch took, CPU seconds.

    Attributes:
        driver_s: Packers compiled and pickled.
        pack_s: Reading, packing and encoding.
        chain_s: Decoding, joining, storing and writing, all buckets.
        state_rows: Rows held afterwards.
        segments: Segments held afterwards.
        results: Pairs written.
    """

    driver_s: float
    pack_s: float
    chain_s: float
    state_rows: int
    segments: int
    results: int

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.driver_s + self.pack_s + self.chain_s


@dataclass(slots=True)
class Pipeline:
    """A job over generated streams, one batch after another.

    Attributes:
        streams: The streams.
        batch_s: Event time of a batch, seconds.
        directory: Where segments go, and result files; each of these is removed once it has been written.
        buckets: Buckets.
    """

    streams: Sequence[Stream]
    batch_s: float
    directory: Path
    buckets: int = 2
    rows_file_bytes: int = 256 << 10
    batch: int = 0
    plan: Plan | None = None
    _options: ChainOptions = field(init=False)
    _handles: list[MemoryHandle] = field(init=False)
    _watermark_us: int | None = None

    def __post_init__(self) -> None:
        checkpoint_id = uuid.uuid4().hex
        segments = self.directory / checkpoint_id
        segments.mkdir()
        self._options = ChainOptions(
            checkpoint_id=checkpoint_id,
            bucket_keys=tuple(range(self.buckets)),
            segments_dir=segments,
            cache_bytes=_CACHE_BYTES,
            engine_lock="",
            writer=ResultWriter(self.directory, None, 1),
        )
        self._handles = [MemoryHandle() for _ in range(self.buckets)]

    def step(self, plan: Plan | None = None, profiled: Callable[[], Any] = nullcontext) -> Phases:
        """Run one batch; one that carries ``plan`` if it is given.

        Args:
            plan: Version that takes effect.
            profiled: Context manager put around what the buckets do.
        """
        records: tuple[str, ...] = ()
        if plan is not None:
            self.plan = plan
            records = (encode(ControlRecord(seq=plan.version, plan=plan)).decode(),)
        assert self.plan is not None, "the first batch carries a plan"
        started_s = time.process_time()
        partitions: list[ControlPartition | PackPartition] = [
            ControlPartition(self.batch, compressed(records))
        ]
        for order, stream in enumerate(self.streams, 1):
            asked = pickle.dumps(pack_plan(self.plan, stream, self.buckets))
            piece = self._piece(stream)
            version = self.plan.version
            partitions.append(PackPartition(order, self.batch, version, asked, piece, self._watermark_us))
        driven_s = time.process_time()
        packets: Mapping[int, list[bytes]] = defaultdict(list)
        row_files = packing.RowFiles(SegmentFiles(Path(self._options.segments_dir)), self.rows_file_bytes)
        for partition in partitions:
            for rows in packing.read(partition, range(self.buckets), row_files):
                for bucket, packet in zip(*(c.to_pylist() for c in rows.columns), strict=True):
                    packets[bucket].append(packet)
        packed_s = time.process_time()
        with profiled():
            reports = [self._joined(bucket, packets[bucket]) for bucket in range(self.buckets)]
        joined_s = time.process_time()
        self.batch += 1
        self._watermark_us = min(s.watermark_us for s in reports[0].streams if s.watermark_us is not None)
        files = [file for report in reports for file in report.files]
        for file in files:
            (self.directory / file.path).unlink()
        slices = [s for report in reports for s in report.slices]
        return Phases(
            driver_s=driven_s - started_s,
            pack_s=packed_s - driven_s,
            chain_s=joined_s - packed_s,
            state_rows=sum(s.rows for s in slices),
            segments=sum(s.segments for s in slices),
            results=sum(file.rows for file in files),
        )

    def close(self) -> None:
        """Let go of what the worker's cache holds."""
        forget_checkpoint(self._options.checkpoint_id)

    def _piece(self, stream: Stream) -> ChunksPartition:
        source = stream.source
        assert isinstance(source, GeneratorSource)
        length = chunk_us(source)
        start, end = (round(n * self.batch_s * 1_000_000 / length) for n in (self.batch, self.batch + 1))
        pieces = generator_pieces(stream, source, start, end)
        times = [p.t_max_us for p in pieces if p.t_max_us is not None]
        rows = sum(p.rows for p in pieces)
        return ChunksPartition(stream.id, start << 32, max(times, default=None), rows, start, end)

    def _joined(self, bucket: int, packets: list[bytes]) -> BucketReport:
        state = open_state(self._handles[bucket])  # type: ignore[arg-type]  # it goes by Spark's names
        frame = pd.DataFrame({"packet": packets})
        report, _ = ChainProcessor(self._options, state).process(bucket, iter([frame]))
        return report
