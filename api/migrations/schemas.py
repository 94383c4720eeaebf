"""Migrations in requests and answers."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from api.timestamps import timestamp, timestamp_or_none
from catalog.values.migration import MigrationOutcome, SliceRows
from catalog.values.plan import Strategy
from catalog.values.policies.memory import AskedMemory
from planner.explain.documents.preview_document import dry_run_document
from planner.probes.asked_probe import probe_text
from service.documents.migration_document import MigrationDocument
from service.planning.migrating.migrations import MigrationDryRun, MigrationStatus, Policy

_SHORT = (
    "Steps from the previous plan version, each with `type`, `family`, `join` and `text`. Of routes and "
    "filters only `added` and `removed` are given. Equal changes of neighbouring slices are shown as one "
    "step."
)


class MigrationIn(MigrationDocument):
    """Requested migration, such as new strategies, splits and merges, a clean-up or a rollback."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "examples": [
                {"strategy": "cpu-opt", "dry_run": True},
                {"splits": [{"at": "15s"}], "merges": [{"at": "10s", "side": "flights"}]},
                {"cleanup": True},
                {"rollback_to": 7},
                {"on_leave": {"after": "10m"}},
            ]
        },
    )

    dry_run: bool = Field(default=False, description="Only report what would happen, and change nothing.")


class SliceOut(BaseModel):
    """Rows of a slice at the end of a batch."""

    family: str
    join: str
    side: str
    slice: int = Field(description="Number in the chain, from 1.")
    window: str | None = Field(
        description="Interval of the slice; null if the plan of the batch is no longer kept."
    )
    rows: int
    bytes: int

    @classmethod
    def of(cls, found: SliceRows) -> Self:
        """Build the response model of a slice."""
        return cls(
            family=found.family,
            join=found.join,
            side=found.side,
            slice=found.slice,
            window=found.window,
            rows=found.rows,
            bytes=found.bytes,
        )


class TookOut(BaseModel):
    """Measured cost of a migration."""

    batch: int = Field(description="First batch under the migration's plan version.")
    batch_plan_version: int = Field(
        description="Plan version of this batch; it is later than the migration's own version if several "
        "versions took effect at the same batch boundary."
    )
    batch_seconds: float = Field(description="Seconds from the start of this batch to its commit.")
    median_batch_seconds: float | None = Field(
        description="Median duration of the batches before this batch, in seconds."
    )
    median_of: int = Field(description="Number of batches from which the median is computed.")
    ratio: float | None = Field(description="Duration of the batch divided by the median.")
    slices_before: list[SliceOut] = Field(
        description="Rows in the slices of the changed families at the end of the previous batch."
    )
    slices_after: list[SliceOut] = Field(
        description="Rows in the slices of these families at the end of the batch."
    )

    @classmethod
    def of(cls, outcome: MigrationOutcome) -> Self:
        """Build the response model of a migration's cost."""
        median = outcome.median_seconds
        return cls(
            batch=outcome.batch,
            batch_plan_version=outcome.plan_version,
            batch_seconds=outcome.seconds,
            median_batch_seconds=median,
            median_of=outcome.batches,
            ratio=round(outcome.seconds / median, 3) if median else None,
            slices_before=[SliceOut.of(found) for found in outcome.before],
            slices_after=[SliceOut.of(found) for found in outcome.after],
        )


class FailureOut(BaseModel):
    """Reason why a migration failed; the previous plan version stays in force."""

    code: str
    detail: str


class MigrationOut(BaseModel):
    """A migration and its progress."""

    id: int
    status: Literal["pending", "active", "failed"] = Field(
        description="`pending` until the first batch under the migration's plan version is committed."
    )
    plan_version: int | None = Field(
        description="Plan version that the migration created; null if it failed."
    )
    actor: str
    created_at: str
    active_at: str | None = Field(
        description="Time at which the first batch under the plan version was committed."
    )
    request: dict[str, Any] = Field(description="The requested changes.")
    cause: str = Field(description="The request in words, as in the history of plans.")
    primitives: list[dict[str, Any]] = Field(description=_SHORT)
    primitives_left_out: int = Field(description="Number of steps that are not shown.")
    rows_to_move: int | None = Field(
        description="Upper bound on the rows in the state that will move to another slice; null if no rows "
        "have been counted."
    )
    bytes_to_move: int | None = Field(description="Encoded bytes of these rows.")
    took: TookOut | None = Field(description="The measured cost, once the migration is active.")
    error: FailureOut | None

    @classmethod
    def of(cls, status: MigrationStatus) -> Self:
        """Build the response model of a migration."""
        record, migration = status.record, status.record.migration
        error = None
        if migration.error is not None:
            error = FailureOut(code=migration.error_code or "", detail=migration.error)
        outcome = migration.outcome
        return cls(
            id=record.id,
            status=status.state,
            plan_version=record.plan_version,
            actor=record.actor,
            created_at=timestamp(record.created_at_us),
            active_at=timestamp_or_none(None if outcome is None else outcome.active_at_us),
            request=migration.request,
            cause=migration.cause,
            primitives=list(migration.primitives),
            primitives_left_out=migration.primitives_left_out,
            rows_to_move=migration.rows_to_move,
            bytes_to_move=migration.bytes_to_move,
            took=None if outcome is None else TookOut.of(outcome),
            error=error,
        )


