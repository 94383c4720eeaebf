"""Document of a stream, in a workload file or a request body, and its conversion to a `Stream`.

name: A
columns: {ts: timestamp, k: bigint, v: double}
event_time: ts
lateness: 5s
source: {type: files, format: parquet, path: data/A, max_files_per_batch: 1}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from dataclasses import fields as dataclass_fields
from datetime import UTC, datetime
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from catalog.columns.arrow_types import canonical_type
from catalog.errors import InvalidDuration, InvalidInput
from catalog.times.durations import parse_duration_us
from catalog.values.query import RANK
from catalog.values.stream import (
    NAME_PATTERN,
    SECRET_PATTERN,
    AtCap,
    Column,
    Constraints,
    Dialect,
    EnvSecret,
    FilesSource,
    GeneratedColumn,
    GeneratorSource,
    HttpSource,
    KafkaCluster,
    KafkaMechanism,
    KafkaSasl,
    KafkaSource,
    KafkaTls,
    OnChange,
    OnError,
    Punctuations,
    SchemaRegistry,
    Source,
    Stream,
    TimeUnit,
)
from catalog.wording.mistakes import TextLike
from catalog.wording.wording import nearest_or_known
from service.documents.streams.check_dialect import check_dialect
from service.documents.streams.contract_document import (
    ConstraintsDocument,
    OrderDocument,
    PunctuationsDocument,
)
from service.errors import InvalidName, InvalidStream

#: Default of ``max_ahead``, µs: a day, since errors of clients' clocks and time zones are smaller.
_MAX_AHEAD_US = 86_400 * 1_000_000
#: Pattern of a URL without credentials, because credentials in a URL would be stored and shown.
_REGISTRY_URL = r"https?://[^\s,/@?#:]+(:\d{1,5})?(/[^\s,@?#]*)?"
_REGISTRY_URLS = rf"^{_REGISTRY_URL}(\s*,\s*{_REGISTRY_URL})*$"
_BROKERS = r"^[^\s,/@]+:\d{1,5}(\s*,\s*[^\s,/@]+:\d{1,5})*$"
#: Name of a topic of Apache Kafka.
TopicName = Annotated[
    str,
    TextLike(
        r"^[A-Za-z0-9._-]{1,249}$", "the name of a topic: letters, digits, dots, dashes and underscores"
    ),
]
#: Columns that Sluice adds to rows. ``_event_time`` is not among them, because a stream may read results of
#: Sluice.
RESERVED_COLUMNS = ("_pos", RANK)


class _StreamDocument(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FilesDocument(_StreamDocument):
    """Files: a directory to which whole files are added, a single file, or a glob."""

    type: Literal["files"]
    format: Literal["parquet", "jsonl", "csv"] = "parquet"
    path: str = Field(min_length=1)
    max_files_per_batch: int | None = Field(default=None, ge=1)
    settle: str | int | float = "2s"
    on_change: OnChange = "ignore"
    max_decompressed_mb: int = Field(default=2048, ge=1)
    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    header: bool = True
    null_values: tuple[str, ...] = ("",)
    encoding: str = "utf-8"
    timestamp_format: str | None = None
    date_format: str | None = None
    timezone: str | None = None
    decimal_point: str = "."
    thousands: str | None = None
    skip_rows: int = Field(default=0, ge=0, le=1_000_000)

    def to_source(self) -> FilesSource:
        """Return the source.

        Raises:
            InvalidStream: An option does not fit; the error's ``path`` names it.
        """
        try:
            settle_us = _duration(self.settle, "settle")
        except InvalidStream as error:
            error.path = ("source", *error.path)
            raise
        options = {f.name: getattr(self, f.name) for f in dataclass_fields(Dialect)}
        dialect = Dialect(**options)
        given = sorted(self.model_fields_set & options.keys())
        check_dialect(dialect, self.format, given)
        return FilesSource(
            self.format,
            self.path,
            self.max_files_per_batch,
            dialect=dialect,
            settle_us=settle_us,
            on_change=self.on_change,
            max_decompressed_mb=self.max_decompressed_mb,
        )


class HttpDocument(_StreamDocument):
    """Events posted to ``/streams/{name}/events``."""

    type: Literal["http"]


class SecretDocument(_StreamDocument):
    """A secret, given by the environment variable that holds its value; the value is never stored."""

    env: Annotated[str, TextLike(f"^{SECRET_PATTERN.pattern}$", "a variable such as SLUICE_SECRET_KAFKA")]


class TlsDocument(_StreamDocument):
    """Encryption of connections to brokers; certificates are PEM texts. ``{}`` trusts the system's CAs."""

    ca: str | None = None
    certificate: str | None = None
    key: SecretDocument | None = None


