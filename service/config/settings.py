"""Settings of one Sluice process, in groups.

Settings are read once, by the command line or by ``create_app(settings)``. A function takes only the group
that it needs; planner and operators take plain arguments. Users see one flat name per setting, without its
group. The environment variable is ``SLUICE_`` followed by the name in capitals; the command-line option, if
there is one, is the name with hyphens. If the flat name differs from the field's name, it is the field's
``validation_alias``:

    settings.server.port          port                  SLUICE_PORT                   --port
    settings.batches.max_rows     max_rows_per_batch    SLUICE_MAX_ROWS_PER_BATCH
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)

from catalog.errors import InvalidDuration
from catalog.times.durations import parse_duration_us
from catalog.values.plan import Partitioning, Strategy
from catalog.values.policies.memory import AskedMemory
from catalog.values.policies.probe import Invalidation
from catalog.wording.mistakes import TextLike, mistake
from service.config.data_dir import DataDir
from service.config.groups.access_settings import AccessSettings
from service.config.groups.batch_size import BatchSize
from service.config.groups.setting_group import SettingGroup
from service.config.storage import Storage, storage_of
from service.errors import InvalidSetting

#: Prefix of every environment variable.
VARIABLE_PREFIX: Final = "SLUICE_"
#: Default heap of the driver's JVM. The state is in files and in workers, so a small heap is enough, which
#: leaves room for Python workers on a 4 GB machine.
DRIVER_MEMORY = "1g"
#: Powers of two behind the units of size that Spark accepts (``1g``).
_SHIFTS = {"k": 10, "m": 20, "g": 30, "t": 40}
#: Settings whose values may contain passwords, so that errors do not quote these values.
_SECRET: Final = ("catalog_url", "spark_conf")
#: Value of a retention setting that keeps everything.
FOREVER = "forever"


def _json_object(value: object) -> object:
    """Decode the JSON text of an environment variable; return any other value unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ValueError("Write a JSON object") from error


def _paths(value: object) -> object:
    """Split a text of an environment variable at colons, as in PATH; return any other value unchanged."""
    return [part for part in value.split(os.pathsep) if part] if isinstance(value, str) else value


def _words(value: object) -> object:
    """Split a text of an environment variable at commas; return any other value unchanged."""
    if not isinstance(value, str):
        return value
    return [word.strip() for word in value.split(",") if word.strip()]


def _retention_us(text: str) -> int | None:
    """Return a retention in µs, or None for no limit. Pydantic turns a ValueError into its own error."""
    if text.strip().lower() == FOREVER:
        return None
    try:
        return parse_duration_us(text)
    except InvalidDuration as error:
        raise ValueError(f'Write a length of time such as "7d" or "24h", or "{FOREVER}"') from error


def _is_retention(value: str) -> str:
    """Refuse a text that is not a retention; return a valid text unchanged."""
    _retention_us(value)
    return value


_JSON_OBJECT = BeforeValidator(_json_object)
_Retention = Annotated[str, AfterValidator(_is_retention)]


