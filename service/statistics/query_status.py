"""Desired and observed state of a query, from its series in the catalog and the committed batches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from catalog.store.store import Store
from catalog.values.query import ALL_ROWS, Query, QueryRecord
from catalog.values.sink import SinkRecord

Desired = Literal["running", "paused", "removed"]
Observed = Literal["pending", "running", "paused", "removed"]


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """Desired and observed state of a query.

    Attributes:
        query: The bound query, the newest of its series.
        series: Id of the first query of its series.
        revisions: Ids of the queries of its series, this one last; results are those of all of them.
        desired: What was asked for last.
        desired_at_us: When, µs UTC.
        observed: What the job does; ``pending`` until it has taken up the newest of the series.
        observed_at_us: Since when, µs UTC.
        plan_version: Version in which the desired state takes effect.
        complete_from_us: Wall clock from which results are complete, µs UTC, where rows from before are
            missing; None when nothing is missing or the query is not active yet.
        missing_columns: Columns (``alias.column``) that rows from before had not kept, so that they take no
            part.
        results: Result rows so far.
        sinks: Sinks that are kept of the series, the one that was asked for last at the end; its sink is None
            where none is wanted any more.
    """

    query: Query
    series: int
    revisions: tuple[int, ...]
    desired: Desired
    desired_at_us: int
    observed: Observed
    observed_at_us: int
    plan_version: int
    complete_from_us: int | None
    missing_columns: tuple[str, ...]
    results: int
    sinks: tuple[SinkRecord, ...]


def query_statuses(store: Store, records: Iterable[QueryRecord]) -> tuple[QueryStatus, ...]:
    """Return the status of queries.

    Args:
        store: The catalog.
        records: The newest record of each of their series.
    """
    wanted = tuple(records)
    totals = store.batches.query_totals()
    # One query for all of them, where there are several.
    found = (
        store.sinks.all() if len(wanted) > 1 else store.sinks.of_series(wanted[0].series) if wanted else ()
    )
    sinks: dict[int, tuple[SinkRecord, ...]] = {}
    for sink in found:
        sinks[sink.series] = (*sinks.get(sink.series, ()), sink)
    return tuple(_status(store, record, totals, sinks.get(record.series, ())) for record in wanted)


def _status(
    store: Store, record: QueryRecord, totals: dict[int, int], sinks: tuple[SinkRecord, ...]
) -> QueryStatus:
    revisions = store.queries.series_ids(record.series)
    added = store.batches.first_of_version(record.added_version)
    observed, observed_at_us = _observed(store, record, added)
    desired: Desired = "running" if record.running else "paused" if record.paused else "removed"
    return QueryStatus(
        query=record.query,
        series=record.series,
        revisions=revisions,
        desired=desired,
        desired_at_us=record.removed_at_us or record.created_at_us,
        observed=observed,
        observed_at_us=observed_at_us,
        plan_version=record.removed_version or record.added_version,
        complete_from_us=added[1] if added is not None and record.missing else None,
        missing_columns=() if record.missing == (ALL_ROWS,) else record.missing,
        results=sum(totals.get(query_id, 0) for query_id in revisions),
        sinks=sinks,
    )


def _observed(store: Store, record: QueryRecord, added: tuple[int, int] | None) -> tuple[Observed, int]:
    """Return what the job does with a query and since when, given the first batch that had it."""
    removed = None
    if record.removed_version is not None:
        removed = store.batches.first_of_version(record.removed_version)
    if removed is not None:
        return "paused" if record.paused else "removed", removed[1]
    if added is not None:
        return "running", added[1]
    before = store.queries.before(record)
    if before is not None and before.paused and before.removed_version is not None:
        paused = store.batches.first_of_version(before.removed_version)
        if paused is not None:
            return "paused", paused[1]
    return "pending", record.created_at_us
