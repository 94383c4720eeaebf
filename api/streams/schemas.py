"""Streams in requests and answers."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from api.timestamps import timestamp
from catalog.times.durations import format_duration
from catalog.values.stream import (
    AtCap,
    Constraints,
    FilesSource,
    GeneratorSource,
    KafkaSource,
    OnError,
    Source,
    Stream,
    TimeUnit,
)
from service.documents.streams.contract_document import (
    ConstraintsDocument,
    OrderDocument,
    PunctuationsDocument,
    constraints_document,
    order_document,
    punctuations_document,
)
from service.documents.streams.stream_document import StreamDocument, checked_cap_mb, retained_us

_FILES_EXAMPLE: JsonDict = {
    "name": "flights",
    "columns": {"ts": "timestamp", "origin": "string", "carrier": "string", "delay": "double"},
    "event_time": "ts",
    "lateness": "5s",
    "source": {"type": "files", "format": "parquet", "path": "data/flights"},
}
_HTTP_EXAMPLE: JsonDict = {
    "name": "clicks",
    "columns": {"ts": "timestamp", "user": "bigint", "price": "decimal(10,2)"},
    "event_time": "ts",
    "lateness": "10s",
    "source": {"type": "http"},
}
_GENERATOR_EXAMPLE: JsonDict = {
    "name": "load",
    "columns": {"ts": "timestamp", "k": "bigint", "v": "double"},
    "event_time": "ts",
    "source": {
        "type": "generator",
        "rate_per_s": 1000,
        "seed": 7,
        "columns": {"k": {"distribution": "zipf", "cardinality": 10000, "skew": 1.2}},
    },
}
_KAFKA_EXAMPLE: JsonDict = {
    "name": "payments",
    "columns": {"ts": "timestamp", "account": "string", "amount": "decimal(12,2)"},
    "event_time": "ts",
    "lateness": "10s",
    "source": {
        "type": "kafka",
        "bootstrap": "broker-1:9092,broker-2:9092",
        "topic": "payments",
        "on_bad": "dead-letter",
        "key": "account",
        "tls": {},
        "sasl": {
            "mechanism": "SCRAM-SHA-512",
            "username": "sluice",
            "password": {"env": "SLUICE_SECRET_KAFKA"},
        },
    },
}


class StreamIn(StreamDocument):
    """A stream to register."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [_FILES_EXAMPLE, _HTTP_EXAMPLE, _GENERATOR_EXAMPLE, _KAFKA_EXAMPLE]}
    )

    name: str = Field(description="Unique name: a letter, then letters, digits or `_`, at most 63 in all.")
    columns: dict[str, str] = Field(
        min_length=1,
        description="Type of every column, in order: boolean, int, bigint, double, string, date, timestamp "
        "or decimal(p,s). Names do not depend on case.",
    )
    event_time: str = Field(description="Column of type timestamp that holds the event time (UTC).")
    lateness: str | int | float = Field(
        default="0s",
        description="Maximum lag of a row's event time behind the stream's newest event time: `5s`, "
        "`10 min`, or seconds. Rows that lag further are dropped and counted.",
    )
    idle_timeout: str | int | float | None = Field(
        default=None,
        description="Wall-clock time without rows after which the watermark advances by itself.",
    )
    max_ahead: str | int | float | None = Field(
        default=None,
        description="Maximum difference by which the event time of an arriving row may be ahead of the wall "
        "clock: one day by default, null for no limit. Beyond the limit, a posted event is quarantined, and "
        "a row of a file is invalid (`on_error`). A Kafka message is compared with its own timestamp "
        "instead; beyond the limit it is not accepted as an event. There is no limit for old rows.",
    )
    retain: str | int | float | None = Field(
        default=None,
        description="Maximum window of time on this stream: `30d`, or seconds. Longer and unbounded windows "
        "in queries are shortened to it. If omitted, windows have the lengths in the queries.",
    )
    state_cap_mb: int | None = Field(
        default=None,
        description="Maximum size of this stream's rows in the state, in megabytes of 1,000,000 bytes; at "
        "least 1. If omitted, there is no cap.",
    )
    at_cap: AtCap = Field(
        default="stop",
        description="Action if the rows exceed `state_cap_mb`. `stop`: the queries with the longest window "
        "on the stream are paused, and their `paused_because` states the reason. `evict`: the oldest rows "
        "are removed and are in no later result; `complete_within` of a query states up to which distance of "
        "event times its results are complete.",
    )
    time_unit: TimeUnit | None = Field(
        default=None,
        description="Unit of numbers in timestamp columns, counted from 1970-01-01 UTC. If omitted, numbers "
        "in JSON are microseconds, and numbers in CSV and Parquet files are refused. If the event times of a "
        "file or request most likely have another unit, they are refused, and the error names the unit to "
        "declare.",
    )
    on_error: OnError = Field(
        default="set-aside",
        description="Treatment of a file that does not fit the stream. `set-aside`: none of its rows is "
        "read. `skip-rows`: only its invalid rows are skipped, and kept as dead letters; a file that is "
        "unreadable as a whole is still set aside. `stop`: the stream stops before the file, and "
        "other streams go on.",
    )
    punctuations: PunctuationsDocument | None = Field(
        default=None,
        description="Contract about punctuations. Each punctuation promises that no later row has certain "
        "values. Rows of the other stream that can find no more partners then leave the state.",
    )
    constraints: ConstraintsDocument | None = Field(
        default=None, description="Constraints on the stream's rows that imply punctuations."
    )
    order: OrderDocument | None = Field(
        default=None,
        description="Order in which the rows arrive. Streams that are joined by their ordering columns need "
        "no windows.",
    )