class SaslDocument(_StreamDocument):
    """User and password for the brokers."""

    mechanism: KafkaMechanism
    username: str = Field(min_length=1)
    password: SecretDocument


class ClusterDocument(_StreamDocument):
    """Brokers, and how to connect to them."""

    bootstrap: Annotated[str, TextLike(_BROKERS, "brokers such as kafka-1:9092,kafka-2:9092")]
    tls: TlsDocument | None = None
    sasl: SaslDocument | None = None

    @classmethod
    def of(cls, cluster: KafkaCluster) -> Self:
        """Return the document of brokers."""
        return cls.model_validate(
            {name: value for name, value in asdict(cluster).items() if value is not None}
        )

    def to_cluster(self) -> KafkaCluster:
        """Return the brokers."""
        tls, sasl = self.tls, self.sasl
        return KafkaCluster(
            self.bootstrap,
            None
            if tls is None
            else KafkaTls(tls.ca, tls.certificate, None if tls.key is None else EnvSecret(tls.key.env)),
            None if sasl is None else KafkaSasl(sasl.mechanism, sasl.username, EnvSecret(sasl.password.env)),
        )


class RegistryDocument(_StreamDocument):
    """Registry of the schemas of messages, and its user."""

    url: Annotated[str, TextLike(_REGISTRY_URLS, "a URL such as https://registry:8081, without a user")]
    username: Annotated[str, TextLike(r"^[^:]+$", "a name without a colon")] | None = None
    password: SecretDocument | None = None

    def to_registry(self) -> SchemaRegistry:
        """Return the registry.

        Raises:
            InvalidStream: A password is given without a user.
        """
        if self.password is not None and self.username is None:
            raise InvalidStream(
                "a password of the registry needs a user",
                hint="Give username, too, or leave password out.",
                path=("source", "registry", "password"),
            )
        password = None if self.password is None else EnvSecret(self.password.env)
        return SchemaRegistry(self.url, self.username, password)


class KafkaDocument(ClusterDocument):
    """A topic of Apache Kafka with one event per message."""

    type: Literal["kafka"]
    topic: TopicName
    format: Literal["json", "avro"] = "json"
    on_bad: Literal["reject", "dead-letter"] = "reject"
    key: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    registry: RegistryDocument | None = None


class GeneratedColumnDocument(_StreamDocument):
    """Generator of one column."""

    distribution: Literal["uniform", "normal", "zipf", "choice", "sequence"] = "uniform"
    low: float = 0.0
    high: float = 1.0
    cardinality: int = Field(default=1000, ge=1)
    skew: float = Field(default=1.2, gt=0)
    values: list[str | int | float | bool] = Field(default_factory=list)


class GeneratorDocument(_StreamDocument):
    """Synthetic rows with Poisson arrivals."""

    type: Literal["generator"]
    rate_per_s: float = Field(gt=0)
    seed: int = 0
    rows: int | None = Field(default=None, ge=0)
    start: datetime | None = None
    columns: dict[str, GeneratedColumnDocument] = Field(default_factory=dict)


SourceDocument = Annotated[
    FilesDocument | HttpDocument | GeneratorDocument | KafkaDocument, Field(discriminator="type")
]
#: Values of ``type`` in the documents of sources.
SOURCE_TYPES = ("files", "http", "generator", "kafka")