class StorageSettings(SettingGroup):
    """Where the service stores its files and data.

    Attributes:
        data_dir: Directory of this service's catalog, event log, checkpoint and results.
        catalog_url: SQLAlchemy URL of the catalog. None means SQLite in the data directory.
        export_dir: Directory of the files that queries are exported to, used by this service alone. None
            means ``exports`` in the data directory.
        url: URL of the storage of segments, results, late rows and dead letters (``config.storage``). None
            means the data directory.
        cache_dir: Directory on each machine that caches files of an object store. None means a directory
            for temporary files.
        cache_mb: Maximum size of the object-store cache for each kind of files, MB.
        checkpoint_dir: Directory of Spark's checkpoint, shared by engines and workers; allowed only with
            ``url``. None means ``checkpoint`` in the data directory.
    """

    data_dir: Path = Path("sluice-data")
    catalog_url: str | None = None
    export_dir: Path | None = None
    url: str | None = Field(default=None, validation_alias="storage_url")
    cache_dir: Path | None = Field(default=None, validation_alias="storage_cache_dir")
    cache_mb: int = Field(default=4096, ge=64, validation_alias="storage_cache_mb")
    checkpoint_dir: Path | None = None

    @property
    def apart(self) -> Storage | None:
        """Storage outside of the data directory, or None; raises `InvalidSetting` for an unusable URL."""
        return self.apart_at(self.url)

    def apart_at(self, url: str | None) -> Storage | None:
        """Return the storage at a URL, with the cache of these settings; return None if the URL is None.

        Raises:
            InvalidSetting: The URL does not name a usable storage.
        """
        return storage_of(url, self.cache_dir, self.cache_mb)

    def find_data_dir(self) -> DataDir:
        """Return the data directory, which need not exist.

        Raises:
            InvalidSetting: The storage's URL is not usable, a directory is given as a URL, or
                ``checkpoint_dir`` is set without a storage.
        """
        for name in ("data_dir", "checkpoint_dir", "export_dir"):
            _refuse_url(name, getattr(self, name))
        if self.checkpoint_dir is not None and self.url is None:
            raise InvalidSetting(
                f'setting "checkpoint_dir" cannot be {self.checkpoint_dir} without "storage_url"',
                detail="A checkpoint is useless without its segments, and they are in the data directory.",
                hint="Set SLUICE_STORAGE_URL, too, or leave SLUICE_CHECKPOINT_DIR out.",
            )
        checkpoint = None if self.checkpoint_dir is None else self.checkpoint_dir.absolute()
        return DataDir(self.data_dir.absolute(), storage=self.apart, checkpoint_dir=checkpoint)

    def open_data_dir(self) -> DataDir:
        """Return the data directory, made if it is missing.

        Raises:
            DataDirUnusable: The directory cannot be made or written.
            InvalidSetting: As `find_data_dir` raises it.
        """
        return self.find_data_dir().create()

    @property
    def effective_catalog_url(self) -> str:
        """SQLAlchemy URL of the catalog; by default, a file in the data directory."""
        return self.catalog_url or DataDir(self.data_dir.absolute()).catalog_url


def _refuse_url(name: str, path: Path | None) -> None:
    """Refuse a URL given for a directory: as a path, it would name one below the working directory."""
    if path is not None and path.parts[:1] and path.parts[0].endswith(":"):
        raise InvalidSetting(
            f'setting "{name}" cannot be {path.parts[0]}//{"/".join(path.parts[1:])}',
            detail="The value is a URL, but the setting takes the path of a directory.",
            hint="Write the path of a directory, such as a mount. Segments and results can be in an object "
            "store: SLUICE_STORAGE_URL.",
        )


class ServerSettings(SettingGroup):
    """Address of the API, and of an engine that runs as a separate process.

    Attributes:
        host: Address that API and engine listen on.
        port: Port of the API; 0 means any free port.
        engine_port: Port on which a separate engine process serves probes and metrics; 0 means any
            free port.
        max_connections: Maximum number of simultaneous connections. Further connections get status 503.
        max_body_bytes: Maximum size of a request's body, in bytes, before and after it is decompressed.
        metric_series: Maximum number of queries, sinks and slices with their own time series at ``/metrics``;
            all others share summed time series.
    """

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    engine_port: int = Field(default=8081, ge=0, le=65535)
    max_connections: int = Field(default=512, ge=1)
    max_body_bytes: int = Field(default=64 << 20, ge=1024)
    metric_series: int = Field(default=100, ge=0)


class SparkSettings(SettingGroup):
    """Spark's configuration, and how much of the machine it uses.

    Attributes:
        cores: Cores that Spark may use; by default all cores of the machine.
        master: Spark master; by default ``local[cores]``.
        driver_memory: Heap of the driver's JVM, as Spark writes sizes (``1g``).
        conf: Further Spark configuration, such as a cluster's. The environment variable is a JSON object.
        ui: Whether Spark serves its own web page.
        reports_port: Port to which workers of a cluster report their batches; 0 means any free port.
    """

    cores: int = Field(default_factory=lambda: os.cpu_count() or 1, ge=1)
    master: str = Field(
        default_factory=lambda given: f"local[{given['cores']}]", validation_alias="spark_master"
    )
    driver_memory: Annotated[str, TextLike(r"^\d+[kmgt]$", "a size such as 2g or 512m")] = DRIVER_MEMORY
    conf: Annotated[dict[str, str], _JSON_OBJECT] = Field(default_factory=dict, validation_alias="spark_conf")
    ui: bool = Field(default=False, validation_alias="spark_ui")
    reports_port: int = Field(default=0, ge=0, le=65535)

    @property
    def driver_memory_bytes(self) -> int:
        """Heap of the driver's JVM, bytes."""
        return int(self.driver_memory[:-1]) << _SHIFTS[self.driver_memory[-1]]

    @property
    def one_machine(self) -> bool:
        """Return whether Spark's workers are processes of this machine."""
        return self.master.startswith("local[")


