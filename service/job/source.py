"""SOURCE: one Spark data source that reads all streams and the control log.

    offset   {"1": position, "2/0": position, "2/1": position, ..., "batch": n, "control": sequence}

Spark writes offsets to its log before it runs a batch. So for every batch the log fixes the input ranges, the
plan version and the batch number, and a replayed batch packs exactly the same rows. A topic has one position
for each partition, under a key such as "2/0". New streams add keys to the offset, and new queries add control
records. Neither changes the source itself, so the Spark query keeps running.

``partitions`` has no side effect; Spark also calls it with ``start == end``. A reader's task also packs its
rows (``service.job.packing``), so the JVM gets packed bytes only, never rows.
"""

from __future__ import annotations

import json
import logging
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from catalog.documents.codec import encode
from catalog.documents.plan_differences import bucket_records
from catalog.errors import NEWER_JOB, FencedOut, InternalError
from catalog.steps import is_exchanged, taken_intermediates
from catalog.store.store import Store
from catalog.values.batch import BatchManifest
from catalog.values.plan import Plan
from catalog.values.stream import FilesSource, GeneratorSource, KafkaSource, Stream
from operators.pack.pack_plan import pack_plan
from operators.storage.folder import folder_of
from service.commit.failpoints import reached
from service.config.groups.batch_size import BatchSize, BatchSizing
from service.errors import KafkaDown
from service.inputs.inputs import Inputs
from service.inputs.limits.disk_space import DiskSpace
from service.inputs.partitions import lanes_named
from service.inputs.reading.voided import is_voided, voided_batches
from service.inputs.sources.posted.http_log import EventLog
from service.job.admission.admission import Admission, admit
from service.job.admission.lateness import none_can_be_late
from service.job.admission.packed_bytes import packed_bytes
from service.job.commit_signal import CommitSignal
from service.job.packing import RowFiles, read
from service.job.reader_tasks import ControlPartition, PackPartition, compressed

log = logging.getLogger(__name__)

FORMAT_NAME = "sluice"
SCHEMA = "bucket int, packet binary"

#: Seconds for which a request of Spark for the next offset waits for new input.
WAIT_S = 1.0
#: Seconds between two checks for input that gives no commit signal: of topics, of streams that follow the
#: clock, and of catalogs on a server.
POLL_S = 0.04
#: Seconds before a topic whose brokers did not answer is tried again.
KAFKA_RETRY_S = 5.0

Offset = dict[str, int]


class SluiceSource(DataSource):
    """The data source, as a class that Spark can register."""

    @classmethod
    def name(cls) -> str:
        """Return the format name."""
        return FORMAT_NAME

    def schema(self) -> str:
        """Return the columns of the source's rows: a bucket's key and a packet of a payload."""
        return SCHEMA

    def streamReader(self, schema: Any) -> SluiceReader:  # noqa: N802  Spark's name
        """Return the reader."""
        return SluiceReader(dict(self.options))


class SluiceReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of the source: plans batches in the source process, and reads partitions in tasks.

    Args:
        options: ``catalog_url``, ``events_url``, ``bucket_keys`` (comma-separated), ``max_rows``,
            ``target_batch_s``, ``batch_bytes``, ``rows_per_partition`` (empty: automatic), ``tasks``,
            ``min_free_mb`` (empty: automatic), ``engine_lock``, ``epoch``, ``begin`` (the offset at which a
            moved checkpoint continues, as JSON; empty: none); for readers' tasks ``rows_dir`` (empty: none),
            ``rows_file_bytes`` and ``fence``.
        clock_s: Monotonic clock that times batches.
    """

    def __init__(self, options: dict[str, str], clock_s: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._buckets = options["bucket_keys"].count(",") + 1
        self._store: Store | None = None
        self._inputs: Inputs | None = None
        # Plan version, and the pickled packing plan of each stream for it. Few batches change the version.
        self._asked: tuple[int, dict[int, bytes]] = (0, {})
        self._commits: CommitSignal | None = None
        # Streams whose rows arrive without a commit signal: rows that follow the clock, or messages of a
        # topic.
        self._silent: tuple[Stream, ...] = ()
        # Time of the next try to read a topic whose brokers did not answer, by stream id.
        self._down_until_s: dict[int, float] = {}
        # Whether to wait for input: None before the first check, and always False in a bounded run.
        self._waits: bool | None = None
        # Whether Spark may still ask for batches that the catalog has, but that Spark's log has lost.
        self._repeats = True
        least_free_mb = options.get("min_free_mb", "0")
        self._disk = DiskSpace(
            Path(options["data_dir"]), int(least_free_mb) if least_free_mb else None, clock_s
        )
        self._clock_s = clock_s
        self._sizing: BatchSizing | None = None
        # Number of a batch, and the buckets that sent pairs to other buckets in the batch before it.
        self._sent: tuple[int, tuple[int, ...]] = (-1, ())
        # By id of each stream that was checked in a bounded run: whether the results are the same wherever
        # the stream's input is cut into batches.
        self._cut_anywhere: dict[int, bool] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        # Only the options are pickled, because a task does not need the connections that planning has opened.
        return type(self), (self._options,)

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the offset before the first batch of the checkpoint."""
        begin = self._options.get("begin")
        return dict(json.loads(begin)) if begin else {"batch": 0, "control": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return a limit other than "all", because with "all" Spark would run a bounded run as one batch."""
        return ReadMaxRows(int(self._options["max_rows"]))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Never wait for input, because a bounded run lists all of its input before it starts."""
        self._waits = False

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the end of the next batch, or ``start`` if no input arrived for a while."""
        # The first call is answered immediately, because Spark's first batch takes seconds even if it is
        # empty.
        waits, self._waits = self._waits, not self._bounded
        signs = self._commits.signs() if self._commits is not None else ()
        end = self._next(start)
        if end != start or not waits:
            return end
        if self._commits is None:
            time.sleep(POLL_S)
            return end
        until_s = time.monotonic() + WAIT_S
        step_s = POLL_S if self._silent else WAIT_S
        while not self._commits.wait(signs, until_s=min(time.monotonic() + step_s, until_s)):
            if time.monotonic() >= until_s:
                return end
            if self._came_silently(start):
                break
        return self._next(start)

    def _came_silently(self, start: Offset) -> bool:
        """Return whether rows arrived without a commit signal, or brokers of a topic do not answer."""
        _, inputs = self._open()
        now_s = self._clock_s()
        try:
            return not all(
                inputs.is_read(stream, start)
                for stream in self._silent
                if self._down_until_s.get(stream.id, now_s) <= now_s
            )
        except KafkaDown:
            return True

    def _next(self, start: Offset) -> Offset:
        """Admit the next batch: its control records, then rows by event time."""
        store, inputs = self._open()
        batch, control = start["batch"], start["control"]
        self._check_epoch(store, batch)
        if self._repeats and (repeated := self._recorded(store, batch)) is not None:
            return repeated
        sizing = self._batch_sizing()
        sizing.asked(batch, now_s=self._clock_s())
        if sizing.grows:
            sizing.has_room(self._room(store.batches.manifest(batch - 1), sizing.fixed_rows))
        waits_for_batch = False
        if batch:
            reached("after-commit-log", batch - 1, self._options["engine_lock"])
        for record in store.control_log.records(control):
            if record.at_batch is not None and record.at_batch > batch:
                waits_for_batch = True
                break
            control = record.seq
        plan = store.control_log.plan_at(control)
        if plan is None and control == start["control"]:
            return start
        streams = () if plan is None else plan.streams
        standing = {lane.key: start.get(lane.key, lane.begin) for lane in lanes_named(streams, start)}
        self._silent = tuple(s for s in streams if isinstance(s.source, GeneratorSource | KafkaSource))
        by_time = not waits_for_batch and self._cuts_change_nothing(streams, inputs)
        max_rows = sizing.rows if by_time else sizing.fixed_rows
        if self._disk.is_out:  # control records are still admitted, because they may free space
            admission = Admission({}, rows=0, full=False)
        else:
            admission = self._admitted(streams, start, inputs, max_rows)
        moved = admission.positions
        if control == start["control"] and not moved and not self._senders(plan, batch):
            return start
        reached("before-offset-log", batch, self._options["engine_lock"])
        # The offset contains the position of a lane only once the lane has advanced. Until then the lane is
        # at its beginning.
        end = start | moved
        if plan is not None:
            # The id of a removed stream is never used again, so the stream's positions are dropped. Batches
            # that may be replayed keep them in their own offsets.
            end = {
                key: p for key, p in end.items() if not key[0].isdigit() or key in standing or key in moved
            }
        end |= {"batch": batch + 1, "control": control}
        timed = admission.full and by_time and control == start["control"]
        sizing.admitted(batch, admission.rows, full=timed, now_s=self._clock_s())
        return dict(sorted(end.items()))

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the partitions of the batch between two offsets, one per task of a reader."""
        if start["batch"] == end["batch"]:
            return []
        store, inputs = self._open()
        batch = start["batch"]
        reached("after-offset-log", batch, self._options["engine_lock"])
        records = store.control_log.records(start["control"], up_to=end["control"])
        given = bucket_records(store.control_log.plan_at(start["control"]), records)
        texts = compressed([encode(record).decode() for record in given])
        plan = store.control_log.plan_at(end["control"])
        if plan is None:
            return [ControlPartition(batch=batch, records=texts)]
        senders = self._senders(plan, batch)
        result: list[InputPartition] = []
        bounds = self._late_bounds(batch)
        decisions = voided_batches(store)
        for stream, pieces in inputs.between(plan.streams, start, end).items():
            if is_voided(decisions, batch, stream.id) is not None:
                continue
            asked = self._asked_of(plan, stream)
            for piece in pieces:
                result.append(
                    PackPartition(
                        order=len(result),
                        batch=batch,
                        version=plan.version,
                        asked=asked,
                        piece=piece,
                        late_bound_us=bounds.get(stream.id),
                        records=b"" if result else texts,
                        senders=() if result else senders,
                    )
                )
        return result or [ControlPartition(batch=batch, records=texts, senders=senders)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition."""
        keys = [int(key) for key in self._options["bucket_keys"].split(",")]
        return read(partition, keys, RowFiles.of(self._options))

    def _senders(self, plan: Plan | None, batch: int) -> tuple[int, ...]:
        """Return the buckets that wrote pairs for other buckets in the previous batch.

        The result is empty if no family of the plan takes such pairs. If it is not empty, a new batch begins
        even if no stream has new rows.
        """
        taken = () if plan is None else taken_intermediates(plan.families)
        if not any(map(is_exchanged, taken)):
            return ()
        if self._sent[0] != batch:
            store, _ = self._open()
            manifest = store.batches.manifest(batch - 1) if batch else None
            sent = () if manifest is None else manifest.exchanged
            self._sent = (batch, tuple(sorted({counters.bucket for counters in sent})))
        return self._sent[1]

    def _admitted(self, streams: Sequence[Stream], start: Offset, inputs: Inputs, max_rows: int) -> Admission:
        """Admit available input; return the admission, reduced to the positions that change.

        No input is admitted from a topic whose brokers do not answer, because reading only some partitions
        would make rows of the other partitions late. In a bounded run this is an error, because the run would
        otherwise end as if its input were complete.
        """
        now_s = self._clock_s()
        wanted = [stream for stream in streams if self._down_until_s.get(stream.id, now_s) <= now_s]
        while True:
            try:
                lanes = [lane for stream in wanted for lane in inputs.lanes(stream, start)]
                positions = {lane.key: start.get(lane.key, lane.begin) for lane in lanes}
                admission = admit(lanes, positions, inputs, max_rows=max_rows)
            except KafkaDown as error:
                if self._bounded:
                    raise
                if error.stream_id not in self._down_until_s:
                    log.warning("%s", error.primary, extra={"reason": error.detail})
                wanted = [stream for stream in wanted if stream.id != error.stream_id]
                self._down_until_s[error.stream_id or 0] = self._clock_s() + KAFKA_RETRY_S
                continue
            for stream in wanted:
                if self._down_until_s.pop(stream.id, None) is not None:
                    log.info("topic is read again", extra={"stream": stream.name})
            moved = {lane: p for lane, p in admission.positions.items() if p != positions[lane]}
            return replace(admission, positions=moved)

    def _recorded(self, store: Store, batch: int) -> Offset | None:
        """Return the end offset of a committed batch from the catalog, or None if the batch is new."""
        manifest = store.batches.manifest(batch)
        if manifest is not None and manifest.input_end:
            return dict(manifest.input_end)
        last = store.batches.last()
        if last is not None and batch <= last:
            raise InternalError(
                f"batch {batch} is committed, but its input is neither in Spark's log nor in the catalog",
                hint="Catalog and checkpoint belong together; restore both from the same backup.",
            )
        self._repeats = False
        return None

    def _check_epoch(self, store: Store, batch: int) -> None:
        """Refuse to begin a batch for a replaced engine."""
        epoch, current = int(self._options["epoch"]), store.lease.epoch()
        if epoch != current:
            raise FencedOut(
                f"batch {batch} cannot begin under epoch {epoch}: the current epoch is {current}",
                detail=NEWER_JOB,
            )

    def _open(self) -> tuple[Store, Inputs]:
        if self._store is None or self._inputs is None:
            self._store = Store.open(self._options["catalog_url"], migrate=False)
            options = self._options
            rows = int(options["rows_per_partition"]) if options.get("rows_per_partition") else None
            events, tasks = EventLog(options["events_url"]), int(options.get("tasks", 1))
            self._inputs = Inputs(
                self._store,
                events,
                rows_per_partition=rows,
                tasks=tasks,
                dead_letters=folder_of(options["dead_letters"]) if "dead_letters" in options else None,
                bounded=self._bounded,
            )
            urls = (options["catalog_url"], options["events_url"])
            self._commits = CommitSignal.of(urls, options["engine_lock"])
        return self._store, self._inputs

    @property
    def _bounded(self) -> bool:
        return self._waits is False

    def _batch_sizing(self) -> BatchSizing:
        if self._sizing is None:
            first = BatchSize.first(
                ceiling=int(self._options["max_rows"]),
                target_s=float(self._options.get("target_batch_s", 0)),
                # Results of a bounded run are not read before its end.
                shrinks=not self._bounded,
            )
            self._sizing = BatchSizing(first)
        return self._sizing

    def _room(self, last: BatchManifest | None, unknown: int) -> int:
        """Return how many rows like the last batch's fit into the JVM, or ``unknown`` without an estimate."""
        rows = 0 if last is None else sum(s.rows for s in last.streams)
        size = None if last is None or not rows else packed_bytes(last)
        if size is None:
            return unknown
        return int(int(self._options["batch_bytes"]) * rows / max(size, 1.0))

    def _cuts_change_nothing(self, streams: Sequence[Stream], inputs: Inputs) -> bool:
        """Return whether results are the same wherever the batches of streams end.

        The answer is always True for a service, whose batches depend on the clock anyway. A bounded run must
        give the same results each time and after each crash, so the ends of its batches must not make rows
        late.
        """
        if not self._bounded:
            return True
        for stream in streams:
            source = stream.source
            if isinstance(source, FilesSource) and source.max_files_per_batch is not None:
                continue  # the stream's batches always end after a fixed number of files
            if stream.has_contract:
                return False  # how long a closed key is remembered depends on the ends of batches
            if stream.id not in self._cut_anywhere:
                self._cut_anywhere[stream.id] = none_can_be_late(stream, inputs)
            if not self._cut_anywhere[stream.id]:
                return False
        return True

    def _asked_of(self, plan: Plan, stream: Stream) -> bytes:
        if self._asked[0] != plan.version:
            self._asked = (plan.version, {})
        known = self._asked[1]
        if stream.id not in known:
            known[stream.id] = pickle.dumps(pack_plan(plan, stream, self._buckets))
        return known[stream.id]

    def _late_bounds(self, batch: int) -> dict[int, int | None]:
        """Return the watermarks at the start of a batch, from the manifest of the previous batch."""
        if batch == 0:
            return {}
        store, *_ = self._open()
        before = store.batches.progress(batch - 1)
        if before is None or before.batch != batch - 1:
            raise InternalError(
                f"batch {batch - 1} was processed but the catalog has no manifest of the batch",
                hint="Catalog and checkpoint belong together; restore both from the same backup.",
            )
        return {s.stream_id: s.watermark_us for s in before.streams}
