"""Answers of the service as values; fields are described in the OpenAPI document.

Fields that this version of the client does not know are ignored. Documents that exist in several forms, such
as sources, sinks, families and primitives, are dictionaries in the form in which the service sends them.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Document = dict[str, Any]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all answers."""


class Stream(Answer, frozen=True, kw_only=True):
    """A stream."""

    id: int
    name: str
    columns: dict[str, str]
    event_time: str
    lateness: str
    source: Document
    start: str
    on_error: str
    idle_timeout: str | None = None
    max_ahead: str | None = None
    retain: str | None = None
    time_unit: str | None = None
    punctuations: Document | None = None
    constraints: Document | None = None
    order: Document | None = None
    warnings: tuple[str, ...] = ()


class Punctuated(Answer, frozen=True, kw_only=True):
    """Punctuations that were accepted: they are on disk."""

    accepted: int
    first_offset: int | None
    last_offset: int | None


class Appended(Punctuated, frozen=True, kw_only=True):
    """Events that were accepted: they are on disk."""

    quarantined: int


class Quarantine(Answer, frozen=True, kw_only=True):
    """Events that were quarantined, because they are too far ahead of the clock."""

    rows: int
    events: tuple[Document, ...]


class SetAsideFile(Answer, frozen=True, kw_only=True):
    """A file that is not read, and the reason."""

    path: str
    reason: str


class SetAsideFiles(Answer, frozen=True, kw_only=True):
    """Files that are read again."""

    files: tuple[SetAsideFile, ...]


class Column(Answer, frozen=True, kw_only=True):
    """A column of a query's results."""

    name: str
    type: str


class Side(Answer, frozen=True, kw_only=True):
    """A stream's role in a query: its alias, window and filter."""

    stream: str
    alias: str
    window: str
    filter: str | None


class BoundQuery(Answer, frozen=True, kw_only=True):
    """A query's text as the service understands it."""

    cql: str
    backfill: str
    join: str
    a: Side
    b: Side
    streams: tuple[Side, ...]
    key: tuple[tuple[str, str], ...]
    columns: tuple[Column, ...]
    residual: str | None = None
    undecided: str | None = None


class Query(BoundQuery, frozen=True, kw_only=True):
    """A query: its requested state (``desired``) and its actual one (``observed``)."""

    id: int
    series: int
    revisions: tuple[int, ...]
    name: str
    desired: Literal["running", "paused", "removed"]
    desired_at: str
    observed: Literal["pending", "running", "paused", "removed"]
    observed_at: str
    plan_version: int
    results: int
    paused_because: str | None = None
    complete_from: str | None = None
    missing_columns: tuple[str, ...] = ()
    decided_until: str | None = None
    warnings: tuple[str, ...] = ()
    sink: Document | None = None
    sink_observed: Document | None = None
    former_sinks: tuple[Document, ...] = ()


class Changes(Answer, frozen=True, kw_only=True):
    """Several changes, made together."""

    plan_version: int
    queries: tuple[Query, ...]


class PlanStream(Answer, frozen=True, kw_only=True):
    """A stream of a plan."""

    id: int
    name: str


class Plan(Answer, frozen=True, kw_only=True):
    """The shared plan: families of queries with their joins, slices and costs."""

    version: int
    strategy: str
    streams: tuple[PlanStream, ...]
    families: tuple[Document, ...]


class PlanVersion(Answer, frozen=True, kw_only=True):
    """A version of the plan in its history."""

    version: int
    strategy: str | None
    created_at: str | None
    actor: str | None
    cause: str | None
    changes: tuple[Document, ...]
    changes_left_out: int


class Preview(Answer, frozen=True, kw_only=True):
    """Preview of a change: the resulting plan, and the steps from the running plan to it."""

    plan: Plan
    previous_version: int
    primitives: tuple[Document, ...]
    rows_moved: int | None
    statistics: Document
    orders: dict[str, tuple[Document, ...]] = msgspec.field(default_factory=dict)


