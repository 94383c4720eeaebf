"""Settings of one Sluice process.

Read once, by the command line or by ``create_app(settings)``; planner and operators get plain arguments.
Every field can be set in the environment as ``SLUICE_<FIELD>``, for example ``SLUICE_PORT=9000``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from catalog.durations import InvalidDuration, parse_duration_us
from catalog.errors import InvalidInput
from catalog.values.plan import Partitioning, Strategy
from service.config.batch_size import BatchSize

#: Leaves room for Python workers on a 4 GB machine; state lives in files and in workers.
DRIVER_MEMORY = "1g"
#: Sizes as Spark writes them.
_SHIFTS = {"k": 10, "m": 20, "g": 30, "t": 40}


#: As ``result_retention``: no result ever goes.
FOREVER = "forever"


class InvalidSetting(InvalidInput):
    """A ``SLUICE_`` variable or option has an invalid value."""

    code = "invalid-setting"


class Settings(BaseSettings):
    """Settings of a process: where it keeps its data, and how much of the machine it uses.

    Attributes:
        data_dir: Catalog, event log, checkpoint and results of this service.
        host: Address the API listens on.
        port: Port the API listens on.
        cores: Cores that Spark may use; by default all of the machine's.
        buckets: Hash buckets of the join state, fixed by the first batch; by default ``cores``.
        driver_memory: Heap of the driver's JVM, as Spark writes sizes (``1g``).
        max_rows_per_batch: Most rows admitted to one micro-batch, over all streams.
        target_batch_s: Seconds that a batch should take while more input waits than fits in: so many rows are
            admitted. 0 admits ``max_rows_per_batch`` always.
        rows_per_partition: Rows up to which small pieces of a batch share a reader task; None: half a
            million, or a core's share of the batch if that is more.
        rows_file_kb: Rows of a family side that take so many kB go to their bucket in a file, fewer through
            Spark; on a cluster all go through Spark.
        result_retention: How long results and late rows are kept after their batch, such as ``24h``;
            ``forever`` keeps all.
        cache_mb: Decoded segments kept per Python worker, MB; beyond that they are mapped from their files
            again.
        catalog_url: SQLAlchemy URL of the catalog; by default SQLite in the data directory.
        spark_master: Spark master; by default ``local[cores]``.
        spark_conf: More Spark configuration, such as a cluster's; a JSON object in the environment.
        reports_port: Port that workers of a cluster report their batches to; 0: any that is free.
        spark_ui: Whether Spark serves its own web page.
        list_interval_ms: How often source directories are looked through for new files.
        export_dir: Directory of the files that queries are exported to, of this service alone; by default
            ``exports`` in the data directory.
        keep_late_rows: Whether late rows are kept in files, not only counted.
        strategy: How queries are joined, unless a workload, request or family says otherwise.
        family_strategies: Strategies of single families by key (``A.k = B.k``) or id; a JSON object in the
            environment.
        partitioning: Over how many buckets the rows of a key spread: ``auto`` leaves it to the planner,
            ``hash`` gives each key one bucket, ``replicate`` every key all of them.
        cost_model: Model whose CPU cost decides where a strategy weighs costs.
        c_sys: System overhead C_sys of the paper's model, comparisons per row and slice.
        adaptive: Whether families of strategy ``cpu-opt`` are planned anew when statistics have moved.
        adaptive_interval_s: Least time between two such plans, wall clock.
        adaptive_min_gain: Part of the running chain's cost that another one must save.
        adaptive_horizon_s: Event time within which what is saved must pay for the migration.
        adaptive_max_age_s: Age from which statistics are not acted upon, wall clock.
        adaptive_min_batches: Batches with input that statistics must rest on.
        log_level: Least level that is logged.
        log_format: ``text``, or ``json`` for one object per line.
    """

    model_config = SettingsConfigDict(env_prefix="SLUICE_", frozen=True, extra="forbid")

    data_dir: Path = Path("sluice-data")
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    cores: int = Field(default_factory=lambda: os.cpu_count() or 1, ge=1)
    buckets: int | None = Field(default=None, ge=1)
    driver_memory: str = Field(default=DRIVER_MEMORY, pattern=r"^\d+[kmgt]$")
    max_rows_per_batch: int = Field(default=4_000_000, ge=1)
    target_batch_s: float = Field(default=2.0, ge=0, allow_inf_nan=False)
    rows_per_partition: int | None = Field(default=None, ge=1)
    rows_file_kb: int = Field(default=256, ge=0)
    result_retention: str = "3d"
    cache_mb: int = Field(default=1024, ge=1)
    catalog_url: str | None = None
    spark_master: str | None = None
    spark_conf: dict[str, str] = Field(default_factory=dict)
    reports_port: int = Field(default=0, ge=0, le=65535)
    spark_ui: bool = False
    list_interval_ms: int = Field(default=500, ge=10)
    export_dir: Path | None = None
    keep_late_rows: bool = True
    strategy: Strategy = "mem-opt"
    family_strategies: dict[str, Strategy] = Field(default_factory=dict)
    partitioning: Partitioning = "auto"
    cost_model: Literal["paper", "calibrated"] = "calibrated"
    c_sys: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    adaptive: bool = True
    adaptive_interval_s: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    adaptive_min_gain: float = Field(default=0.05, ge=0, lt=1)
    adaptive_horizon_s: float = Field(default=600.0, gt=0, allow_inf_nan=False)
    adaptive_max_age_s: float = Field(default=300.0, gt=0, allow_inf_nan=False)
    adaptive_min_batches: int = Field(default=10, ge=2, le=50)
    log_level: str = Field(default="INFO", pattern=r"^(DEBUG|INFO|WARNING|ERROR)$")
    log_format: str = Field(default="text", pattern=r"^(text|json)$")

    @field_validator("result_retention")
    @classmethod
    def _is_retention(cls, value: str) -> str:
        _retention_us(value)
        return value

    @property
    def result_retention_us(self) -> int | None:
        """Retention of results, µs; None keeps all."""
        return _retention_us(self.result_retention)

    @property
    def bucket_count(self) -> int:
        """Buckets of a fresh checkpoint."""
        return self.buckets if self.buckets is not None else self.cores

    @property
    def driver_memory_bytes(self) -> int:
        """Heap of the driver's JVM, bytes."""
        return int(self.driver_memory[:-1]) << _SHIFTS[self.driver_memory[-1]]

    @property
    def first_batch_rows(self) -> int:
        """Rows admitted to a batch before any was timed, or where time must not decide."""
        return BatchSize.first(ceiling=self.max_rows_per_batch, target_s=self.target_batch_s).rows

    @property
    def one_machine(self) -> bool:
        """Tell whether Spark's workers are processes of this machine."""
        return self.master.startswith("local[")

    @property
    def master(self) -> str:
        """Spark master to connect to."""
        return self.spark_master if self.spark_master is not None else f"local[{self.cores}]"

    def for_data_dir(self, path: Path) -> Settings:
        """Return the same settings with another data directory."""
        return self.model_copy(update={"data_dir": path})


def _retention_us(text: str) -> int | None:
    """Return how long results are kept, µs, None forever; pydantic turns a ValueError into its own."""
    if text.strip().lower() == FOREVER:
        return None
    try:
        return parse_duration_us(text)
    except InvalidDuration as error:
        raise ValueError(f'Write a length of time such as "7d" or "24h", or "{FOREVER}"') from error


def load_settings(**options: object) -> Settings:
    """Read the environment, overridden by the options that are not None.

    Args:
        **options: Fields of `Settings` as given on the command line.

    Raises:
        InvalidSetting: A value does not fit; names the field and what was given.
    """
    given = {name: value for name, value in options.items() if value is not None}
    try:
        return Settings(**given)  # type: ignore[arg-type]  # pydantic checks the values at run time
    except SettingsError as error:
        raise InvalidSetting(f"{error}", hint="Write the variable as a JSON object.") from error
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "?"
        raise InvalidSetting(
            f'setting "{name}" cannot be {first["input"]!r}',
            detail=f"{first['msg'].removeprefix('Value error, ')}.",
            hint=f"Set it by --{name.replace('_', '-')} or by SLUICE_{name.upper()}.",
        ) from error
