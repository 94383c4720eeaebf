"""Changes of queries: a list of changes becomes one plan version, or fails as a whole.

    changes ── resolve: the steps, or all faults at once ── record: queries leave and enter ── one plan

Resolving changes nothing in the catalog. Changes are resolved twice: before the transaction, so that parsing
and sampling block no other writer, and inside it, because the catalog may have changed meanwhile. Inside the
transaction, the parsed queries are reused unless the streams have changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from catalog.errors import InvalidInput, NameTaken, NotFound, SluiceError, StalePlanVersion, error_path
from catalog.store.repositories.queries import EnteringQuery
from catalog.store.store import Store
from catalog.values.change import (
    VERBS,
    AddQuery,
    Change,
    EditQuery,
    PauseQuery,
    QueryParts,
    RemoveQuery,
    ResumeQuery,
    UpdateQuery,
)
from catalog.values.plan import Partitioning, Plan
from catalog.values.query import Backfill, Query, QueryRecord
from catalog.values.sink import SetSink
from catalog.values.stream import Stream
from planner.bind.bind import bind, refuse_backfill
from planner.bind.keys.step_keys import Joining, JoinShape
from planner.bind.rewrite import rewrite
from planner.build.build_plan import chooses_band
from planner.build.placement.place_query import QueryPlaces
from planner.trees.choice import OrderChoice
from service.config.calibration import calibration_of
from service.documents.streams.stream_document import check_name
from service.errors import ChangedTwice, InvalidChanges, UnknownQuery
from service.planning.backfill import missing_columns
from service.planning.preview import Statistician
from service.planning.versions import Versions
from service.sinks.changes.sink_changes import SinkMove, set_sinks, shared_places, sink_to_set
from service.sinks.webhook_targets import PUBLIC_TARGETS, WebhookTargets

#: Maximum number of query names in the cause of a version, since people read the causes in the history.
_NAMES_IN_CAUSE = 5


@dataclass(frozen=True, slots=True)
class Changed:
    """Result of a list of changes.

    Attributes:
        version: Plan version with the changes, or the newest version if all changes were in effect already.
        records: The queries as they are now, in the order of the changes.
        effective: Whether the plan changed. A change of only a sink takes effect immediately, without a new
            plan.
    """

    version: int
    records: tuple[QueryRecord, ...]
    effective: bool


@dataclass(frozen=True, slots=True)
class ChangeStep:
    """One change as the catalog records it.

    Attributes:
        change: The change.
        record: Record of the present query, or None if the change adds a query.
        draft: The query that enters, without its id, or None if no query enters.
        effective: Whether the change alters the plan.
        sink: Change of the query's sink, to a new sink or to no sink; None leaves the sink as it is.
    """

    change: Change
    record: QueryRecord | None
    draft: Query | None
    effective: bool = True
    sink: SetSink | None = None

    @property
    def runs(self) -> bool:
        """Return whether the draft enters the plan; a paused query stays out, even with a new text."""
        return self.record is None or self.record.running or isinstance(self.change, ResumeQuery)

    @property
    def sink_move(self) -> SinkMove:
        """Change of the query's sink."""
        series = None if self.record is None else self.record.series
        return SinkMove(self.change.name, series, self.sink, isinstance(self.change, RemoveQuery))


def is_any(_: str) -> bool:
    """Let texts use all streams."""
    return True