class StateSettings(SettingGroup):
    """State of the joins.

    Attributes:
        buckets: Number of hash buckets, fixed by the first batch. None means as many as cores.
        cache_mb: Size of the cache of decoded segments per Python worker, MB; other segments are read from
            their mapped files.
    """

    buckets: int | None = Field(default=None, ge=1)
    cache_mb: int = Field(default=1024, ge=1)


class SourceSettings(SettingGroup):
    """Sources of rows.

    Attributes:
        list_interval_ms: Time between two searches for new files in source directories, ms.
        roots: Directories from which streams registered with the service may read files, separated by ``:``.
            If empty, ``sources`` in the data directory.
        servers: Brokers and databases, ``host:port``, that streams and sinks registered with the service may
            use, separated by commas. ``*`` allows any; if empty, none is allowed.
    """

    list_interval_ms: int = Field(default=500, ge=10)
    servers: Annotated[tuple[str, ...], BeforeValidator(_words)] = ()
    roots: Annotated[tuple[Path, ...], BeforeValidator(_paths)] = Field(
        default=(), validation_alias="source_roots"
    )


class IngestSettings(SettingGroup):
    """Back-pressure: limits at which posted events are refused and input waits. 0 sets no limit.

    Attributes:
        backlog_rows: Maximum number of a stream's unread rows. Beyond it, events are refused.
        backlog_mb: Maximum size of a stream's unread events in the event log, MB.
        min_free_mb: Minimum free space of the data directory's file system, MB. Below it, events are refused;
            below half of it, batches read no input. None means 1024, or 5% of the space if the file system
            is smaller than 20 GB.
    """

    backlog_rows: int = Field(default=10_000_000, ge=0, validation_alias="max_backlog_rows")
    backlog_mb: int = Field(default=4096, ge=0, validation_alias="max_backlog_mb")
    min_free_mb: int | None = Field(default=None, ge=0)


class SinkSettings(SettingGroup):
    """Sinks of results.

    Attributes:
        webhook_hosts: Receivers of webhooks that are allowed although they are on this machine or in a
            private network: names, addresses, or networks such as ``10.0.0.0/8``, separated by commas.
        retention: How long results are kept for a sink that has not received them, such as ``7d``, counted
            from the batch of the results; ``forever`` keeps them until the sink has received them. Results
            that are kept for other reasons stay longer.
        retention_mb: Maximum size of files that are kept only because sinks have not received their results,
            MB; 0 sets no limit.
    """

    webhook_hosts: Annotated[tuple[str, ...], BeforeValidator(_words)] = ()
    retention: _Retention = Field(default="7d", validation_alias="sink_retention")
    retention_mb: int = Field(default=20_480, ge=0, validation_alias="sink_retention_mb")

    @property
    def retention_us(self) -> int | None:
        """Retention for sinks, µs, or None for no limit."""
        return _retention_us(self.retention)

    @property
    def retention_bytes(self) -> int | None:
        """Maximum number of bytes that are kept only for sinks, or None for no limit."""
        return self.retention_mb << 20 or None


