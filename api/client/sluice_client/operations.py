"""Methods of the client that need one request each, as descriptions of the request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from sluice_client import models
from sluice_client.changes import (
    Backfill,
    Change,
    Document,
    Duration,
    duration,
    patch_document,
    query_document,
)
from sluice_client.request import NDJSON, Json, Request, json_body, nothing, text

PlanText = Literal["text", "mermaid", "dot", "svg"]


def register_stream(
    name: str,
    columns: Mapping[str, str],
    *,
    event_time: str,
    source: Document | None = None,
    lateness: Duration = 0,
    **facts: Any,
) -> Request[models.Stream]:
    """Register a stream.

    Args:
        name: Its name.
        columns: Type of each column, such as ``bigint``, ``double``, ``string``, ``timestamp``.
        event_time: Column of the event time.
        source: Source of the rows; by default, clients post the rows (``{"type": "http"}``).
        lateness: Maximum lag of a row's event time behind the stream's newest event time.
        **facts: Further fields of a stream, with the names of the REST API: ``idle_timeout``, ``start``,
            ``max_ahead``, ``on_error``, ``punctuations``, ``constraints``, ``order``, ``retain``,
            ``time_unit``.
    """
    body = json_body(
        name=name,
        columns=columns,
        event_time=event_time,
        source={"type": "http"} if source is None else source,
        lateness=duration(lateness),
        **{fact: duration(value) for fact, value in facts.items()},
    )
    return Request("POST", "/streams", Json(models.Stream), body=body)


def stream(name: str) -> Request[models.Stream]:
    """Return a stream."""
    return Request("GET", "/streams/{name}", Json(models.Stream), {"name": name})


def change_stream(
    name: str,
    *,
    punctuations: Document | UnsetType | None = UNSET,
    constraints: Document | UnsetType | None = UNSET,
    order: Document | UnsetType | None = UNSET,
) -> Request[models.Stream]:
    """Change the promises of a stream; None withdraws a promise, omitted promises stay unchanged."""
    body = json_body(punctuations=punctuations, constraints=constraints, order=order)
    return Request("PATCH", "/streams/{name}", Json(models.Stream), {"name": name}, body=body)


def remove_stream(name: str) -> Request[None]:
    """Remove a stream that no query uses."""
    return Request("DELETE", "/streams/{name}", nothing, {"name": name})


def quarantine(name: str, *, limit: int = 100) -> Request[models.Quarantine]:
    """Return events that were quarantined because they are too far ahead of the clock."""
    path = "/streams/{name}/quarantine"
    return Request("GET", path, Json(models.Quarantine), {"name": name}, {"limit": limit})


def reset_watermark(name: str) -> Request[models.Stream]:
    """Reset a stream's watermark after rows with future event times have made all other rows late."""
    return Request("POST", "/streams/{name}:reset-watermark", Json(models.Stream), {"name": name})


def retry_files(name: str) -> Request[models.SetAsideFiles]:
    """Retry the files that were set aside as invalid, after they have been corrected."""
    return Request("POST", "/streams/{name}/files:retry", Json(models.SetAsideFiles), {"name": name})


def append_events(name: str, body: bytes, key: str | None = None) -> Request[models.Appended]:
    """Post one NDJSON body of events: all of them are accepted, or none."""
    return Request(
        "POST",
        "/streams/{name}/events",
        Json(models.Appended),
        {"name": name},
        body=body,
        content_type=NDJSON,
        key=key,
    )


def punctuate(
    name: str, punctuations: Sequence[Document], *, key: str | None = None
) -> Request[models.Punctuated]:
    """Promise that a stream will have no later rows with certain values.

    Args:
        name: The stream.
        punctuations: Punctuations, each with the column values that no later row will have.
        key: Idempotency key; with it the call can be repeated safely.
    """
    return Request(
        "POST",
        "/streams/{name}/punctuations",
        Json(models.Punctuated),
        {"name": name},
        body=json_body(list=punctuations)[len('{"list":') : -1],
        key=key,
    )


def validate(cql: str, *, backfill: Backfill = "none") -> Request[models.BoundQuery]:
    """Check a query's text without adding it, and return the query as the service understands it."""
    return Request(
        "POST", "/queries:validate", Json(models.BoundQuery), body=json_body(cql=cql, backfill=backfill)
    )


