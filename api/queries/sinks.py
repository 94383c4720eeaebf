"""Sinks of queries in requests and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
)
from pydantic.config import JsonDict

from api.timestamps import timestamp, timestamp_or_none
from catalog.errors import InvalidDuration
from catalog.times.clock import wall_clock_us
from catalog.times.durations import format_duration, parse_duration_us
from catalog.values.sink import (
    LAGGING_AFTER_S,
    FilesSink,
    Sink,
    SinkFormat,
    SinkRecord,
    TableSink,
    TopicSink,
    WebhookSink,
)
from catalog.values.stream import EnvSecret
from catalog.wording.mistakes import TextLike
from service.documents.streams.stream_document import ClusterDocument, SecretDocument, TopicName

#: Name of a PostgreSQL table, with or without a schema.
_TABLE = r"^[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?$"

FILES_EXAMPLE: JsonDict = {"type": "files", "path": "alerts", "format": "ndjson"}
WEBHOOK_EXAMPLE: JsonDict = {"type": "webhook", "url": "https://example.org/hooks/alerts"}
TABLE_EXAMPLE: JsonDict = {
    "type": "postgres",
    "server": "db.internal:5432",
    "database": "alerts",
    "user": "sluice",
    "password": {"env": "SLUICE_SECRET_ALERTS"},
    "table": "gusts",
    "key": ["flight"],
}
TOPIC_EXAMPLE: JsonDict = {
    "type": "kafka",
    "bootstrap": "broker-1:9092",
    "topic": "gusts",
    "key": "flight",
    "tls": {},
}


class FilesSinkDocument(BaseModel):
    """Files with the results of one or several batches; each result is written exactly once.

    A file is called `batch-000000042-q17.ndjson`. If `batches_per_file` is more than 1, the name contains the
    first and the last batch: `batch-000000042-000000057-q17.ndjson`. If the sink has lost results,
    `_lost-q17.json` has their number.
    """

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [FILES_EXAMPLE]})

    type: Literal["files"]
    path: str = Field(
        min_length=1,
        description="Directory, relative to the service's export directory (`SLUICE_EXPORT_DIR`): names of "
        "letters, digits, `_`, `.`, `=` and `-`, separated by `/`. No other running or paused query may use "
        "the same directory.",
    )
    format: SinkFormat = "parquet"
    batches_per_file: int = Field(
        default=1,
        ge=1,
        le=1000,
        exclude_if=lambda value: value == 1,
        description="Maximum number of batches with results in one file. If it is above 1, waiting batches "
        "are written to one file. A new text of the query starts a new file. Answers omit the value 1.",
    )
    max_delay: str | int | float = Field(
        default="0s",
        exclude_if=lambda value: value == "0s",
        description="How long results of a batch may wait until more batches fill the file: `10s`, or a "
        "number of seconds, at most an hour. With `0s` (omitted in answers), a file contains only the "
        "batches that are waiting when it is started.",
    )

    @field_validator("max_delay")
    @classmethod
    def _is_duration(cls, value: str | int | float) -> str:
        try:
            return format_duration(parse_duration_us(value))
        except InvalidDuration as error:
            raise ValueError('Write a length of time such as "10s"') from error


def _header_value(
    value: object, check: ValidatorFunctionWrapHandler
) -> Any:  # Any: a value of the union, which pydantic checks
    """Check a header's value; report one error instead of one per member of the union type."""
    try:
        return check(value)
    except ValidationError as error:
        raise ValueError('Write text, or {"env": "SLUICE_SECRET_..."} for a secret') from error


