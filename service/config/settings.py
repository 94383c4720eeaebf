"""Settings of one Sluice process, in groups.

Read once, by the command line or by ``create_app(settings)``; a function takes the group it needs, planner
and operators get plain arguments. Outside, a setting has one flat name, whatever its group: its variable is
``SLUICE_`` and the name in capitals, its option, if a command has one, the name with hyphens. Where the flat
name is not that of the field, it is the field's ``validation_alias``:

    settings.server.port          port                  SLUICE_PORT                   --port
    settings.batches.max_rows     max_rows_per_batch    SLUICE_MAX_ROWS_PER_BATCH
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from catalog.durations import parse_duration_us
from catalog.errors import InvalidDuration
from catalog.mistakes import mistake
from catalog.values.plan import Partitioning, Strategy
from service.config.batch_size import BatchSize
from service.config.data_dir import DataDir
from service.errors import InvalidSetting

#: Opens the name of every variable.
VARIABLE_PREFIX: Final = "SLUICE_"
#: Leaves room for Python workers on a 4 GB machine; state lives in files and in workers.
DRIVER_MEMORY = "1g"
#: Sizes as Spark writes them.
_SHIFTS = {"k": 10, "m": 20, "g": 30, "t": 40}
#: As ``result_retention``: no result ever goes.
FOREVER = "forever"


def _json_object(value: object) -> object:
    """Decode a variable's text; an object is taken as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError("Write a JSON object") from error


_JSON_OBJECT = BeforeValidator(_json_object)


class _Group(BaseModel):
    """Settings that belong together; made by the names of its fields, or read by their flat names."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)


class StorageSettings(_Group):
    """Places of what the service keeps.

    Attributes:
        data_dir: Catalog, event log, checkpoint and results of this service.
        catalog_url: SQLAlchemy URL of the catalog; None: SQLite in the data directory.
        export_dir: Directory of the files that queries are exported to, of this service alone; None:
            ``exports`` in the data directory.
    """

    data_dir: Path = Path("sluice-data")
    catalog_url: str | None = None
    export_dir: Path | None = None

    @property
    def effective_catalog_url(self) -> str:
        """SQLAlchemy URL of the catalog, wherever it is."""
        return self.catalog_url or DataDir(self.data_dir.absolute()).catalog_url


class ServerSettings(_Group):
    """Address of the API.

    Attributes:
        host: Address it listens on.
        port: Port it listens on; 0: any that is free.
    """

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)


class SparkSettings(_Group):
    """Spark, and how much of the machine it uses.

    Attributes:
        cores: Cores that Spark may use; by default all of the machine's.
        master: Spark master; by default ``local[cores]``.
        driver_memory: Heap of the driver's JVM, as Spark writes sizes (``1g``).
        conf: More Spark configuration, such as a cluster's; a JSON object in the environment.
        ui: Whether Spark serves its own web page.
        reports_port: Port that workers of a cluster report their batches to; 0: any that is free.
    """

    cores: int = Field(default_factory=lambda: os.cpu_count() or 1, ge=1)
    master: str = Field(
        default_factory=lambda given: f"local[{given['cores']}]", validation_alias="spark_master"
    )
    driver_memory: str = Field(default=DRIVER_MEMORY, pattern=r"^\d+[kmgt]$")
    conf: Annotated[dict[str, str], _JSON_OBJECT] = Field(default_factory=dict, validation_alias="spark_conf")
    ui: bool = Field(default=False, validation_alias="spark_ui")
    reports_port: int = Field(default=0, ge=0, le=65535)

    @property
    def driver_memory_bytes(self) -> int:
        """Heap of the driver's JVM, bytes."""
        return int(self.driver_memory[:-1]) << _SHIFTS[self.driver_memory[-1]]

    @property
    def one_machine(self) -> bool:
        """Tell whether Spark's workers are processes of this machine."""
        return self.master.startswith("local[")


