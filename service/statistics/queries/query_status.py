"""Desired and observed state of a query, from its series in the catalog and the committed batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from catalog.store.store import Store
from catalog.times.durations import MIN_TIME_US
from catalog.values.query import ALL_ROWS, UNBOUNDED_US, Query, QueryRecord
from catalog.values.sink import SinkRecord
from catalog.values.stream import Stream
from service.statistics.queries.query_warnings import query_warnings

Desired = Literal["running", "paused", "removed"]
Observed = Literal["pending", "running", "paused", "removed"]
#: Watermark per stream id, µs UTC.
Watermarks = Mapping[int, int | None]


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """Desired and observed state of a query.

    Attributes:
        query: The bound query, the newest of its series.
        series: Id of the first query of its series.
        revisions: Ids of the queries of its series, ``query`` last; ``results`` counts rows of all of them.
        desired: State that was requested last.
        desired_at_us: Time of the request for the desired state, µs UTC.
        observed: State in the job; ``pending`` until the job runs the newest query of the series.
        observed_at_us: Time since which the job has been in the observed state, µs UTC.
        paused_because: Reason why the engine paused the query, or None if a person paused it or the query
            is not paused.
        plan_version: Version in which the desired state takes effect.
        complete_from_us: Wall clock from which results are complete, µs UTC, if earlier rows are missing,
            or None if no rows are missing or the query is not active yet.
        missing_columns: Columns (``alias.column``) that are missing in rows stored earlier, so that the
            query does not join these rows.
        decided_until_us: Event time, µs UTC, up to which it is decided whether rows have a partner. None for
            an inner join, for an unbounded window, and while the event time is unknown.
        complete_within_us: Distance in event time, µs, within which a new row still meets every earlier row,
            although the cap of a stream has removed rows. None if the windows are complete.
        results: Result rows so far.
        sinks: Sink records of the series, in the order in which they were set. If the query should have no
            sink, the last record has none.
        warnings: Likely mistakes (``query_warnings``); empty for a query that was removed.
    """

    query: Query
    series: int
    revisions: tuple[int, ...]
    desired: Desired
    desired_at_us: int
    observed: Observed
    observed_at_us: int
    paused_because: str | None
    plan_version: int
    complete_from_us: int | None
    missing_columns: tuple[str, ...]
    decided_until_us: int | None
    complete_within_us: int | None
    results: int
    sinks: tuple[SinkRecord, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a change of queries.

    Attributes:
        version: Plan version with the change, or the newest version if the change was in effect already.
        statuses: The changed queries, in the order of the changes.
        effective: Whether the plan changed.
    """

    version: int
    statuses: tuple[QueryStatus, ...]
    effective: bool


def query_statuses(store: Store, records: Iterable[QueryRecord]) -> tuple[QueryStatus, ...]:
    """Return the status of queries.

    Args:
        store: The catalog.
        records: Newest record of each query's series.
    """
    wanted = tuple(records)
    totals = store.counts.totals()
    # For several queries, read all sinks with one catalog access.
    found = (
        store.sinks.all() if len(wanted) > 1 else store.sinks.of_series(wanted[0].series) if wanted else ()
    )
    sinks: dict[int, tuple[SinkRecord, ...]] = {}
    for sink in found:
        sinks[sink.series] = (*sinks.get(sink.series, ()), sink)
    series = store.queries.ids_of_series(record.series for record in wanted)
    firsts, streams = _Firsts(store), _Streams(store)
    watermarks: Watermarks = {}
    horizons = _horizons(store)
    if horizons or any(record.query.kind != "inner" for record in wanted):
        watermarks = {c.stream_id: c.watermark_us for c in store.batches.stream_totals()}
    return tuple(
        _status(
            store,
            record,
            series[record.series],
            firsts,
            streams,
            totals,
            sinks.get(record.series, ()),
            watermarks,
            horizons,
        )
        for record in wanted
    )


@dataclass(slots=True)
class _Firsts:
    """First batches of plan versions, each looked up once: thousands of queries share few versions."""

    store: Store
    _known: dict[int, tuple[int, int] | None] = field(default_factory=dict)

    def of_version(self, version: int) -> tuple[int, int] | None:
        """Return a version's first batch and its commit time, or None while the version is not in force."""
        if version not in self._known:
            self._known[version] = self.store.batches.first_of_version(version)
        return self._known[version]


