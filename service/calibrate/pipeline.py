"""The job's pipeline in this process, without Spark: the workers' own code, its CPU time, its counters.

    files ── packing.read ── packets ── ChainProcessor.process ── segments, result files
             (read, PACK, encode)             (decode, join, store, write)

What Spark adds stands still whatever the plan: planning a batch, the shuffle, the JVM's side of the state
store. So it is left out, here as in the constants.
"""

from __future__ import annotations

import gc
import itertools
import pickle
import random
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import pandas as pd

from catalog.store.codec import encode
from catalog.values.batch import SliceCounters
from catalog.values.plan import ControlRecord, Plan, Strategy
from operators.pack.pack_plan import pack_plan
from operators.segments.segment_files import SegmentFiles
from service.calibrate.memory_state import MemoryHandle
from service.calibrate.workload import Batch, SyntheticWorkload
from service.commit.bucket_report import BucketReport
from service.job import packing
from service.job.chain_processor import ChainOptions, ChainProcessor, forget_checkpoint
from service.job.chain_state import open_state
from service.job.reader_tasks import ControlPartition, PackPartition, compressed
from service.results.result_files import ResultWriter

_CACHE_BYTES = 1 << 30
#: Bytes from which on rows come in files: as the settings have it.
ROWS_FILE_BYTES = 256 << 10
#: Batches that a plan processes before the next one's turn: with others between, every one would start cold.
_TURN = 4


@dataclass(slots=True)
class Measured:
    """What a plan cost on a workload, once its windows were full.

    Attributes:
        batches: Batches measured.
        pack_turns_s: CPU seconds of reading and packing, by turn.
        chain_turns_s: CPU seconds of joining, storing and writing, by turn.
        stored_segments: New segments, all batches.
        stored_bytes: Bytes of them.
        slices: Counters summed over buckets and batches, by join, side and slice number; ``rows``, ``bytes``
            and ``segments``, too, are sums over batches.
    """

    batches: int = 0
    pack_turns_s: list[float] = field(default_factory=list)
    chain_turns_s: list[float] = field(default_factory=list)
    stored_segments: int = 0
    stored_bytes: int = 0
    slices: dict[tuple[str, str, int], SliceCounters] = field(default_factory=dict)

    @property
    def pack_s(self) -> float:
        """CPU seconds of reading and packing, all batches."""
        return _undisturbed(self.pack_turns_s)

    @property
    def chain_s(self) -> float:
        """CPU seconds of joining, storing and writing, all batches."""
        return _undisturbed(self.chain_turns_s)

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all batches."""
        return self.pack_s + self.chain_s

    def begin_turn(self) -> None:
        """Count what follows as another turn."""
        self.pack_turns_s.append(0.0)
        self.chain_turns_s.append(0.0)

    def count(self, reports: list[BucketReport]) -> None:
        """Add the counters of a batch's reports."""
        for report in reports:
            for counters in report.slices:
                key = counters.join, counters.side, counters.slice
                known = self.slices.get(key)
                self.slices[key] = counters if known is None else _sum(known, counters)