class StateSettings(_Group):
    """State of the joins.

    Attributes:
        buckets: Hash buckets, fixed by the first batch; None: as many as cores.
        cache_mb: Decoded segments kept per Python worker, MB; beyond that they are mapped from their files
            again.
    """

    buckets: int | None = Field(default=None, ge=1)
    cache_mb: int = Field(default=1024, ge=1)


class SourceSettings(_Group):
    """Sources of rows.

    Attributes:
        list_interval_ms: Time between two looks for new files in source directories, ms.
    """

    list_interval_ms: int = Field(default=500, ge=10)


class BatchSettings(_Group):
    """Micro-batches: their size, and the way of their rows to the buckets.

    Attributes:
        max_rows: Most rows admitted to one micro-batch, over all streams.
        target_s: Seconds that a batch should take while more input waits than fits in: so many rows are
            admitted. 0 admits ``max_rows`` always.
        rows_per_partition: Rows up to which small pieces of a batch share a reader task; None: half a
            million, or a core's share of the batch if that is more.
        rows_file_kb: Rows of a family side that take so many kB go to their bucket in a file, fewer through
            Spark; on a cluster all go through Spark.
    """

    max_rows: int = Field(default=4_000_000, ge=1, validation_alias="max_rows_per_batch")
    target_s: float = Field(default=2.0, ge=0, allow_inf_nan=False, validation_alias="target_batch_s")
    rows_per_partition: int | None = Field(default=None, ge=1)
    rows_file_kb: int = Field(default=256, ge=0)

    @property
    def first_rows(self) -> int:
        """Rows admitted to a batch before any was timed, or where time must not decide."""
        return BatchSize.first(ceiling=self.max_rows, target_s=self.target_s).rows


class ResultSettings(_Group):
    """Results and late rows.

    Attributes:
        retention: How long both are kept after their batch, such as ``24h``; ``forever`` keeps all.
        keep_late_rows: Whether late rows are kept in files, not only counted.
    """

    retention: str = Field(default="3d", validation_alias="result_retention")
    keep_late_rows: bool = True

    @field_validator("retention")
    @classmethod
    def _is_retention(cls, value: str) -> str:
        _retention_us(value)
        return value

    @property
    def retention_us(self) -> int | None:
        """Retention of results, µs; None keeps all."""
        return _retention_us(self.retention)


class PlanningSettings(_Group):
    """Objective of plans, unless a workload, a migration or a request says otherwise.

    Attributes:
        strategy: How queries are joined.
        family_strategies: Strategies of single families by key (``A.k = B.k``) or id; a JSON object in the
            environment.
        partitioning: Over how many buckets the rows of a key spread: ``auto`` leaves it to the planner,
            ``hash`` gives each key one bucket, ``replicate`` every key all of them.
        cost_model: Model whose CPU cost decides where a strategy weighs costs.
        c_sys: System overhead C_sys of the paper's model, comparisons per row and slice.
    """

    strategy: Strategy = "mem-opt"
    family_strategies: Annotated[dict[str, Strategy], _JSON_OBJECT] = Field(default_factory=dict)
    partitioning: Partitioning = "auto"
    cost_model: Literal["paper", "calibrated"] = "calibrated"
    c_sys: float = Field(default=0.0, ge=0, allow_inf_nan=False)


class AdaptiveSettings(_Group):
    """New plans for families of strategy ``cpu-opt`` when statistics have moved.

    Attributes:
        enabled: Whether there are any.
        interval_s: Least time between two plans, seconds of wall clock.
        min_gain: Part of the running chain's cost that another one must save.
        horizon_s: Seconds of event time within which what is saved must pay for the migration.
        max_age_s: Age from which statistics are not acted upon, seconds of wall clock.
        min_batches: Batches with input that statistics must rest on.
    """

    enabled: bool = Field(default=True, validation_alias="adaptive")
    interval_s: float = Field(default=60.0, gt=0, allow_inf_nan=False, validation_alias="adaptive_interval_s")
    min_gain: float = Field(default=0.05, ge=0, lt=1, validation_alias="adaptive_min_gain")
    horizon_s: float = Field(default=600.0, gt=0, allow_inf_nan=False, validation_alias="adaptive_horizon_s")
    max_age_s: float = Field(default=300.0, gt=0, allow_inf_nan=False, validation_alias="adaptive_max_age_s")
    min_batches: int = Field(default=10, ge=2, le=50, validation_alias="adaptive_min_batches")