@dataclass(slots=True)
class Resolver:
    """Resolves changes to steps, and parses each text once.

    Attributes:
        store: The catalog.
        statistician: Source of statistics for choosing the order in which more than two streams are joined.
        targets: Allowed targets of webhooks.
        partitioning: Spread of a key's rows over buckets, or ``auto``.
        readable: Returns whether texts may use the stream of a name.
    """

    store: Store
    statistician: Statistician
    targets: WebhookTargets = PUBLIC_TARGETS
    partitioning: Partitioning = "auto"
    readable: Callable[[str], bool] = is_any
    _streams: dict[str, Stream] = field(default_factory=dict)
    _bound: dict[str, Query] = field(default_factory=dict)
    _hashed: dict[str, bool] = field(default_factory=dict)
    # Chooses the families of entering queries, by the newest plan at the last ``refresh``.
    _places: QueryPlaces = field(init=False)
    # Chooses join orders by the plan and the constants at its first use after ``refresh``. It is kept because
    # thousands of query texts may need it.
    _choice: OrderChoice | None = None
    # Records of the queries named in the list that is being resolved, by name in lower case.
    _found: Mapping[str, QueryRecord] = field(default_factory=dict)

    def reuse(self, streams: Sequence[Stream], queries: Iterable[Query]) -> None:
        """Reuse queries that are bound already; ``refresh`` forgets them if the catalog has other streams.

        Joins of more than two streams are bound again, since statistics decide the order of their joins.
        """
        self._streams = {stream.name: stream for stream in streams}
        self._bound = {query.cql: query for query in queries if query.left is None}

    @property
    def _readable_streams(self) -> dict[str, Stream]:
        if self.readable is is_any:
            return self._streams
        return {name: stream for name, stream in self._streams.items() if self.readable(name)}

    def refresh(self) -> None:
        """Read streams and plan again; forget the parsed queries if the streams have changed."""
        streams = {s.name: s for s in self.store.streams.all()}
        self._choice = None
        if streams != self._streams:
            self._streams, self._bound, self._hashed = streams, {}, {}
        self._places = QueryPlaces(
            self.partitioning,
            streams,
            self.store.control_log.latest_plan(),
            partial(self.statistician.profile, samples=True),
            self._hashed,
        )

    def resolve(self, changes: Change | Sequence[Change]) -> tuple[ChangeStep, ...]:
        """Resolve one change, or all changes of a list; each error of a list has the path of its change.

        Raises:
            InvalidChanges: Several changes of the list cannot be made.
            SluiceError: The errors of ``resolve_one``; in a list, `UnknownQuery` instead of `QueryNotFound`.
            SinkInUse: Two queries would have the same sink.
        """
        if isinstance(changes, Sequence):
            return self._resolve_list(changes)
        self._found = self.store.queries.find_all([changes.name])
        step = self.resolve_one(changes)
        for _, shared in shared_places(self.store, [step.sink_move]):
            raise shared
        return (step,)

    def resolve_one(self, change: Change) -> ChangeStep:
        """Resolve one change against the present queries; do not check whether its sink is in use.

        Raises:
            QueryNotFound: The change is for a query that neither runs nor is paused.
            NameTaken: The change adds a query whose name is taken.
            InvalidInput: The query's text, an edited part of the text, or the sink is invalid.
        """
        if isinstance(change, AddQuery):
            return self._added(change)
        record = self._found.get(change.name.lower()) or self.store.queries.get(change.name)
        match change:
            case UpdateQuery() | EditQuery():
                return self._updated(change, record)
            case ResumeQuery():
                draft = self._entering(record.query, change.backfill) if record.paused else None
                return ChangeStep(change, record, draft, record.paused)
            case PauseQuery():
                return ChangeStep(change, record, None, record.running)
            case RemoveQuery():
                return ChangeStep(change, record, None)

    def _resolve_list(self, changes: Sequence[Change]) -> tuple[ChangeStep, ...]:
        steps: list[tuple[int, ChangeStep]] = []
        errors: list[SluiceError] = []
        seen: dict[str, int] = {}
        self._found = self.store.queries.find_all([change.name for change in changes])
        for i, change in enumerate(changes):
            try:
                with error_path("changes", i, VERBS[type(change)]):
                    _refuse_second(change, seen.setdefault(change.name.lower(), i), i)
                    steps.append((i, self.resolve_one(change)))
            except NotFound as error:
                # The name is in the body, not in the path of the request, so this is not a 404.
                path = (*error.path, "name") if isinstance(change, UpdateQuery | EditQuery) else error.path
                errors.append(UnknownQuery(error.primary, hint=error.hint, path=path))
            except (InvalidInput, NameTaken) as error:
                errors.append(error)
        found = [step for _, step in steps]
        for place, shared in shared_places(self.store, [step.sink_move for step in found]):
            i, step = steps[place]
            shared.path = ("changes", i, VERBS[type(step.change)], *shared.path)
            errors.append(shared)
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise InvalidChanges(errors, len(changes))
        return tuple(found)

    def _added(self, change: AddQuery) -> ChangeStep:
        check_name("query", change.name, ("name",))
        if change.name.lower() in self._found:
            raise NameTaken(
                f'query "{change.name}" exists already',
                hint="Choose another name, or remove the query first.",
                path=("name",),
            )
        bound = self._places.placed(self._bind(change.cql))
        refuse_backfill(bound, change.backfill)
        sink = self._sink(None, None if change.sink is None else SetSink(change.sink))
        return ChangeStep(change, None, replace(bound, name=change.name, backfill=change.backfill), sink=sink)

    def _updated(self, change: UpdateQuery | EditQuery, record: QueryRecord) -> ChangeStep:
        sink = self._sink(record.series, change.sink)
        if isinstance(change, UpdateQuery):
            cql = change.cql
            bound = self._bind(cql)
        elif change.parts == QueryParts():
            return ChangeStep(change, record, None, effective=False, sink=sink)
        else:
            cql = rewrite(record.query.cql, self._readable_streams, change.parts)
            bound = bind(cql, self._readable_streams, choose=self._chosen_order)
        rebound = isinstance(change, UpdateQuery) and change.rebound
        if cql.strip() == record.query.cql.strip() and not rebound:
            return ChangeStep(change, record, None, effective=False, sink=sink)
        draft = self._entering(replace(bound, name=record.query.name), change.backfill)
        return ChangeStep(change, record, draft, sink=sink)

    def _sink(self, series: int | None, wanted: SetSink | None) -> SetSink | None:
        with error_path("sink"):
            return sink_to_set(self.store, series, wanted, self.targets)

    def _bind(self, cql: str) -> Query:
        if cql not in self._bound:
            with error_path("cql"):
                self._bound[cql] = bind(cql, self._readable_streams, choose=self._chosen_order)
        return self._bound[cql]

    def _entering(self, query: Query, backfill: Backfill) -> Query:
        """Return a resumed or updated query with its backfill, or `none` if it can join only new rows."""
        new_rows = query.left is not None or query.counts_rows
        return self._places.placed(replace(query, backfill="none" if new_rows else backfill))

    def _chosen_order(self, shape: JoinShape) -> Joining:
        """Choose the order in which a query joins its streams, if there are more than two."""
        if self._choice is None:
            previous = self.store.control_log.latest_plan()
            self._choice = OrderChoice(self.statistician.profile, calibration_of(self.store), previous)
        return self._choice(shape)