class StreamDocument(_StreamDocument):
    """A stream as it is written in YAML or JSON; durations are text (``5s``) or seconds."""

    name: str
    columns: dict[str, str] = Field(min_length=1)
    event_time: str
    lateness: str | int | float = "0s"
    source: SourceDocument
    idle_timeout: str | int | float | None = None
    start: Literal["earliest", "latest"] = "earliest"
    max_ahead: str | int | float | None = None
    time_unit: TimeUnit | None = None
    on_error: OnError = "set-aside"
    punctuations: PunctuationsDocument | None = None
    constraints: ConstraintsDocument | None = None
    order: OrderDocument | None = None
    retain: str | int | float | None = None
    state_cap_mb: int | None = None
    at_cap: AtCap = "stop"

    def to_stream(self) -> Stream:
        """Return the stream, without an id; paths stay as they are written.

        Raises:
            InvalidName: The name does not fit the pattern.
            InvalidStream: A column, the event time or a duration does not fit; the error's ``path`` names it.
        """
        check_name("stream", self.name, ("name",))
        columns = self._columns()
        return Stream(
            id=0,
            name=self.name,
            columns=columns,
            event_time=self._event_time(columns),
            lateness_us=_duration(self.lateness, "lateness"),
            source=self._source(columns),
            idle_timeout_us=None
            if self.idle_timeout is None
            else _duration(self.idle_timeout, "idle_timeout"),
            start=self.start,
            max_ahead_us=self._max_ahead(),
            time_unit=self.time_unit,
            on_error=self._on_error(),
            punctuations=self._punctuations(columns),
            constraints=Constraints()
            if self.constraints is None
            else self.constraints.to_value(self.name, columns),
            order=None if self.order is None else self.order.to_value(self.name, columns),
            retain_us=retained_us(self.retain),
            state_cap_mb=self._state_cap_mb(),
            at_cap=self.at_cap,
        )

    def _state_cap_mb(self) -> int | None:
        if self.state_cap_mb is None and "at_cap" in self.model_fields_set:
            raise InvalidStream(
                "at_cap says what happens at a cap, but state_cap_mb is missing",
                hint="Give state_cap_mb, too.",
                path=("at_cap",),
            )
        return checked_cap_mb(self.state_cap_mb)

    def _on_error(self) -> OnError:
        if "on_error" in self.model_fields_set and not isinstance(self.source, FilesDocument):
            raise InvalidStream(
                f'on_error is for files, but stream "{self.name}" has a source of type {self.source.type}',
                hint="Leave it out; for Kafka topics use on_bad of the source.",
                path=("on_error",),
            )
        return self.on_error

    def _punctuations(self, columns: tuple[Column, ...]) -> Punctuations | None:
        if self.punctuations is None:
            return None
        return self.punctuations.to_value(self.name, columns, self.source.type)

    def _max_ahead(self) -> int | None:
        """Return ``max_ahead``, µs; if left out, a day for rows from outside and None for generated rows."""
        is_outside = not isinstance(self.source, GeneratorDocument)
        if self.max_ahead is None:
            return _MAX_AHEAD_US if is_outside and "max_ahead" not in self.model_fields_set else None
        if not is_outside:
            raise InvalidStream(
                "max_ahead is for rows that come from outside",
                hint="Leave it out: a generator keeps in step with the clock.",
                path=("max_ahead",),
            )
        return _duration(self.max_ahead, "max_ahead")

    def _columns(self) -> tuple[Column, ...]:
        columns: dict[str, Column] = {}
        for name, text in self.columns.items():
            path = ("columns", name)
            if not name or name.lower() in RESERVED_COLUMNS:
                hint = "Rename the column." if name else "Give the column a name."
                raise InvalidStream(f'column name "{name}" is reserved', hint=hint, path=path)
            if not name.isprintable():
                raise InvalidStream(
                    f"column name {name!a} contains a character that cannot be printed",
                    hint="Use letters, digits, spaces and punctuation.",
                    path=path,
                )
            if name.lower() in columns:
                raise InvalidStream(
                    f'column "{name}" is declared twice in stream "{self.name}"',
                    detail="Column names do not depend on case.",
                    path=path,
                )
            try:
                columns[name.lower()] = Column(name, canonical_type(text))
            except InvalidInput as error:
                raise InvalidStream(error.primary, detail=error.detail, hint=error.hint, path=path) from error
        return tuple(columns.values())

    def _event_time(self, columns: tuple[Column, ...]) -> str:
        column = next((c for c in columns if c.name.lower() == self.event_time.lower()), None)
        if column is None:
            raise InvalidStream(
                f'event time "{self.event_time}" is not a column of stream "{self.name}"',
                hint=nearest_or_known(self.event_time, [c.name for c in columns]),
                path=("event_time",),
            )
        if column.type != "timestamp":
            raise InvalidStream(
                f'event time "{column.name}" of stream "{self.name}" has type {column.type}',
                hint="Declare the column as timestamp.",
                path=("event_time",),
            )
        return column.name

    def _source(self, columns: tuple[Column, ...]) -> Source:
        source = self.source
        if isinstance(source, FilesDocument):
            return source.to_source()
        if isinstance(source, HttpDocument):
            return HttpSource()
        names = {c.name.lower(): c.name for c in columns}
        if isinstance(source, KafkaDocument):
            return self._topic(source, names)
        for name in source.columns:
            if name.lower() not in names:
                raise InvalidStream(
                    f'generated column "{name}" is not a column of stream "{self.name}"',
                    hint=nearest_or_known(name, list(names.values())),
                    path=("source", "columns", name),
                )
        return GeneratorSource(
            rate_per_s=source.rate_per_s,
            seed=source.seed,
            columns=tuple(
                GeneratedColumn(
                    names[name.lower()],
                    spec.distribution,
                    low=spec.low,
                    high=spec.high,
                    cardinality=spec.cardinality,
                    skew=spec.skew,
                    values=tuple(_text(value) for value in spec.values),
                )
                for name, spec in source.columns.items()
            ),
            rows=source.rows,
            start_us=None if source.start is None else _micros(source.start),
        )

    def _topic(self, source: KafkaDocument, names: Mapping[str, str]) -> KafkaSource:
        headers = [(name, ("source", "headers", name)) for name in source.headers]
        for name, path in headers if source.key is None else [(source.key, ("source", "key")), *headers]:
            if name.lower() not in names:
                raise InvalidStream(
                    f'"{name}" is not a column of stream "{self.name}"',
                    hint=nearest_or_known(name, list(names.values())),
                    path=path,
                )
        return KafkaSource(
            source.to_cluster(),
            source.topic,
            source.format,
            source.on_bad,
            None if source.key is None else names[source.key.lower()],
            tuple((names[name.lower()], header) for name, header in source.headers.items()),
            registry=self._registry(source),
        )

    def _registry(self, source: KafkaDocument) -> SchemaRegistry | None:
        if (source.format == "avro") == (source.registry is not None):
            return None if source.registry is None else source.registry.to_registry()
        if source.registry is None:
            raise InvalidStream(
                f'messages of stream "{self.name}" are in Avro, but no registry has their schemas',
                hint='Give registry, such as {url: "http://registry:8081"}.',
                path=("source", "format"),
            )
        raise InvalidStream(
            f'messages of stream "{self.name}" are in JSON, which needs no registry',
            hint="Write format: avro, or leave registry out.",
            path=("source", "registry"),
        )


