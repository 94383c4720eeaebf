"""Sinks: where else the results of a query go, beside the shared store in which they stay readable.

A query has at most one sink at a time. Over the life of its series sinks follow each other at batch
boundaries: the former one gets every batch up to the boundary, the next one every batch from it on.

    batch      0   1   2   3 | 4   5   6 | 7 ...
    sink       files "alerts"| (none)    | webhook
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from catalog.values.stream import EnvSecret, KafkaCluster

#: A sink whose oldest results have waited for so long lags, though it may take some now and then.
LAGGING_AFTER_S = 3600.0

SinkFormat = Literal["parquet", "ndjson", "csv"]


@dataclass(frozen=True, slots=True)
class FilesSink:
    """Files with the results of one batch or of several, each exactly once.

    Attributes:
        path: Directory, relative to the one that the operator gave for exports.
        format: Format of the files.
        batches_per_file: Batches with results that a file has at most.
        max_delay_us: How long the results of a batch may wait for those of more batches, wall clock µs.
    """

    path: str
    format: SinkFormat = "parquet"
    type: Literal["files"] = "files"
    batches_per_file: int = 1
    max_delay_us: int = 0

    @property
    def place(self) -> str:
        """Destination of results, whatever their format."""
        return f"files {self.path}"


@dataclass(frozen=True, slots=True)
class WebhookSink:
    """One or more requests per batch with results, in order, at least once.

    Attributes:
        url: Where they are posted.
        secret: Secret that requests are signed with (``whsec_`` and base64), never shown; None: not signed.
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
        password: The user's password; None where the server asks for none.
        table: Name of the table, with its schema in front where that is not the user's own.
        key: Columns by which a result replaces the row that has the same values; empty appends all.
        tls: How the connection is encrypted: ``require``, with the certificate checked by ``verify-full``.
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
        """Destination of results, whatever their form."""
        return f"postgres {self.server}/{self.database} {self.table}"


@dataclass(frozen=True, slots=True)
class TopicSink:
    """A topic of Apache Kafka that gets each batch in one transaction, exactly once.

    Attributes:
        cluster: Where the topic is.
        topic: Name of the topic.
        key: Column whose text is the key of messages, so that equal values stay in order; None for no key.
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
        file_end: Last batch of the file that was begun and is not known to be there, or None.
        pending: Batches with results that wait to be delivered.
        waiting_from: First of them; None if there is none.
        waiting_since_us: When it was committed, µs UTC, or None.
        rows: Rows delivered.
        batches: Batches delivered.
        failures: Attempts that failed.
        lost: Batches with results that it was to get and never will.
        lost_rows: Results that it was to get and never will.
        lost_batch: Last of these batches, or None.
        lost_at_us: When it lost some last, µs UTC, or None.
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
        """Return for how long the oldest of its results have waited, seconds; 0 if none wait."""
        return 0.0 if self.waiting_since_us is None else max(0, now_us - self.waiting_since_us) / 1e6

    @property
    def losing(self) -> bool:
        """Return whether it has lost results since it took something last."""
        return self.lost_at_us is not None and self.lost_at_us > (self.delivered_at_us or 0)

    @property
    def failing(self) -> bool:
        """Return whether the last attempt failed."""
        return self.error_at_us is not None and self.error_at_us > (self.delivered_at_us or 0)
