r"""The engine: runs one Spark job over one data directory, from taking the lock to the last commit.

    stopped -> starting -> running -> stopped
                    \         \---> failed -> starting ... (``service.engine.retry`` sets the delay)

An engine first takes the directory's lock, ends a JVM that a dead driver may have left, takes the lease of
the catalog, and checks that Spark can continue after the catalog's last batch. Then it begins a new epoch of
the lease, so that manifests of earlier jobs are refused. Finally it removes files that no manifest names, and
starts the job.

A stand-by engine starts Spark and does all imports before it waits for the lease. It takes the lease first,
then the lock. An engine that has lost the lease to another engine never starts a job again, because a
start removes files that no manifest names, and the other engine may be writing such files.

The thread that runs the job imports all code that talks to Spark or is sent to its workers. PySpark, pandas,
and numba with its kernels take half of a service's import time, and the API does not wait for them.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from catalog.errors import FencedOut, SluiceError, Unavailable
from catalog.store.store import Store
from catalog.times.clock import wall_clock_us
from service.checkpoint.spark_log import SparkLog
from service.commit.reporting.reports import Reports
from service.config.data_dir import DataDir
from service.config.settings import Settings
from service.engine.checkpoint_facts import check_buckets, checkpoint_facts
from service.engine.engine_control import EngineState, EngineStatus
from service.engine.failed_batch import FailedBatch
from service.engine.ownership.catalog_lease import CatalogLease
from service.engine.ownership.engine_lock import EngineLock
from service.engine.retry import Failure, Failures, can_pass
from service.engine.spark_end import end_spark
from service.engine.spark_failure import is_of_state, reason_of, spark_errors, trace_of
from service.errors import CheckpointDamaged, EngineFailed, OtherLife
from service.faults import Faults
from service.jvm.jvm import Jvm, launch
from service.recovery.checkpoint import check_checkpoint, check_state, mark_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from service.commit.commit import BatchCommitter

log = logging.getLogger(__name__)

#: Seconds that the current batch may still take when the job is stopped. After them the JVM is killed; no
#: data is lost, because the batch is repeated, as after any crash.
STOP_S = 10.0
#: Seconds that Spark may take to end after the job has stopped, before the JVM is killed. ``api.serve`` ends
#: the process of a service earlier.
END_SESSION_S = 120.0


@dataclass(slots=True)
class Engine:
    """Runs the Spark job of one data directory.

    Attributes:
        settings: Settings.
        data_dir: Data directory.
        store: Catalog.
        bounded: Whether the job ends once all available input is processed.
        jvm: A JVM that was launched already, or None. The first start uses it, and the engine ends it.
        pause_failing: Pauses the queries with a failing expression and returns their names. It is called with
            the expression's digest and the reason. With None, such a failure ends the job.
        changed: Called when the status has changed.
        faults: Records unexpected errors of background work.
    """

    settings: Settings
    data_dir: DataDir
    store: Store
    bounded: bool = False
    jvm: Jvm | None = None
    pause_failing: Callable[[str, str], tuple[str, ...]] | None = None
    changed: Callable[[], None] = lambda: None
    faults: Faults = field(default_factory=Faults)
    _lock: EngineLock = field(init=False)
    _lease: CatalogLease = field(init=False)
    _failed_batch: FailedBatch = field(init=False)
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
    _failing: int | None = None
    _retry_at_us: int | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _change: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._lock = EngineLock(self.data_dir.engine_lock)
        self._lease = CatalogLease(self.store, self.data_dir.root, self._lease_lost, faults=self.faults)
        spark_log = SparkLog(self.data_dir.checkpoint)
        self._failed_batch = FailedBatch(self.store, spark_log, self.bounded, self.pause_failing)
        self._jvm_in_use = self.jvm

    def acquire(self) -> None:
        """Take the lock of the data directory and the lease of the catalog.

        Raises:
            DataDirInUse: Another engine uses the directory or the catalog.
            OtherLife: The checkpoint does not belong to the catalog, or has lost batches.
            BucketsFixed: The settings have another number of buckets than the checkpoint.
        """
        self._lock.acquire()
        try:
            self._lease.acquire()
            check_buckets(self.store, self.settings)
            check_checkpoint(self.store, self.data_dir, unsynced=self._lease.unsynced)
        except BaseException:
            self._lease.release()
            self._lock.release()
            raise

    def stand_by(self, stopping: threading.Event) -> bool:
        """Start Spark, then wait for the lease and take it; return False if stopped before that.

        Raises:
            EngineFailed: Spark does not start.
            DataDirInUse: Another process holds the lock of the data directory.
            OtherLife, BucketsFixed: As in `acquire`.
        """
        self._set_state("starting")
        self.launch()
        assert self.jvm is not None
        self.jvm.start_fork_server()
        try:
            self._session = _start_session(self.jvm)
        except spark_errors() as error:
            raise EngineFailed("Spark did not start", detail=f"{error}.") from error
        gc.freeze()
        self._set_state("standby")
        if not self._lease.stand_by(stopping):
            return False
        try:
            self._lock.acquire(self._lease.former)
            check_buckets(self.store, self.settings)
            check_checkpoint(self.store, self.data_dir, unsynced=self._lease.unsynced)
        except BaseException:
            self._lease.release()
            self._lock.release()
            raise
        return True

    @property
    def fenced(self) -> bool:
        """Return whether another engine has the lease."""
        return self._lease.fenced.is_set()

    @property
    def lease_epoch(self) -> int:
        """Epoch at which this engine took the lease; 0 without a lease."""
        return self._lease.epoch

    def launch(self) -> None:
        """Launch a JVM for the job without waiting for it, so that it starts while other work goes on."""
        if self.jvm is None:
            self.jvm = self._jvm_in_use = launch(self.settings.spark, self.data_dir.spark_log)

    def start(self) -> None:
        """Start the job in the background; the lock must be held."""
        with self._change:
            if self._thread is not None and self._thread.is_alive():
                return
            self._stopping.clear()
            self._failures, self._failing = 0, None
            self._set_state("starting")
            self._thread = threading.Thread(target=self._run_and_restart, name="engine")
            self._thread.start()

    def run(self) -> None:
        """Run the job in this thread until it ends; the lock must be held.

        Raises:
            EngineFailed: The job ended with an error.
        """
        self._set_state("starting")
        self._run()

    def stop(self, *, state: EngineState = "stopped") -> None:
        """Stop the job after the current batch and end its JVM; keep the lock."""
        with self._change:
            self._stopping.set()
            with contextlib.suppress(OSError):  # if it fails, the source notices the stop a little later
                self.data_dir.engine_lock.touch()
            with self._killing_after(STOP_S):
                if self._query is not None:
                    with contextlib.suppress(*spark_errors()):
                        self._query.stop()
                if self._thread is not None:
                    self._thread.join()
                self._thread = None
            # A JVM that archives its classes (``jvm.make_class_archive``) takes longer to end.
            with self._killing_after(END_SESSION_S):
                self._end_session()
            self._set_state(state)

    @contextlib.contextmanager
    def _killing_after(self, seconds: float) -> Iterator[None]:
        """Kill the JVM if the block takes longer, so that a call that waits for the JVM gets an error."""

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
        """Stop the job and release the data directory and the catalog."""
        self.stop()
        self._lease.release()
        self._lock.release()

    def status(self) -> EngineStatus:
        """Return the status of the engine."""
        return EngineStatus(
            state=self._state,
            since_us=self._since_us,
            run_id=self._run_id,
            error=self._error,
            spark_ui=self._spark_ui,
            failures=self._failures,
            failing=self._failing,
            retry_at_us=self._retry_at_us,
            token=self._lease.token,
        )

    def _run_and_restart(self) -> None:
        """Run the job, and run it again after each failure that ``service.engine.retry`` allows to retry."""
        failures = Failures()
        while not self._stopping.is_set():
            began_s = time.monotonic()
            failed: Exception
            try:
                self._run()
            except SluiceError as error:
                if not isinstance(error, Unavailable) or isinstance(error, (OtherLife, FencedOut)):
                    # The start was refused, and another start would be refused, too.
                    log.error("engine refused: %s", error)
                    return
                failed = error
            except Exception as error:
                # The error is caught because otherwise the thread would end with the state "running".
                self._end_session()
                self._set_state("failed", f"{type(error).__name__}: {error}")
                failed = error
            else:
                return
            delay_s = self._failed(failures, failed, ran_s=time.monotonic() - began_s)
            if delay_s is None:
                return
            if not self._stopping.wait(delay_s):
                self._set_state("starting", self._error)

    def _failed(self, failures: Failures, error: Exception, *, ran_s: float) -> float | None:
        """Record a failure of the job; return seconds until the next try, or None if a retry is useless."""
        expected = isinstance(error, SluiceError)
        reason = self._error or (error.primary if isinstance(error, SluiceError) else str(error))
        passes = can_pass(reason) or (expected and not isinstance(error, EngineFailed))
        failure = Failure(self._last_batch(), reason, passes)
        delay_s = failures.add(failure, ran_s=ran_s)
        self._failures = failures.same
        self._failing = self._begun_after(failure.batch)
        self._retry_at_us = None if delay_s is None else wall_clock_us() + int(delay_s * 1e6)
        self.changed()
        log.error(
            "engine failed: %s",
            error if expected else reason,
            extra={"failures": failures.count, "batch": failure.batch, "next_try_s": delay_s},
            exc_info=None if expected else error,
        )
        return delay_s

    def _last_batch(self) -> int | None:
        """Return the last committed batch, or None if there is none or the catalog cannot be read."""
        try:
            return self.store.batches.last()
        except Unavailable:
            return None

    def _begun_after(self, last: int | None) -> int | None:
        """Return the batch after the last committed one if Spark's offset log contains it."""
        batch = 0 if last is None else last + 1
        try:
            return None if SparkLog(self.data_dir.checkpoint).input_range(batch) is None else batch
        except (SluiceError, OSError) as error:
            log.warning("Spark's log cannot be read: %s", error)
            return None

    def _run(self) -> None:
        """Run the job to its end; restart it after setting a file aside or pausing failing queries."""
        from service.engine.query_end import QueryDied, SparkQuery, wait_for_end

        ends: tuple[type[Exception], ...] = (*spark_errors(), QueryDied)
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
                trace = trace_of(error)
                reason = reason_of(error, trace)
                self._end_session()
                if self._failed_batch.decided(trace, reason):
                    self._set_state("starting")
                    continue
                self._set_state("failed", reason)
                self._failed_batch.refuse_file(trace)
                self._refuse_damaged_state(trace, reason)
                raise EngineFailed("the Spark job has failed", detail=reason) from error
            except SluiceError as error:
                self._end_session()
                self._set_state("failed", str(error))
                raise
            return

    def _refuse_damaged_state(self, trace: str, reason: str) -> None:
        """Raise an error if the job failed because the stored state is damaged.

        Raises:
            CheckpointDamaged: The state is damaged, so a retry would fail in the same way.
        """
        if can_pass(trace):
            return
        check_state(self.store, self.data_dir)
        if is_of_state(trace):
            raise CheckpointDamaged(
                f'the state in "{self.data_dir.checkpoint}" cannot be read',
                detail=reason,
                hint=f'"sluice repair {self.data_dir.root}" shows whether the state can be built again.',
            )

    def _start_query(self) -> None:
        # The lease is checked first, because the next steps remove files of earlier engines. Without the
        # lease, they could be files that another engine is writing.
        self._lease.check()
        self.launch()
        assert self.jvm is not None
        self.jvm.start_fork_server()
        from operators.segments.files.segment_files import Fence, SegmentFiles
        from operators.storage.folder import check_writable
        from service.commit.commit import BatchCommitter
        from service.engine.worker_check import check_workers
        from service.inputs.reading.voided import VoidedInput
        from service.job.job import jvm_pid, start_job, start_session
        from service.job.job_options import job_options

        if not self._epoch:
            # Loaded modules stay in memory, so the garbage collector need not scan them. They are frozen only
            # once, because a later freeze would also keep the garbage of earlier sessions in memory.
            gc.freeze()
        # A JVM that died may have left half-written entries in Spark's logs.
        check_checkpoint(self.store, self.data_dir)
        self._epoch = self._lease.begin_epoch()
        facts = checkpoint_facts(self.store, self.settings)
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
            keep_voided=VoidedInput(
                self.store,
                self.data_dir.dead_letters,
                self.data_dir.events_url(self.settings.storage.catalog_url),
            ),
        )
        commit.sweep()
        reports = self._reports = self._take_reports(self.jvm, len(keys), commit)
        SegmentFiles(self.data_dir.segments, fence).sweep(checkpoint_id)
        if self._session is None:
            self._session = start_session(self.jvm)
        session = self._session
        self._lock.name_jvm(jvm_pid(session))
        self._spark_ui = session.sparkContext.uiWebUrl
        if not self.settings.spark.one_machine:
            check_workers(session, (self.data_dir.checkpoint, self.data_dir.results))
        elif self.data_dir.storage is not None:
            check_writable((self.data_dir.segments, self.data_dir.results))
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

    def _take_reports(self, jvm: Jvm, buckets: int, commit: BatchCommitter) -> Reports:
        """Listen for workers' reports: on a local socket, or for a cluster at the driver's address."""
        if self.settings.spark.one_machine:
            return Reports(buckets, commit, unknown=commit.unknown_routes)
        bind = (jvm.configuration["spark.driver.bindAddress"], self.settings.spark.reports_port)
        host = jvm.configuration["spark.driver.host"]
        return Reports(buckets, commit, unknown=commit.unknown_routes, host=host, bind=bind)

    def _lease_lost(self, reason: str) -> None:
        """End the JVM, because the job can no longer commit and another engine may have started."""
        log.error("engine gives up: %s", reason)
        if self.fenced:
            self._stopping.set()
        if (jvm := self._jvm_in_use) is not None:
            jvm.kill()

    def _end_session(self) -> None:
        """End Spark and its JVM, and drop PySpark's references to them."""
        session, self._session, self._query = self._session, None, None
        reports, self._reports = self._reports, None
        if reports is not None:
            reports.close()
        jvm, self.jvm = self.jvm, None
        end_spark(session, jvm)

    def _set_state(self, state: EngineState, error: str | None = None) -> None:
        self._state = state
        if state != "failed":
            self._retry_at_us = None
        self._error = error
        self._since_us = wall_clock_us()
        self.changed()


def _start_session(jvm: Jvm) -> SparkSession:
    """Start Spark, and import the modules that a start of the job needs."""
    import service.commit.commit
    import service.engine.query_end
    import service.job.job_options  # noqa: F401
    from service.job.job import start_session

    return start_session(jvm)
