"""Queries in requests and answers."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from api.queries.sinks import (
    FILES_EXAMPLE,
    WEBHOOK_EXAMPLE,
    SinkDocument,
    SinkProgress,
    former_sinks,
    present_sink,
    sink_document,
    to_sink,
)
from api.timestamps import timestamp, timestamp_or_none
from catalog.durations import format_duration
from catalog.steps import stream_sides
from catalog.values.change import BOTH, AddQuery, EditQuery, QueryParts, UpdateQuery
from catalog.values.query import UNBOUNDED_US, Backfill, Query, Side, join_name
from catalog.values.sink import SetSink
from service.results.pages.page import ResultPage
from service.statistics.query_status import Desired, Observed, QueryStatus

_CQL_EXAMPLE = (
    "SELECT f.carrier, f.delay, w.gust FROM flights [RANGE 10 MINUTES] f, weather [RANGE 1 HOUR] w "
    "WHERE f.origin = w.origin AND w.gust > 30"
)

_CQL = Field(min_length=1, description="A join of two to eight streams with a window each, in CQL.")
_BACKFILL: Backfill = Field(
    default="none",
    description="`none`: only pairs whose two rows both arrive after the activation. `state`: also pairs of "
    "a new row with an earlier one that is still held.",
)
_SINK = Field(default=None, description="Sink of the results, which are kept in any case; null for none.")


class QueryText(BaseModel):
    """The text of a query."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"cql": _CQL_EXAMPLE}]})

    cql: str = _CQL
    backfill: Backfill = _BACKFILL


class QueryPut(QueryText):
    """The text of a query, and the sink of its results."""

    sink: SinkDocument | None = _SINK


