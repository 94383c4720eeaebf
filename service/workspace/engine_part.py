"""The engine's part of a service: runs an engine while this process holds the lease of the catalog.

    stand by ── lease ── at work: job, listing, sinks, pruning, retention, merging ── stopped, or fenced out
       ^                                                                                        |
       +----------------------------------------------------------------------------------------+

A term begins and ends with the lease; all threads and the JVM end with the term, and the next term begins
with new ones. An active engine acts on the requests in the catalog and reports its state
(``service.engine.engine_control``). The requests, and the readers of the state, may be in another process.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from catalog.errors import CatalogDown, FencedOut, SluiceError
from catalog.store.store import Store
from planner.build.transitions.retained_boundaries import given_families
from service.caps.state_caps import StateCaps
from service.commit.upkeep.compaction import Compactor
from service.commit.upkeep.pruning import Pruner
from service.commit.upkeep.retention import DeadLetterRetention, ResultRetention
from service.config.data_dir import DataDir
from service.config.settings import Settings
from service.engine.engine import Engine
from service.engine.engine_control import EngineStatus, report, wish_of
from service.faults import Faults
from service.inputs.inputs import Inputs
from service.inputs.sources.posted.http_log import EventLog
from service.jvm.jvm import Jvm
from service.planning.migrating.migrations import Migrations
from service.planning.records.objective import take_settings
from service.planning.versions import Versions
from service.recovery.identity import identity_of
from service.results.pages.runs import Runs
from service.results.results import ResultReader
from service.sinks.deliverer import Deliverer, KeptForSinks
from service.sinks.delivery import Delivery
from service.workspace.adaptive import Adaptive
from service.workspace.failing_queries import pause_failing
from service.workspace.input_retention import InputRetention
from service.workspace.plans import PlanPricing, WorkspacePlans
from service.workspace.watcher import Watcher

log = logging.getLogger(__name__)

#: Seconds between two checks for requests in the catalog.
LOOK_S = 0.2
#: Seconds before the next attempt to take over, after an obstacle that a person must remove.
RETRY_S = 10.0


@dataclass(frozen=True, slots=True)
class EngineParts:
    """Parts that an engine works with.

    Attributes:
        settings: Settings.
        data_dir: Data directory.
        store: Catalog; the engine must write through this object.
        events: Event log.
        versions: Plans new versions and logs them through ``store``.
        plans: Plans of the workspace; a thread computes their costs for metrics.
        ticks: Functions for further periodic work, called with the wall clock.
        faults: Records unexpected errors of background work.
    """

    settings: Settings
    data_dir: DataDir
    store: Store
    events: EventLog
    versions: Versions
    plans: WorkspacePlans
    ticks: tuple[Callable[[int], object], ...] = ()
    faults: Faults = field(default_factory=Faults)


@dataclass(slots=True)
class EnginePart:
    """A thread that alternates between stand-by and work.

    Attributes:
        parts: Makes the parts of a term.
        jvm: The JVM of the first term, if one was launched already.
        replaced: Called once another engine has taken over and this part has ended; if None, the part
            stands by again.
    """

    parts: Callable[[], EngineParts]
    jvm: Jvm | None = None
    replaced: Callable[[], None] | None = None
    _term: _Term | None = field(default=None, init=False)
    _refused: str | None = field(default=None, init=False)
    _stopping: threading.Event = field(default_factory=threading.Event, init=False)
    _wake: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def start(self, *, stand_by: bool) -> None:
        """Start the thread.

        Args:
            stand_by: Whether to wait while another engine has the lease; if False, a held lease is an error.

        Raises:
            DataDirInUse: Another engine has the data directory or the catalog; not raised for a stand-by.
            OtherLife: The checkpoint does not belong to the catalog; not raised for a stand-by.
        """
        first = self._new_term()
        if not stand_by:
            first.acquire()
        self._thread = threading.Thread(target=self._run, args=(first, not stand_by), name="engine-part")
        self._thread.start()

    def stop(self) -> None:
        """Stop the job after its batch and release the lease."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def status(self) -> EngineStatus:
        """Return the status of this process's engine, even if another engine holds the lease."""
        if self._term is None:
            return EngineStatus("failed" if self._refused else "stopped", error=self._refused)
        return self._term.engine.status()

    def _new_term(self) -> _Term:
        jvm, self.jvm = self.jvm, None
        self._term = _Term(self.parts(), jvm, self._wake)
        return self._term

    def _run(self, first: _Term, acquired: bool) -> None:
        term: _Term | None = first
        while True:
            try:
                term = term or self._new_term()
                self._serve(term, acquired)
            except SluiceError as error:
                # Another engine has the directory, the checkpoint is lost, or the catalog cannot be reached.
                log.error("engine cannot take over: %s", error)
                self._term, self._refused = None, str(error)
            except Exception as error:
                # Without this handler the thread would end, and this process would never stand by again.
                log.exception("engine ended unexpectedly")
                self._term, self._refused = None, f"{type(error).__name__}: {error}"
            if self.replaced is not None and term is not None and term.engine.fenced:
                self._term = None
                self.replaced()
                return
            term, acquired = None, False
            if self._stopping.wait(RETRY_S if self._refused else 0):
                return

    def _serve(self, term: _Term, acquired: bool) -> None:
        """Run one term, and end it in any case."""
        try:
            if acquired or term.engine.stand_by(self._stopping):
                self._refused = None
                term.work(self._stopping)
        finally:
            term.close()


