"""A workspace: one data directory with its catalog, engine and inputs.

The one door of the API and the demo; neither sees the catalog or Spark:

    workspace.streams  .queries  .plans  .migrations      changed in transactions that nest (``transaction``)
             .results  .batches  .commits                 read, and waited for
             .answers                                     answers to requests that may be repeated
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from catalog.store.repositories.batches import BatchRepository
from catalog.store.repositories.idempotency import IdempotencyRepository
from catalog.store.store import Store
from planner.build.retained_boundaries import given_families
from service.commit.commits import Commits
from service.commit.pruning import Pruner
from service.commit.retention import ResultRetention
from service.config.data_dir import DataDir, open_data_dir
from service.config.settings import Settings
from service.engine.engine import Engine, EngineStatus
from service.inputs.sample import CatalogRows
from service.inputs.sources.http_log import EventLog
from service.inputs.voided import VoidedBatch
from service.jvm.jvm import Jvm
from service.planning.adaptive import Adaptive
from service.planning.migrations import Migrations
from service.planning.objective import objective_of, take_settings
from service.planning.preview import Statistician
from service.planning.versions import Versions
from service.recovery.opening import open_catalog
from service.results.results import ResultReader
from service.sinks.deliverer import Deliverer
from service.sinks.delivery import Delivery
from service.statistics.metrics import metrics_text
from service.statistics.statistics import Statistics, read_statistics
from service.workspace.plans import WorkspacePlans
from service.workspace.queries import WorkspaceQueries
from service.workspace.streams import WorkspaceStreams
from service.workspace.watcher import Watcher


@dataclass(slots=True)
class Workspace:
    """One running service on one data directory.

    Args:
        settings: Settings; the data directory is created if it is missing.
        jvm: Spark's JVM, if one was launched with the same settings already.

    Attributes:
        data_dir: The data directory.
        streams: Streams.
        queries: Queries.
        plans: Plan versions, their history, and previews.
        migrations: Migrations.
        results: Reads results.
        batches: Manifests of committed batches, and totals.
        commits: Announces the engine's commits.
        answers: Answers stored under idempotency keys.
    """

    settings: Settings
    jvm: Jvm | None = None
    commits: Commits = field(init=False, default_factory=Commits)
    data_dir: DataDir = field(init=False)
    streams: WorkspaceStreams = field(init=False)
    queries: WorkspaceQueries = field(init=False)
    plans: WorkspacePlans = field(init=False)
    migrations: Migrations = field(init=False)
    results: ResultReader = field(init=False)
    batches: BatchRepository = field(init=False)
    answers: IdempotencyRepository = field(init=False)
    _store: Store = field(init=False)
    _engine: Engine = field(init=False)
    _events: EventLog = field(init=False)
    _versions: Versions = field(init=False)
    _watcher: Watcher = field(init=False)
    _deliverer: Deliverer = field(init=False)

    def open(self) -> None:
        """Open the catalog and the inputs. What needs no engine works from here on."""
        self.data_dir = open_data_dir(self.settings.storage.data_dir)
        store = self._store = open_catalog(self.data_dir, self.settings.storage.catalog_url)
        events = self._events = EventLog(self.data_dir.events_db)
        self._engine = Engine(self.settings, self.data_dir, store, jvm=self.jvm, commits=self.commits)
        statistician = Statistician(store, CatalogRows(store, events), self.settings.bucket_count)
        versions = self._versions = Versions(store, statistician, objective_of(self.settings.planning))
        self.streams = WorkspaceStreams(store, events, versions, self._list_interval_s)
        self.queries = WorkspaceQueries(store, versions, str(self.data_dir.engine_lock))
        self.plans = WorkspacePlans(store, versions)
        self.migrations = Migrations(versions)
        self.results = ResultReader(store, self.data_dir.results)
        self.batches = store.batches
        self.answers = store.idempotency

    def start(self) -> None:
        """Take the data directory and start the engine in the background.

        Raises:
            DataDirInUse: Another service runs on it.
        """
        self.open()
        try:
            self._engine.acquire()
        except BaseException:
            self.close_catalog()
            raise
        self._take_objective()
        adaptive = Adaptive(self._store, self._versions, self.settings.adaptive)
        self._watcher = Watcher(
            self._store,
            self._list_interval_s,
            ticks=(
                self.migrations.tick,
                Pruner(self._store).run_once,
                self._retention().run_once,
                *((adaptive.run_once,) if self.settings.adaptive.enabled else ()),
            ),
        )
        self._watcher.start()
        self._deliverer = self._new_deliverer()
        self._deliverer.start()
        self._engine.start()

    def close(self) -> None:
        """Stop the engine after its batch and give the data directory back."""
        self._watcher.stop()
        self._deliverer.stop()
        self._engine.close()
        self.close_catalog()

    def close_catalog(self) -> None:
        """Close what ``open`` opened."""
        self.results.close()
        self._events.close()
        self._store.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Open a transaction of the catalog, which every change made inside is part of.

        Keep it short, since other writers wait: what takes long before a change (parsing, sampling, reading
        files) is done outside of it by ``queries.changing``, ``migrations.migrating`` and
        ``streams.registering``, which open a transaction themselves.
        """
        with self._store.transaction():
            yield

    def wait_for_version(self, version: int, timeout_s: float) -> bool:
        """Wait until a plan version is in force; return whether it is."""
        return self._engine.wait_for_version(version, timeout_s)

    def statistics(self) -> Statistics:
        """Return counters and measurements of the job."""
        return read_statistics(self._store)

    def metrics(self) -> bytes:
        """Return counters and gauges in Prometheus' text format."""
        return metrics_text(self._store, self._engine.status().state)

    def engine_status(self) -> EngineStatus:
        """Return the state of the engine."""
        return self._engine.status()

    def pause_engine(self) -> None:
        """Stop after the batch in hand; nothing is lost."""
        self._engine.stop(state="paused")

    def resume_engine(self) -> None:
        """Go on where the engine was paused."""
        self._engine.start()

    def restart_engine(self) -> None:
        """Stop and start again, for example after a failure."""
        self._engine.stop()
        self._engine.start()

    def skip_batch(self, stream: str | None, actor: str) -> VoidedBatch:
        """Void the batch that fails again and again, and start the engine; its rows become dead letters.

        Args:
            stream: Stream whose rows are left out; None for all.
            actor: Who decides.

        Raises:
            NothingToSkip: No batch has failed often enough.
            StreamNotFound: There is no such stream.
        """
        ids = () if stream is None else (self.streams.get(stream).id,)
        voided = self._engine.void_batch_in_hand(ids, actor)
        self.restart_engine()
        return voided

    @property
    def _list_interval_s(self) -> float:
        return self.settings.sources.list_interval_ms / 1000

    def _retention(self) -> ResultRetention:
        return ResultRetention(
            self._store,
            self.data_dir.results,
            self.data_dir.late,
            self.settings.results.retention_us,
            str(self.data_dir.engine_lock),
            needed_from=self._store.sinks.oldest_needed_batch,
        )

    def _new_deliverer(self) -> Deliverer:
        # Left there by a service that was killed; in the engine's cache it would be deleted while in use.
        shutil.rmtree(self.data_dir.spill, ignore_errors=True)
        results = ResultReader(self._store, self.data_dir.results, spill_dir=self.data_dir.spill)
        exports = self.settings.storage.export_dir or self.data_dir.exports
        delivery = Delivery(self._store, results, exports.absolute(), str(self.data_dir.engine_lock))
        return Deliverer(self._store, delivery)

    def _take_objective(self) -> None:
        """Plan anew if the settings name other strategies than at the last start, or the plan has others."""
        with self._store.transaction():
            overruled = take_settings(self._store, self._versions.base)
            objective = self._versions.objective
            latest = self._store.control_log.latest_plan()
            if latest is not None and (overruled or not objective.is_of(latest, self.queries.running())):
                cause = f"strategy {objective.strategy} by settings"
                # Pinned chains are given up, so they are not those of before.
                self._versions.replan(latest, cause, anew=given_families(latest))