class WebhookSinkDocument(BaseModel):
    """HTTP requests, each with the results of one batch as NDJSON, sent in order and at least once.

    The header `Sluice-Batch` has the number of the batch, and `Sluice-Cursor` the cursor after its last row.
    `Idempotency-Key` is the same whenever the same rows are sent again. If the sink has lost results,
    `Sluice-Lost-Rows` has their number so far. Any 2xx status means that the request was accepted. If the
    sink has a secret, its requests are signed according to standardwebhooks.com: `webhook-id`,
    `webhook-timestamp` and `webhook-signature`.
    """

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [WEBHOOK_EXAMPLE]})

    type: Literal["webhook"]
    url: str = Field(
        min_length=1,
        description="URL to which results are posted, http or https. Addresses of the service's machine and "
        "of private networks are refused, except those in `SLUICE_WEBHOOK_HOSTS`.",
    )
    secret: str | None = Field(
        default=None,
        exclude=True,
        json_schema_extra={"writeOnly": True},
        description="Secret with which requests are signed: `whsec_` followed by 24 to 64 bytes in base64. "
        "Answers never contain it. If a sink is set again with the same URL and without a secret, its secret "
        "is kept.",
    )
    headers: dict[str, Annotated[str | SecretDocument, WrapValidator(_header_value)]] = Field(
        default_factory=dict,
        exclude_if=lambda value: not value,
        description="Additional headers of each request, at most 20. A secret is given as the name of one of "
        "the service's environment variables, "
        '`{"Authorization": {"env": "SLUICE_SECRET_HOOK"}}`; the '
        "variable contains the whole header value. The operator lists the hosts that may receive it in "
        "`SLUICE_SECRET_HOOK_HOSTS`.",
    )


class TableSinkDocument(BaseModel):
    """A PostgreSQL table to which each batch is written in one transaction, exactly once.

    The table `sluice_delivered` in the same database records the last batch of each sink. A batch that is
    repeated after a crash is therefore recognized. Both tables are created if they do not exist.
    """

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [TABLE_EXAMPLE]})

    type: Literal["postgres"]
    server: Annotated[str, TextLike(r"^[^\s,/@]+:\d{1,5}$", "host:port, such as db.internal:5432")] = Field(
        description="`host:port`; the operator must list it in `SLUICE_SERVERS`.",
    )
    database: str = Field(min_length=1, max_length=63)
    user: str = Field(min_length=1, max_length=63)
    password: SecretDocument | None = Field(
        default=None, description="Variable that contains the password; omitted if the server requires none."
    )
    table: Annotated[str, TextLike(_TABLE, "a table such as alerts or public.alerts")] = Field(
        description="Name of the table, optionally preceded by its schema and a `.`.",
    )
    key: list[str] = Field(
        default_factory=list,
        description="Columns that identify a row of the table: a result replaces the row with the same "
        "values. They are never NULL, and the table needs a unique index on them. If the list is empty, all "
        "results are appended.",
    )
    tls: Literal["disable", "require", "verify-full"] = "require"