def _refuse_second(change: Change, first: int, place: int) -> None:
    """Refuse a second change of the same query in a list."""
    if first != place:
        raise ChangedTwice(
            f'query "{change.name}" is changed twice',
            detail=f"Change {first + 1} of the list changes this query already.",
            hint="Send at most one change per query: the changes of a list have no order.",
        )


@contextmanager
def changing(
    versions: Versions,
    changes: Change | Sequence[Change],
    *,
    actor: str = "service",
    if_match: int | None = None,
    readable: Callable[[str], bool] = is_any,
) -> Iterator[Changed]:
    """Make all requested changes or none, as one plan version, in a transaction that includes the block.

    Parsing and sampling are done before the transaction, since other writers wait for it. The transaction is
    committed after the block, so that an answer that the block stores is durable together with the changes.

    Args:
        versions: Plans the new version and appends it to the control log.
        changes: One change; or a list with at most one change per query, in any order. An error in a list
            has the path of its change.
        actor: Author of the changes, for the history.
        if_match: Plan version that must be the newest one; None accepts any.
        readable: Returns whether new texts may use the stream of a name.

    Yields:
        The changes as made.

    Raises:
        StalePlanVersion: The newest plan is not ``if_match``.
        InvalidChanges: Several changes cannot be made.
        SluiceError: One change cannot be made.
    """
    store = versions.store
    partitioning = versions.objective.partitioning
    resolver = Resolver(store, versions.statistician, versions.webhook_targets, partitioning, readable)
    resolver.refresh()
    steps = resolver.resolve(changes)
    drafts = [step.draft for step in steps if step.draft is not None and step.runs]
    # Only the drafts' families may need samples: the families of running queries were weighed before.
    before = store.control_log.latest_plan()
    samples = versions.objective.weighs_keys(before, drafts)
    samples |= chooses_band(drafts, {s.id: s for s in store.streams.all()}, before)
    if samples or versions.objective.weighs_costs():
        running = [*(r.query for r in store.queries.running()), *drafts]
        # Sampling reads files. The samples' answers are cached, so that the transaction below is short.
        versions.statistician.profile(running, samples=samples)
    versions.load()
    with store.transaction():
        previous = expect(store, if_match)
        resolver.refresh()
        steps = resolver.resolve(changes)
        effective = any(step.effective for step in steps)
        current = 0 if previous is None else previous.version
        version = current + 1 if effective else current
        records = record_steps(store, steps, version, previous)
        if effective:
            queries = [record.query for record in store.queries.running()]
            versions.append(queries, previous, calibration_of(store), cause=cause_of(steps), actor=actor)
        moves = [(step.sink_move, record.series) for step, record in zip(steps, records, strict=True)]
        set_sinks(store, moves, version if effective else None, actor)
        yield Changed(version, records, effective)