class QueryIn(BaseModel):
    """A query to add."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"name": "gusty_departures", "cql": _CQL_EXAMPLE},
                {"name": "gusty_departures", "cql": _CQL_EXAMPLE, "sink": FILES_EXAMPLE},
            ]
        },
    )

    name: str = Field(description="Unique name: a letter, then letters, digits or `_`, at most 63 in all.")
    cql: str = _CQL
    backfill: Backfill = _BACKFILL
    sink: SinkDocument | None = _SINK

    def to_change(self) -> AddQuery:
        """Return the change that adds the query."""
        return AddQuery(self.name, self.cql, self.backfill, to_sink(self.sink))


_PATCH_EXAMPLES: list[JsonValue] = [
    {"window": "30s"},
    {"window": {"f": "10 MINUTES", "w": "1 HOUR"}, "filter": {"w": "gust > 40"}},
    {"select": ["f.carrier", "w.gust AS gust"]},
    {"cql": _CQL_EXAMPLE},
    {"sink": WEBHOOK_EXAMPLE},
    {"sink": None},
]


class QueryPatch(BaseModel):
    """Changes to a query: the whole text or parts of it, the sink, or both."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": _PATCH_EXAMPLES})

    cql: str | None = Field(default=None, min_length=1, description="The whole text.")
    window: str | dict[str, str] | None = Field(
        default=None,
        description="Window of both streams, or by alias or stream: a length such as `30s` or `5 MINUTES`, "
        "`NOW` or `UNBOUNDED`.",
    )
    filter: dict[str, str | None] | None = Field(
        default=None,
        description="Condition on one stream alone, by its alias or name; null removes the filter.",
    )
    select: str | list[str] | None = Field(default=None, description="Select list.")
    backfill: Backfill = Field(
        default="state", description="Whether rows held at the change take part, as when a query is added."
    )

    sink: SinkDocument | None = Field(
        default=None,
        description="New sink of the results, from one batch on. null removes the sink; without this field "
        "the sink stays. The former sink gets all results before that batch.",
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        parts = [name for name in ("window", "filter", "select") if getattr(self, name) is not None]
        if self.cql is None and not parts and "sink" not in self.model_fields_set:
            raise ValueError("send cql, or at least one of window, filter, select and sink")
        if self.cql is not None and parts:
            raise ValueError(f"send cql or {' and '.join(parts)}, not both")
        return self

    def to_change(self, name: str) -> UpdateQuery | EditQuery:
        """Return the change of the named query."""
        sink = SetSink(to_sink(self.sink)) if "sink" in self.model_fields_set else None
        if self.cql is not None:
            return UpdateQuery(name, self.cql, self.backfill, sink)
        windows = {BOTH: self.window} if isinstance(self.window, str) else self.window or {}
        select = tuple(self.select) if isinstance(self.select, list) else self.select
        return EditQuery(name, QueryParts(windows, self.filter or {}, select), self.backfill, sink)


class ColumnOut(BaseModel):
    """A result column."""

    name: str
    type: str


class SideOut(BaseModel):
    """A stream's role in a query: its alias, window and filter."""

    stream: str
    alias: str
    window: str = Field(
        description="How far behind the other stream's row a row of this one may be: a time, a number of "
        "`rows`, or a number of `rows of each key`; `none` in a join without windows, which follows the "
        "order of both streams."
    )
    filter: str | None = Field(description="Condition on this stream alone, as it was understood.")

    @classmethod
    def of(cls, side: Side) -> Self:
        """Build the response model of a side."""
        window = "unbounded" if side.window_us >= UNBOUNDED_US else format_duration(side.window_us)
        if side.clock == "order":
            window = "none"
        elif side.clock != "time":
            rows = f"{side.window_us:,} row{'s' if side.window_us != 1 else ''}"
            window = f"{rows} of each key" if side.clock == "key rows" else rows
        return cls(stream=side.stream, alias=side.alias, window=window, filter=side.filter)


class BoundQuery(BaseModel):
    """A query as the service has understood it."""

    cql: str
    backfill: str
    join: str = Field(
        description="`inner`, `left outer`, `full outer`, `left semi`, `left anti` or the like; left is `a`, "
        "whichever stream the text names first."
    )
    undecided: str | None = Field(
        description="If the query asks for rows without a partner and their window is unbounded: why such a "
        "row is a result only once a punctuation closes its key. Otherwise null."
    )
    a: SideOut
    b: SideOut
    streams: list[SideOut] = Field(
        description="All streams of the query. With more than two, `a` has the streams joined before `b`."
    )
    key: list[tuple[str, str]] = Field(description="Equal columns, as (of a, of b).")
    residual: str | None = Field(description="Condition on both rows in addition to key and windows.")
    columns: list[ColumnOut] = Field(description="Result columns; every result also has `_event_time`.")

    @classmethod
    def of(cls, query: Query) -> Self:
        """Build the response model of a bound query."""
        return cls(**_bound(query))


class QueryOut(BoundQuery):
    """A query with its desired and observed states, each with the time at which it began."""

    id: int = Field(description="Id of the query, never reused. An update and a resume assign a new one.")
    series: int = Field(description="Id that the query had when it was added.")
    revisions: list[int] = Field(
        description="Ids that the query has had since, the present one last; its results are those of all."
    )
    name: str
    desired: Desired
    desired_at: str
    observed: Observed = Field(
        description="As of the last committed batch; `pending` until a new text is in force."
    )
    observed_at: str
    paused_because: str | None = Field(
        description="Why the engine paused it: its condition took too much time or memory. Null if a person "
        "paused it, or if it is not paused."
    )
    plan_version: int = Field(description="Plan version that brings the desired state.")
    complete_from: str | None = Field(
        description="Wall clock from which results are complete, if earlier rows are missing; otherwise null."
    )
    missing_columns: list[str] = Field(
        description="Columns, as `alias.column`, that are missing from the rows held before the activation, "
        "so that these rows take no part. Also empty if no earlier row was to take part."
    )
    decided_until: str | None = Field(
        description="For outer, semi and anti joins, event time up to which it is decided whether rows have "
        "a partner; otherwise null, also if a window is unbounded."
    )
    complete_within: str | None = Field(
        description="If rows were evicted at the `state_cap_mb` of their stream: the distance of event "
        "times up to which later results are complete, the smaller value of both streams. Otherwise null."
    )
    results: int = Field(description="Results so far.")
    warnings: list[str] = Field(
        description="Warnings: rows that are kept forever because a window is unbounded and no contract "
        "closes the key, and contracts of the streams that the query cannot use."
    )
    sink: SinkDocument | None = Field(description="Sink of the results, as requested.")
    sink_observed: SinkProgress | None = Field(
        description="Progress of that sink; null without one. It gets all results from batch `from_batch` on."
    )
    former_sinks: list[SinkProgress] = Field(
        description="Former sinks that have not received all their results yet."
    )

    @classmethod
    def of_status(cls, status: QueryStatus) -> Self:
        """Build the response model of a query's status."""
        sink, over = present_sink(status.sinks), status.observed == "removed"
        return cls(
            **_bound(status.query),
            id=status.query.id,
            series=status.series,
            revisions=list(status.revisions),
            name=status.query.name,
            desired=status.desired,
            desired_at=timestamp(status.desired_at_us),
            observed=status.observed,
            observed_at=timestamp(status.observed_at_us),
            paused_because=status.paused_because,
            plan_version=status.plan_version,
            complete_from=timestamp_or_none(status.complete_from_us),
            missing_columns=list(status.missing_columns),
            decided_until=timestamp_or_none(status.decided_until_us),
            complete_within=None
            if status.complete_within_us is None
            else format_duration(status.complete_within_us),
            results=status.results,
            warnings=list(status.warnings),
            sink=sink_document(None if sink is None else sink.sink),
            sink_observed=None if sink is None else SinkProgress.of(sink, over=over),
            former_sinks=[SinkProgress.of(record, over=over) for record in former_sinks(status.sinks)],
        )


class QueryPage(BaseModel):
    """Some queries, by name."""

    items: list[QueryOut]
    next_cursor: str | None = Field(description="Send as `after` for the next page; null on the last one.")
    has_more: bool


class ResultsOut(BaseModel):
    """Some results of a query, in order."""

    columns: list[ColumnOut]
    rows: list[dict[str, Any]] = Field(
        description="Timestamps are ISO 8601 text with Z and microseconds, dates ISO 8601 text, decimals "
        "text; the numbers that JSON lacks are the texts `NaN`, `Infinity` and `-Infinity`."
    )
    next_cursor: str | None = Field(
        description="Send as `after` for the following results, now or later; null before the first result."
    )
    has_more: bool = Field(description="Whether there are further results already.")
    dropped: int = Field(
        description="Number of results that are no longer kept, if reading starts without `after`; else 0."
    )
    kept_since: str | None = Field(
        description="Wall clock since which results are kept, if `dropped` is not 0; otherwise null."
    )


def result_columns(page: ResultPage) -> list[ColumnOut]:
    """Return the columns of a page, ``_event_time`` last."""
    declared = [ColumnOut(name=column.name, type=column.type) for column in page.columns]
    return [*declared, ColumnOut(name="_event_time", type="timestamp")]


def undecided(query: Query) -> str | None:
    """Return why time alone cannot prove that a row has no partner; None if time can."""
    if query.kind not in ("outer", "anti"):
        return None
    sides = (query.a if side == "a" else query.b for side in query.preserved)
    open_ended = [f'"{side.alias}"' for side in sides if side.window_us >= UNBOUNDED_US]
    if not open_ended:
        return None
    aliases = " or ".join(open_ended)
    return (
        f"a row of {aliases} may find a partner until a punctuation closes its key: its window is unbounded"
    )


def _bound(query: Query) -> dict[str, Any]:
    return {
        "cql": query.cql,
        "backfill": query.backfill,
        "join": join_name(query.kind, query.preserved),
        "undecided": undecided(query),
        "a": SideOut.of(query.a),
        "b": SideOut.of(query.b),
        "streams": [SideOut.of(side) for side in stream_sides(query)],
        "key": list(query.key),
        "residual": query.residual,
        "columns": [ColumnOut(name=output.name, type=output.type) for output in query.outputs],
    }