@dataclass(slots=True)
class _Streams:
    """Streams by id, each looked up once."""

    store: Store
    _known: dict[int, Stream] = field(default_factory=dict)

    def by_id(self, stream_id: int) -> Stream:
        """Return a stream, even if it was removed."""
        if stream_id not in self._known:
            self._known[stream_id] = self.store.streams.by_id(stream_id)
        return self._known[stream_id]


def _status(
    store: Store,
    record: QueryRecord,
    revisions: tuple[int, ...],
    firsts: _Firsts,
    streams: _Streams,
    totals: dict[int, int],
    sinks: tuple[SinkRecord, ...],
    watermarks: Watermarks,
    horizons: Mapping[int, int],
) -> QueryStatus:
    added = firsts.of_version(record.added_version)
    observed, observed_at_us = _observed(store, record, firsts, added)
    desired: Desired = "running" if record.running else "paused" if record.paused else "removed"
    return QueryStatus(
        query=record.query,
        series=record.series,
        revisions=revisions,
        desired=desired,
        desired_at_us=record.removed_at_us or record.created_at_us,
        observed=observed,
        observed_at_us=observed_at_us,
        paused_because=record.pause_reason if record.paused else None,
        plan_version=record.removed_version or record.added_version,
        complete_from_us=added[1] if added is not None and record.missing else None,
        missing_columns=() if record.missing == (ALL_ROWS,) else record.missing,
        decided_until_us=_decided_until_us(record.query, watermarks) if observed == "running" else None,
        complete_within_us=_complete_within_us(record.query, watermarks, horizons)
        if observed == "running"
        else None,
        results=sum(totals.get(query_id, 0) for query_id in revisions),
        sinks=sinks,
        warnings=_warnings(streams, record.query) if record.wanted else (),
    )


def _warnings(streams: _Streams, query: Query) -> tuple[str, ...]:
    if query.left is not None:
        return ()
    return query_warnings(query, *(streams.by_id(side.stream_id) for side in (query.a, query.b)))


def _horizons(store: Store) -> dict[int, int]:
    """Return the horizons in force, by stream id; empty if no stream's cap removes rows any more."""
    if not any(stream.evicts for stream in store.streams.all()):
        return {}
    last = store.batches.last_manifest()
    found = () if last is None else last.streams
    return {c.stream_id: c.horizon_us for c in found if c.horizon_us is not None}


def _complete_within_us(query: Query, watermarks: Watermarks, horizons: Mapping[int, int]) -> int | None:
    """Return how far back, in µs, a query's windows are complete, or None if they are entirely complete."""
    within = []
    for mine, other in ((query.a, query.b), (query.b, query.a)):
        horizon, opposite = horizons.get(mine.stream_id), watermarks.get(other.stream_id)
        # A future row is not older than the watermark of its stream.
        if horizon is not None and opposite is not None and opposite - horizon < mine.window_us:
            within.append(max(opposite - horizon, 0))
    return min(within, default=None)


def _decided_until_us(query: Query, watermarks: Watermarks) -> int | None:
    """Return the event time up to which it is decided, on all preserved sides, which rows have partners."""
    decided = []
    for side in query.preserved:
        mine, other = (query.a, query.b) if side == "a" else (query.b, query.a)
        opposite = watermarks.get(other.stream_id)
        if opposite is None or mine.window_us >= UNBOUNDED_US:
            return None
        decided.append(opposite - mine.window_us)
    until = min(decided, default=MIN_TIME_US)
    return until if until > MIN_TIME_US else None


def _observed(
    store: Store, record: QueryRecord, firsts: _Firsts, added: tuple[int, int] | None
) -> tuple[Observed, int]:
    """Return a query's state in the job, and since when; ``added`` is the query's first batch and time."""
    removed = None if record.removed_version is None else firsts.of_version(record.removed_version)
    if removed is not None:
        return "paused" if record.paused else "removed", removed[1]
    if added is not None:
        return "running", added[1]
    before = None if record.query.id == record.series else store.queries.before(record)
    if before is not None and before.paused and before.removed_version is not None:
        paused = firsts.of_version(before.removed_version)
        if paused is not None:
            return "paused", paused[1]
    return "pending", record.created_at_us
