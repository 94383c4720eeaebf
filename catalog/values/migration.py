"""Requested migrations: the request, the plan made for it, and its cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class SliceRows:
    """Rows of one slice at the end of a batch.

    Attributes:
        family: What the family is called.
        join: Join of the family.
        side: ``a`` or ``b``.
        slice: Number in the chain, from 1.
        window: Its window, for people; None if the plan is not known any more.
        rows: Rows held.
        bytes: Encoded bytes of them.
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
        batch: First batch under its plan version, or under a later one that came at the same boundary.
        plan_version: Plan version of that batch.
        active_at_us: Wall clock of that batch's commit, µs UTC.
        seconds: How long that batch took, from its start to its commit.
        median_seconds: Median of the batches before; None if there was none.
        batches: Batches that the median is of.
        before: Slices of the families concerned at the end of the batch before.
        after: The same at the end of that batch.
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
    """A migration as it was asked for and planned.

    Attributes:
        request: What was asked for, as JSON values (hence ``Any``).
        cause: The same in words.
        primitives: Steps from the version before, in the short form of the plan's history.
        primitives_left_out: Steps beyond those that are kept.
        families: Ids of the families that the steps change.
        rows_to_move: Held rows that were expected to change their slice, at most; None if none were counted.
        bytes_to_move: Encoded bytes of them.
        error: Why it failed; None if it did not.
        error_code: Code of the error.
        outcome: What it took; None while it is pending, or not looked up yet.
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
        plan_version: Version that it made; None if it failed.
        actor: Who asked for it.
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
    """One split or merge that is asked for.

    Attributes:
        kind: Which of both.
        at_us: Where the slices meet or shall meet, µs.
        side: Stream of the side (``a`` or ``b``, too); None for both sides.
        path: Where it stands in the request.
    """

    kind: Literal["split", "merge"]
    at_us: int
    side: str | None = None
    path: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True)
class OnLeave:
    """When a chain gives up the boundaries and the length that only departed queries needed.

    Attributes:
        policy: ``auto``: with the version in which a query leaves. ``manual``: with a clean-up. ``after``:
            with a clean-up that comes by itself.
        after_us: How long after the last query left, µs; for ``after`` alone.
    """

    policy: Literal["auto", "manual", "after"] = "auto"
    after_us: int = 0

    @property
    def keeps(self) -> bool:
        """Return whether slices stay after their query has left."""
        return self.policy != "auto"