def add_query(
    name: str,
    cql: str,
    *,
    backfill: Backfill = "none",
    sink: Document | None = None,
    wait_s: float = 0,
    plan_version: int | None = None,
) -> Request[models.Query]:
    """Add a query.

    Args:
        name: Its name.
        cql: Its text.
        backfill: ``state`` also joins new rows with rows that are already in the state.
        sink: Additional destination of the results; the service keeps the results in any case.
        wait_s: Seconds to wait until the query is in force.
        plan_version: Plan version that the change is based on; if another version is in force, the call
            fails.
    """
    body = json_body(**query_document(name, cql, backfill, sink))
    return _change("POST", "/queries", None, wait_s, plan_version, body)


def put_query(
    name: str,
    cql: str,
    *,
    backfill: Backfill = "none",
    sink: Document | None = None,
    wait_s: float = 0,
    plan_version: int | None = None,
) -> Request[models.Query]:
    """Make sure that a query of this name, text and sink runs; arguments as for ``add_query``."""
    document = query_document(name, cql, backfill, sink)
    del document["name"]
    return _change("PUT", "/queries/{name}", name, wait_s, plan_version, json_body(**document))


def query(name: str) -> Request[models.Query]:
    """Return the newest query of a name, even if it was removed."""
    return Request("GET", "/queries/{name}", Json(models.Query), {"name": name})


def update_query(
    name: str,
    *,
    cql: str | UnsetType = UNSET,
    window: Duration | Mapping[str, Duration] | UnsetType = UNSET,
    filters: Mapping[str, str | None] | UnsetType = UNSET,
    select: str | Sequence[str] | UnsetType = UNSET,
    backfill: Backfill = "state",
    sink: Document | UnsetType | None = UNSET,
    wait_s: float = 0,
    plan_version: int | None = None,
) -> Request[models.Query]:
    """Give a query a new text, new parts or another sink.

    Args:
        name: The query.
        cql: The whole new text.
        window: Window length for all streams of the query, or per alias.
        filters: Filter condition per alias; None removes the filter.
        select: Select list.
        backfill: ``none`` does not join new rows with rows that are already in the state.
        sink: Additional destination of results; None removes the sink.
        wait_s: Seconds to wait until the change is in force.
        plan_version: Plan version that the change is based on; if another version is in force, the call
            fails.
    """
    document = patch_document(
        cql=cql, window=window, filters=filters, select=select, backfill=backfill, sink=sink
    )
    return _change("PATCH", "/queries/{name}", name, wait_s, plan_version, json_body(**document))


def remove_query(name: str, *, wait_s: float = 0, plan_version: int | None = None) -> Request[models.Query]:
    """Remove a query; its results stay readable."""
    return _change("DELETE", "/queries/{name}", name, wait_s, plan_version)


def pause_query(name: str, *, wait_s: float = 0, plan_version: int | None = None) -> Request[models.Query]:
    """Take a query out of the plan until it is resumed."""
    return _change("POST", "/queries/{name}:pause", name, wait_s, plan_version)


def resume_query(
    name: str, *, backfill: Backfill = "state", wait_s: float = 0, plan_version: int | None = None
) -> Request[models.Query]:
    """Put a paused query into the plan again."""
    return _change("POST", "/queries/{name}:resume", name, wait_s, plan_version, more={"backfill": backfill})


def propagate(name: str) -> Request[models.Query]:
    """Request the pending result punctuations of a query now, regardless of its family's policy."""
    return Request("POST", "/queries/{name}:propagate", Json(models.Query), {"name": name})


def _change(
    method: str,
    path: str,
    name: str | None,
    wait_s: float,
    plan_version: int | None,
    body: bytes | None = None,
    more: Mapping[str, str] | None = None,
) -> Request[models.Query]:
    return Request(
        method,
        path,
        Json(models.Query),
        {} if name is None else {"name": name},
        {**(more or {}), "wait": wait_s or None},
        body=body,
        plan_version=plan_version,
        wait_s=wait_s,
    )