class BatchSettings(SettingGroup):
    """Micro-batches: their size, and how their rows reach the buckets.

    Attributes:
        max_rows: Maximum number of rows admitted to one micro-batch, over all streams.
        target_s: Seconds that a batch should take during a backlog; the number of admitted rows is adjusted
            to this target. 0 always admits up to ``max_rows``.
        rows_per_partition: Maximum number of rows in the small pieces of input that share a reader task. None
            means half a million, or a core's share of the batch if that is more.
        rows_file_kb: Size, in kB, from which a family side's rows are passed to their bucket in a file.
            Fewer bytes are passed through Spark. On a cluster, all rows are passed through Spark.
    """

    max_rows: int = Field(default=4_000_000, ge=1, validation_alias="max_rows_per_batch")
    target_s: float = Field(default=2.0, ge=0, allow_inf_nan=False, validation_alias="target_batch_s")
    rows_per_partition: int | None = Field(default=None, ge=1)
    rows_file_kb: int = Field(default=256, ge=0)

    @property
    def first_rows(self) -> int:
        """Maximum rows of a batch before any batch was timed, or if its size must not depend on timing."""
        return BatchSize.first(ceiling=self.max_rows, target_s=self.target_s).rows


class ResultSettings(SettingGroup):
    """Results and late rows.

    Attributes:
        retention: How long results and late rows are kept after their batch, such as ``24h``; ``forever``
            keeps all.
        keep_late_rows: Whether late rows are kept in files; otherwise they are only counted.
        dead_letter_retention: How long a dead-letter file is kept after it was written, such as ``7d``.
    """

    retention: _Retention = Field(default="3d", validation_alias="result_retention")
    keep_late_rows: bool = True
    dead_letter_retention: _Retention = "30d"

    @property
    def retention_us(self) -> int | None:
        """Retention of results, µs, or None to keep all."""
        return _retention_us(self.retention)

    @property
    def dead_letter_retention_us(self) -> int | None:
        """Retention of dead-letter files, µs, or None to keep all."""
        return _retention_us(self.dead_letter_retention)


class PlanningSettings(SettingGroup):
    """Objective of plans, unless a workload, a migration or a request overrides it.

    Attributes:
        strategy: Strategy of all families that ``family_strategies`` does not list.
        family_strategies: Strategies of single families by key (``A.k = B.k``) or id. The environment
            variable is a JSON object.
        partitioning: Spread of a key's rows over buckets: ``hash`` puts each key in one bucket, ``replicate``
            puts each key in all buckets, ``auto`` lets the planner choose.
        cost_model: Model of the CPU cost, used by strategies that compare costs.
        c_sys: System overhead C_sys of the State-Slice paper's cost model, comparisons per row and slice.
        probe: Way to search slices: ``auto``, ``merge``, ``loops`` or ``hash(N)``.
        invalidation: Rings from which an arriving row removes expired rows. None means only the ring that
            the row probes.
        oblivious_memory: Place where rows of joins without windows wait; ``auto`` lets the planner choose.
        oblivious_memory_mb: Memory limit within which ``auto`` chooses, MB per family of joins without
            windows. None means no limit.
    """

    strategy: Strategy = "mem-opt"
    family_strategies: Annotated[dict[str, Strategy], _JSON_OBJECT] = Field(default_factory=dict)
    partitioning: Partitioning = "auto"
    cost_model: Literal["paper", "calibrated"] = "calibrated"
    c_sys: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    probe: str = "auto"
    invalidation: Invalidation | None = None
    oblivious_memory: AskedMemory = "auto"
    oblivious_memory_mb: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class AdaptiveSettings(SettingGroup):
    """New plans for families of strategy ``cpu-opt`` when statistics have changed.

    Attributes:
        enabled: Whether the engine makes such plans.
        interval_s: Minimum time between two new plans, seconds of wall clock.
        min_gain: Minimum fraction of the running chain's cost that a new chain must save.
        horizon_s: Seconds of event time within which the savings must pay for the migration.
        max_age_s: Age from which statistics are ignored, seconds of wall clock.
        min_batches: Minimum number of batches with input from which statistics are computed.
    """

    enabled: bool = Field(default=True, validation_alias="adaptive")
    interval_s: float = Field(default=60.0, gt=0, allow_inf_nan=False, validation_alias="adaptive_interval_s")
    min_gain: float = Field(default=0.05, ge=0, lt=1, validation_alias="adaptive_min_gain")
    horizon_s: float = Field(default=600.0, gt=0, allow_inf_nan=False, validation_alias="adaptive_horizon_s")
    max_age_s: float = Field(default=300.0, gt=0, allow_inf_nan=False, validation_alias="adaptive_max_age_s")
    min_batches: int = Field(default=10, ge=2, le=50, validation_alias="adaptive_min_batches")