def measure(
    workload: SyntheticWorkload,
    plans: Mapping[Strategy, Plan],
    *,
    batches: int,
    rows_file_bytes: int = ROWS_FILE_BYTES,
) -> dict[Strategy, Measured]:
    """Run several plans over the same rows, a few batches each in turn, and take their CPU time.

    In turn, so that whatever else the machine does meets all of them alike, in another order each time, so
    that none always finds the processor's caches and the heap as the same other one has left them.

    Args:
        workload: Streams and queries.
        plans: Plans by strategy.
        batches: Batches to measure once the windows are full; rounded up to whole turns.
        rows_file_bytes: Bytes of rows from which on they come in files.

    Returns:
        What each plan cost.
    """
    with tempfile.TemporaryDirectory(prefix="sluice-calibrate-") as directory:
        pipelines = {
            name: _Pipeline(workload, plan, Path(directory), rows_file_bytes) for name, plan in plans.items()
        }
        measured = {name: Measured() for name in plans}
        fill, turns = (-(-n // _TURN) for n in (workload.batches_to_fill, batches))
        names, order = list(plans), random.Random(len(plans))
        for turn, some in enumerate(
            itertools.islice(workload.batches(Path(directory), at_once=_TURN), fill + turns)
        ):
            if turn == fill:
                gc.collect()
            order.shuffle(names)
            for name in names:
                if turn >= fill:
                    measured[name].begin_turn()
                for batch in some:
                    pipelines[name].process(batch, measured[name] if turn >= fill else None)
        for pipeline in pipelines.values():
            pipeline.close()
        return measured


def _undisturbed(turns_s: list[float]) -> float:
    """Return the sum over all turns, each taken as the mean of the middle half of them.

    Full windows make turns alike; another process that takes the core's caches for a second does not.
    """
    ordered = sorted(turns_s)
    cut = len(ordered) // 4
    middle = ordered[cut : len(ordered) - cut]
    return sum(middle) / len(middle) * len(ordered) if middle else 0.0


def _sum(one: SliceCounters, other: SliceCounters) -> SliceCounters:
    counted = [f.name for f in fields(SliceCounters) if f.type == "int" and f.name != "slice"]
    return replace(one, **{name: getattr(one, name) + getattr(other, name) for name in counted})


@dataclass(slots=True)
class _Pipeline:
    """One plan's job: readers' tasks, and a state per bucket."""

    workload: SyntheticWorkload
    plan: Plan
    directory: Path
    rows_file_bytes: int
    options: ChainOptions = field(init=False)
    segments: SegmentFiles = field(init=False)
    row_files: packing.RowFiles = field(init=False)
    asked: dict[int, bytes] = field(init=False)
    handles: list[MemoryHandle] = field(init=False)

    def __post_init__(self) -> None:
        buckets = self.workload.buckets
        checkpoint_id = uuid.uuid4().hex
        segments_dir = self.directory / checkpoint_id
        segments_dir.mkdir()
        self.segments = SegmentFiles(segments_dir)
        self.row_files = packing.RowFiles(self.segments, self.rows_file_bytes)
        self.options = ChainOptions(
            checkpoint_id=checkpoint_id,
            bucket_keys=tuple(range(buckets)),
            segments_dir=str(segments_dir),
            cache_bytes=_CACHE_BYTES,
            engine_lock="",
            writer=ResultWriter(str(self.directory), None, 1),
        )
        self.asked = {s.id: pickle.dumps(pack_plan(self.plan, s, buckets)) for s in self.plan.streams}
        self.handles = [MemoryHandle() for _ in range(buckets)]

    def process(self, batch: Batch, into: Measured | None) -> None:
        """Process one batch."""
        number = batch.number
        records = (encode(ControlRecord(seq=1, plan=self.plan)).decode(),) if number == 0 else ()
        late_bound_us = None if number == 0 else self._bound(number)
        # The job sends records with its first partition; here they come by themselves, for every plan alike.
        partitions: list[ControlPartition | PackPartition] = [
            ControlPartition(batch=number, records=compressed(records))
        ]
        for order, piece in enumerate(batch.pieces, 1):
            asked = self.asked[piece.stream_id]
            partitions.append(PackPartition(order, number, self.plan.version, asked, piece, late_bound_us))
        before = self._stored()
        started_s = time.process_time()
        packets = self._packets(partitions)
        packed_s = time.process_time()
        reports = [self._joined(bucket, packets[bucket]) for bucket in packets]
        joined_s = time.process_time()
        if into is not None:
            into.batches += 1
            into.pack_turns_s[-1] += packed_s - started_s
            into.chain_turns_s[-1] += joined_s - packed_s
            written = [size for name, size in self._stored().items() if name not in before]
            into.stored_segments += len(written)
            into.stored_bytes += sum(written)
            into.count(reports)
        for report in reports:
            for file in report.files:
                (self.directory / file.path).unlink()

    def close(self) -> None:
        """Let go of what the worker's cache holds."""
        forget_checkpoint(self.options.checkpoint_id)

    def _packets(self, partitions: list[ControlPartition | PackPartition]) -> dict[int, list[bytes]]:
        """Read and pack: what a reader's tasks do."""
        packets: dict[int, list[bytes]] = defaultdict(list)
        for partition in partitions:
            for rows in packing.read(partition, range(len(self.handles)), self.row_files):
                for bucket, packet in zip(*(column.to_pylist() for column in rows.columns), strict=True):
                    packets[bucket].append(packet)
        return packets

    def _joined(self, bucket: int, packets: list[bytes]) -> BucketReport:
        """Join, store and write: what the stateful operator's task does for a bucket."""
        state = open_state(self.handles[bucket])  # type: ignore[arg-type]  # it goes by Spark's names
        return ChainProcessor(self.options, state).process(bucket, iter([pd.DataFrame({"packet": packets})]))

    def _stored(self) -> dict[str, int]:
        """Return the bytes of what is stored, by name."""
        return self.segments.sizes()

    def _bound(self, number: int) -> int:
        """Watermark at the start of a batch: no later than the newest row of the one before."""
        return round((number - 1) * self.workload.batch_s * 1_000_000)
