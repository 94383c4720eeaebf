"""Status of the engine, and what is wanted of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

EngineState = Literal["standby", "starting", "running", "paused", "failed", "stopped"]
WantedState = Literal["running", "paused"]


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """Observed state of the engine, as it reports it.

    Attributes:
        state: See the picture of ``service.engine.engine``; ``standby`` of one that waits for the lease.
        since_us: Wall clock of the last change of state, µs UTC.
        run_id: Id of the Spark query's run; changes with every restart. Empty before the first.
        error: Why it failed, also while it is started again after that; or None.
        spark_ui: Address of Spark's own page, or None.
        epoch: Fencing epoch.
        failures: How often the batch in hand has failed in a row, the same way; 0 while it runs.
        skippable: Whether that batch was begun and has failed often enough to be voided.
        retry_at_us: When a failed job is started again, µs UTC; None where a person has to look.
        lease: Epoch of the lease under which this is reported; 0 by nobody who holds it.
        followed: Number of the last wish that was followed.
    """

    state: EngineState = "stopped"
    since_us: int = 0
    run_id: str = ""
    error: str | None = None
    spark_ui: str | None = None
    epoch: int = 0
    failures: int = 0
    skippable: bool = False
    retry_at_us: int | None = None
    lease: int = 0
    followed: int = 0


@dataclass(frozen=True, slots=True)
class EngineWish:
    """Desired state of the engine, whichever process runs it.

    Attributes:
        state: Wanted state.
        number: 1, 2, ...: raised by every request.
        restart: Number of the last request that wants the job stopped and started again.
    """

    state: WantedState = "running"
    number: int = 0
    restart: int = 0