def expect(store: Store, if_match: int | None) -> Plan | None:
    """Return the newest plan; if ``if_match`` is not None, require that version of the plan.

    Raises:
        StalePlanVersion: The newest plan has another version.
    """
    previous = store.control_log.latest_plan()
    current = 0 if previous is None else previous.version
    if if_match is not None and if_match != current:
        error = StalePlanVersion(
            f"the plan version is {current}, not {if_match}",
            detail="The plan has changed since it was read.",
            hint="Read GET /api/v1/plan again and repeat the change with its version.",
        )
        error.plan_version = current
        raise error
    return previous


def record_steps(
    store: Store, steps: Sequence[ChangeStep], version: int, previous: Plan | None
) -> tuple[QueryRecord, ...]:
    """Record the queries that leave and enter; call this in the transaction that appends the version.

    Ids are assigned in the order of names, so that the plan does not depend on the order of the steps.

    Args:
        store: The catalog.
        steps: The resolved changes.
        version: Plan version with the changes.
        previous: The plan version before.

    Returns:
        The queries as they are now, in the order of the steps.
    """
    order = sorted(range(len(steps)), key=lambda i: steps[i].change.name.lower())
    # Look up missing columns before any query leaves: rows stored so far have the leaving queries' columns.
    missing = {
        i: missing_columns(store, draft, previous)
        for i in order
        if (draft := steps[i].draft) is not None and steps[i].runs
    }
    records = {i: _left(store, steps[i], version) for i in order}
    entering = [(i, draft) for i in order if (draft := steps[i].draft) is not None]
    ids = store.queries.reserve_ids(len(entering))
    added = store.queries.add_all(
        [
            EnteringQuery(replace(draft, id=query_id), _series(steps[i]), missing.get(i, ()))
            for query_id, (i, draft) in zip(ids, entering, strict=True)
        ],
        version,
    )
    for (i, _), came in zip(entering, added, strict=True):
        records[i] = came if steps[i].runs else store.queries.leave(came.query.id, version, "pause")
    return tuple(record for i in range(len(steps)) if (record := records[i]) is not None)


def _series(step: ChangeStep) -> int | None:
    return None if step.record is None else step.record.series


def _left(store: Store, step: ChangeStep, version: int) -> QueryRecord | None:
    """Record that a step ends its present query, if it does; return the record, or None for a new query."""
    record = step.record
    if record is None or not step.effective:
        return record
    if step.draft is not None:
        return store.queries.leave(record.query.id, version, "update") if record.running else record
    if isinstance(step.change, PauseQuery):
        return store.queries.leave(record.query.id, version, "pause", pause_reason=step.change.reason)
    return store.queries.remove(record.query.name, version)


def cause_of(steps: Sequence[ChangeStep]) -> str:
    """Describe effective steps: ``add q1; remove q2, q3``."""
    names: dict[str, list[str]] = {}
    for step in steps:
        if step.effective:
            names.setdefault(VERBS[type(step.change)], []).append(step.change.name)
    return "; ".join(f"{verb} {_listed(sorted(names[verb]))}" for verb in sorted(names))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_IN_CAUSE} more" if len(names) > _NAMES_IN_CAUSE else ""
    return ", ".join(names[:_NAMES_IN_CAUSE]) + more
