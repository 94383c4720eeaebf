"""The engine as it is answered."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from api.timestamps import timestamp, timestamp_or_none
from service.engine.engine import EngineStatus
from service.inputs.voided import VoidedBatch


class EngineOut(BaseModel):
    """The Spark job that runs the shared plan."""

    state: Literal["starting", "running", "paused", "failed", "stopped"]
    state_at: str = Field(description="Since when.")
    run_id: str | None = Field(
        description="Identity of the running Spark query; a change of plan does not change it. "
        "Null before the start."
    )
    batch: int | None = Field(description="Last committed micro-batch.")
    plan_version: int = Field(description="Plan version in force; 0 before the first.")
    error: str | None = Field(description="Why the engine failed.")
    failures: int = Field(
        description="How often the batch after `batch` has failed in a row, the same way; 0 while it runs."
    )
    next_try_at: str | None = Field(
        description="When a failed job is started again; null while it runs, and where a person has to look."
    )
    spark_ui: str | None = Field(description="Address of Spark's own web page.")

    @classmethod
    def of(cls, status: EngineStatus) -> Self:
        """Return an engine's status as it is answered."""
        return cls(
            state=status.state,
            state_at=timestamp(status.since_us),
            run_id=status.run_id or None,
            batch=status.batch,
            plan_version=status.plan_version,
            error=status.error,
            failures=status.failures,
            next_try_at=timestamp_or_none(status.retry_at_us),
            spark_ui=status.spark_ui,
        )


class SkipIn(BaseModel):
    """What to leave out of the batch that fails."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"stream": "clicks"}, {}]})

    stream: str | None = Field(default=None, description="Stream whose rows are left out; null for all.")


class SkipOut(BaseModel):
    """A batch that was voided."""

    batch: int = Field(description="The batch.")
    reason: str = Field(description="What it failed with.")
    actor: str = Field(description="Who decided.")
    at: str = Field(description="When.")

    @classmethod
    def of(cls, voided: VoidedBatch) -> Self:
        """Return a decision as it is answered."""
        return cls(batch=voided.batch, reason=voided.reason, actor=voided.actor, at=timestamp(voided.at_us))