class TopicSinkDocument(ClusterDocument):
    """A Kafka topic that gets each batch in one transaction, exactly once; one message per result."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [TOPIC_EXAMPLE]})

    type: Literal["kafka"]
    topic: TopicName
    key: str | None = Field(
        default=None, description="Column of the results whose text is the key of messages; null for no key."
    )


AnySinkDocument = FilesSinkDocument | WebhookSinkDocument | TableSinkDocument | TopicSinkDocument
SinkDocument = Annotated[AnySinkDocument, Field(discriminator="type")]


def to_sink(document: AnySinkDocument | None) -> Sink | None:
    """Convert the sink in a request; whether the sink can be used is checked in a later step."""
    match document:
        case FilesSinkDocument():
            return FilesSink(
                document.path,
                document.format,
                batches_per_file=document.batches_per_file,
                max_delay_us=parse_duration_us(document.max_delay),
            )
        case WebhookSinkDocument():
            headers = tuple(
                (name, value if isinstance(value, str) else EnvSecret(value.env))
                for name, value in document.headers.items()
            )
            return WebhookSink(document.url, secret=document.secret, headers=headers)
        case TableSinkDocument():
            return TableSink(
                document.server,
                document.database,
                document.user,
                None if document.password is None else EnvSecret(document.password.env),
                document.table,
                tuple(document.key),
                document.tls,
            )
        case TopicSinkDocument():
            return TopicSink(document.to_cluster(), document.topic, document.key)
        case None:
            return None


def sink_document(sink: Sink | None) -> AnySinkDocument | None:
    """Build the response model of a sink."""
    match sink:
        case FilesSink():
            return FilesSinkDocument(
                type="files",
                path=sink.path,
                format=sink.format,
                batches_per_file=sink.batches_per_file,
                max_delay=format_duration(sink.max_delay_us),
            )
        case WebhookSink():
            headers = {
                name: value if isinstance(value, str) else SecretDocument(env=value.env)
                for name, value in sink.headers
            }
            return WebhookSinkDocument(type="webhook", url=sink.url, headers=headers)
        case TableSink():
            return TableSinkDocument(
                type="postgres",
                server=sink.server,
                database=sink.database,
                user=sink.user,
                password=None if sink.password is None else SecretDocument(env=sink.password.env),
                table=sink.table,
                key=list(sink.key),
                tls=sink.tls,
            )
        case TopicSink():
            cluster = ClusterDocument.of(sink.cluster).model_dump()
            return TopicSinkDocument(type="kafka", topic=sink.topic, key=sink.key, **cluster)
        case None:
            return None


SinkState = Literal["pending", "current", "behind", "lagging", "failing", "lost", "ended"]


class SinkProgress(BaseModel):
    """Progress of a sink."""

    sink: SinkDocument
    state: SinkState = Field(
        description="`pending`: the plan version with which it was set is not in force yet. `current`: it "
        "has received everything. `behind`: batches wait. `lagging`: a batch has waited for more than an "
        "hour. `failing`: the last attempt failed. `lost`: it has lost results since its last delivery. "
        "`ended`: it has received everything and gets no more."
    )
    observed_at: str = Field(
        description="Time when it was last set, received results, failed or lost results."
    )
    from_batch: int | None = Field(
        description="First batch whose results the sink receives; null while unknown (`pending`)."
    )
    until_batch: int | None = Field(
        description="First batch that a later sink receives instead; null if there is no later sink."
    )
    last_batch: int | None = Field(description="Last batch with results that it has received.")
    lag_batches: int = Field(description="Number of batches with results that wait to be delivered.")
    waiting_since: str | None = Field(
        description="Commit time of the first waiting batch; null if none waits."
    )
    lost_batches: int = Field(
        description="Number of batches with results that the sink will never receive, because it did not "
        "accept them within `sink_retention`, before they filled `sink_retention_mb`, or within a day after "
        "its end."
    )
    lost_rows: int = Field(description="Number of results in these batches that the sink had not accepted.")
    last_lost_batch: int | None = Field(description="Last of these batches.")
    lost_at: str | None = Field(description="Time of the last loss.")
    batches: int = Field(description="Number of batches delivered.")
    rows: int = Field(description="Number of results delivered.")
    delivered_at: str | None = Field(description="Time of the last delivery.")
    failures: int = Field(description="Number of failed attempts.")
    error: str | None = Field(description="Error of the last failed attempt.")
    error_at: str | None

    @classmethod
    def of(cls, record: SinkRecord, *, over: bool) -> Self:
        """Return the progress of a sink.

        Args:
            record: The record; its sink is not None.
            over: Whether its query was removed and no batch will add results.
        """
        document = sink_document(record.sink)
        assert document is not None, "a series without a sink has no progress"
        times = (record.delivered_at_us, record.error_at_us, record.lost_at_us)
        last = max(record.created_at_us, *(at_us or 0 for at_us in times))
        return cls(
            sink=document,
            state=_state(record, over or record.until_batch is not None),
            observed_at=timestamp(last),
            from_batch=record.from_batch,
            until_batch=record.until_batch,
            last_batch=record.last_batch,
            lag_batches=record.pending,
            waiting_since=timestamp_or_none(record.waiting_since_us),
            lost_batches=record.lost,
            lost_rows=record.lost_rows,
            last_lost_batch=record.lost_batch,
            lost_at=timestamp_or_none(record.lost_at_us),
            batches=record.batches,
            rows=record.rows,
            delivered_at=timestamp_or_none(record.delivered_at_us),
            failures=record.failures,
            error=record.error,
            error_at=timestamp_or_none(record.error_at_us),
        )


def present_sink(records: Sequence[SinkRecord]) -> SinkRecord | None:
    """Return the current sink of a series; None if there is none."""
    return records[-1] if records and records[-1].sink is not None else None


def former_sinks(records: Sequence[SinkRecord]) -> list[SinkRecord]:
    """Return the replaced or removed sinks of a series that have not received all their results yet."""
    return [
        record
        for record in records[:-1]
        if record.sink is not None and (record.until_batch is None or record.pending)
    ]


def _state(record: SinkRecord, over: bool) -> SinkState:
    if record.from_batch is None:
        return "pending"
    if over and not record.pending:
        return "ended"
    if record.losing:
        return "lost"
    if not record.pending:
        return "current"
    if record.failing:
        return "failing"
    return "lagging" if record.lag_s(wall_clock_us()) > LAGGING_AFTER_S else "behind"