class _Term:
    """One term of an engine, with background threads that work only while the lease is held."""

    def __init__(self, parts: EngineParts, jvm: Jvm | None, wake: threading.Event) -> None:
        self._parts, self._wake = parts, wake
        self.engine = Engine(
            parts.settings,
            parts.data_dir,
            parts.store,
            jvm=jvm,
            pause_failing=partial(pause_failing, parts.versions),
            changed=wake.set,
            faults=parts.faults,
        )
        self._beside: list[Watcher | Compactor | Deliverer | PlanPricing] = []

    def acquire(self) -> None:
        """Take data directory and lease without waiting; raises the errors of ``Engine.acquire``."""
        try:
            self.engine.acquire()
        except BaseException:
            self.close()
            raise

    def work(self, stopping: threading.Event) -> None:
        """Do an engine's work until ``stopping`` is set, or until another engine has taken the lease."""
        self._take_objective()
        self._start_beside()
        store, reported = self._parts.store, EngineStatus()
        wish = wish_of(store)
        if wish.state == "running":
            self.engine.start()
        else:
            self.engine.stop(state="paused")
        while not stopping.is_set() and not self.engine.fenced:
            try:
                status = replace(self.engine.status(), followed=wish.number)
                if status != reported:
                    report(store, status)
                    reported = status
                self._wake.wait(LOOK_S)
                self._wake.clear()
                wanted = wish_of(store)
            except FencedOut:
                return
            except CatalogDown as error:
                log.debug("requests in the catalog cannot be read: %s", error)
                stopping.wait(LOOK_S)
                continue
            if wanted.number != wish.number:
                restart = wanted.restart > wish.number
                self._follow(wanted.state == "running", restart=restart)
                wish = wanted

    def close(self) -> None:
        """End all threads and the engine, and release the lease."""
        for part in self._beside:
            part.stop()
        self._beside = []
        self.engine.close()
        self._parts.faults.clear()

    def _follow(self, runs: bool, *, restart: bool) -> None:
        if not runs:
            self.engine.stop(state="paused")
            return
        if restart:
            self.engine.stop()
        self.engine.start()

    def _start_beside(self) -> None:
        parts, settings = self._parts, self._parts.settings
        store, data_dir = parts.store, parts.data_dir
        lock, kept_us = str(data_dir.engine_lock), settings.results.retention_us
        retention = ResultRetention(
            store,
            data_dir.results,
            data_dir.late,
            kept_us,
            lock,
            needed_from=store.sinks.oldest_needed_batch,
        )
        dead_letters = DeadLetterRetention(data_dir.dead_letters, settings.results.dead_letter_retention_us)
        adaptive = Adaptive(store, parts.versions, settings.adaptive)
        known: dict[int, set[str]] = {}
        watcher = Watcher(
            store,
            Inputs(store, parts.events),
            settings.sources.list_interval_ms / 1000,
            known=known,
            dead_letters=data_dir.dead_letters,
            faults=parts.faults,
            ticks=(
                *parts.ticks,
                Migrations(parts.versions).tick,
                StateCaps(store, parts.versions).run_once,
                Pruner(store).run_once,
                retention.run_once,
                dead_letters.run_once,
                InputRetention(store, parts.events, known).run_once,
                *((adaptive.run_once,) if settings.adaptive.enabled else ()),
            ),
        )
        self._beside = [
            watcher,
            Compactor(
                store,
                data_dir.results,
                data_dir.late,
                kept_us,
                lock,
                self.engine.lease_epoch,
                faults=parts.faults,
            ),
            self._new_deliverer(),
            PlanPricing(parts.plans, parts.faults),
        ]
        for part in self._beside:
            part.start()

    def _new_deliverer(self) -> Deliverer:
        parts, settings = self._parts, self._parts.settings
        store, data_dir = parts.store, parts.data_dir
        # A killed service may have left spill files, which nobody uses now.
        shutil.rmtree(data_dir.spill, ignore_errors=True)
        results = ResultReader(store, data_dir.results, spill_dir=data_dir.spill, runs=Runs(data_dir.root))
        exports = settings.storage.export_dir or data_dir.exports
        identity = identity_of(store)
        delivery = Delivery(
            store,
            results,
            exports.absolute(),
            str(data_dir.engine_lock),
            targets=parts.versions.webhook_targets,
            catalog_id="" if identity is None else identity.id,
        )
        kept = KeptForSinks(
            settings.sinks.retention_us, settings.sinks.retention_bytes, settings.results.retention_us
        )
        return Deliverer(store, delivery, kept, faults=parts.faults)

    def _take_objective(self) -> None:
        """Plan again if the settings changed since the last start, or if the plan has other strategies."""
        store, versions = self._parts.store, self._parts.versions
        with store.transaction():
            overruled = take_settings(store, versions.base)
            objective = versions.objective
            latest = store.control_log.latest_plan()
            running = [record.query for record in store.queries.running()]
            if latest is not None and (overruled or not objective.is_of(latest, running)):
                cause = f"strategy {objective.strategy} from the settings"
                # Pinned chains are dropped, so these families must be planned again.
                versions.replan(latest, cause, replanned=given_families(latest))
