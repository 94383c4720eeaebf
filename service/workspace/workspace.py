"""A workspace: one data directory with its catalog, engine and inputs.

The API and the demo talk to this alone.

A change of queries is planned, checked and appended to the control log in one transaction; the job finds
it there at the next batch boundary. Nothing here touches Spark but through the engine.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from catalog.store.store import Store
from catalog.values.change import (
    AddQuery,
    Change,
    PauseQuery,
    RemoveQuery,
    ResumeQuery,
    UpdateQuery,
)
from catalog.values.plan import Plan
from catalog.values.query import Backfill, Query
from catalog.values.stream import HttpSource, Stream
from planner.bind.bind import bind
from planner.build.retained_boundaries import given_families
from planner.explain.explain import FamilyReport
from planner.explain.preview import Preview
from service.commit.commits import Commits
from service.commit.pruning import Pruner
from service.commit.retention import ResultRetention
from service.config.calibration import calibration_of
from service.config.data_dir import DataDir, open_data_dir
from service.config.failpoints import reached
from service.config.settings import Settings
from service.engine.engine import Engine, EngineStatus
from service.inputs.errors import NotAnHttpStream
from service.inputs.inputs import Inputs
from service.inputs.sample import CatalogRows
from service.inputs.sources.http_log import EventLog, Sending
from service.jvm.jvm import Jvm
from service.planning.adaptive import Adaptive, AdaptivePolicy
from service.planning.changes import Changed, Wanted, apply_changes, one, several
from service.planning.migrations import Migrations
from service.planning.objective import Objective, take_settings
from service.planning.preview import PreviewRequest, Statistician, explain_version, preview_change
from service.planning.versions import Versions
from service.results.results import ResultReader
from service.sinks.deliverer import Deliverer
from service.sinks.delivery import Delivery
from service.statistics.query_status import QueryStatus, query_statuses
from service.statistics.statistics import Statistics, read_statistics
from service.workspace.streams import register_stream
from service.workspace.watcher import Watcher


@dataclass(frozen=True, slots=True)
class AppendReceipt:
    """Events that are durable now.

    Attributes:
        accepted: How many.
        first_offset: Offset of the first.
        last_offset: Offset of the last.
    """

    accepted: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a change of queries came to.

    Attributes:
        version: Plan version that brings it; the newest one if all of it was in effect already.
        statuses: The changed queries, in the order of the changes.
        effective: Whether the plan changed.
    """

    version: int
    statuses: tuple[QueryStatus, ...]
    effective: bool


#: Called in the transaction of a change with what it came to, to keep something with it.
Keep = Callable[[Outcome], None]