class ContractIn(BaseModel):
    """Changes of a stream's contract, order and limits; omitted fields keep their values."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"punctuations": {"on": [["item_id"]], "violation": "drop", "remember": "window"}}]
        },
    )

    punctuations: PunctuationsDocument | None = Field(
        default=None, description="The new contract; null ends it, and its promises are forgotten."
    )
    constraints: ConstraintsDocument | None = Field(
        default=None, description="The new constraints; null removes them."
    )
    order: OrderDocument | None = Field(
        default=None,
        description="The new order; null removes it. While queries use the order for a join, only `scramble` "
        "can change.",
    )
    retain: str | int | float | None = Field(
        default=None,
        description="The new maximum window of time on the stream; null removes the limit. Queries whose "
        "windows change as a result are updated with `backfill: state`, all at the same batch boundary.",
    )
    state_cap_mb: int | None = Field(
        default=None,
        description="The new cap on the stream's rows in the state, in megabytes; null removes the cap.",
    )
    at_cap: AtCap = Field(default="stop", description="Action from now on when the cap is reached.")

    def changed(self, stream: Stream) -> Stream:
        """Return the stream with these changes.

        Raises:
            InvalidStream: The contract does not fit the stream.
        """
        if "punctuations" in self.model_fields_set:
            told = self.punctuations
            promised = (
                None if told is None else told.to_value(stream.name, stream.columns, stream.source.type)
            )
            stream = dataclasses.replace(stream, punctuations=promised)
        if "constraints" in self.model_fields_set:
            rules = self.constraints
            constraints = Constraints() if rules is None else rules.to_value(stream.name, stream.columns)
            stream = dataclasses.replace(stream, constraints=constraints)
        if "order" in self.model_fields_set:
            order = None if self.order is None else self.order.to_value(stream.name, stream.columns)
            stream = dataclasses.replace(stream, order=order)
        if "retain" in self.model_fields_set:
            stream = dataclasses.replace(stream, retain_us=retained_us(self.retain))
        if "state_cap_mb" in self.model_fields_set:
            stream = dataclasses.replace(stream, state_cap_mb=checked_cap_mb(self.state_cap_mb))
        if "at_cap" in self.model_fields_set:
            stream = dataclasses.replace(stream, at_cap=self.at_cap)
        return stream


class StreamOut(BaseModel):
    """A registered stream."""

    id: int = Field(description="Id of the stream, never reused.")
    name: str
    columns: dict[str, str] = Field(description="Type of every column, in order.")
    event_time: str
    lateness: str
    idle_timeout: str | None
    max_ahead: str | None = Field(
        description="Maximum difference by which the event time of an arriving row may be ahead of the wall "
        "clock; null for no limit."
    )
    retain: str | None = Field(
        default=None, description="Maximum window of time on the stream; null if there is no limit."
    )
    state_cap_mb: int | None = Field(
        default=None,
        description="Maximum size of the stream's rows in the state, in megabytes; null for no limit.",
    )
    at_cap: str = Field(default="stop", description="Action when `state_cap_mb` is reached.")
    start: str = Field(description="Where reading begins when a query first uses the stream.")
    time_unit: str | None = Field(
        description="Unit of numbers in timestamp columns, counted from 1970-01-01 UTC; null if omitted."
    )
    on_error: str = Field(description="Treatment of a file that does not fit the stream.")
    source: dict[str, Any] = Field(description="Where rows are read from, as registered.")
    punctuations: dict[str, Any] | None = Field(
        default=None, description="Contract about its punctuations; null for a stream without one."
    )
    constraints: dict[str, Any] | None = Field(
        default=None, description="Constraints on its rows; null for none."
    )
    order: dict[str, Any] | None = Field(
        default=None, description="Order in which its rows arrive; null if it has none."
    )

    @classmethod
    def of(cls, stream: Stream) -> Self:
        """Build the response model of a stream."""
        return cls(
            id=stream.id,
            name=stream.name,
            columns={column.name: column.type for column in stream.columns},
            event_time=stream.event_time,
            lateness=format_duration(stream.lateness_us),
            idle_timeout=None if stream.idle_timeout_us is None else format_duration(stream.idle_timeout_us),
            max_ahead=None if stream.max_ahead_us is None else format_duration(stream.max_ahead_us),
            retain=None if stream.retain_us is None else format_duration(stream.retain_us),
            state_cap_mb=stream.state_cap_mb,
            at_cap=stream.at_cap,
            start=stream.start,
            time_unit=stream.time_unit,
            on_error=stream.on_error,
            source=_source(stream.source),
            punctuations=punctuations_document(stream.punctuations),
            constraints=constraints_document(stream.constraints),
            order=order_document(stream.order),
        )


class StreamRegistered(StreamOut):
    """A stream that has just been registered."""

    warnings: list[str] = Field(
        default_factory=list,
        description="Reason why the stream has no files yet, and entries of its directory that are not read.",
    )


class StreamPage(BaseModel):
    """Some streams, by name."""

    items: list[StreamOut]
    next_cursor: str | None = Field(description="Send as `after` for the next page; null on the last one.")
    has_more: bool


class AppendOut(BaseModel):
    """Events that are durable now."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"accepted": 2, "quarantined": 0, "first_offset": 40, "last_offset": 41}]
        }
    )

    accepted: int = Field(description="Number of accepted events.")
    quarantined: int = Field(
        default=0,
        description="Number of events whose times are further ahead of the clock than the stream's "
        "`max_ahead`. They are quarantined; `GET /streams/{name}/quarantine` shows them.",
    )
    first_offset: int = Field(description="Offset in the stream of the first accepted event.")
    last_offset: int = Field(description="Offset in the stream of the last accepted event.")


