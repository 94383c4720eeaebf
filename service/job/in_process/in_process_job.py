"""The job of one plan in this process, without Spark: it runs the workers' code, task by task.

files ── pack ── packets ── join ── report, segments, result files
(read, PACK, encode)       (decode, join, store, write)
"""

from __future__ import annotations

import pickle
import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from catalog.documents.codec import encode
from catalog.values.control import ControlRecord
from catalog.values.plan import Plan
from catalog.values.stream import Stream
from operators.pack.pack_plan import pack_plan
from operators.segments.files.segment_files import SegmentFiles
from service.commit.reporting.bucket_report import BucketReport
from service.inputs.partitions import ROW_BITS, ChunksPartition, FileRows, FilesPartition
from service.job import packing
from service.job.chain_processor import ChainOptions, ChainProcessor, forget_checkpoint, open_state
from service.job.in_process.memory_state import MemoryHandle
from service.job.reader_tasks import ControlPartition, PackPartition, compressed
from service.results.files.result_files import ResultWriter

_CACHE_BYTES = 1 << 30
#: Bytes from which a family side's rows are passed in a file: the default of the setting ``rows_file_kb``.
ROWS_FILE_BYTES = 256 << 10


@dataclass(slots=True)
class InProcessJob:
    """The readers' tasks and the buckets' tasks of a job, with an in-memory state per bucket.

    Attributes:
        plan: The plan in force, which ``change`` replaces.
        buckets: Number of buckets.
        directory: Directory of segments and result files.
        rows_file_bytes: Bytes from which a family side's rows are passed in a file.
    """

    plan: Plan
    buckets: int
    directory: Path
    rows_file_bytes: int = ROWS_FILE_BYTES
    segments: SegmentFiles = field(init=False)
    _options: ChainOptions = field(init=False)
    _row_files: packing.RowFiles = field(init=False)
    _asked: dict[int, bytes] = field(init=False)
    _coming: Plan | None = field(init=False)
    _handles: list[MemoryHandle] = field(init=False)
    _senders: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        checkpoint_id = uuid.uuid4().hex
        segments_dir = self.directory / checkpoint_id
        segments_dir.mkdir()
        self.segments = SegmentFiles(segments_dir)
        self._row_files = packing.RowFiles(self.segments, self.rows_file_bytes)
        self._options = ChainOptions(
            checkpoint_id=checkpoint_id,
            bucket_keys=tuple(range(self.buckets)),
            segments_dir=segments_dir,
            cache_bytes=_CACHE_BYTES,
            engine_lock="",
            writer=ResultWriter(self.directory, None, 1),
        )
        self.change(self.plan)
        self._handles = [MemoryHandle() for _ in range(self.buckets)]

    def change(self, plan: Plan) -> None:
        """Put another plan in force with the next batch."""
        self.plan = self._coming = plan
        self._asked = {s.id: pickle.dumps(pack_plan(plan, s, self.buckets)) for s in plan.streams}

    def pack(
        self,
        batch: int,
        pieces: Sequence[FilesPartition | ChunksPartition],
        late_bound_us: int | None = None,
    ) -> dict[int, list[bytes]]:
        """Read and pack a batch, as the readers' tasks do.

        Args:
            batch: Number of the batch, from 0.
            pieces: Input to read, from different streams.
            late_bound_us: Event time below which rows are late, µs UTC. None means that no row is late.

        Returns:
            Packets by bucket.
        """
        packets: dict[int, list[bytes]] = defaultdict(list)
        records = tuple(encode(record).decode() for record in self.control_records(batch))
        # The real job sends control records with its first partition. Here they are sent separately, so that
        # their cost is the same for every plan.
        senders, self._senders = tuple(sorted(self._senders)), set()
        self._read(ControlPartition(batch=batch, records=compressed(records), senders=senders), packets)
        for order, piece in enumerate(pieces, 1):
            self._pack(order, batch, piece, late_bound_us, packets)
        return packets

    def control_records(self, batch: int) -> list[ControlRecord]:
        """Return the control records of a batch: the plan, if it has changed."""
        coming, self._coming = self._coming, None
        return [] if coming is None else [ControlRecord(coming.version, plan=coming)]

    def _pack(
        self,
        order: int,
        batch: int,
        piece: FilesPartition | ChunksPartition,
        late_bound_us: int | None,
        into: dict[int, list[bytes]],
    ) -> None:
        asked = self._asked[piece.stream_id]
        self._read(PackPartition(order, batch, self.plan.version, asked, piece, late_bound_us), into)

    def _read(self, task: ControlPartition | PackPartition, into: dict[int, list[bytes]]) -> None:
        for rows in packing.read(task, range(self.buckets), self._row_files):
            for bucket, packet in zip(*(column.to_pylist() for column in rows.columns), strict=True):
                into[bucket].append(packet)

    def join(self, bucket: int, packets: Sequence[bytes]) -> BucketReport:
        """Join a bucket's packets, store rows and write results, as the bucket's task does in Spark."""
        state = open_state(self._handles[bucket])  # type: ignore[arg-type]  # it has the methods of Spark's handle
        rows = pd.DataFrame({"packet": packets})
        report, _ = ChainProcessor(self._options, state).process(bucket, iter([rows]))
        self._senders.update(counters.bucket for counters in report.exchanged)
        return report

    def discard_results(self, reports: Sequence[BucketReport]) -> None:
        """Remove the result files of a batch."""
        for report in reports:
            for file in report.files:
                (self.directory / file.path).unlink()

    def close(self) -> None:
        """Free the memory that ``chain_processor`` keeps for this job."""
        forget_checkpoint(self._options.checkpoint_id)


def write_piece(
    directory: Path, stream: Stream, batch: int, table: pa.Table, t_max_us: int | None = None
) -> FilesPartition:
    """Write rows of a stream to a file and return the partition that a reader's task can read.

    Args:
        directory: Directory for the file.
        stream: The stream.
        batch: Number of the batch.
        table: The rows, in the stream's columns.
        t_max_us: Upper bound of the rows' event times, or None.
    """
    path = directory / f"{stream.name}-{batch}.parquet"
    pq.write_table(table, path)
    facts = path.stat()
    file = FileRows(batch, str(path), facts.st_size, facts.st_mtime_ns, 0, table.num_rows)
    return FilesPartition(stream.id, batch << ROW_BITS, t_max_us, table.num_rows, (file,))
