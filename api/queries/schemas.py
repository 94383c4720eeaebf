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
from catalog.steps import stream_sides
from catalog.times.durations import format_duration
from catalog.values.change import BOTH, AddQuery, EditQuery, QueryParts, UpdateQuery
from catalog.values.query import UNBOUNDED_US, Backfill, Query, Side, join_name
from catalog.values.sink import SetSink
from service.results.pages.page import ResultPage
from service.statistics.queries.query_status import Desired, Observed, QueryStatus

_CQL_EXAMPLE = (
    "SELECT f.carrier, f.delay, w.gust FROM flights [RANGE 10 MINUTES] f, weather [RANGE 1 HOUR] w "
    "WHERE f.origin = w.origin AND w.gust > 30"
)

_CQL = Field(min_length=1, description="A query in CQL: a join of two to eight streams, each with a window.")
_BACKFILL: Backfill = Field(
    default="none",
    description="`none`: only pairs of two rows that both arrive after the activation. `state`: also pairs "
    "of a new row with an earlier row that is still in the state.",
)
_SINK = Field(
    default=None, description="Sink of the results; null for none. The service keeps the results in any case."
)


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
        description="Window of both streams, or windows by alias or stream name: a length such as `30s` or "
        "`5 MINUTES`, `NOW` or `UNBOUNDED`.",
    )
    filter: dict[str, str | None] | None = Field(
        default=None,
        description="Filter condition per stream, by the stream's alias or name. A condition uses only "
        "columns of its own stream. null removes the filter.",
    )
    select: str | list[str] | None = Field(default=None, description="Select list.")
    backfill: Backfill = Field(
        default="state",
        description="Whether rows that are in the state at the change take part, as for a new query.",
    )

    sink: SinkDocument | None = Field(
        default=None,
        description="New sink of the results, which starts at a batch boundary. null removes the sink; if "
        "the field is missing, the sink stays. The former sink receives all results before that boundary.",
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
        description="Maximum distance of a row of this stream behind the other stream's row: a time, a "
        "number of `rows`, or a number of `rows of each key`. `none` in a join without windows, which "
        "follows the order of both streams."
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
        description="Type of join: `inner`, `left outer`, `full outer`, `left semi`, `left anti` or similar. "
        "Left means `a`, whichever stream the text names first."
    )
    undecided: str | None = Field(
        description="Explains why a row without a partner becomes a result only when a punctuation closes "
        "its key. Null unless the query asks for such rows and their window is unbounded."
    )
    a: SideOut
    b: SideOut
    streams: list[SideOut] = Field(
        description="All streams of the query. If there are more than two, `a` is the join of the streams "
        "before `b`."
    )
    key: list[tuple[str, str]] = Field(
        description="Pairs of columns that must be equal, as (column of a, column of b)."
    )
    residual: str | None = Field(description="Condition on both rows in addition to key and windows.")
    columns: list[ColumnOut] = Field(description="Result columns; every result also has `_event_time`.")

    @classmethod
    def of(cls, query: Query) -> Self:
        """Build the response model of a bound query."""
        return cls(**_bound(query))


class QueryOut(BoundQuery):
    """A query with its desired and observed states, each with the time at which it began."""

    id: int = Field(
        description="Id of the query; ids are never reused. Each update or resumption assigns a new id."
    )
    series: int = Field(description="Id that the query had when it was added.")
    revisions: list[int] = Field(
        description="All ids that the query has had, the present one last; its results are the results of "
        "all these ids."
    )
    name: str
    desired: Desired
    desired_at: str
    observed: Observed = Field(
        description="State as of the last committed batch; `pending` until the new text is in force."
    )
    observed_at: str
    paused_because: str | None = Field(
        description="Reason why the engine paused the query: its condition took too much time or memory, or "
        "a stream's rows exceeded `state_cap_mb`. Null if a user paused the query, or if it is not paused."
    )
    plan_version: int = Field(description="Plan version in which the desired state takes effect.")
    complete_from: str | None = Field(
        description="Wall-clock time since which results are complete, if earlier rows are missing; "
        "otherwise null."
    )
    missing_columns: list[str] = Field(
        description="Columns, as `alias.column`, that rows stored before the activation lack; these rows "
        "therefore take no part. Empty if no column is missing, or if no earlier rows were to take part."
    )
    decided_until: str | None = Field(
        description="For outer, semi and anti joins: event time up to which it is decided which rows have a "
        "partner. Otherwise null; also null if a window is unbounded."
    )
    complete_within: str | None = Field(
        description="If rows were evicted because their stream reached `state_cap_mb`: later results are "
        "complete for pairs whose event times are at most this far apart (the smaller value of the two "
        "streams). Otherwise null."
    )
    results: int = Field(description="Results so far.")
    warnings: list[str] = Field(
        description="Warnings about rows that are kept forever, because a window is unbounded and no "
        "contract closes the key, and about contracts of the streams that the query cannot use."
    )
    sink: SinkDocument | None = Field(description="Sink of the results, as requested.")
    sink_observed: SinkProgress | None = Field(
        description="Progress of this sink; null if there is none. The sink receives all results from batch "
        "`from_batch` on."
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
        description="Timestamps are ISO 8601 strings with Z and microseconds, dates are ISO 8601 strings, "
        "and decimals are strings. Numbers that JSON cannot represent are the strings `NaN`, `Infinity` and "
        "`-Infinity`."
    )
    next_cursor: str | None = Field(
        description="Cursor to send as `after` for the results that follow, now or later; null before the "
        "first result."
    )
    has_more: bool = Field(description="Whether there are further results already.")
    dropped: int = Field(
        description="Number of results that are no longer kept if reading starts without `after`; else 0."
    )
    kept_since: str | None = Field(
        description="Wall-clock time since which results are kept, if `dropped` is not 0; otherwise null."
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
