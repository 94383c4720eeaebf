r"""The engine: one Spark job over one data directory, from lock to last commit.

    stopped -> starting -> running -> stopped
                    \         \---> failed -> starting ... (``service.engine.retry`` says how long)

An engine first takes the directory's lock, ends a JVM that a dead driver may have left, takes the lease of
the catalog, and looks whether Spark can go on where the catalog is. Then it takes a new fencing epoch: from
then on no other engine's manifest is accepted. It sweeps files that no manifest names, and starts Spark.

What talks to Spark, and what goes to its workers, is loaded by the thread that runs the job: PySpark, pandas
and numba with its kernels are half of all that a service imports, and the API answers without them.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import os
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from catalog.clock import wall_clock_us
from catalog.errors import FencedOut, SluiceError, Unavailable
from catalog.store.store import Store
from service.commit.commits import Commits
from service.commit.reports import Reports
from service.commit.spark_log import SparkLog
from service.config.buckets import CHECKPOINT_SETTING, bucket_keys
from service.config.data_dir import DataDir
from service.config.settings import Settings
from service.engine.catalog_lease import CatalogLease
from service.engine.engine_lock import EngineLock
from service.engine.retry import MAX_FAILURES_AT_A_BATCH, Failure, Failures, can_pass
from service.errors import BucketsFixed, EngineFailed, NothingToSkip, OtherLife, find_corrupt_input
from service.inputs.voided import VoidedBatch, void_batch
from service.jvm.jvm import Jvm, launch
from service.jvm.spark_configuration import spark_configuration
from service.recovery.checkpoint import check_checkpoint, mark_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from service.commit.commit import BatchCommitter

log = logging.getLogger(__name__)

EngineState = Literal["stopped", "starting", "running", "paused", "failed"]

#: A batch in hand may take so long when the job is stopped; then its JVM is killed. Nothing is lost: the
#: batch is repeated, as after any crash.
STOP_S = 10.0
#: Spark's own end after that; a service ends by force before (``api.serve``).
END_SESSION_S = 120.0

#: How often a waiting call looks whether its plan version is in force.
WAIT_STEP_S = 0.02


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """Status of the engine.

    Attributes:
        run_id: Id of the Spark query's run; changes with every restart. Empty before the first.
        state: See the module's picture.
        since_us: Wall clock of the last change of state, µs UTC.
        batch: Last committed batch, or None.
        plan_version: Plan version of that batch (0: none).
        error: Why it failed, or None.
        spark_ui: Address of Spark's own page, or None.
        epoch: Fencing epoch.
        failures: How often the batch in hand has failed in a row, the same way; 0 while it runs.
        retry_at_us: When a failed job is started again, µs UTC; None where a person has to look.
    """

    run_id: str
    state: EngineState
    since_us: int
    batch: int | None
    plan_version: int
    error: str | None
    spark_ui: str | None
    epoch: int
    failures: int = 0
    retry_at_us: int | None = None


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """Facts of the checkpoint.

    Attributes:
        id: Part of every segment's name.
        keys: Spark's key of each bucket.
        partitions: Shuffle partitions.
        sealed: Whether all of its segments have a seal.
    """

    id: str
    keys: tuple[int, ...]
    partitions: int
    sealed: bool


@dataclass(slots=True)
class Engine:
    """Runs the Spark job of one data directory.

    Attributes:
        settings: Settings.
        data_dir: Where everything is.
        store: Catalog.
        bounded: Whether the job ends once everything available is processed.
        jvm: The JVM to use first, if one was launched already; the engine ends it.
        commits: Tells of commits.
    """

    settings: Settings
    data_dir: DataDir
    store: Store
    bounded: bool = False
    jvm: Jvm | None = None
    commits: Commits = field(default_factory=Commits)
    _lock: EngineLock = field(init=False)
    _lease: CatalogLease = field(init=False)
    _jvm_in_use: Jvm | None = None
    _epoch: int = 0
    _session: SparkSession | None = None
    _query: StreamingQuery | None = None
    _reports: Reports | None = None
    _run_id: str = ""
    _state: EngineState = "stopped"
    _since_us: int = 0
    _error: str | None = None
    _spark_ui: str | None = None
    _failures: int = 0
    _retry_at_us: int | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _change: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._lock = EngineLock(self.data_dir.engine_lock)
        self._lease = CatalogLease(self.store, self.data_dir.root, self._lease_lost)
        self._jvm_in_use = self.jvm

    def acquire(self) -> None:
        """Take the data directory and the catalog.

        Raises:
            DataDirInUse: Another engine has one of them.
            OtherLife: The checkpoint is not that of the catalog, or has lost batches.
        """
        self._lock.acquire()
        try:
            self._lease.acquire()
            check_checkpoint(self.store, self.data_dir, unsynced=self._lease.unsynced)
        except BaseException:
            self._lease.release()
            self._lock.release()
            raise

    def launch(self) -> None:
        """Start a JVM for the job beside whatever is to be done before it starts."""
        if self.jvm is None:
            self.jvm = self._jvm_in_use = launch(self.settings.spark, self.data_dir.spark_log)

    def start(self) -> None:
        """Start the job in the background; the lock must be held."""
        with self._change:
            if self._thread is not None and self._thread.is_alive():
                return
            self._stopping.clear()
            self._failures = 0
            self._set_state("starting")
            self._thread = threading.Thread(target=self._run_and_restart, name="engine")
            self._thread.start()

    def run(self) -> None:
        """Run the job in this thread until it ends; the lock must be held.

        Raises:
            EngineFailed: It ended with an error.
        """
        self._set_state("starting")
        self._run()

    def stop(self, *, state: EngineState = "stopped") -> None:
        """Stop the job after the batch in hand and end its JVM; the lock stays."""
        with self._change:
            self._stopping.set()
            with contextlib.suppress(OSError):  # the source waits for news a little longer then
                self.data_dir.engine_lock.touch()
            with self._killing_after(STOP_S):
                if self._query is not None:
                    with contextlib.suppress(*_spark_errors()):
                        self._query.stop()
                if self._thread is not None:
                    self._thread.join()
                self._thread = None
            # A JVM that archives its classes (``jvm.make_class_archive``) takes longer than others to end.
            with self._killing_after(END_SESSION_S):
                self._end_session()
            self._set_state(state)

    @contextlib.contextmanager
    def _killing_after(self, seconds: float) -> Iterator[None]:
        """Kill the JVM if the block takes longer, so that whoever waits for it gets an error instead."""

        def kill() -> None:
            log.warning("JVM killed: it did not stop in time", extra={"seconds": seconds})
            if (jvm := self._jvm_in_use) is not None:
                jvm.kill()

        timer = threading.Timer(seconds, kill)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def close(self) -> None:
        """Stop and give the data directory back."""
        self.stop()
        self._lease.release()
        self._lock.release()

    def status(self) -> EngineStatus:
        """Return what the engine does."""
        last = self.store.batches.last_manifest()
        return EngineStatus(
            run_id=self._run_id,
            state=self._state,
            since_us=self._since_us,
            batch=None if last is None else last.batch,
            plan_version=0 if last is None else last.plan_version,
            error=self._error,
            spark_ui=self._spark_ui,
            epoch=self._epoch,
            failures=self._failures,
            retry_at_us=self._retry_at_us,
        )

    def void_batch_in_hand(self, stream_ids: tuple[int, ...], actor: str) -> VoidedBatch:
        """Decide that the batch that fails again and again is processed without some of its input.

        Args:
            stream_ids: Streams whose rows are left out of it; empty for all.
            actor: Who decides.

        Raises:
            NothingToSkip: No batch was begun, or it has not failed often enough.
        """
        last = self.store.batches.last()
        batch = 0 if last is None else last + 1
        begun = (self.data_dir.checkpoint / "offsets" / str(batch)).exists()
        if self._failures < MAX_FAILURES_AT_A_BATCH or not begun:
            raise NothingToSkip(
                "no batch can be skipped",
                detail=f"The batch after {batch - 1} has failed {self._failures} times the same way, of "
                f"{MAX_FAILURES_AT_A_BATCH} that show that it will fail again.",
                hint="GET /api/v1/engine says what the job does.",
            )
        voided = VoidedBatch(batch, stream_ids, self._error or "", actor, wall_clock_us())
        void_batch(self.store, voided)
        log.warning("batch voided", extra={"batch": batch, "streams": list(stream_ids), "actor": actor})
        return voided

    def wait_for_version(self, version: int, timeout_s: float) -> bool:
        """Wait until a batch under a plan version, or a later one, is committed; return whether it is."""
        deadline = time.monotonic() + timeout_s
        while self.store.batches.first_of_version(version) is None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            time.sleep(min(WAIT_STEP_S, left_s))
        return True

    def _run_and_restart(self) -> None:
        """Run, and run again after a failure, as often as that may help (``service.engine.retry``)."""
        failures = Failures()
        while not self._stopping.is_set():
            began_s = time.monotonic()
            try:
                self._run()
            except SluiceError as error:
                if not isinstance(error, Unavailable) or isinstance(error, (OtherLife, FencedOut)):
                    # Refused: it would be again.
                    log.error("engine refused: %s", error)
                    return
                reason = self._error or error.primary
                failure = Failure(
                    self._last_batch(), reason, can_pass(reason) or not isinstance(error, EngineFailed)
                )
                delay_s = failures.add(failure, ran_s=time.monotonic() - began_s)
                self._failures = failures.same
                self._retry_at_us = None if delay_s is None else wall_clock_us() + int(delay_s * 1e6)
                log.error(
                    "engine failed: %s",
                    error,
                    extra={"failures": failures.count, "batch": failure.batch, "next_try_s": delay_s},
                )
                if delay_s is None:
                    return
                self._stopping.wait(delay_s)
            except Exception as error:
                # The thread ends here: nobody would see it, and the state would stay "running".
                self._end_session()
                self._set_state("failed", f"{type(error).__name__}: {error}")
                log.exception("engine failed unexpectedly")
                return
            else:
                return

    def _last_batch(self) -> int | None:
        """Return the last committed batch; None where the catalog cannot tell now."""
        try:
            return self.store.batches.last()
        except Unavailable:
            return None

    def _run(self) -> None:
        """Run the job to its end, again after each file that turned out to be unreadable."""
        from service.engine.query_end import QueryDied, SparkQuery, wait_for_end

        ends: tuple[type[Exception], ...] = (*_spark_errors(), QueryDied)
        while True:
            try:
                self._start_query()
                assert self._query is not None
                if self._stopping.is_set():
                    self._query.stop()
                wait_for_end(SparkQuery(self._query), bounded=self.bounded, stopping=self._stopping.is_set)
            except ends as error:
                if self._stopping.is_set():
                    return
                trace = str(error)
                reason = _reason(error, trace)
                self._end_session()
                if self._set_aside(trace, reason):
                    self._set_state("starting")
                    continue
                self._set_state("failed", reason)
                raise EngineFailed("the Spark job has failed", detail=reason) from error
            except SluiceError as error:
                self._end_session()
                self._set_state("failed", str(error))
                raise
            return

    def _set_aside(self, trace: str, reason: str) -> bool:
        """Record that a listed file cannot be read, so that the batch can be repeated without it.

        The batch was not committed, and the decision is in the catalog before it runs again.
        """
        found = find_corrupt_input(trace)
        if found is None:
            return False
        stream_id, position = found
        self.store.source_files.set_verdict(stream_id, position, "set-aside", reason)
        log.warning("file set aside: %s", reason, extra={"stream_id": stream_id, "position": position})
        return True

    def _start_query(self) -> None:
        self.launch()
        assert self.jvm is not None
        self.jvm.start_fork_server()
        from operators.segments.segment_files import Fence, SegmentFiles
        from service.commit.commit import BatchCommitter
        from service.job.job import jvm_pid, start_job, start_session
        from service.job.job_options import job_options

        if not self._epoch:
            # What was loaded stays; the collector need not look at it while the API serves.
            # Once: a later time would keep the garbage of the sessions before forever.
            gc.freeze()
        # Of a JVM that died, entries of Spark's logs may be half written.
        check_checkpoint(self.store, self.data_dir)
        self._epoch = self.store.epochs.begin(f"pid {os.getpid()}")
        facts = self._checkpoint()
        checkpoint_id, keys, partitions = facts.id, facts.keys, facts.partitions
        mark_checkpoint(self.store, self.data_dir, checkpoint_id)
        fence = Fence(self.data_dir.fence, self._epoch)
        fence.announce()
        commit = BatchCommitter(
            store=self.store,
            results_dir=self.data_dir.results,
            late_dir=self.data_dir.late,
            epoch=self._epoch,
            engine_lock=str(self.data_dir.engine_lock),
            log=SparkLog(self.data_dir.checkpoint),
            tell=self.commits.tell,
        )
        commit.sweep()
        reports = self._reports = self._take_reports(len(keys), commit)
        SegmentFiles(self.data_dir.segments, fence).sweep()
        session = self._session = start_session(self.settings.spark, partitions, self.jvm)
        self._lock.name_jvm(jvm_pid(session))
        self._spark_ui = session.sparkContext.uiWebUrl
        options = job_options(
            self.settings,
            self.data_dir,
            checkpoint_id=checkpoint_id,
            bucket_keys=keys,
            partitions=partitions,
            epoch=self._epoch,
            reports=reports.address,
            bounded=self.bounded,
            sealed=facts.sealed,
        )
        self._query = start_job(session, options)
        self._run_id = str(self._query.runId)
        if not self._stopping.is_set():
            self._set_state("running")
        log.info("engine running", extra={"run_id": self._run_id, "epoch": self._epoch})

    def _take_reports(self, buckets: int, commit: BatchCommitter) -> Reports:
        """Take the reports of this machine's workers, or of a cluster's where Spark's driver is reached."""
        if self.settings.spark.one_machine:
            return Reports(buckets, commit)
        spark = spark_configuration(self.settings.spark)
        bind = (spark["spark.driver.bindAddress"], self.settings.spark.reports_port)
        return Reports(buckets, commit, host=spark["spark.driver.host"], bind=bind)

    def _checkpoint(self) -> _Checkpoint:
        """Return what the first start fixes."""
        facts = self.store.settings.get(CHECKPOINT_SETTING)
        if not isinstance(facts, dict):
            buckets = self.settings.bucket_count
            partitions = min(buckets, max(self.settings.spark.cores, 1))
            facts = {
                "id": uuid.uuid4().hex[:12],
                "buckets": buckets,
                "partitions": partitions,
                "sealed": True,
            }
            self.store.settings.set(CHECKPOINT_SETTING, facts)
        buckets, partitions = int(str(facts["buckets"])), int(str(facts["partitions"]))
        wanted = self.settings.state.buckets
        if wanted is not None and wanted != buckets:
            raise BucketsFixed(
                f"this data directory has {buckets} buckets, not {wanted}",
                detail="The number of buckets is fixed by the first batch.",
                hint="Leave --buckets out, or start on a fresh data directory.",
            )
        keys = bucket_keys(buckets, partitions)
        return _Checkpoint(str(facts["id"]), keys, partitions, facts.get("sealed") is True)

    def _lease_lost(self, reason: str) -> None:
        """End the JVM: nothing that it writes counts any more, and another engine may have begun."""
        log.error("engine gives up: %s", reason)
        if (jvm := self._jvm_in_use) is not None:
            jvm.kill()

    def _end_session(self) -> None:
        """End Spark and its JVM; a JVM that died already leaves handles that must be dropped."""
        session, self._session, self._query = self._session, None, None
        reports, self._reports = self._reports, None
        if reports is not None:
            reports.close()
        jvm, self.jvm = self.jvm, None
        if sys.modules.get("pyspark") is None:  # not loaded yet, or it cannot be
            if jvm is not None:
                jvm.end()
            return
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        if session is not None:
            with contextlib.suppress(*_spark_errors()):
                session.stop()
        gateway = SparkContext._gateway
        if gateway is not None:
            with contextlib.suppress(*_spark_errors()):
                gateway.shutdown()
        if jvm is not None:
            jvm.end()
        SparkContext._gateway = None
        SparkContext._jvm = None
        SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = None
        SparkSession._activeSession = None

    def _set_state(self, state: EngineState, error: str | None = None) -> None:
        self._state = state
        if state != "failed":
            self._retry_at_us = None
        self._error = error
        self._since_us = wall_clock_us()


#: Errors of files, where others of the system are those of a connection to the JVM.
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.EACCES)


def _spark_errors() -> tuple[type[Exception], ...]:
    """Return what talking to Spark raises."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return Py4JError, PySparkException, OSError


def _reason(error: Exception, trace: str) -> str:
    """Return what a person can use of an error of Spark: the innermost cause, or the first line."""
    from py4j.protocol import Py4JNetworkError

    if isinstance(error, OSError) and error.errno in _OF_THE_DISK:
        return f"{error.strerror}: {error.filename}." if error.filename else f"{error.strerror}."
    if isinstance(error, Py4JNetworkError | OSError):
        return "The JVM has gone."
    lines = [line.strip() for line in trace.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith(("catalog.", "service.", "operators.", "planner."))]
    # "service.errors.CorruptInput: file ..." - people want what comes behind the class.
    if causes:
        return causes[-1].partition(": ")[2]
    passing = next((line for line in lines if can_pass(line)), None)
    return passing or (lines[0] if lines else type(error).__name__)
