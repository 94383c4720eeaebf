"""Sinks: destinations that get the results of a query in addition to the shared result store.

A query has at most one sink at a time. Over the life of a query's series, sinks replace each other at batch
boundaries: the old sink gets every batch before the boundary, the new one every batch from the boundary on.

    batch      0   1   2   3 | 4   5   6 | 7 ...
    sink       files "alerts"| (none)    | webhook
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from catalog.values.stream import EnvSecret, KafkaCluster

#: A sink lags if its oldest results have waited this long, even if it still accepts some results.
LAGGING_AFTER_S = 3600.0

SinkFormat = Literal["parquet", "ndjson", "csv"]


@dataclass(frozen=True, slots=True)
class FilesSink:
    """Files with the results of one or several batches, each result exactly once.

    Attributes:
        path: Directory, relative to the export directory that the operator configured.
        format: Format of the files.
        batches_per_file: Maximum number of batches in one file; batches without results do not count.
        max_delay_us: Longest time that the results of a batch wait for more batches, wall clock µs.
    """

    path: str
    format: SinkFormat = "parquet"
    type: Literal["files"] = "files"
    batches_per_file: int = 1
    max_delay_us: int = 0

    @property
    def place(self) -> str:
        """Destination of results, without their format."""
        return f"files {self.path}"


@dataclass(frozen=True, slots=True)
class WebhookSink:
    """HTTP requests, one or more per batch with results, in order and at least once.

    Attributes:
        url: URL to which the requests are posted.
        secret: Secret that signs the requests (``whsec_`` and base64), never shown; None for requests without
            a signature.
        headers: Additional headers of each request, by name; secret values are in the environment.
    """

    url: str
    type: Literal["webhook"] = "webhook"
    secret: str | None = field(default=None, repr=False)
    headers: tuple[tuple[str, str | EnvSecret], ...] = ()

    @property
    def place(self) -> str:
        """Destination of results."""
        return f"webhook {self.url}"


@dataclass(frozen=True, slots=True)
class TableSink:
    """A table of PostgreSQL that gets each batch in one transaction, exactly once.

    Attributes:
        server: ``host:port``.
        database: Name of the database.
        user: User that writes.
        password: The user's password; None if the server requires none.
        table: Name of the table, preceded by its schema unless that is the user's default.
        key: Columns that identify a row: a result replaces the row with the same values in them. If empty,
            all results are appended.
        tls: Encryption of the connection: ``disable``, ``require``, or ``verify-full``, which also checks the
            certificate.
    """

    server: str
    database: str
    user: str
    password: EnvSecret | None
    table: str
    key: tuple[str, ...] = ()
    tls: Literal["disable", "require", "verify-full"] = "require"
    type: Literal["postgres"] = "postgres"

    @property
    def place(self) -> str:
        """Destination of results, without the key by which rows are replaced."""
        return f"postgres {self.server}/{self.database} {self.table}"


@dataclass(frozen=True, slots=True)
class TopicSink:
    """A topic of Apache Kafka that gets each batch in one transaction, exactly once.

    Attributes:
        cluster: Where the topic is.
        topic: Name of the topic.
        key: Column whose text is the key of messages, so that messages with equal values stay in order; None
            for messages without a key.
    """

    cluster: KafkaCluster
    topic: str
    key: str | None = None
    type: Literal["kafka"] = "kafka"

    @property
    def place(self) -> str:
        """Destination of results."""
        return f"kafka {self.cluster.bootstrap} {self.topic}"


Sink = FilesSink | WebhookSink | TableSink | TopicSink


@dataclass(frozen=True, slots=True)
class SetSink:
    """A request to give a query a sink, or to remove its sink.

    Attributes:
        sink: The sink; None removes it.
    """

    sink: Sink | None


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """A sink of a series and its progress.

    Attributes:
        id: Id of the sink; later sinks have greater ids.
        series: Series whose results the sink gets.
        query: Name of the query whose series this is.
        sink: The sink; None for a period in which the series has none.
        from_version: Plan version with which the sink begins; None if it was set without a plan change.
        from_batch: First batch that the sink gets; None until ``from_version`` is in force.
        until_batch: First batch that the next sink of the series gets instead; None if there is no next sink.
        next_batch: First batch that has not been delivered.
        next_row: Number of rows of ``next_batch`` that have been delivered.
        file_end: Last batch of the file that has been begun and may not be complete yet; None if no file has
            been begun.
        pending: Number of batches with results that wait to be delivered.
        waiting_from: First waiting batch; None if no batch waits.
        waiting_since_us: When the first waiting batch was committed, µs UTC, or None.
        rows: Rows delivered.
        batches: Batches delivered.
        failures: Delivery attempts that failed.
        lost: Number of batches with results that the sink should have got and never will.
        lost_rows: Number of results that the sink should have got and never will.
        lost_batch: Last batch whose results the sink should have got and never will, or None.
        lost_at_us: When the sink last lost results, µs UTC, or None.
        last_batch: Last batch that was delivered whole, or None.
        error: Error of the last failed attempt, or None.
        error_at_us: When the last failed attempt took place, µs UTC, or None.
        delivered_at_us: When something was last delivered, µs UTC, or None.
        created_at_us: When the sink was requested, µs UTC.
        ended_at_us: When the query was removed, or when a client replaced or removed the sink, µs UTC; None
            until then.
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
    file_end: int | None
    pending: int
    waiting_from: int | None
    waiting_since_us: int | None
    rows: int
    batches: int
    failures: int
    lost: int
    lost_rows: int
    lost_batch: int | None
    lost_at_us: int | None
    last_batch: int | None
    error: str | None
    error_at_us: int | None
    delivered_at_us: int | None
    created_at_us: int
    ended_at_us: int | None

    def lag_s(self, now_us: int) -> float:
        """Return how long its oldest undelivered results have waited, seconds; 0 if none wait."""
        return 0.0 if self.waiting_since_us is None else max(0, now_us - self.waiting_since_us) / 1e6

    @property
    def losing(self) -> bool:
        """Return whether the sink has lost results since its last delivery."""
        return self.lost_at_us is not None and self.lost_at_us > (self.delivered_at_us or 0)

    @property
    def failing(self) -> bool:
        """Return whether the last attempt to deliver failed."""
        return self.error_at_us is not None and self.error_at_us > (self.delivered_at_us or 0)