class PunctuationsOut(BaseModel):
    """Receipt for durable punctuations."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"accepted": 3, "first_offset": 40, "last_offset": 42}]}
    )

    accepted: int = Field(
        description="Number of value combinations that the punctuations close, that is, promise not to occur "
        "again."
    )
    first_offset: int | None = Field(
        description="Offset in the stream of the first punctuation. It is null if the stream's source is not "
        "`http`; the punctuations then take effect after the rows of the next batch."
    )
    last_offset: int | None = Field(
        description="Offset in the stream of the last punctuation; null if the stream's source is not `http`."
    )


class QuarantineOut(BaseModel):
    """Events that a stream has quarantined because their event times are too far in the future."""

    rows: int = Field(description="Number of all quarantined events.")
    events: list[dict[str, Any]] = Field(description="The newest of these events, newest request first.")
    kept_out_at: list[str] = Field(description="Arrival time of each of these events, in the same order.")
    reason: str = Field(
        default="further ahead of the clock than max_ahead of the stream",
        description="Reason why the events were quarantined.",
    )


class FileOut(BaseModel):
    """A file that was set aside."""

    path: str = Field(description="Path of the file.")
    reason: str | None = Field(description="Reason why the file was set aside.")


class RetryOut(BaseModel):
    """Files that are retried."""

    files: list[FileOut] = Field(description="The files, in the order in which they were listed.")


def _source(source: Source) -> dict[str, Any]:
    """Return a source's document, with its type first and without omitted fields."""
    fields = {name: value for name, value in dataclasses.asdict(source).items() if value is not None}
    document = {"type": fields.pop("type")} | fields
    if isinstance(source, FilesSource):
        plain = dataclasses.asdict(FilesSource(source.format, source.path))
        plain |= plain.pop("dialect")
        options = document | document.pop("dialect")
        given = {name: value for name, value in options.items() if name not in plain or value != plain[name]}
        if "settle_us" in given:
            given["settle"] = given.pop("settle_us") / 1_000_000
        return {"type": source.type, "format": source.format, "path": source.path} | given
    if isinstance(source, KafkaSource):
        cluster = {name: value for name, value in document.pop("cluster").items() if value is not None}
        document.pop("begins")
        if source.registry is not None:
            registry = document["registry"]
            document["registry"] = {name: value for name, value in registry.items() if value is not None}
        return document | cluster | {"headers": dict(source.headers)}
    if isinstance(source, GeneratorSource):
        columns = [dataclasses.asdict(column) for column in source.columns]
        document["columns"] = {column.pop("name"): column for column in columns}
        if source.start_us is not None:
            document["start"] = timestamp(document.pop("start_us"))
    return document
