"""Changes of queries that a client requests, before they are checked.

A list of changes takes effect as one plan version, or not at all. A list may change each name only once, so
the order of the changes does not matter.

    add      a query with an unused name enters the plan                   a new series
    update   the query leaves, and its new version enters                  the series continues
    edit     like update; parts of the old text are replaced               the series continues
    pause    the query leaves the plan, but keeps its name and text        the series continues
    resume   the paused query enters the plan again                        the series continues
    remove   the query leaves for good, but its results stay readable      the series ends
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from catalog.values.query import Backfill
from catalog.values.sink import SetSink, Sink

#: Name in ``QueryParts.windows`` that means both streams of a query.
BOTH = "*"


@dataclass(frozen=True, slots=True)
class QueryParts:
    """New parts of a query's text; parts that are not given stay unchanged.

    Attributes:
        windows: Window by alias or stream: a length (``30s``, ``5 MINUTES``), ``NOW`` or ``UNBOUNDED``;
            the name ``BOTH`` means both streams.
        filters: Condition on one stream alone, by alias or stream; None removes the filter.
        select: Select list; None leaves it unchanged.
    """

    windows: Mapping[str, str] = field(default_factory=dict)
    filters: Mapping[str, str | None] = field(default_factory=dict)
    select: str | tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class AddQuery:
    """Request to add a query.

    Attributes:
        name: Name of the new query; no running or paused query has this name.
        cql: Text of the query.
        backfill: Whether the query also joins rows that are already in the state.
        sink: Additional destination of the query's results; None if there is none.
    """

    name: str
    cql: str
    backfill: Backfill = "none"
    sink: Sink | None = None


@dataclass(frozen=True, slots=True)
class UpdateQuery:
    """Request to give a query a new text. A paused query stays paused.

    Attributes:
        name: Name of the query.
        cql: The whole new text.
        backfill: Whether the query also joins, under its new text, rows that are already in the state.
        sink: Change of the query's sink, which sets or removes it; None leaves the sink unchanged.
        rebound: Whether the text is bound again even if it is unchanged, because a stream has changed.
    """

    name: str
    cql: str
    backfill: Backfill = "state"
    sink: SetSink | None = None
    rebound: bool = False


@dataclass(frozen=True, slots=True)
class EditQuery:
    """Request to change parts of a query's text, or its sink. A paused query stays paused.

    Attributes:
        name: Name of the query.
        parts: New parts of the text; None if only the sink changes.
        backfill: Whether the query also joins, under its new text, rows that are already in the state.
        sink: Change of the query's sink, which sets or removes it; None leaves the sink unchanged.
    """

    name: str
    parts: QueryParts
    backfill: Backfill = "state"
    sink: SetSink | None = None


@dataclass(frozen=True, slots=True)
class RemoveQuery:
    """Request to remove a running or paused query."""

    name: str


@dataclass(frozen=True, slots=True)
class PauseQuery:
    """Request to take a query out of the plan until it is resumed.

    Attributes:
        name: Name of the query.
        reason: Why the engine pauses the query; None if a person pauses it.
    """

    name: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ResumeQuery:
    """Request to put a paused query into the plan again.

    Attributes:
        name: Name of the query.
        backfill: Whether the query also joins rows that are in the state when it resumes.
    """

    name: str
    backfill: Backfill = "state"


Change = AddQuery | UpdateQuery | EditQuery | RemoveQuery | PauseQuery | ResumeQuery

#: Verb for each type of change.
VERBS: Mapping[type[Change], str] = MappingProxyType(
    {
        AddQuery: "add",
        UpdateQuery: "update",
        EditQuery: "update",
        RemoveQuery: "remove",
        PauseQuery: "pause",
        ResumeQuery: "resume",
    }
)
