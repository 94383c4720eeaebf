"""Price of a migration: the amount of rows moved, in the unit of the deciding model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from catalog.values.calibration import Calibration
from catalog.values.counters.family_counters import SliceCounters
from catalog.values.plan import FamilyPlan, Plan
from planner.build.transitions.diff import JoinKey, Shape, diff, rows_moved, shapes
from planner.costs.cost import CostModelName
from planner.families.families import SIDES


@dataclass(frozen=True, slots=True)
class Moved:
    """Upper bound on the rows that a migration moves from one slice to another.

    Attributes:
        rows: Rows.
        segments: Segments of these rows.
        bytes: Their encoded bytes.
    """

    rows: float = 0.0
    segments: float = 0.0
    bytes: float = 0.0


def migration_price(moved: Moved, objective: CostModelName, constants: Calibration) -> float:
    """Return the cost of a migration, in the unit of the deciding model.

    In the calibrated model, the cost is an upper bound: every row is filtered in transit and stored again.
    In fact, a merge stores nothing, and for most rows that move to another join only one bit is stored.

    In the paper's model, a row that changes its slice is compared once, as in cross-purge; storing is free.

    Args:
        moved: Rows to move.
        objective: Name of the deciding cost model.
        constants: Constants of this machine.
    """
    if objective == "paper":
        return moved.rows
    return (
        moved.rows * constants.per_moved_row
        + moved.segments * constants.per_stored_segment
        + moved.bytes * constants.per_stored_byte
    )


def moved_by(plan: Plan, wanted: FamilyPlan, slices: Iterable[SliceCounters]) -> Moved:
    """Return the rows that would move if one family were joined in another way.

    Args:
        plan: Plan in force.
        wanted: The family with the new joins.
        slices: Counters of the slices.
    """
    families = tuple(wanted if f.id == wanted.id else f for f in plan.families)
    steps = diff(plan, replace(plan, families=families))
    before = {key: shape for key, shape in shapes(plan).items() if key[0] == wanted.id}
    held = {(s.family, s.join, s.side, s.slice): s for s in slices}

    def amount(of: Callable[[SliceCounters], int]) -> float:
        # ``rows_moved`` is linear in the contents of slices, so it can also count moved segments and bytes.
        return rows_moved(_filled(before, {key: of(counters) for key, counters in held.items()}), steps)

    return Moved(
        amount(lambda s: s.rows), amount(lambda s: s.segments), amount(lambda s: s.own_bytes or s.bytes)
    )


def _filled(
    joins: Mapping[JoinKey, Shape], amounts: Mapping[tuple[str, str, str, int], int]
) -> dict[JoinKey, Shape]:
    filled = {}
    for (family, join), shape in joins.items():
        for side in SIDES:
            pieces = tuple(
                replace(piece, rows=float(amounts.get((family, join, side, number), 0)))
                for number, piece in enumerate(shape.side(side), start=1)
            )
            shape = shape.with_side(side, pieces)
        filled[family, join] = shape
    return filled
