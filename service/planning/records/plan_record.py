"""Permanent record of a plan version: strategies, steps, and chains that no strategy can reproduce.

The record is compact, since a service makes thousands of versions. It contains only chains that were weighed
or cut by hand, and the short form of steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from catalog.documents.codec import decode, encode
from catalog.store.repositories.plan_history import HistoryEntry
from catalog.values.plan import Boundaries, Plan, Strategy
from planner.build.objective import Objective
from planner.build.transitions.diff import diff
from planner.build.transitions.retained_boundaries import boundaries_of
from planner.explain.documents.primitive_document import short_documents


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan version in the history.

    Attributes:
        strategy: Strategy of families without their own; None in old records, which have no strategies.
        family_strategies: Strategies of families by name.
        chains: Boundaries of the families whose strategy weighs costs or whose chain was cut by hand, by id.
        changes: Steps from the version before, as JSON values.
        changes_left_out: Number of steps that are not recorded.
    """

    strategy: Strategy | None = None
    family_strategies: dict[str, Strategy] = field(default_factory=dict)
    chains: dict[str, Boundaries] = field(default_factory=dict)
    changes: tuple[dict[str, Any], ...] = ()
    changes_left_out: int = 0

    def encoded(self) -> str:
        """Return the record as JSON text."""
        return encode(self).decode()


def record_of(previous: Plan | None, plan: Plan, objective: Objective) -> PlanRecord:
    """Return the history's record of a version.

    Args:
        previous: The previous version, or None for the first one.
        plan: The version.
        objective: Objective that the version was planned for.
    """
    changes, left_out = short_documents(previous, plan, diff(previous, plan))
    return PlanRecord(
        strategy=objective.strategy,
        family_strategies=dict(objective.family_strategies),
        chains={f.id: boundaries_of(f) for f in plan.families if f.given or f.strategy == "cpu-opt"},
        changes=tuple(changes),
        changes_left_out=left_out,
    )


def record_in(entry: HistoryEntry) -> PlanRecord:
    """Return the record of an entry of the history."""
    return decode(PlanRecord, entry.document)