@dataclass(slots=True)
class Workspace:
    """One running service on one data directory.

    Args:
        settings: Settings; ``data_dir`` is created if it is missing.
        jvm: Spark's JVM, if one was launched with the same settings already.

    Attributes:
        commits: Tells of the engine's commits.
    """

    settings: Settings
    jvm: Jvm | None = None
    commits: Commits = field(init=False, default_factory=Commits)
    data_dir: DataDir = field(init=False)
    store: Store = field(init=False)
    events: EventLog = field(init=False)
    results: ResultReader = field(init=False)
    engine: Engine = field(init=False)
    migrations: Migrations = field(init=False)
    _inputs: Inputs = field(init=False)
    _statistician: Statistician = field(init=False)
    _versions: Versions = field(init=False)
    _watcher: Watcher = field(init=False)
    _deliverer: Deliverer = field(init=False)

    def start(self) -> None:
        """Take the data directory and start the engine in the background.

        Raises:
            DataDirInUse: Another service runs on it.
        """
        self.data_dir = open_data_dir(self.settings.data_dir)
        self.store = Store.open(self.settings.catalog_url or self.data_dir.catalog_url)
        self.engine = Engine(self.settings, self.data_dir, self.store, jvm=self.jvm, commits=self.commits)
        try:
            self.engine.acquire()
        except BaseException:
            self.store.close()
            raise
        self.events = EventLog(self.data_dir.events_db)
        self.results = ResultReader(self.store, self.data_dir.results)
        self._inputs = Inputs(self.store, self.events)
        rows = CatalogRows(self.store, self.events)
        self._statistician = Statistician(self.store, rows, self.settings.bucket_count)
        objective = Objective.of_settings(self.settings)
        self._versions = Versions(self.store, self._statistician, objective)
        self.migrations = Migrations(self._versions)
        self._take_objective()
        adaptive = Adaptive(self.store, self._versions, AdaptivePolicy.of_settings(self.settings))
        self._watcher = Watcher(
            self.store,
            self.settings.list_interval_ms / 1000,
            ticks=(
                self.migrations.tick,
                Pruner(self.store).look,
                self._retention().look,
                *((adaptive.look,) if self.settings.adaptive else ()),
            ),
        )
        self._watcher.start()
        self._deliverer = self._new_deliverer()
        self._deliverer.start()
        self.engine.start()

    def close(self) -> None:
        """Stop the engine after its batch and give the data directory back."""
        self._watcher.stop()
        self._deliverer.stop()
        self.engine.close()
        self.results.close()
        self.events.close()
        self.store.close()

    def register_stream(self, draft: Stream, *, keep: Callable[[Stream], None] | None = None) -> Stream:
        """Register a stream and return it with its id; raises as ``workspace.streams.register_stream``.

        Args:
            draft: The stream with id 0.
            keep: Called in the transaction with the stream, to keep something with it.
        """
        settle_s = self._watcher.interval_s
        return register_stream(self.store, self._inputs, draft, settle_s=settle_s, keep=keep)

    def remove_stream(self, name: str, *, keep: Callable[[], None] | None = None) -> None:
        """Remove a stream that no query uses.

        Args:
            name: Its name.
            keep: Called in the transaction, to keep something with it.

        Raises:
            StreamNotFound: There is none of that name.
            StreamInUse: Running queries use it.
        """
        with self.store.transaction():
            stream = self.store.streams.remove(name)
            previous = self.store.control_log.latest_plan()
            if previous is not None and any(s.id == stream.id for s in previous.streams):
                # A stream that was used keeps flowing; this is the version in which it stops.
                flowing = tuple(s for s in previous.streams if s.id != stream.id)
                self._replan(replace(previous, streams=flowing), f"remove stream {name}")
            if keep is not None:
                keep()

    def http_stream(self, name: str) -> Stream:
        """Return a stream that takes posted events.

        Raises:
            StreamNotFound: There is no stream of that name.
            NotAnHttpStream: Its rows come from elsewhere.
        """
        stream = self.store.streams.get(name)
        if not isinstance(stream.source, HttpSource):
            raise NotAnHttpStream(stream.name, stream.source.type)
        return stream

    def append_events(
        self, stream: Stream, events: Sequence[object], *, sending: Sending | None = None
    ) -> AppendReceipt:
        """Keep posted events, all or none.

        Args:
            stream: What ``http_stream`` returned.
            events: Objects as they come out of JSON.
            sending: The request, if it may be sent again.

        Raises:
            EventRejected: An event does not fit the stream.
        """
        first, last = self.events.append(stream, events, sending)
        return AppendReceipt(last - first + 1, first, last)

    def validate(self, cql: str, *, name: str = "", backfill: Backfill = "none") -> Query:
        """Parse and bind a query without adding it.

        Raises:
            InvalidInput: It cannot be meant.
        """
        return bind(cql, {s.name: s for s in self.store.streams.all()}, name=name, backfill=backfill)

    def change(
        self,
        changes: Sequence[Change],
        *,
        actor: str = "service",
        if_match: int | None = None,
        keep: Keep | None = None,
    ) -> Outcome:
        """Make all changes of a list, as one plan version, or none.

        Args:
            changes: At most one of each query, in any order.
            actor: Who changes, for the history.
            if_match: Plan version that must be the newest one; None takes any.
            keep: Called in the transaction, with what the changes came to.

        Raises:
            StalePlanVersion: The newest plan is not ``if_match``.
            InvalidChanges: Several changes cannot be made.
            SluiceError: One change cannot be made; its ``path`` says which.
        """
        return self._apply(several(changes), actor, if_match, keep)

    def change_one(
        self,
        change: Change,
        *,
        actor: str = "service",
        if_match: int | None = None,
        keep: Keep | None = None,
    ) -> Outcome:
        """Make one change; saying again what is in effect is success.

        Raises:
            StalePlanVersion: The newest plan is not ``if_match``.
            QueryNotFound: No query that runs or is paused has that name.
            NameTaken: One that is to be added has the name of another one.
            InvalidInput: Its text or parts cannot be meant.
        """
        return self._apply(one(change), actor, if_match, keep)

    def add_query(
        self, name: str, cql: str, *, backfill: Backfill = "none", actor: str = "service"
    ) -> QueryStatus:
        """Add a query to the shared plan; raises as ``change_one``."""
        return self.change_one(AddQuery(name, cql, backfill), actor=actor).statuses[0]

    def update_query(
        self, name: str, cql: str, *, backfill: Backfill = "state", actor: str = "service"
    ) -> QueryStatus:
        """Give a query another text: it leaves and enters at one boundary; raises as ``change_one``."""
        return self.change_one(UpdateQuery(name, cql, backfill), actor=actor).statuses[0]

    def remove_query(self, name: str, *, actor: str = "service") -> QueryStatus:
        """Remove a query; it gets everything up to the batch before; raises as ``change_one``."""
        return self.change_one(RemoveQuery(name), actor=actor).statuses[0]

    def pause_query(self, name: str, *, actor: str = "service") -> QueryStatus:
        """Take a query out of the plan until it is resumed; raises as ``change_one``."""
        return self.change_one(PauseQuery(name), actor=actor).statuses[0]

    def resume_query(self, name: str, *, backfill: Backfill = "state", actor: str = "service") -> QueryStatus:
        """Take a paused query into the plan again; raises as ``change_one``."""
        return self.change_one(ResumeQuery(name, backfill), actor=actor).statuses[0]

    def preview(self, request: PreviewRequest) -> Preview:
        """Return what a change would do; nothing is changed.

        Raises:
            InvalidInput: Something in the request cannot be meant; its ``path`` says where.
            NameTaken: A query to be added has the name of another one.
        """
        calibration = calibration_of(self.store)
        return preview_change(self.store, self._statistician, self._versions.objective, calibration, request)

    def explain(self, plan: Plan) -> dict[str, FamilyReport]:
        """Return what the families of a plan version cost, by what is known now."""
        calibration = calibration_of(self.store)
        return explain_version(self.store, self._statistician, self._versions.objective, calibration, plan)

    def query_status(self, name: str) -> QueryStatus:
        """Return the status of a query, removed ones included (the newest of that name)."""
        return query_statuses(self.store, (self.store.queries.newest(name),))[0]

    def query_statuses(self) -> tuple[QueryStatus, ...]:
        """Return the status of every query that is wanted, running or paused."""
        return query_statuses(self.store, (*self.store.queries.running(), *self.store.queries.paused()))

    def wait_for_version(self, version: int, timeout_s: float) -> bool:
        """Wait until a plan version is in force; return whether it is."""
        return self.engine.wait_for_version(version, timeout_s)

    def statistics(self) -> Statistics:
        """Return what the job does."""
        return read_statistics(self.store)

    def engine_status(self) -> EngineStatus:
        """Return the state of the engine."""
        return self.engine.status()

    def pause_engine(self) -> None:
        """Stop after the batch in hand; nothing is lost."""
        self.engine.stop(state="paused")

    def resume_engine(self) -> None:
        """Go on where the engine was paused."""
        self.engine.start()

    def restart_engine(self) -> None:
        """Stop and start again, for example after a failure."""
        self.engine.stop()
        self.engine.start()

    def _apply(self, wanted: Wanted, actor: str, if_match: int | None, keep: Keep | None) -> Outcome:
        def outcome(changed: Changed) -> Outcome:
            return Outcome(changed.version, query_statuses(self.store, changed.records), changed.effective)

        def kept(changed: Changed) -> None:
            if keep is not None:
                keep(outcome(changed))

        changed = apply_changes(self._versions, wanted, actor=actor, if_match=if_match, keep=kept)
        reached("after-change", changed.version, str(self.data_dir.engine_lock))
        return outcome(changed)

    def _retention(self) -> ResultRetention:
        return ResultRetention(
            self.store,
            self.data_dir.results,
            self.data_dir.late,
            self.settings.result_retention_us,
            str(self.data_dir.engine_lock),
            needed_from=self.store.sinks.oldest_needed_batch,
        )

    def _new_deliverer(self) -> Deliverer:
        # What a killed service had put there; a cache that the engine empties would be emptied under it.
        shutil.rmtree(self.data_dir.spill, ignore_errors=True)
        results = ResultReader(self.store, self.data_dir.results, spill_dir=self.data_dir.spill)
        exports = self.settings.export_dir or self.data_dir.exports
        delivery = Delivery(self.store, results, exports.absolute(), str(self.data_dir.engine_lock))
        return Deliverer(self.store, delivery)

    def _take_objective(self) -> None:
        """Plan anew if the settings name other strategies than at the last start, or the plan has others."""
        with self.store.transaction():
            overruled = take_settings(self.store, self._versions.base)
            objective = self._versions.objective
            latest = self.store.control_log.latest_plan()
            queries = [record.query for record in self.store.queries.running()]
            if latest is not None and (overruled or not objective.is_of(latest, queries)):
                cause = f"strategy {objective.strategy} by settings"
                # Pinned chains are given up, so they are not those of before.
                self._replan(latest, cause, anew=given_families(latest))

    def _replan(self, previous: Plan | None, cause: str, *, anew: Collection[str] = ()) -> Plan:
        """Plan all wanted queries and put the new version into the control log."""
        queries = [record.query for record in self.store.queries.running()]
        return self._versions.append(queries, previous, calibration_of(self.store), cause=cause, anew=anew)
