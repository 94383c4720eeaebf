"""CHAIN, the one stateful operator of the job: moves bytes between the stored state and ``bucket.bucket``.

    manifest   ValueState   names of the bucket's segments and small values, rewritten every batch

Every task has a new processor, and Spark may give a bucket to any of its workers. So data that
later batches can use is kept in this module: the bounded segment cache and the last compiled plans.

The state has only the variable ``manifest``, because each further variable would cost every task 4 to 8 ms,
in which the JVM creates the variable's encoders (PySpark 4.3). Large data is stored in separate files
(``operators.segments.files.segment_files``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, ValueState

from catalog.errors import InvariantBroken
from catalog.values.batch import ResultFile
from catalog.values.counters.batch_counters import CpuCounters, StreamCounters
from catalog.values.counters.family_counters import ExchangeCounters
from catalog.values.plan import Plan
from operators.bucket.batch_output import BatchOutput
from operators.bucket.bucket import Bucket
from operators.bucket.counters import (
    absence_counters,
    group_counters,
    held_times,
    memory_counters,
    probe_counters,
    punctuation_counters,
    slice_table,
    unmatched_counters,
)
from operators.bucket.state.load_bucket import load_bucket
from operators.bucket.state.manifest import (
    decode_plan,
    dropped_before_ids,
    dropped_ids,
    encode_manifest,
    encode_plan,
    segment_ids,
    stored_plan_version,
)
from operators.bucket.state.store_segments import SegmentIds, store_segments
from operators.cache.segment_cache import SegmentCache
from operators.join.compiled_family import CompiledFamily
from operators.lazy.lazy_segment import SegmentReader
from operators.lineage.routes import RouteCounts
from operators.pack.payload import Payload
from operators.segments.files.segment_files import Fence, SegmentFiles
from operators.segments.segment import ArrivedFile, Segment
from operators.steps.exchange import ExchangedRows, decode_exchange, encode_exchange
from operators.storage.folder import Folder
from service.commit.failpoints import reached
from service.commit.reporting.bucket_report import BucketReport
from service.commit.reporting.reports import ReportAddress, send_report
from service.job.packets import joined
from service.results.files.result_files import ResultWriter

#: Schema of the rows that the chain returns to Spark. Spark requires a schema, but there are no rows.
OUTPUT_SCHEMA = "none boolean"
#: Number of compiled plan versions that a worker keeps: the version in force and the previous one, for
#: replays.
PLANS_KEPT = 2


@dataclass(frozen=True, slots=True)
class ChainOptions:
    """Options of the chain, the same for all buckets.

    Attributes:
        checkpoint_id: Id of the checkpoint; part of every segment id.
        bucket_keys: Spark's key of each bucket.
        segments_dir: Folder of segments, patches and plans.
        cache_bytes: Maximum bytes of decoded segments that a worker keeps.
        engine_lock: Path of the engine's lock file, for failpoints.
        writer: Writes result files.
        fence: Prevents workers of a replaced engine from writing segments. None means that no other engine
            can replace this one.
        sealed: Whether all segments have a seal (``operators.segments.files.segment_files``).
        begins: First batch of a moved checkpoint (``recovery.moving``), whose buckets begin with a manifest
            that is stored among the segments. None means that buckets begin empty.
    """

    checkpoint_id: str
    bucket_keys: tuple[int, ...]
    segments_dir: Folder
    cache_bytes: int
    engine_lock: str
    writer: ResultWriter
    fence: Fence | None = None
    sealed: bool = True
    begins: int | None = None


@dataclass(slots=True, eq=False)
class _Worker:
    """State that a worker process keeps between batches."""

    cache: SegmentCache
    plans: dict[tuple[str, int], tuple[Plan, dict[str, CompiledFamily]]]


_workers: dict[str, _Worker] = {}


def forget_checkpoint(checkpoint_id: str) -> None:
    """Release the memory that this process keeps for a checkpoint that is no longer used."""
    _workers.pop(checkpoint_id, None)


def open_state(handle: StatefulProcessorHandle) -> ValueState:
    """Declare and open a bucket's state."""
    return handle.getValueState("manifest", "value binary")


class ChainOperator(StatefulProcessor):
    """The chain as the stateful processor that Spark calls.

    Args:
        options: Options of the chain.
        reports: Address at which the engine accepts reports.
    """

    def __init__(self, options: ChainOptions, reports: ReportAddress) -> None:
        self._options = options
        self._reports = reports

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the bucket's state."""
        self._processor = ChainProcessor(self._options, open_state(handle))

    def handleInputRows(  # noqa: N802  Spark's names
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Any]:
        """Process the payloads of one batch for one bucket, report to the engine, and return no rows."""
        report, routes = self._processor.process(int(key[0]), rows)
        send_report(self._reports, report, routes)
        return iter(())

    def close(self) -> None:
        """Do nothing, because everything that stays open is kept for the worker's later tasks."""


