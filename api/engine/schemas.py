"""The engine in answers."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from api.timestamps import timestamp, timestamp_or_none
from catalog.values.batch import BatchManifest
from service.engine.engine_control import EngineStatus
from service.inputs.reading.voided import VoidedBatch


class EngineOut(BaseModel):
    """The Spark job that runs the shared plan."""

    state: Literal["starting", "running", "paused", "failed", "stopped", "standby"] = Field(
        description="`stopped` also means that no process runs an engine at present."
    )
    state_at: str = Field(description="Time since which the engine is in this state.")
    run_id: str | None = Field(
        description="Id of the running Spark query; a change of the plan does not change the id. Null before "
        "the start."
    )
    batch: int | None = Field(description="Last committed micro-batch.")
    plan_version: int = Field(description="Plan version in force; 0 before the first.")
    error: str | None = Field(
        description="Reason why the engine failed or stopped without a request; shown also while it restarts."
    )
    failures: int = Field(
        description="Number of consecutive failures, in the same way, of the batch that follows `batch`; 0 "
        "while the job runs."
    )
    next_try_at: str | None = Field(
        description="Time at which the failed job is restarted automatically; null while the job runs, or if "
        "manual action is needed."
    )
    input_held: str | None = Field(
        description="Reason why running batches read no input: the disk is nearly full. Changes of the plan "
        "still take effect, and reading resumes automatically when there is space again. Null while input is "
        "read."
    )
    spark_ui: str | None = Field(description="Address of Spark's own web page.")

    @classmethod
    def of(cls, status: EngineStatus, last: BatchManifest | None, input_held: str | None) -> Self:
        """Build the response model of an engine status.

        Args:
            status: Status that the engine reports.
            last: The last committed batch.
            input_held: Reason why batches read no input at present; None if they read input.
        """
        return cls(
            state=status.state,
            state_at=timestamp(status.since_us),
            run_id=status.run_id or None,
            batch=None if last is None else last.batch,
            plan_version=0 if last is None else last.plan_version,
            error=status.error,
            failures=status.failures,
            next_try_at=timestamp_or_none(status.retry_at_us),
            input_held=input_held,
            spark_ui=status.spark_ui,
        )


class SkipIn(BaseModel):
    """The input to leave out of the failing batch."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"stream": "clicks"}, {}]})

    stream: str | None = Field(default=None, description="Stream whose rows are left out; null for all.")


class SkipOut(BaseModel):
    """A batch that was voided."""

    batch: int = Field(description="Number of the voided batch.")
    reason: str = Field(description="Error with which the batch failed.")
    actor: str = Field(description="Author of the decision.")
    at: str = Field(description="Time of the decision.")

    @classmethod
    def of(cls, voided: VoidedBatch) -> Self:
        """Build the response model of a voided batch."""
        return cls(batch=voided.batch, reason=voided.reason, actor=voided.actor, at=timestamp(voided.at_us))


class BatchOut(BaseModel):
    """A committed micro-batch, with its duration and the time spent in each phase."""

    batch: int = Field(description="Number of the batch, from 0, without gaps.")
    plan_version: int = Field(description="Plan version in force in the batch; 0 for none yet.")
    started_at: str
    committed_at: str = Field(description="Time since which the batch's results are visible.")
    seconds: float = Field(description="Wall-clock seconds from the start of the batch to its commit.")
    pack_cpu_s: float = Field(description="CPU seconds for reading and packing rows, summed over all tasks.")
    chain_cpu_s: float = Field(
        description="CPU seconds for joining, storing state and writing results, summed over all tasks."
    )
    rows: int = Field(description="Rows read, including late and rejected rows.")
    late_rows: int
    rejected_rows: int = Field(description="Rows without an event time.")
    state_rows: int | None = Field(
        description="Rows in the state at the end of the batch; null if the batch's slice counters are no "
        "longer kept."
    )
    state_bytes: int | None = Field(
        description="Encoded bytes of the state at the end of the batch; null if `state_rows` is null."
    )
    buckets: int = Field(
        description="Number of buckets among which the batch's work was divided; 0 for older batches, which "
        "did not record it."
    )
    hottest_bucket_work: float | None = Field(
        description="Work (rows plus pairs) of the bucket with the most work, divided by the mean work of "
        "all buckets. 1 means no skew; null if there was no work."
    )
    hottest_bucket_cpu_s: float = Field(description="CPU seconds of the bucket that took longest.")

    @classmethod
    def of(cls, manifest: BatchManifest) -> Self:
        """Build the response model of a batch from its manifest."""
        held, shared = bool(manifest.slices), manifest.buckets
        return cls(
            batch=manifest.batch,
            plan_version=manifest.plan_version,
            started_at=timestamp(manifest.started_at_us),
            committed_at=timestamp(manifest.committed_at_us),
            seconds=(manifest.committed_at_us - manifest.started_at_us) / 1e6,
            pack_cpu_s=manifest.cpu.pack_us / 1e6,
            chain_cpu_s=manifest.cpu.chain_us / 1e6,
            rows=sum(s.rows for s in manifest.streams),
            late_rows=sum(s.late_rows for s in manifest.streams),
            rejected_rows=sum(s.rejected_rows for s in manifest.streams),
            state_rows=manifest.state_rows if held else None,
            state_bytes=manifest.state_bytes if held else None,
            buckets=shared.buckets,
            hottest_bucket_work=shared.hottest_work * shared.buckets / shared.work if shared.work else None,
            hottest_bucket_cpu_s=shared.hottest_us / 1e6,
        )


class BatchList(BaseModel):
    """The last committed batches, oldest first."""

    items: list[BatchOut]
