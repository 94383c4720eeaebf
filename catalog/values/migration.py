"""Requested migrations: the request, the plan made for it, and its cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class SliceRows:
    """Rows of one slice at the end of a batch.

    Attributes:
        family: Name of the family.
        join: Id of the join in the family.
        side: ``a`` or ``b``.
        slice: Number in the chain, from 1.
        window: Interval of the slice, as text for people; None if the plan is no longer known.
        rows: Rows held.
        bytes: Encoded bytes of these rows.
    """

    family: str
    join: str
    side: str
    slice: int
    window: str | None
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class MigrationOutcome:
    """Measured cost of a migration.

    Attributes:
        batch: First batch under the migration's plan version, or under a later plan version that took effect
            at the same batch boundary.
        plan_version: Plan version of ``batch``.
        active_at_us: Wall clock when ``batch`` was committed, µs UTC.
        seconds: Duration of ``batch`` from its start to its commit, seconds.
        median_seconds: Median duration of the batches before ``batch``, seconds; None if there were none.
        batches: Number of batches of which the median was taken.
        before: Slices of the changed families at the end of the batch before ``batch``.
        after: Slices of the changed families at the end of ``batch``.
    """

    batch: int
    plan_version: int
    active_at_us: int
    seconds: float
    median_seconds: float | None
    batches: int
    before: tuple[SliceRows, ...]
    after: tuple[SliceRows, ...]


@dataclass(frozen=True, slots=True)
class Migration:
    """A migration as it was requested and planned.

    Attributes:
        request: The request, as JSON values (hence ``Any``).
        cause: The request in words.
        primitives: Steps from the previous plan version, in the short form of the plan's history.
        primitives_left_out: Number of further steps, which are not stored.
        families: Ids of the families that the steps change.
        rows_to_move: Upper bound of the stored rows that will change their slice; None if they were not
            counted.
        bytes_to_move: Encoded bytes of these rows; None if the rows were not counted.
        error: Reason why the migration failed; None if it did not fail.
        error_code: Code of the error; None if there is no error.
        outcome: Measured cost; None while the migration is pending, or if the cost was not looked up yet.
    """

    request: dict[str, Any]
    cause: str
    primitives: tuple[dict[str, Any], ...] = ()
    primitives_left_out: int = 0
    families: tuple[str, ...] = ()
    rows_to_move: int | None = None
    bytes_to_move: int | None = None
    error: str | None = None
    error_code: str | None = None
    outcome: MigrationOutcome | None = None


@dataclass(frozen=True, slots=True)
class MigrationRecord:
    """A migration in the catalog.

    Attributes:
        id: 1, 2, ...
        plan_version: Plan version that the migration made; None if it failed.
        actor: Who requested it.
        created_at_us: Wall clock, µs UTC.
        migration: The migration.
    """

    id: int
    plan_version: int | None
    actor: str
    created_at_us: int
    migration: Migration


@dataclass(frozen=True, slots=True)
class ExplicitStep:
    """A requested split or merge.

    Attributes:
        kind: ``split`` or ``merge``.
        at_us: Boundary that a split makes or a merge removes, µs.
        side: Side, as the name of its stream or as ``a`` or ``b``; None for both sides.
        path: Path of the step in the request.
    """

    kind: Literal["split", "merge"]
    at_us: int
    side: str | None = None
    path: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True)
class OnLeave:
    """Policy for chain boundaries and chain length that only departed queries needed: when to drop them.

    Attributes:
        policy: When to drop them. ``auto``: in the plan version in which a query leaves. ``manual``: at a
            clean-up that a user requests. ``after``: at an automatic clean-up.
        after_us: Time from the departure of the last query to the clean-up, µs; only for ``after``.
    """

    policy: Literal["auto", "manual", "after"] = "auto"
    after_us: int = 0

    @property
    def keeps(self) -> bool:
        """Return whether slices stay after the query that needed them has left."""
        return self.policy != "auto"
