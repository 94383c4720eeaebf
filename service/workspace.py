"""A workspace: one data directory with its catalog, engine and inputs.

The API and the demo talk to this alone.

A change of queries is planned, checked and appended to the control log in one transaction; the job finds
it there at the next batch boundary. Nothing here touches Spark but through the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from catalog.clock import wall_clock_us
from catalog.errors import StalePlanVersion
from catalog.store import Store
from catalog.values.plan import FamilyPlan, Plan
from catalog.values.query import Backfill, Query
from catalog.values.query_record import QueryRecord
from catalog.values.statistics import Profile
from catalog.values.stream import FilesSource, HttpSource, Stream
from operators.dry_run import dry_run
from planner.bind import bind
from planner.build_plan import build_plan
from planner.explain import FamilyReport
from planner.preview import Preview
from service.calibration import calibration_of
from service.data_dir import DataDir, open_data_dir
from service.engine import Engine, EngineStatus
from service.inputs.errors import NotAnHttpStream
from service.inputs.files import list_files
from service.inputs.http_log import EventLog
from service.inputs.inputs import Inputs
from service.inputs.sample import CatalogRows
from service.inputs.validate import resolve_source, validate_source
from service.objective import Objective
from service.preview import PreviewRequest, Statistician, explain_version, preview_change
from service.results import ResultReader
from service.settings import Settings
from service.statistics import Statistics, read_statistics
from service.watcher import Watcher


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
class QueryStatus:
    """What is wanted of a query and what is.

    Attributes:
        query: The bound query.
        desired: What was asked for last.
        desired_at_us: When, µs UTC.
        observed: What the job does.
        observed_at_us: Since when, µs UTC.
        plan_version: Version in which the desired state takes effect.
        complete_from_us: Wall clock from which results are complete, µs UTC, where rows from before are
            missing; None when nothing is missing or the query is not active yet.
        results: Result rows so far.
    """

    query: Query
    desired: Literal["running", "removed"]
    desired_at_us: int
    observed: Literal["pending", "running", "removed"]
    observed_at_us: int
    plan_version: int
    complete_from_us: int | None
    results: int


@dataclass(slots=True)
class Workspace:
    """One running service on one data directory.

    Args:
        settings: Settings; ``data_dir`` is created if it is missing.
    """

    settings: Settings
    data_dir: DataDir = field(init=False)
    store: Store = field(init=False)
    events: EventLog = field(init=False)
    results: ResultReader = field(init=False)
    engine: Engine = field(init=False)
    _inputs: Inputs = field(init=False)
    _objective: Objective = field(init=False)
    _statistician: Statistician = field(init=False)
    _watcher: Watcher = field(init=False)

    def start(self) -> None:
        """Take the data directory and start the engine in the background.

        Raises:
            DataDirInUse: Another service runs on it.
        """
        self.data_dir = open_data_dir(self.settings.data_dir)
        self.store = Store.open(self.settings.catalog_url or self.data_dir.catalog_url)
        self.engine = Engine(self.settings, self.data_dir, self.store)
        try:
            self.engine.acquire()
        except BaseException:
            self.store.close()
            raise
        self.events = EventLog(self.data_dir.events_db)
        self.results = ResultReader(self.store, self.data_dir.results)
        self._inputs = Inputs(self.store, self.events)
        self._objective = Objective.of_settings(self.settings)
        rows = CatalogRows(self.store, self.events)
        self._statistician = Statistician(self.store, rows, self.settings.bucket_count)
        self._take_objective()
        self._watcher = Watcher(self.store, self.settings.list_interval_ms / 1000)
        self._watcher.start()
        self.engine.start()

    def close(self) -> None:
        """Stop the engine after its batch and give the data directory back."""
        self._watcher.stop()
        self.engine.close()
        self.results.close()
        self.events.close()
        self.store.close()

    def register_stream(self, draft: Stream) -> Stream:
        """Register a stream.

        Args:
            draft: The stream with id 0.

        Returns:
            The stream with its id.

        Raises:
            NameTaken: A stream of that name exists.
            InvalidInput: Its source cannot be read as it says.
        """
        draft = resolve_source(draft, base=Path.cwd(), now_us=wall_clock_us())
        validate_source(draft)
        stream = self.store.add_stream(draft)
        if isinstance(stream.source, FilesSource):
            list_files(self.store, stream, settle_s=self._watcher.interval_s)
        if stream.start == "latest":
            stream = self.store.set_initial_position(stream.name, self._inputs.end(stream))
        return stream

    def remove_stream(self, name: str) -> None:
        """Remove a stream that no query uses.

        Raises:
            StreamNotFound: There is none of that name.
            StreamInUse: Running queries use it.
        """
        with self.store.transaction():
            stream = self.store.remove_stream(name)
            previous = self.store.latest_plan()
            if previous is not None and any(s.id == stream.id for s in previous.streams):
                # A stream that was used keeps flowing; this is the version in which it stops.
                flowing = tuple(s for s in previous.streams if s.id != stream.id)
                self._replan(replace(previous, streams=flowing))

    def append_events(self, name: str, events: Sequence[object]) -> AppendReceipt:
        """Keep posted events, all or none.

        Raises:
            StreamNotFound: There is no stream of that name.
            NotAnHttpStream: Its rows come from elsewhere.
            EventRejected: An event does not fit the stream.
        """
        stream = self.store.stream(name)
        if not isinstance(stream.source, HttpSource):
            raise NotAnHttpStream(stream.name, stream.source.type)
        first, last = self.events.append(stream, events)
        return AppendReceipt(last - first + 1, first, last)

    def validate(self, cql: str, *, name: str = "", backfill: Backfill = "none") -> Query:
        """Parse and bind a query without adding it.

        Raises:
            InvalidInput: It cannot be meant.
        """
        return bind(cql, {s.name: s for s in self.store.streams()}, name=name, backfill=backfill)

    def add_query(
        self, name: str, cql: str, *, backfill: Backfill = "none", if_match: int | None = None
    ) -> QueryStatus:
        """Add a query to the shared plan.

        Raises:
            NameTaken: A running query has that name.
            StalePlanVersion: The newest plan is not ``if_match``.
            InvalidInput: The text cannot be meant.
        """
        draft = self.validate(cql, name=name, backfill=backfill)
        if self._objective.weighs_costs():
            # Sampling reads files: what it finds is kept, so that it does not hold up others below.
            self._statistician.profile([*(r.query for r in self.store.queries()), draft])
        with self.store.transaction():
            previous = self._expect(if_match)
            bound = replace(
                self.validate(cql, name=name, backfill=backfill), id=self.store.reserve_query_id()
            )
            version = 1 if previous is None else previous.version + 1
            self.store.add_query(bound, version)
            self._replan(previous)
        return self.query_status(name)

    def remove_query(self, name: str, *, if_match: int | None = None) -> QueryStatus:
        """Remove a query; it gets everything up to the batch before.

        Raises:
            QueryNotFound: No running query has that name.
            StalePlanVersion: The newest plan is not ``if_match``.
        """
        with self.store.transaction():
            previous = self._expect(if_match)
            version = 1 if previous is None else previous.version + 1
            record = self.store.remove_query(name, version)
            self._replan(previous)
        return self._status(record)

    def preview(self, request: PreviewRequest) -> Preview:
        """Return what a change would do; nothing is changed.

        Raises:
            InvalidInput: Something in the request cannot be meant; its ``path`` says where.
            NameTaken: A query to be added has the name of another one.
        """
        calibration = calibration_of(self.store)
        return preview_change(self.store, self._statistician, self._objective, calibration, request)

    def explain(self, plan: Plan) -> dict[str, FamilyReport]:
        """Return what the families of a plan version cost, by what is known now."""
        calibration = calibration_of(self.store)
        return explain_version(self.store, self._statistician, self._objective, calibration, plan)

    def query_status(self, name: str) -> QueryStatus:
        """Return the status of a query, removed ones included (the newest of that name)."""
        return self._status(self.store.newest_query(name))

    def query_statuses(self) -> tuple[QueryStatus, ...]:
        """Return the status of every query that is wanted."""
        totals = self.store.query_totals()
        return tuple(self._status(record, totals) for record in self.store.queries())

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

    def _expect(self, if_match: int | None) -> Plan | None:
        previous = self.store.latest_plan()
        current = 0 if previous is None else previous.version
        if if_match is not None and if_match != current:
            raise StalePlanVersion(
                f"the plan version is {current}, not {if_match}",
                detail="The plan has changed since it was read.",
                hint="Read GET /api/v1/plan again and repeat the change with its version.",
            )
        return previous

    def _take_objective(self) -> None:
        """Plan anew if the newest plan was chosen for other strategies than the settings name now."""
        with self.store.transaction():
            latest = self.store.latest_plan()
            queries = [record.query for record in self.store.queries()]
            if latest is not None and not self._objective.is_of(latest, queries):
                self._replan(latest)

    def _replan(self, previous: Plan | None) -> Plan:
        """Plan all wanted queries and put the new version into the control log."""
        queries = [record.query for record in self.store.queries()]
        streams = {s.id: s for s in self.store.streams()}
        objective = self._objective
        plan = build_plan(
            queries,
            streams,
            previous,
            strategy=objective.strategy,
            family_strategies=objective.by_family(queries),
            profile=self._statistician.profile(queries) if objective.weighs_costs() else Profile(),
            model=objective.models(calibration_of(self.store)).deciding,
        )
        dry_run(previous, plan)
        self.store.append_control(plan=plan)
        return plan

    def _status(self, record: QueryRecord, totals: dict[int, int] | None = None) -> QueryStatus:
        results = (self.store.query_totals() if totals is None else totals).get(record.query.id, 0)
        added = self.store.first_batch_of_version(record.added_version)
        removed = None
        if record.removed_version is not None:
            removed = self.store.first_batch_of_version(record.removed_version)
        observed: Literal["pending", "running", "removed"] = "pending"
        observed_at_us = record.created_at_us
        if removed is not None:
            observed, observed_at_us = "removed", removed[1]
        elif added is not None:
            observed, observed_at_us = "running", added[1]
        return QueryStatus(
            query=record.query,
            desired="running" if record.running else "removed",
            desired_at_us=record.removed_at_us or record.created_at_us,
            observed=observed,
            observed_at_us=observed_at_us,
            plan_version=record.removed_version or record.added_version,
            complete_from_us=added[1] if added is not None and self._misses_rows(record) else None,
            results=results,
        )

    def _misses_rows(self, record: QueryRecord) -> bool:
        """Tell whether rows from before the activation were not asked for or lack columns."""
        if record.query.backfill == "none":
            return True
        family = _family_of(self.store.plan_version(record.added_version), record.query.id)
        if record.added_version == 1 or family is None:
            return True
        before = next(
            (f for f in self.store.plan_version(record.added_version - 1).families if f.id == family.id), None
        )
        if before is None:
            return True
        kept_a, kept_b = set(before.columns_a), set(before.columns_b)
        return not (set(record.query.a.columns) <= kept_a and set(record.query.b.columns) <= kept_b)


def _family_of(plan: Plan, query_id: int) -> FamilyPlan | None:
    return next((f for f in plan.families if any(q.id == query_id for q in f.queries)), None)