def check_name(kind: str, name: str, path: tuple[str | int, ...] = ()) -> None:
    """Refuse a name that is not valid in CQL, URLs and directories alike.

    Raises:
        InvalidName: The name does not match ``[A-Za-z][A-Za-z0-9_]{0,62}``.
    """
    if NAME_PATTERN.fullmatch(name) is None:
        raise InvalidName(
            f'{kind} name "{name}" is not allowed',
            hint="Use a letter, then letters, digits or _; at most 63 characters in all.",
            path=path,
        )


def retained_us(retain: str | int | float | None) -> int | None:
    """Return the longest allowed time window on a stream, µs, or None for no limit.

    Raises:
        InvalidStream: The value is not a length of time, or is zero.
    """
    length_us = None if retain is None else _duration(retain, "retain")
    if length_us == 0:
        raise InvalidStream(
            "a stream that retains its rows for 0 seconds cannot be joined",
            hint='Write a length of time such as "30d", or leave it out.',
            path=("retain",),
        )
    return length_us


def checked_cap_mb(cap_mb: int | None) -> int | None:
    """Check and return the megabytes that a stream's rows may take in the state, or None for no cap.

    Raises:
        InvalidStream: The cap is below one megabyte.
    """
    if cap_mb is not None and cap_mb < 1:
        raise InvalidStream(
            f"state_cap_mb is {cap_mb}, but must be at least 1",
            detail="Less than a megabyte holds too few rows to join anything.",
            hint="Write at least 1, in megabytes, or leave it out for no cap.",
            path=("state_cap_mb",),
        )
    return cap_mb


def _duration(text: str | int | float, key: str) -> int:
    try:
        return parse_duration_us(text)
    except InvalidDuration as error:
        raise InvalidStream(
            f"{key}: {error.primary}", detail=error.detail, hint=error.hint, path=(key,)
        ) from error


def _text(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _micros(moment: datetime) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    delta = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