class ChainProcessor:
    """Processes one batch of one bucket.

    Args:
        options: Options of the chain.
        manifest: Spark's state of the bucket.
    """

    def __init__(self, options: ChainOptions, manifest: ValueState) -> None:
        self._options = options
        self._files = SegmentFiles(options.segments_dir, options.fence, options.sealed)
        self._manifest = manifest

    def process(self, key: int, rows: Iterator[pd.DataFrame]) -> tuple[BucketReport, tuple[RouteCounts, ...]]:
        """Process the payloads of one batch for one bucket; return the report and the routes of its pairs.

        Args:
            key: Spark's key of the bucket.
            rows: Frames with packets of payloads (``service.job.packets``).
        """
        started_s = time.process_time()
        packets = (packet for frame in rows for packet in frame["packet"])
        payloads = [Payload.decode(payload, self._files.read) for payload in joined(packets)]
        batch = payloads[0].batch
        number = self._options.bucket_keys.index(key)
        ids = SegmentIds(self._options.checkpoint_id, number, batch)
        worker = self._worker()
        stored = self._manifest.get()
        manifest = bytes(stored[0]) if stored is not None else self._begin(ids)
        bucket = self._load(worker, ids, manifest)
        output = bucket.process(payloads, self._exchanged(payloads, number))
        if bucket.plan_changed and bucket.plan is not None:
            compiled = {family_id: joins.family for family_id, joins in bucket.families.items()}
            self._keep_plan(worker, bucket.plan, compiled)
        arrived = {file.name for payload in payloads for file in payload.files.values()}
        self._save(worker, bucket, ids, manifest, arrived, output.exchanged)
        reached("before-state-commit", batch, self._options.engine_lock)
        files, late_files = self._write(output, batch)
        etags = self._options.writer.publish(files, late_files)
        report = bucket_report(bucket, output, number=number, batch=batch)
        chain_us = round((time.process_time() - started_s) * 1_000_000)
        cpu = CpuCounters(pack_us=output.pack_us, chain_us=chain_us)
        report = replace(report, files=files, late_files=late_files, etags=etags, cpu=cpu)
        return report, tuple(output.routes.values())

    def _write(
        self, output: BatchOutput, batch: int
    ) -> tuple[tuple[ResultFile, ...], tuple[ResultFile, ...]]:
        """Write results and late rows; return the result files and the late files."""
        writer = self._options.writer
        files = (writer.write_pairs(batch, family, rows) for family, rows in output.results.items())
        late = [writer.write_late(batch, stream_id, rows) for stream_id, rows in output.late.items()]
        late += [writer.write_violating(batch, place, rows) for place, rows in output.violating.items()]
        return tuple(files), tuple(file for file in late if file is not None)

    def _exchanged(self, payloads: Sequence[Payload], number: int) -> list[ExchangedRows]:
        """Return the pairs that the buckets sent to this bucket in the previous batch."""
        batch = payloads[0].batch - 1
        senders = sorted({sender for payload in payloads for sender in payload.senders})
        sent = [SegmentIds(self._options.checkpoint_id, sender, batch).exchange for sender in senders]
        return [part for name in sent for part in decode_exchange(self._files.read(name), number)]

    def _worker(self) -> _Worker:
        checkpoint = self._options.checkpoint_id
        if checkpoint not in _workers:
            _workers[checkpoint] = _Worker(SegmentCache(self._options.cache_bytes), {})
        return _workers[checkpoint]

    def _begin(self, ids: SegmentIds) -> bytes | None:
        """Return the manifest with which a bucket begins, or None if the bucket begins empty."""
        if self._options.begins is None:
            return None
        if ids.batch != self._options.begins:
            raise InvariantBroken(
                f"batch {ids.batch} has no state, and the checkpoint begins with batch {self._options.begins}"
            )
        return bytes(self._files.read(ids.begin).to_pybytes())

    def _load(self, worker: _Worker, ids: SegmentIds, manifest: bytes | None) -> Bucket:
        if manifest is None:
            return Bucket()
        version = stored_plan_version(manifest)
        plan, compiled = self._compiled(worker, ids, version) if version else (None, {})
        entries = {}

        def load(segment_id: str) -> Segment:
            entry = worker.cache.get(segment_id, self._files.read)
            entries[segment_id] = entry
            return entry.segment

        reader = SegmentReader(
            lambda segment_id: worker.cache.get(segment_id, self._files.read).segment,
            lambda stored_id: worker.cache.stored(stored_id, self._files.read),
            lambda stored_id: worker.cache.bloom(stored_id, self._files.read),
        )
        bucket = load_bucket(manifest, plan, load, compiled, reader)
        for joins in bucket.families.values():
            for segment in joins.stored():
                entry = entries.get(segment.id)
                if entry is None:
                    continue  # the segment is lazy and was not loaded
                if entry.version == version and entry.classes is not None:
                    joins.remember_classes(segment, entry.classes)
        return bucket

    def _compiled(
        self, worker: _Worker, ids: SegmentIds, version: int
    ) -> tuple[Plan, dict[str, CompiledFamily]]:
        key = (self._options.checkpoint_id, version)
        if key not in worker.plans:
            stored = self._files.read(ids.plan(version))
            self._keep_plan(worker, decode_plan(stored.to_pybytes()), {})
        return worker.plans[key]

    def _keep_plan(self, worker: _Worker, plan: Plan, compiled: dict[str, CompiledFamily]) -> None:
        """Keep a compiled plan version, because the next batch most likely has the same version."""
        worker.plans[self._options.checkpoint_id, plan.version] = (plan, compiled)
        while len(worker.plans) > PLANS_KEPT:
            worker.plans.pop(next(iter(worker.plans)))

    def _save(
        self,
        worker: _Worker,
        bucket: Bucket,
        ids: SegmentIds,
        manifest: bytes | None,
        arrived: set[str],
        exchanged: Sequence[ExchangedRows],
    ) -> None:
        written = []

        def put(stored_id: str, data: bytes | ArrivedFile, segment: Segment | None) -> None:
            written.append(stored_id)
            if isinstance(data, ArrivedFile):
                self._files.link(data, stored_id)
            else:
                self._files.write(stored_id, data)
            if segment is not None:
                worker.cache.put(segment)

        held = store_segments(bucket, ids, put)
        version = bucket.plan.version if bucket.plan is not None else 0
        if bucket.plan is not None:
            held.add(ids.plan(version))
            if bucket.plan_changed:
                self._files.write(ids.plan(version), encode_plan(bucket.plan))
                written.append(ids.plan(version))
        bucket.exchange_files = (ids.exchange,) if exchanged else ()
        if exchanged:
            # The exchange file is part of the state until the end of the next batch, which reads it in all
            # buckets.
            held.add(ids.exchange)
            self._files.write(ids.exchange, encode_exchange(exchanged))
            written.append(ids.exchange)
        self._files.publish(written)
        former: set[str] = set()
        dropped: tuple[str, ...] = ()
        if manifest is not None:
            # Keep the segments that the previous batch dropped: if power fails or Spark's log loses its end,
            # the previous batch is repeated, although it is committed. Remove the segments that the batch
            # before it dropped, because that batch is synced and will not be repeated.
            self._files.remove(dropped_before_ids(manifest))
            dropped = dropped_ids(manifest)
            former = segment_ids(manifest)
            if before := stored_plan_version(manifest):
                former.add(ids.plan(before))
            if ids.batch == self._options.begins:
                former.add(ids.begin)
        self._manifest.update((encode_manifest(bucket, sorted((former - held) | arrived), dropped),))
        names = {segment.id for joins in bucket.families.values() for segment in joins.stored()}
        worker.cache.retain(ids.prefix, names, held)
        for joins in bucket.families.values():
            for segment in joins.stored():
                if segment.bloom is not None:
                    continue  # the segment is lazy: the next batch may not need its rows
                entry = worker.cache.keep(segment)
                entry.version, entry.classes = version, joins.known_classes(segment)


