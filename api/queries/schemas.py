"""Queries as they are written in requests and answers."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from api.moments import moment, moment_or_none
from catalog.values.query import UNBOUNDED_US, Backfill, Query, Side
from service.durations import format_duration
from service.results import ResultPage
from service.workspace import QueryStatus

_CQL_EXAMPLE = (
    "SELECT f.carrier, f.delay, w.gust FROM flights [RANGE 10 MINUTES] f, weather [RANGE 1 HOUR] w "
    "WHERE f.origin = w.origin AND w.gust > 30"
)

_CQL = Field(
    min_length=1, description="A join of two streams with a window each and at least one equal key, in CQL."
)
_BACKFILL: Backfill = Field(
    default="none",
    description="`none`: pairs of rows that both come from the activation on. `state`: also pairs of a "
    "new row with an earlier one that is still held.",
)


class QueryText(BaseModel):
    """The text of a query."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"cql": _CQL_EXAMPLE}]})

    cql: str = _CQL
    backfill: Backfill = _BACKFILL


class QueryIn(BaseModel):
    """A query to add."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"name": "gusty_departures", "cql": _CQL_EXAMPLE}]}
    )

    name: str = Field(description="Unique name: a letter, then letters, digits or `_`, at most 63 in all.")
    cql: str = _CQL
    backfill: Backfill = _BACKFILL


class ColumnOut(BaseModel):
    """A result column."""

    name: str
    type: str


class SideOut(BaseModel):
    """One stream's part in a query."""

    stream: str
    alias: str
    window: str = Field(description="How far behind the other stream's row a row of this one may be.")
    filter: str | None = Field(description="Condition on this stream alone, as it was understood.")

    @classmethod
    def of(cls, side: Side) -> Self:
        """Return a side as it is answered."""
        window = "unbounded" if side.window_us >= UNBOUNDED_US else format_duration(side.window_us)
        return cls(stream=side.stream, alias=side.alias, window=window, filter=side.filter)


class BoundQuery(BaseModel):
    """A query as it was understood."""

    cql: str
    backfill: str
    a: SideOut
    b: SideOut
    key: list[tuple[str, str]] = Field(description="Equal columns, as (of a, of b).")
    residual: str | None = Field(description="Condition on both rows, beside key and windows.")
    columns: list[ColumnOut] = Field(description="Result columns; every result has `_event_time` besides.")

    @classmethod
    def of(cls, query: Query) -> Self:
        """Return a bound query as it is answered."""
        return cls(**_bound(query))


class QueryOut(BoundQuery):
    """A query and what became of it. What is wanted and what is so are apart, each with its time."""

    id: int = Field(description="Never given to another query.")
    name: str
    desired: Literal["running", "removed"]
    desired_at: str
    observed: Literal["pending", "running", "removed"] = Field(description="As of the last committed batch.")
    observed_at: str
    plan_version: int = Field(description="Plan version that brings the desired state.")
    complete_from: str | None = Field(
        description="Wall clock from which results are complete, where earlier rows are missing; else null."
    )
    results: int = Field(description="Results so far.")

    @classmethod
    def of_status(cls, status: QueryStatus) -> Self:
        """Return a query's status as it is answered."""
        return cls(
            **_bound(status.query),
            id=status.query.id,
            name=status.query.name,
            desired=status.desired,
            desired_at=moment(status.desired_at_us),
            observed=status.observed,
            observed_at=moment(status.observed_at_us),
            plan_version=status.plan_version,
            complete_from=moment_or_none(status.complete_from_us),
            results=status.results,
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
        description="Send as `after` for what follows, now or later; null before the first result."
    )
    has_more: bool = Field(description="Whether further results are there already.")


def result_columns(page: ResultPage) -> list[ColumnOut]:
    """Return the columns of a page, ``_event_time`` last."""
    declared = [ColumnOut(name=column.name, type=column.type) for column in page.columns]
    return [*declared, ColumnOut(name="_event_time", type="timestamp")]


def _bound(query: Query) -> dict[str, Any]:
    return {
        "cql": query.cql,
        "backfill": query.backfill,
        "a": SideOut.of(query.a),
        "b": SideOut.of(query.b),
        "key": list(query.key),
        "residual": query.residual,
        "columns": [ColumnOut(name=output.name, type=output.type) for output in query.outputs],
    }
