"""A workspace: one data directory with its catalog and inputs, for clients that change and read them.

The API and the demo use only this module, not the catalog or Spark:

    workspace.streams  .queries  .plans  .migrations      changed in transactions that nest (``transaction``)
             .results  .batches  .commits                 read and awaited
             .answers                                     answers to requests that may be repeated
             .keys  .audit                                permissions of clients, and log of their requests
             .engine                                      the engine, in whichever process it runs

Any number of processes may have a workspace of the same data directory, with or without an engine. No change
needs the engine's lease: each change is planned and made in one catalog transaction, and the catalog has one
writer at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from catalog.store.clients.audit_log import AuditLogRepository
from catalog.store.clients.idempotency import IdempotencyRepository
from catalog.store.repositories.batches import BatchRepository
from catalog.store.repositories.counts import CountRepository
from catalog.store.store import Store
from service.access.api_keys import KeyVerifier
from service.config.data_dir import DataDir
from service.config.settings import Settings
from service.engine.engine_control import EngineControl, EngineState
from service.faults import Faults
from service.inputs.checks.source_roots import SourceRoots
from service.inputs.limits.disk_space import DiskSpace
from service.inputs.reading.sample import CatalogRows
from service.inputs.reading.voided import VoidedBatch
from service.inputs.sources.posted.http_log import EventLog
from service.job.commit_signal import CommitSignal
from service.jvm.jvm import Jvm
from service.planning.migrating.migrations import Migrations
from service.planning.preview import Statistician
from service.planning.records.objective import objective_of
from service.planning.versions import Versions
from service.recovery.opening import open_catalog
from service.results.pages.runs import Runs
from service.results.results import ResultReader
from service.sinks.webhook_targets import WebhookTargets
from service.statistics.metrics import Metrics
from service.statistics.statistics import Statistics, read_statistics
from service.workspace.back_pressure import BackPressure
from service.workspace.commit_watch import Commits, CommitWatch
from service.workspace.engine_part import EnginePart, EngineParts
from service.workspace.plans import WorkspacePlans
from service.workspace.queries import WorkspaceQueries
from service.workspace.streams import WorkspaceStreams

#: Seconds between two checks of a call that waits for its plan version.
WAIT_STEP_S = 0.02


@dataclass(slots=True)
class Workspace:
    """One data directory.

    Args:
        settings: Settings; the data directory is created if it is missing.

    Attributes:
        data_dir: The data directory.
        streams: Streams.
        queries: Queries.
        plans: Plan versions, their history, and previews.
        migrations: Migrations.
        results: Reads results.
        batches: Manifests of committed batches, and totals.
        counts: Results per query and batch.
        commits: Announces the engine's commits.
        engine: Status and control of the engine.
        answers: Answers stored under idempotency keys.
        keys: Verifies keys of clients.
        audit: Log of clients and the changes that they requested.
        faults: Unexpected errors of this process's background work.
    """

    settings: Settings
    commits: Commits = field(init=False, default_factory=Commits)
    faults: Faults = field(init=False, default_factory=Faults)
    data_dir: DataDir = field(init=False)
    streams: WorkspaceStreams = field(init=False)
    queries: WorkspaceQueries = field(init=False)
    plans: WorkspacePlans = field(init=False)
    migrations: Migrations = field(init=False)
    results: ResultReader = field(init=False)
    batches: BatchRepository = field(init=False)
    engine: EngineControl = field(init=False)
    counts: CountRepository = field(init=False)
    answers: IdempotencyRepository = field(init=False)
    keys: KeyVerifier = field(init=False)
    audit: AuditLogRepository = field(init=False)
    _store: Store = field(init=False)
    _events: EventLog = field(init=False)
    _pressure: BackPressure = field(init=False)
    _metrics: Metrics = field(init=False)
    _watch: CommitWatch | None = field(init=False, default=None)

    def open(self) -> None:
        """Open the catalog and the inputs."""
        self.data_dir = self.settings.storage.open_data_dir()
        store = self._store = open_catalog(self.data_dir, self.settings.storage.catalog_url)
        events = self._events = EventLog(self.data_dir.events_url(self.settings.storage.catalog_url))
        versions = self._new_versions(store)
        disk = DiskSpace(self.data_dir.root, self.settings.ingest.min_free_mb)
        self._pressure = BackPressure(store, events, self.settings.ingest, disk)
        roots = SourceRoots.of(self.settings.sources.roots, self.data_dir)
        roots.tell_outsiders(store.streams.all())
        servers = self.settings.sources.servers
        self.streams = WorkspaceStreams(
            store, events, versions, roots, self._pressure, servers, self.data_dir.dead_letters
        )
        self.queries = WorkspaceQueries(store, versions, str(self.data_dir.engine_lock))
        self.plans = WorkspacePlans(store, versions)
        self.migrations = Migrations(versions)
        self.results = ResultReader(store, self.data_dir.results, runs=Runs(self.data_dir.root))
        self.batches, self.counts = store.batches, store.counts
        self.engine = EngineControl(store)
        self.answers = store.idempotency
        self.keys = KeyVerifier(store.api_keys)
        self._metrics = Metrics(self.settings.server.metric_series)
        self.audit = store.audit_log

    def watch_commits(self) -> None:
        """Announce commits from now on until the catalog is closed."""
        url = self.settings.storage.catalog_url or self.data_dir.catalog_url
        self._watch = CommitWatch(self._store, self.commits, CommitSignal.of((url,)), self.faults)
        self._watch.start()

    def new_engine_part(
        self, jvm: Jvm | None = None, replaced: Callable[[], None] | None = None
    ) -> EnginePart:
        """Return an engine of this data directory, which the caller starts and stops.

        Args:
            jvm: Spark's JVM, if one was launched with the same settings already.
            replaced: Called when another engine has taken over; if None, the part stands by again.
        """

        def parts() -> EngineParts:
            store = self._store.twin()
            ticks = (self._pressure.run_once,)
            versions = self._new_versions(store)
            return EngineParts(
                self.settings, self.data_dir, store, self._events, versions, self.plans, ticks, self.faults
            )

        part = EnginePart(parts, jvm, replaced)
        self.engine.own = part.status
        return part

    def close_catalog(self) -> None:
        """Close the catalog, the event log and the result reader."""
        if self._watch is not None:
            self._watch.stop()
        self.results.close()
        self._events.close()
        self._store.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Open a transaction of the catalog that includes every change made inside.

        Keep the transaction short, since other writers wait for it. ``queries.changing``,
        ``migrations.migrating`` and ``streams.registering`` open a transaction themselves, after slow
        preparations (parsing, sampling, reading files).
        """
        with self._store.transaction():
            yield

    def wait_for_version(self, version: int, timeout_s: float) -> bool:
        """Wait until a batch under a plan version, or a later one, is committed; return False on timeout."""
        deadline = time.monotonic() + timeout_s
        while self._store.batches.first_of_version(version) is None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            time.sleep(min(WAIT_STEP_S, left_s))
        return True

    def statistics(self) -> Statistics:
        """Return counters and measurements of the job."""
        return read_statistics(self._store)

    def metrics(self, engine_state: EngineState | None, *, ingest: bool) -> bytes:
        """Return counters and gauges in Prometheus' text format.

        Args:
            engine_state: State of this process's engine; None leaves out the engine's metrics.
            ingest: Whether to report back-pressure, as processes that accept events do.
        """
        figures = self._pressure.figures() if ingest else None
        running = engine_state not in (None, "standby")
        expected = self.plans.expected_costs() if running else None
        return self._metrics.text(
            self._store,
            engine_state,
            figures,
            self.faults.counts(),
            expected,
            self.settings.results.retention_us,
        )

    def input_held(self) -> str | None:
        """Return the reason why batches take no input now, or None if batches take input."""
        disk = self._pressure.disk
        return disk.told(disk.held_below_bytes) if disk.is_out else None

    def skip_batch(self, stream: str | None, actor: str) -> VoidedBatch:
        """Void a batch that fails repeatedly, and start the engine; the batch's rows become dead letters.

        Args:
            stream: Stream whose rows are left out, or None for all.
            actor: Name of the client that voids the batch.

        Raises:
            NothingToSkip: No batch has failed.
            StreamNotFound: No stream has that name.
        """
        return self.engine.skip(() if stream is None else (self.streams.get(stream).id,), actor)

    def _new_versions(self, store: Store) -> Versions:
        return Versions(
            store,
            Statistician(store, CatalogRows(store, self._events), self.settings.bucket_count),
            objective_of(self.settings.planning),
            webhook_targets=WebhookTargets.of(
                self.settings.sinks.webhook_hosts, self.settings.sources.servers
            ),
        )
