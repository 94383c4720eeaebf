"""Sinks: where else the results of a query go, beside the shared store in which they stay readable.

A query has at most one sink at a time. Over the life of its series sinks follow each other at batch
boundaries: the former one gets every batch up to the boundary, the next one every batch from it on.

    batch      0   1   2   3 | 4   5   6 | 7 ...
    sink       files "alerts"| (none)    | webhook
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SinkFormat = Literal["parquet", "ndjson", "csv"]


@dataclass(frozen=True, slots=True)
class FilesSink:
    """One file per batch with results, exactly once.

    Attributes:
        path: Directory, relative to the one that the operator gave for exports.
        format: Format of the files.
    """

    path: str
    format: SinkFormat = "parquet"
    type: Literal["files"] = "files"

    @property
    def place(self) -> str:
        """Destination of results, whatever their format."""
        return f"files {self.path}"


@dataclass(frozen=True, slots=True)
class WebhookSink:
    """One or more requests per batch with results, in order, at least once.

    Attributes:
        url: Where they are posted.
    """

    url: str
    type: Literal["webhook"] = "webhook"

    @property
    def place(self) -> str:
        """Destination of results."""
        return f"webhook {self.url}"


Sink = FilesSink | WebhookSink


@dataclass(frozen=True, slots=True)
class SetSink:
    """The wish that a query has a sink, or none.

    Attributes:
        sink: The sink; None takes it away.
    """

    sink: Sink | None


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """A sink of a series, and how far it is.

    Attributes:
        id: Its id; later sinks have greater ones.
        series: Series whose results it gets.
        query: Name of its query.
        sink: The sink; None where the series has none for a while.
        from_version: Plan version that brings it, where it came together with one; else None.
        from_batch: First batch it gets; None until ``from_version`` is in force.
        until_batch: First batch it does not get any more, since a later one gets it; None if none does.
        next_batch: First batch that has not been delivered.
        next_row: Rows of that batch which have been delivered.
        pending: Batches with results that wait to be delivered.
        rows: Rows delivered.
        batches: Batches delivered.
        failures: Attempts that failed.
        lost: Batches with results that it was to get and never will, since they were given up.
        last_batch: Last batch that was delivered whole, or None.
        error: What the last failed attempt failed with, or None.
        error_at_us: When, µs UTC.
        delivered_at_us: When something was delivered last, µs UTC, or None.
        created_at_us: When it was asked for, µs UTC.
        ended_at_us: When another sink, or none, was asked for in its place, or its query was removed, µs UTC;
            None while neither was.
    """

    id: int
    series: int
    query: str
    sink: Sink | None
    from_version: int | None
    from_batch: int | None
    until_batch: int | None
    next_batch: int
    next_row: int
    pending: int
    rows: int
    batches: int
    failures: int
    lost: int
    last_batch: int | None
    error: str | None
    error_at_us: int | None
    delivered_at_us: int | None
    created_at_us: int
    ended_at_us: int | None

    @property
    def failing(self) -> bool:
        """Tell whether the last attempt failed."""
        return self.error_at_us is not None and self.error_at_us > (self.delivered_at_us or 0)