class Migration(Answer, frozen=True, kw_only=True):
    """A migration and its progress."""

    id: int
    status: Literal["pending", "active", "failed"]
    plan_version: int | None
    actor: str
    created_at: str
    active_at: str | None
    request: Document
    cause: str
    primitives: tuple[Document, ...]
    primitives_left_out: int
    rows_to_move: int | None
    bytes_to_move: int | None
    took: Document | None
    error: Document | None


class DryRun(Answer, frozen=True, kw_only=True):
    """Preview of a migration: its steps and its cost."""

    plan_version: int
    previous_version: int
    primitives: tuple[Document, ...]
    rows_to_move: int | None
    bytes_to_move: int | None
    cost: Document
    dry_run: bool = True


class Policy(Answer, frozen=True, kw_only=True):
    """The strategies in force, and the rule for merging slices after their queries were removed."""

    strategy: str
    family_strategies: dict[str, str]
    probe: str
    family_probes: dict[str, str]
    pinned: Document
    on_leave: str | Document
    cleanup_due_at: str | None


class StreamStatistics(Answer, frozen=True, kw_only=True):
    """Statistics of a stream; times are microseconds since 1970-01-01, UTC."""

    stream: str
    rows: int
    late_rows: int
    rejected_rows: int
    files_set_aside: int
    skipped_rows: int
    warnings: tuple[str, ...]
    watermark_us: int | None
    max_event_time_us: int | None
    rate_per_s: float | None
    row_bytes: float | None


class QueryStatistics(Answer, frozen=True, kw_only=True):
    """Figures of a query."""

    query: str
    query_id: int
    results: int
    absent: int | None


class Statistics(Answer, frozen=True, kw_only=True):
    """Statistics of the whole job and of its streams, slices, filters, families and queries."""

    plan_version: int
    batches: int
    input_rows: int
    late_rows: int
    input_rows_per_s: float
    batch_seconds: float
    batch_event_seconds: float | None
    pack_cpu_seconds: float
    chain_cpu_seconds: float
    state_rows: int
    state_bytes: int
    state_rows_peak: int
    state_bytes_peak: int
    streams: tuple[StreamStatistics, ...]
    slices: tuple[Document, ...]
    filters: tuple[Document, ...]
    families: tuple[Document, ...]
    queries: tuple[QueryStatistics, ...]
    punctuations: tuple[Document, ...]
    received_punctuations: tuple[Document, ...]


class Engine(Answer, frozen=True, kw_only=True):
    """The engine and its Spark job."""

    state: Literal["starting", "running", "paused", "failed", "stopped", "standby"]
    state_at: str
    run_id: str | None
    batch: int | None
    plan_version: int
    error: str | None
    failures: int
    next_try_at: str | None
    input_held: str | None
    spark_ui: str | None


class Batch(Answer, frozen=True, kw_only=True):
    """A committed micro-batch."""

    batch: int
    plan_version: int
    started_at: str
    committed_at: str
    seconds: float
    pack_cpu_s: float
    chain_cpu_s: float
    rows: int
    late_rows: int
    rejected_rows: int
    state_rows: int | None
    state_bytes: int | None


class Batches(Answer, frozen=True, kw_only=True):
    """The last micro-batches, the oldest first."""

    items: tuple[Batch, ...]


class StreamPage(Answer, frozen=True, kw_only=True):
    """A page of streams."""

    items: tuple[Stream, ...]
    next_cursor: str | None
    has_more: bool


class QueryPage(Answer, frozen=True, kw_only=True):
    """A page of queries."""

    items: tuple[Query, ...]
    next_cursor: str | None
    has_more: bool


class PlanVersionPage(Answer, frozen=True, kw_only=True):
    """A page of plan versions."""

    items: tuple[PlanVersion, ...]
    next_cursor: str | None
    has_more: bool


class MigrationPage(Answer, frozen=True, kw_only=True):
    """A page of migrations."""

    items: tuple[Migration, ...]
    next_cursor: str | None
    has_more: bool


class ResultPage(Answer, frozen=True, kw_only=True):
    """A page of results; the next page starts after ``next_cursor``.

    If reading starts without a cursor, ``dropped`` is the number of earlier results that are no longer kept.
    """

    columns: tuple[Column, ...]
    rows: tuple[Document, ...]
    next_cursor: str | None
    has_more: bool
    dropped: int
    kept_since: str | None