class LogSettings(_Group):
    """Logging to stderr.

    Attributes:
        level: Least level that is logged.
        format: ``text``, or ``json`` for one object per line.
    """

    level: str = Field(default="INFO", pattern=r"^(DEBUG|INFO|WARNING|ERROR)$", validation_alias="log_level")
    format: str = Field(default="text", pattern=r"^(text|json)$", validation_alias="log_format")


class Settings(BaseModel):
    """Settings of a process.

    >>> settings = Settings(batches=BatchSettings(max_rows=1_000))
    >>> settings.batches.max_rows, settings.batches.rows_file_kb
    (1000, 256)

    Attributes:
        storage: Places of what the service keeps.
        server: Address of the API.
        spark: Spark, and how much of the machine it uses.
        state: State of the joins.
        sources: Sources of rows.
        batches: Micro-batches.
        results: Results and late rows.
        planning: Objective of plans.
        adaptive: New plans when statistics have moved.
        log: Logging.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    storage: StorageSettings = StorageSettings()
    server: ServerSettings = ServerSettings()
    spark: SparkSettings = Field(default_factory=SparkSettings)
    state: StateSettings = StateSettings()
    sources: SourceSettings = SourceSettings()
    batches: BatchSettings = BatchSettings()
    results: ResultSettings = ResultSettings()
    planning: PlanningSettings = Field(default_factory=PlanningSettings)
    adaptive: AdaptiveSettings = AdaptiveSettings()
    log: LogSettings = LogSettings()

    @property
    def bucket_count(self) -> int:
        """Buckets of a fresh checkpoint."""
        return self.state.buckets if self.state.buckets is not None else self.spark.cores

    def for_data_dir(self, path: Path) -> Settings:
        """Return the same settings with another data directory."""
        return self.model_copy(update={"storage": self.storage.model_copy(update={"data_dir": path})})


def _retention_us(text: str) -> int | None:
    """Return how long results are kept, µs, None forever; pydantic turns a ValueError into its own."""
    if text.strip().lower() == FOREVER:
        return None
    try:
        return parse_duration_us(text)
    except InvalidDuration as error:
        raise ValueError(f'Write a length of time such as "7d" or "24h", or "{FOREVER}"') from error


def _groups() -> dict[str, str]:
    """Return the group of each setting by its flat name."""
    groups = {}
    for group, of_settings in Settings.model_fields.items():
        model = of_settings.annotation
        assert isinstance(model, type)
        assert issubclass(model, _Group)
        for name, field in model.model_fields.items():
            groups[str(field.validation_alias or name)] = group
    return groups


#: Group of each setting by its flat name.
GROUPS: Final = _groups()


def load_settings(**options: object) -> Settings:
    """Read the environment, overridden by the options that are not None.

    Args:
        **options: Settings by their flat names, as given on the command line.

    Raises:
        InvalidSetting: A value does not fit; names the setting and what was given.
    """
    given: defaultdict[str, dict[str, object]] = defaultdict(dict)
    for name, group in GROUPS.items():
        value = options.pop(name, None)
        if value is None:
            value = os.environ.get(VARIABLE_PREFIX + name.upper())
        if value is not None:
            given[group][name] = value
    if options:
        raise TypeError(f"there are no settings {', '.join(options)}")
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        found = mistake(first, first["loc"])
        name = str(found.path[1])
        raise InvalidSetting(
            f'setting "{name}" cannot be {first["input"]!r}',
            detail=found.detail or f"{found.text[:1].upper()}{found.text[1:]}.",
            hint=f"Set it by --{name.replace('_', '-')} or by {VARIABLE_PREFIX}{name.upper()}.",
        ) from error