def change(
    changes: Sequence[Change], *, wait_s: float = 0, plan_version: int | None = None
) -> Request[models.Changes]:
    """Make several changes together, or none of them.

    Args:
        changes: Changes made by the functions of ``sluice_client.changes``.
        wait_s: Seconds to wait until the changes are in force.
        plan_version: Plan version that the changes are based on; if another version is in force, the call
            fails.
    """
    return Request(
        "POST",
        "/changes",
        Json(models.Changes),
        params={"wait": wait_s or None},
        body=json_body(changes=changes),
        plan_version=plan_version,
        wait_s=wait_s,
    )


def preview(
    *,
    add: Mapping[str, str] | None = None,
    remove: Sequence[str] = (),
    strategy: str | UnsetType = UNSET,
    **more: Any,
) -> Request[models.Preview]:
    """Return the effect and cost of a change without making it.

    Args:
        add: Texts of the queries to add, keyed by query name.
        remove: Names of queries to remove.
        strategy: Strategy of the plan.
        **more: Further fields of a preview, with the names of the REST API: ``family_strategies``,
            ``statistics``, ``cost_model``, ``c_sys``, ``chain``.
    """
    added = [{"name": name, "cql": cql} for name, cql in (add or {}).items()]
    body = json_body(add=added, remove=remove, strategy=strategy, **more)
    return Request("POST", "/plan:preview", Json(models.Preview), body=body)


def plan() -> Request[models.Plan]:
    """Return the newest plan version."""
    return Request("GET", "/plan", Json(models.Plan))


def plan_text(form: PlanText = "text") -> Request[str]:
    """Return the newest plan version as text, or as a drawing for Mermaid or Graphviz."""
    return Request("GET", "/plan", text, params={"format": form}, accept="*/*")


def migrate(
    *, wait_s: float = 0, plan_version: int | None = None, **request: Any
) -> Request[models.Migration]:
    """Migrate to another strategy or chain.

    Args:
        wait_s: Seconds to wait until the migration is in force.
        plan_version: Plan version that the migration is based on; if another version is in force, the call
            fails.
        **request: Fields of a migration, with the names of the REST API: ``strategy``, ``family_strategies``,
            ``probe``, ``splits``, ``merges``, ``cleanup``, ``rollback_to``, ``on_leave``.
    """
    return Request(
        "POST",
        "/migrations",
        Json(models.Migration),
        params={"wait": wait_s or None},
        body=json_body(**request),
        plan_version=plan_version,
        wait_s=wait_s,
    )


def dry_run(**request: Any) -> Request[models.DryRun]:
    """Return the effect and cost of a migration without making it; arguments as for ``migrate``."""
    body = json_body(**{**request, "dry_run": True})
    return Request("POST", "/migrations", Json(models.DryRun), body=body)


def migration(migration_id: int) -> Request[models.Migration]:
    """Return a migration with its progress."""
    return Request("GET", "/migrations/{id}", Json(models.Migration), {"id": str(migration_id)})


def policy() -> Request[models.Policy]:
    """Return the strategies in force, and the rule for merging slices of removed queries."""
    return Request("GET", "/migrations/policy", Json(models.Policy))


def statistics() -> Request[models.Statistics]:
    """Return rates, selectivities, watermarks, late rows, state per slice and results per query."""
    return Request("GET", "/statistics", Json(models.Statistics))


def engine() -> Request[models.Engine]:
    """Return the state of the engine."""
    return Request("GET", "/engine", Json(models.Engine))


def last_batches(*, limit: int = 20) -> Request[models.Batches]:
    """Return the last micro-batches, the oldest first."""
    return Request("GET", "/engine/batches", Json(models.Batches), params={"limit": limit})


def pause_engine() -> Request[models.Engine]:
    """Pause the engine: it processes no further batch until it is resumed."""
    return Request("POST", "/engine:pause", Json(models.Engine))


def resume_engine() -> Request[models.Engine]:
    """Resume the engine: it processes batches again."""
    return Request("POST", "/engine:resume", Json(models.Engine))


def restart_engine() -> Request[models.Engine]:
    """Restart the Spark job; not sent again if there is no answer, as the job might restart twice."""
    return Request("POST", "/engine:restart", Json(models.Engine), repeatable=False)