def bucket_report(bucket: Bucket, output: BatchOutput, *, number: int, batch: int) -> BucketReport:
    """Return the report of one bucket and batch, without files, routes and the chain's CPU time."""
    return BucketReport(
        bucket=number,
        batch=batch,
        plan_version=bucket.plan.version if bucket.plan is not None else 0,
        began_us=output.began_us,
        streams=tuple(
            StreamCounters(
                stream_id=stream_id,
                rows=s.rows,
                late_rows=s.late_rows,
                rejected_rows=s.rejected_rows,
                watermark_us=s.watermark.value_us,
                max_event_time_us=s.watermark.max_event_time_us,
                scramble=None if s.order is None else s.order.scramble,
                order_passed=None if s.order is None else s.order.passed,
                horizon_us=s.horizon_us,
            )
            for stream_id, s in bucket.streams.items()
        ),
        slices=slice_table(bucket.families, bucket.clocks),
        filters=tuple(output.filters),
        keys=tuple(output.keys),
        absence=tuple(absence_counters(bucket.families, bucket.clocks)),
        unmatched=tuple(unmatched_counters(bucket.families)),
        cpu=CpuCounters(pack_us=output.pack_us),
        punctuations=tuple(punctuation_counters(bucket.families)),
        received=tuple(output.received),
        exchanged=tuple(
            ExchangeCounters(family, number, rows) for family, rows in sorted(output.exchanged_rows().items())
        ),
        groups=tuple(group_counters(bucket.families)),
        probes=tuple(probe_counters(bucket.families, bucket.clocks)),
        held=tuple(held_times(bucket.families, bucket.plan.streams if bucket.plan is not None else ())),
        memory=tuple(memory_counters(bucket.families)),
        query_rows=tuple(counted.query_rows() for counted in output.routes.values()),
    )