class LogSettings(SettingGroup):
    """Logging to stderr, and traces.

    Attributes:
        level: Lowest level that is logged.
        format: ``text``, or ``json`` for one object per line.
        traces_url: URL to which the API sends OpenTelemetry traces, as OTLP over HTTP. None means that no
            traces are made.
    """

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(default="INFO", validation_alias="log_level")
    format: Literal["text", "json"] = Field(default="text", validation_alias="log_format")
    traces_url: (
        Annotated[str, TextLike(r"^https?://", "a URL such as http://collector:4318/v1/traces")] | None
    ) = None


class Settings(BaseModel):
    """Settings of a process.

    >>> settings = Settings(batches=BatchSettings(max_rows=1_000))
    >>> settings.batches.max_rows, settings.batches.rows_file_kb
    (1000, 256)

    Attributes:
        storage: Places of the service's files and data.
        server: Address of the API.
        spark: Spark, and how much of the machine it uses.
        state: State of the joins.
        sources: Sources of rows.
        ingest: Back-pressure.
        sinks: Sinks of results.
        batches: Micro-batches.
        results: Results and late rows.
        planning: Objective of plans.
        adaptive: New plans when statistics have changed.
        log: Logging.
        access: Access to the service.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    storage: StorageSettings = StorageSettings()
    server: ServerSettings = ServerSettings()
    spark: SparkSettings = Field(default_factory=SparkSettings)
    state: StateSettings = StateSettings()
    sources: SourceSettings = SourceSettings()
    ingest: IngestSettings = IngestSettings()
    sinks: SinkSettings = SinkSettings()
    batches: BatchSettings = BatchSettings()
    results: ResultSettings = ResultSettings()
    planning: PlanningSettings = Field(default_factory=PlanningSettings)
    adaptive: AdaptiveSettings = AdaptiveSettings()
    log: LogSettings = LogSettings()
    access: AccessSettings = AccessSettings()

    @property
    def bucket_count(self) -> int:
        """Number of buckets of a fresh checkpoint."""
        return self.state.buckets if self.state.buckets is not None else self.spark.cores

    def for_data_dir(self, path: Path) -> Settings:
        """Return the same settings with another data directory."""
        return self.model_copy(update={"storage": self.storage.model_copy(update={"data_dir": path})})


def _groups() -> dict[str, str]:
    """Return the group of each setting by its flat name."""
    groups = {}
    for group, of_settings in Settings.model_fields.items():
        model = of_settings.annotation
        assert isinstance(model, type)
        assert issubclass(model, SettingGroup)
        for name, field in model.model_fields.items():
            groups[str(field.validation_alias or name)] = group
    return groups


#: Group of each setting by its flat name.
GROUPS: Final = _groups()


def load_settings(**options: object) -> Settings:
    """Read settings from the environment; options that are not None override them.

    Args:
        **options: Settings by their flat names, as given on the command line.

    Raises:
        InvalidSetting: A value is not valid; the error names the setting and the value.
    """
    if unknown := options.keys() - GROUPS.keys():
        raise TypeError(f"there are no settings {', '.join(sorted(unknown))}")
    given: defaultdict[str, dict[str, object]] = defaultdict(dict)
    for name, group in GROUPS.items():
        value = options.get(name)
        if value is None:
            value = os.environ.get(VARIABLE_PREFIX + name.upper())
        if value is not None:
            given[group][name] = value
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        found = mistake(first, first["loc"])
        name = str(found.path[1])
        given_text = "what was given" if name in _SECRET else repr(first["input"])
        raise InvalidSetting(
            f'setting "{name}" cannot be {given_text}',
            detail=found.detail or f"{found.text[:1].upper()}{found.text[1:]}.",
            # The hint names the variable: every process reads it, but not every command has the option.
            hint=f"Correct {'the option, or set' if options.get(name) is not None else 'the variable'} "
            f"{VARIABLE_PREFIX}{name.upper()}.",
        ) from error