class MigrationPage(BaseModel):
    """Some migrations, oldest first."""

    items: list[MigrationOut]
    next_cursor: str | None = Field(description="Send as `after` for the next page; null on the last one.")
    has_more: bool


class CostOut(BaseModel):
    """Cost of a plan, by family and in total, under two cost models with the same expected rates."""

    memory_rows: float
    memory_bytes: float
    cpu_comparisons_per_s: float = Field(
        description="CPU cost in comparisons per second, by the paper's model."
    )
    cpu_s_per_s: float = Field(description="CPU seconds per second, by the calibrated model.")
    families: dict[str, dict[str, Any]] = Field(description="Cost by family, with the terms of both models.")


class DryRunCostOut(BaseModel):
    """Cost of the plan before and after the migration."""

    before: CostOut
    after: CostOut


class DryRunOut(BaseModel):
    """Expected effect of a migration."""

    dry_run: Literal[True] = True
    plan_version: int = Field(description="Version that would be made.")
    previous_version: int = Field(description="Plan version that precedes it; 0 if there is none.")
    primitives: list[dict[str, Any]] = Field(
        description="Steps from the plan in force, each with `type`, `family`, `join` and `text`."
    )
    rows_to_move: int | None = Field(
        description="Upper bound on the rows in the state that would move to another slice; null if none "
        "have been counted yet under the newest plan version."
    )
    bytes_to_move: int | None = Field(description="Encoded bytes of these rows.")
    cost: DryRunCostOut

    @classmethod
    def of(cls, found: MigrationDryRun) -> Self:
        """Build the response model of a dry run."""
        return cls.model_validate(dry_run_document(found.preview, found.before))


class AfterOut(BaseModel):
    """Rule for how long a chain keeps the boundaries of removed queries."""

    after_s: float


class PolicyOut(BaseModel):
    """Planning policy in force."""

    strategy: Strategy = Field(description="Strategy of families that have no strategy of their own.")
    family_strategies: dict[str, Strategy]
    probe: str = Field(description="Search method for slices of families without a setting of their own.")
    family_probes: dict[str, str] = Field(
        description="Search methods of families that have a setting of their own."
    )
    family_punctuations: dict[str, dict[str, str]] = Field(
        description="Per family with its own setting, when rows with closed keys are removed from the state "
        "(`purge`) and when result punctuations are produced (`propagate`)."
    )
    oblivious_memory: AskedMemory = Field(
        description="How rows of joins without windows wait until they are joined."
    )
    pinned: dict[str, dict[str, list[float]]] = Field(
        description="Ends of the slices of each family whose chain was split or merged by request, in "
        "seconds: by family id and side."
    )
    on_leave: Literal["auto", "manual"] | AfterOut = Field(
        description="When a chain drops the slice boundaries and the length that only removed queries needed."
    )
    cleanup_due_at: str | None = Field(
        description="Time of the next automatic clean-up; null if none is scheduled."
    )

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """Build the response model of a policy."""
        objective, leave = policy.objective, policy.objective.on_leave
        return cls(
            strategy=objective.strategy,
            family_strategies=dict(objective.family_strategies),
            probe=probe_text(objective.probe),
            family_probes={name: probe_text(own) for name, own in objective.family_probes.items()},
            family_punctuations={
                name: {"purge": own.purge_text, "propagate": own.propagate_text}
                for name, own in objective.family_punctuations.items()
            },
            oblivious_memory=objective.oblivious_memory,
            pinned={
                family: {"a": [at / 1e6 for at in ends.a], "b": [at / 1e6 for at in ends.b]}
                for family, ends in objective.pinned.items()
            },
            on_leave=AfterOut(after_s=leave.after_us / 1e6) if leave.policy == "after" else leave.policy,
            cleanup_due_at=timestamp_or_none(policy.cleanup_due_us),
        )
