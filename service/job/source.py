"""SOURCE: one Spark data source that carries every stream and the control log.

    offset   {"1": position, "2": position, ..., "batch": n, "control": sequence}

Spark writes offsets to its log before it runs a batch. So the log fixes for every batch the input ranges, the
plan version and the batch number, and a replayed batch packs exactly what it packed the first time. New
streams and queries are new keys and new records, never another source: the Spark query keeps running.

``partitions`` has no side effect; Spark also calls it with ``start == end``. Reading packs inside the task
of the reader (``service.job.packing``), so rows never exist on the JVM side.

Do not import what works on rows here: the first batch waits for this import.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

from catalog.errors import FencedOut, InternalError
from catalog.store.codec import encode
from catalog.store.store import Store
from catalog.values.batch import BatchManifest
from catalog.values.plan import Plan
from catalog.values.stream import FilesSource, GeneratorSource, Stream
from operators.pack.pack_plan import pack_plan
from service.config.batch_size import BatchSize, BatchSizing
from service.config.failpoints import reached
from service.inputs.admission import admit
from service.inputs.inputs import Inputs
from service.inputs.lateness import none_can_be_late
from service.inputs.packed_bytes import packed_bytes
from service.inputs.sources.http_log import EventLog
from service.inputs.voided import is_voided, voided_batches, write_dead_letters
from service.job.commit_signal import CommitSignal
from service.job.reader_tasks import ControlPartition, PackPartition, compressed

#: How long Spark is kept waiting for news before it asks again.
WAIT_S = 1.0
#: The same where nothing tells of news: streams that follow the clock, and catalogs on a server.
POLL_S = 0.04


Offset = dict[str, int]


class SluiceReader:
    """Plans batches on the driver's side.

    Args:
        options: ``catalog_url``, ``events_db``, ``bucket_keys`` (comma-separated), ``max_rows``,
            ``target_batch_s``, ``batch_bytes``, ``rows_per_partition`` (empty: by itself), ``tasks``,
            ``engine_lock``, ``epoch``; for readers' tasks ``rows_dir`` (empty: none), ``rows_file_bytes``
            and ``fence``.
        clock_s: What batches are timed by; it never goes back.
    """

    def __init__(self, options: dict[str, str], clock_s: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._buckets = options["bucket_keys"].count(",") + 1
        self._store: Store | None = None
        self._inputs: Inputs | None = None
        # What is asked of each stream under one plan version, pickled: few batches bring another one.
        self._asked: tuple[int, dict[int, bytes]] = (0, {})
        self._news: CommitSignal | None = None
        # Whether there are streams that nobody writes: their rows come with the clock.
        self._by_clock = False
        # None before the first look; False forever in a bounded run.
        self._waits: bool | None = None
        # Whether Spark may still ask for batches that the catalog has and Spark's log has lost.
        self._repeats = True
        self._clock_s = clock_s
        self._sizing: BatchSizing | None = None
        # Per stream of a bounded run, once it was looked at: whether cuts of its input change nothing.
        self._cut_anywhere: dict[int, bool] = {}

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the offset before the first batch."""
        return {"batch": 0, "control": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return a limit other than "all", so that bounded runs are cut into batches too."""
        return ReadMaxRows(int(self._options["max_rows"]))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Wait for nothing: a bounded run lists its input before it starts, and nothing is added to it."""
        self._waits = False

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the end of the next batch, or ``start`` if nothing came for a while."""
        # The first answer comes at once: Spark's first batch, also an empty one, takes seconds.
        waits, self._waits = self._waits, not self._bounded
        signs = self._news.signs() if self._news is not None else ()
        end = self._next(start)
        if end != start or not waits:
            return end
        if self._news is None or self._by_clock:
            time.sleep(POLL_S)
        elif self._news.wait(signs, until_s=time.monotonic() + WAIT_S):
            end = self._next(start)
        return end

    def _next(self, start: Offset) -> Offset:
        """Admit the next batch: control records that may apply, then rows by event time."""
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
        standing = _positions(streams, start)
        self._by_clock = any(isinstance(stream.source, GeneratorSource) for stream in streams)
        by_time = not waits_for_batch and self._cuts_change_nothing(streams, inputs)
        max_rows = sizing.rows if by_time else sizing.fixed_rows
        admission = admit(streams, standing, inputs, max_rows=max_rows)
        admitted = admission.positions
        if control == start["control"] and all(admitted.get(i, p) == p for i, p in standing.items()):
            return start
        reached("before-offset-log", batch, self._options["engine_lock"])
        # A position is named once it has moved; until then the stream stands at its initial one.
        end = start | {str(i): p for i, p in admitted.items() if p != standing[i] or str(i) in start}
        if plan is not None:
            # A removed stream's id never comes back; batches that may replay have their own offsets.
            end = {key: p for key, p in end.items() if not key.isdigit() or int(key) in standing}
        end |= {"batch": batch + 1, "control": control}
        timed = admission.full and by_time and control == start["control"]
        sizing.admitted(batch, admission.rows, full=timed, now_s=self._clock_s())
        return dict(sorted(end.items()))

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return what the readers of one batch read."""
        if start["batch"] == end["batch"]:
            return []
        store, inputs = self._open()
        batch = start["batch"]
        reached("after-offset-log", batch, self._options["engine_lock"])
        records = store.control_log.records(start["control"], up_to=end["control"])
        texts = compressed([encode(record).decode() for record in records])
        control = ControlPartition(batch=batch, records=texts)
        plan = store.control_log.plan_at(end["control"])
        if plan is None:
            return [control]
        result: list[InputPartition] = []
        bounds = self._late_bounds(batch)
        before, after = (_positions(plan.streams, offset) for offset in (start, end))
        ranges = [(stream, before[stream.id], after[stream.id]) for stream in plan.streams]
        decisions = voided_batches(store)
        for stream, pieces in zip(plan.streams, inputs.partitions(ranges), strict=True):
            voided = is_voided(decisions, batch, stream.id)
            if voided is not None:
                if pieces:
                    write_dead_letters(Path(self._options["dead_letters"]), voided, stream, pieces)
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
                    )
                )
        return result or [control]

    def _recorded(self, store: Store, batch: int) -> Offset | None:
        """Return the end of a batch that is committed already; None, and so from now on, where it is not."""
        manifest = store.batches.manifest(batch)
        if manifest is not None and manifest.input_end:
            return dict(manifest.input_end)
        last = store.batches.last()
        if last is not None and batch <= last:
            raise InternalError(
                f"batch {batch} is committed, but Spark's log has lost it, and the catalog its input",
                hint="Catalog and checkpoint belong together; restore both from the same backup.",
            )
        self._repeats = False
        return None

    def _check_epoch(self, store: Store, batch: int) -> None:
        """Begin no batch for an engine that another one has replaced."""
        epoch, current = int(self._options["epoch"]), store.epochs.current()
        if epoch != current:
            raise FencedOut(
                f"batch {batch} would be begun under epoch {epoch}, the current one is {current}",
                detail="Another engine owns the data directory.",
            )

    def _open(self) -> tuple[Store, Inputs]:
        if self._store is None or self._inputs is None:
            self._store = Store.open(self._options["catalog_url"], migrate=False)
            options = self._options
            rows = int(options["rows_per_partition"]) if options.get("rows_per_partition") else None
            events, tasks = EventLog(options["events_db"]), int(options.get("tasks", 1))
            self._inputs = Inputs(self._store, events, rows_per_partition=rows, tasks=tasks)
            self._news = CommitSignal.of(options["catalog_url"], options["events_db"], options["engine_lock"])
        return self._store, self._inputs

    @property
    def _bounded(self) -> bool:
        return self._waits is False

    def _batch_sizing(self) -> BatchSizing:
        if self._sizing is None:
            first = BatchSize.first(
                ceiling=int(self._options["max_rows"]),
                target_s=float(self._options.get("target_batch_s", 0)),
                # Nobody reads results of a bounded run before its end.
                shrinks=not self._bounded,
            )
            self._sizing = BatchSizing(first)
        return self._sizing

    def _room(self, last: BatchManifest | None, unknown: int) -> int:
        """Return how many rows like the last batch's fit into the JVM, ``unknown`` if it tells nothing."""
        rows = 0 if last is None else sum(s.rows for s in last.streams)
        size = None if last is None or not rows else packed_bytes(last)
        if size is None:
            return unknown
        return int(int(self._options["batch_bytes"]) * rows / max(size, 1.0))

    def _cuts_change_nothing(self, streams: Sequence[Stream], inputs: Inputs) -> bool:
        """Return whether results are the same wherever the batches of streams end.

        A service takes what came meanwhile: its cuts follow the clock anyway. A bounded run gives the same
        results each time and after each crash, so they may where no row is late because of them.
        """
        if not self._bounded:
            return True
        for stream in streams:
            source = stream.source
            if isinstance(source, FilesSource) and source.max_files_per_batch is not None:
                continue  # cut by its files, whatever else is in the batch
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
        """Return the watermarks at the start of a batch, as recorded in the manifest of the one before."""
        if batch == 0:
            return {}
        store, *_ = self._open()
        manifest = store.batches.manifest(batch - 1)
        if manifest is None:
            raise InternalError(
                f"batch {batch - 1} was processed but the catalog has no manifest of it",
                hint="Catalog and checkpoint belong together; restore both from the same backup.",
            )
        return {s.stream_id: s.watermark_us for s in manifest.streams}


def _positions(streams: Sequence[Stream], offset: Offset) -> dict[int, int]:
    """Return where streams stand at an offset, by id; a stream that is not in it has not moved."""
    return {s.id: offset.get(str(s.id), s.initial_position) for s in streams}
