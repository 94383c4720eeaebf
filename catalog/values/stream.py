"""Streams: their columns, event time, sources and contracts.

A stream's event time is one of its columns, and inside Sluice it is int64 microseconds UTC. Its watermark is
``max(event time seen) - lateness`` (docs/semantics.md), so a stream must declare how far out of order
its rows arrive.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import urlsplit

NAME_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")

#: Names that environment variables of secrets must have. Without this limit, a client could make the
#: service send any variable to the client's host.
SECRET_PATTERN: Final = re.compile(r"SLUICE_SECRET_[A-Z0-9_]{1,64}")

KafkaMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

#: Units of numbers in timestamp columns, which count from 1970 UTC.
TimeUnit = Literal["s", "ms", "us", "ns"]

#: Treatment of a file that cannot be read as rows of its stream.
OnError = Literal["set-aside", "skip-rows", "stop"]

#: Bytes of a megabyte, as caps on the state count them.
MEGABYTE: Final = 1_000_000

#: Treatment of a stream whose rows have filled its share of the state.
AtCap = Literal["stop", "evict"]

#: Canonical column types; in addition there is ``decimal(p,s)`` with 1 <= p <= 38.
SIMPLE_TYPES = ("boolean", "int", "bigint", "double", "string", "date", "timestamp")


@dataclass(frozen=True, slots=True)
class Column:
    """One typed column of a stream.

    Attributes:
        name: Column name, unique in its stream without regard to case.
        type: Canonical type: one of ``SIMPLE_TYPES`` or ``decimal(p,s)``.
    """

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Confinement:
    """Directory that the files of a source must lie in, once links are resolved.

    Attributes:
        root: The directory, without links.
        kept_out: The service's own directory, without links; its files are refused even if they are in
            ``root``. If this directory contains ``root``, files in ``root`` are allowed nevertheless.
    """

    root: str
    kept_out: str

    def allows(self, real_path: str) -> bool:
        """Return whether a file may be read, given its path without links.

        >>> inside = Confinement("/data", "/data/sluice")
        >>> [inside.allows(path) for path in ("/data/in/1.csv", "/data/sluice/events.db", "/database")]
        [True, False, False]
        >>> Confinement("/data/sluice/sources", "/data/sluice").allows("/data/sluice/sources/1.csv")
        True
        """
        if not _is_within(real_path, self.root):
            return False
        return _is_within(self.root, self.kept_out) or not _is_within(real_path, self.kept_out)


def _is_within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


@dataclass(frozen=True, slots=True)
class Dialect:
    """Dialect of text files; the defaults are DuckDB's.

    Attributes:
        delimiter: Character between the fields of a CSV row.
        quote: Character around a field that may hold delimiters and line ends; None for no quoting.
        escape: Character before a quote inside quotes; None if such a quote is doubled.
        header: Whether the first row of a CSV file names its columns; otherwise the columns are the declared
            ones, in order.
        null_values: Texts that mean NULL; in a string column only if they are not quoted.
        encoding: Character encoding, by a name that Python accepts; a byte order mark is skipped.
        timestamp_format: Format of timestamps in the directives of ``strftime``; None for ISO 8601.
        date_format: Format of dates in the directives of ``strftime``; None for ISO 8601.
        timezone: IANA zone of times without an offset; None for UTC.
        decimal_point: Character before the fraction of a number.
        thousands: Character between groups of digits; None if there is no such character.
        skip_rows: Lines to skip before the header.
    """

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
    skip_rows: int = 0


OnChange = Literal["ignore", "reread", "stop"]


@dataclass(frozen=True, slots=True)
class FilesSource:
    """A directory to which whole files are added, or one file.

    Attributes:
        format: File format.
        path: Directory (or glob, or file) to read; absolute once the stream is registered.
        max_files_per_batch: Number of files admitted to each micro-batch. If None, files are admitted so that
            all streams advance together in event time.
        dialect: Dialect of its text files.
        confinement: Directory that its files must be in. None allows any directory, because a person ran the
            workload file, or because the stream was registered before there were source roots.
        settle_us: Time for which a file must be unchanged before it is listed, µs.
        on_change: Treatment of a file that changes after a batch has read it. ``ignore`` sets the new content
            aside, ``reread`` reads the whole file again, ``stop`` stops the stream.
        max_decompressed_mb: Maximum size of the text of a compressed file, and of a row group of a Parquet
            file, in units of 2^20 bytes. A few kB can stand for any amount.

    The ``repr`` identifies the workload of a run. Fields that do not are left out of it.
    """

    format: Literal["parquet", "jsonl", "csv"]
    path: str
    max_files_per_batch: int | None = None
    type: Literal["files"] = "files"
    confinement: Confinement | None = field(default=None, repr=False)
    dialect: Dialect = Dialect()
    settle_us: int = field(default=2_000_000, repr=False)
    on_change: OnChange = field(default="ignore", repr=False)
    max_decompressed_mb: int = field(default=2048, repr=False)


@dataclass(frozen=True, slots=True)
class HttpSource:
    """Events posted to the API, kept in the embedded event log."""

    type: Literal["http"] = "http"


@dataclass(frozen=True, slots=True)
class EnvSecret:
    """A secret in an environment variable of the service, of Spark's driver and of its workers.

    Attributes:
        env: Name of the variable, which begins with ``SLUICE_SECRET_``.
    """

    env: str


@dataclass(frozen=True, slots=True)
class KafkaTls:
    """Encryption of connections to brokers.

    Attributes:
        ca: Certificates in PEM of the authorities that sign the brokers' certificates; None for the
            authorities that the system trusts.
        certificate: Certificate of the client in PEM; None if the client has none.
        key: Private key of the client in PEM; None if the client has none.
    """

    ca: str | None = None
    certificate: str | None = None
    key: EnvSecret | None = None


@dataclass(frozen=True, slots=True)
class KafkaSasl:
    """User and password with which the service connects to brokers."""

    mechanism: KafkaMechanism
    username: str
    password: EnvSecret


@dataclass(frozen=True, slots=True)
class KafkaCluster:
    """Brokers and how to connect to them.

    Attributes:
        bootstrap: Some of the brokers: ``host:port``, with commas between them.
        tls: Encryption of the connections; None if they are not encrypted.
        sasl: User as which the service connects; None if it connects without a user.
    """

    bootstrap: str
    tls: KafkaTls | None = None
    sasl: KafkaSasl | None = None

    @property
    def servers(self) -> tuple[str, ...]:
        """The brokers of ``bootstrap``, each as ``host:port``."""
        return tuple(server.strip() for server in self.bootstrap.split(","))


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """Registry of the schemas of messages: Confluent's, or one with the same protocol.

    Attributes:
        url: Address of the registry, ``http://host:port`` or ``https://``; commas separate several addresses.
        username: User for HTTP basic authentication; None for requests without it.
        password: Password of the user.
    """

    url: str
    username: str | None = None
    password: EnvSecret | None = None

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers of ``url``, each as ``host:port``."""
        parts = [urlsplit(url.strip()) for url in self.url.split(",")]
        ports = {"http": 80, "https": 443}
        return tuple(f"{part.hostname}:{part.port or ports[part.scheme]}" for part in parts)


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """A topic of Apache Kafka in which each message is one event.

    Attributes:
        cluster: Where the topic is.
        topic: Name of the topic.
        format: Format of the values of messages.
        on_bad: Treatment of a message that is not an event of the stream: ``reject`` stops the job before it,
            ``dead-letter`` writes it to the dead letters and continues.
        key: Column that is filled with the key of a message, as text; None if there is no such column.
        headers: (column, header) for each column that a header fills, as text.
        registry: Registry of the schemas of Avro messages; None for JSON. This field is left out of the
            ``repr``, because the registry may move.
        begins: (partition, offset) at which reading begins in a stream that starts with the latest event;
            other partitions are read from their beginning. This field is left out of the ``repr``, because
            the ``repr`` identifies the workload of a run.
    """

    cluster: KafkaCluster
    topic: str
    format: Literal["json", "avro"] = "json"
    on_bad: Literal["reject", "dead-letter"] = "reject"
    key: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    type: Literal["kafka"] = "kafka"
    registry: SchemaRegistry | None = field(default=None, repr=False)
    begins: tuple[tuple[int, int], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class GeneratedColumn:
    """Generator of one column that is not the event time.

    Attributes:
        name: Column of the stream.
        distribution: ``uniform`` (``low`` to ``high``), ``normal`` (mean ``low``, deviation ``high``),
            ``zipf`` (exponent ``skew`` over ``cardinality`` values), ``choice`` (over ``values``)
            or ``sequence`` (row number).
        low: Lower bound, or mean.
        high: Upper bound (exclusive for integers), or standard deviation.
        cardinality: Number of distinct values of ``zipf``.
        skew: Zipf exponent.
        values: Values of ``choice``, as text that casts to the column's type.
    """

    name: str
    distribution: Literal["uniform", "normal", "zipf", "choice", "sequence"] = "uniform"
    low: float = 0.0
    high: float = 1.0
    cardinality: int = 1000
    skew: float = 1.2
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GeneratorSource:
    """Synthetic rows with Poisson arrivals; the same seed gives the same rows.

    Attributes:
        rate_per_s: Mean rows per second of event time.
        seed: Seed of every random choice.
        columns: Generator of each column; a column not named is uniform over its type's default range.
        rows: Approximate number of rows after which the source ends. None for a source that never ends and
            keeps in step with the wall clock.
        start_us: Event time of the first row, µs UTC; None for the moment of registration.
    """

    rate_per_s: float
    seed: int = 0
    columns: tuple[GeneratedColumn, ...] = ()
    rows: int | None = None
    start_us: int | None = None
    type: Literal["generator"] = "generator"


Source = FilesSource | HttpSource | GeneratorSource | KafkaSource


@dataclass(frozen=True, slots=True)
class Punctuations:
    """Contract of a stream about its punctuations: promises that no later row has certain values.

    Attributes:
        on: Sets of columns; each punctuation fixes the values of one set.
        violation: Treatment of a row that breaks a promise: ``drop`` drops it like a late row, ``stop``
            stops the engine before the batch is committed.
        remember_us: Minimum time for which a promise is remembered, µs of event time; 0 for as long as
            windows require, None for an unlimited time.
        column: Boolean column; a row in which it is true is a punctuation and not an event.
        open_time_us: Mean event time from a row of another stream until this stream closes its key, µs;
            None if it is to be measured. Only costs depend on it.
    """

    on: tuple[tuple[str, ...], ...]
    violation: Literal["drop", "stop"] = "drop"
    remember_us: int | None = 0
    column: str | None = None
    open_time_us: int | None = None


@dataclass(frozen=True, slots=True)
class Constraints:
    """Constraints on the rows of a stream that imply punctuations.

    Attributes:
        unique: Columns whose combined values occur once: each row promises that no later row has the
            same values.
        clustered: Columns whose combined values arrive in runs: once they change, the former values do not
            occur again.
        ordered: Ascending columns, each with its slack: the most by which a value may be less than the
            greatest value before it.
    """

    unique: tuple[str, ...] = ()
    clustered: tuple[str, ...] = ()
    ordered: tuple[tuple[str, int], ...] = ()

    def slack(self, key: frozenset[str]) -> int | None:
        """Return the slack of a key's only column; None if the key has more columns or no ordered one."""
        return next((slack for name, slack in self.ordered if {name} == key), None)

    def close(self, key: frozenset[str]) -> bool:
        """Return whether each row, or each run of rows, closes keys of these columns."""
        unique = bool(self.unique) and frozenset(self.unique) <= key
        clustered = bool(self.clustered) and frozenset(self.clustered) == key
        return unique or clustered or self.slack(key) is not None


@dataclass(frozen=True, slots=True)
class Order:
    """Order in which a stream's rows arrive, by one of their columns.

    Attributes:
        column: The column; rows in which it is NULL are not counted.
        scramble: Scrambling factor (WO-Join, §2.2): the most rows by which a row arrives behind its successor
            in the order. None: it is measured from the rows.
        descending: Whether the values descend.
    """

    column: str
    scramble: int | None
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Stream:
    """A registered stream.

    Attributes:
        id: Id of the stream, never reused; 0 before the catalog has assigned an id.
        name: Unique name.
        columns: Typed columns in declared order.
        event_time: Name of the event-time column, of type ``timestamp``.
        lateness_us: How far behind the newest event time a row may arrive, µs.
        source: Where rows are read from.
        idle_timeout_us: Wall-clock µs without rows after which a heartbeat advances the watermark.
        start: Where reading begins when a query first uses the stream.
        initial_position: Position at which reading begins if an offset does not name this stream;
            for topics see ``KafkaSource.begins``.
        max_ahead_us: How far a row's event time may be ahead of the wall clock when the row arrives, µs; None
            for no limit.
        time_unit: Unit of numbers in timestamp columns, counted since 1970 UTC. With None, numbers in JSON
            are µs, if that is plausible, and numbers in other formats are refused.
        on_error: Treatment of a bad file: ``set-aside`` reads no row of it, ``skip-rows`` reads all but its
            bad rows unless the whole file is bad, ``stop`` ends the job before it reads the file.
        punctuations: Contract about the stream's punctuations; None if there is none. This field,
            ``constraints`` and ``on_error`` are left out of the ``repr``, by which a run recognizes its
            workload (``service.workspace.bounded_run``).
        constraints: Constraints on its rows.
        order: Order in which the stream's rows arrive, for joins without windows; None if it has no order.
        retain_us: Longest window of time on its rows, µs; None for no limit. This field is left out of the
            ``repr``, too.
        state_cap_mb: Most space that its rows may take in the state, megabytes of 1,000,000 bytes; None for
            no limit. This field is left out of the ``repr``, too.
        at_cap: Treatment of the stream once its rows exceed the cap: ``stop`` pauses the queries with the
            longest window on it, ``evict`` drops its oldest rows.
    """

    id: int
    name: str
    columns: tuple[Column, ...]
    event_time: str
    lateness_us: int
    source: Source
    idle_timeout_us: int | None = None
    start: Literal["earliest", "latest"] = "earliest"
    initial_position: int = 0
    max_ahead_us: int | None = None
    time_unit: TimeUnit | None = None
    on_error: OnError = field(default="set-aside", repr=False)
    punctuations: Punctuations | None = field(default=None, repr=False)
    constraints: Constraints = field(default=Constraints(), repr=False)
    order: Order | None = field(default=None, repr=False)
    retain_us: int | None = field(default=None, repr=False)
    state_cap_mb: int | None = field(default=None, repr=False)
    at_cap: AtCap = field(default="stop", repr=False)

    def closes_keys(self, key: frozenset[str]) -> bool:
        """Return whether rows or punctuations of the stream can close keys of these columns."""
        promised = self.punctuations
        return self.constraints.close(key) or (
            promised is not None and any(frozenset(names) == key for names in promised.on)
        )

    @property
    def evicts(self) -> bool:
        """Return whether its rows may leave the state before their windows end."""
        return self.state_cap_mb is not None and self.at_cap == "evict"

    @property
    def has_contract(self) -> bool:
        """Return whether the stream has a contract about punctuations, or constraints on its rows."""
        return self.punctuations is not None or self.constraints != Constraints()

    def column(self, name: str) -> Column | None:
        """Return the column of that name (case-insensitive), or None."""
        folded = name.lower()
        return next((c for c in self.columns if c.name.lower() == folded), None)
