"""Preview of a change: the new plan, the primitives that lead to it, and each strategy's cost.

    queries ── build_plan ── Plan ──┬── diff(previous) ── primitives, rows moved
               profile, models ─────┴── explain_family ── costs by strategy, the term that decides

A preview changes nothing. It builds the plan with the same function, and from the same values, as planning.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from catalog.steps import stream_names
from catalog.values.calibration import Calibration
from catalog.values.plan import JoinPlan, Plan
from catalog.values.primitive import Primitive
from catalog.values.query import Query
from catalog.values.statistics import Profile
from catalog.values.stream import Stream
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.build.transitions.diff import JoinKey, Shape, diff, rows_moved, shapes
from planner.build.transitions.retained_boundaries import NO_BOUNDARIES, ByFamily
from planner.costs.cost import Cost
from planner.costs.cost_models import CostModels
from planner.costs.rates import with_plan
from planner.explain.explain import FamilyReport, explain_family, sharing_costs
from planner.explain.explicit_chain import explicit_chain
from planner.families.families import SIDES, SideName
from planner.families.texts.display import labels_of
from planner.trees.choice import RankedOrders

#: Requested boundaries of a side, µs, by family id and side.
GivenChains = Mapping[str, Mapping[SideName, Sequence[int]]]

#: Number of rows held by each slice, by family id, join id, side and number of the slice, from 1.
HeldRows = Mapping[tuple[str, str, SideName, int], float]

_NO_CHAINS: GivenChains = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Preview:
    """Expected effect of a change.

    Attributes:
        plan: The plan that would be built.
        previous: Current version, which ``plan`` would follow; None before the first plan.
        primitives: Primitives that lead from ``previous`` to ``plan``.
        rows_moved: Upper bound on the number of rows that move to another slice; None if stored rows were not
            counted.
        reports: Costs by family, in the plan's order.
        profile: Statistics that were used.
        bytes_moved: Encoded bytes of ``rows_moved``; None if stored rows were not counted.
        orders: Possible join orders of new queries over more than two streams, by query name.
    """

    plan: Plan
    previous: Plan | None
    primitives: tuple[Primitive, ...]
    rows_moved: float | None
    reports: tuple[FamilyReport, ...]
    profile: Profile
    bytes_moved: float | None = None
    orders: Mapping[str, RankedOrders] = field(default_factory=dict)


def preview(
    queries: Sequence[Query],
    streams: Mapping[int, Stream],
    previous: Plan | None = None,
    *,
    objective: Objective,
    calibration: Calibration,
    profile: Profile,
    chains: GivenChains = _NO_CHAINS,
    held: HeldRows | None = None,
    held_bytes: HeldRows | None = None,
    left: ByFamily = NO_BOUNDARIES,
    keep: Collection[str] = (),
) -> Preview:
    """Plan queries and report the expected effects, without changing anything.

    Args:
        queries: All queries that would run.
        streams: Streams by id.
        previous: Plan version in force; None if there is none.
        objective: Strategies, pinned chains, cost model and partitioning.
        calibration: Constants of the calibrated cost model.
        profile: Statistics of streams, filters and families.
        chains: Boundaries whose cost is reported beside the costs of the strategies, by family id.
        held: Rows that the slices of ``previous`` hold; None if they were not counted.
        held_bytes: Encoded bytes of these rows; None if they were not counted.
        left: Boundaries of departed queries that stay in the chains, by family id.
        keep: Ids of families whose joins are chosen again only if their queries change.

    Returns:
        The preview.

    Raises:
        InvalidChain: Given boundaries do not form a chain for the family's queries.
    """
    plan = build_plan(
        queries,
        streams,
        previous,
        objective=objective,
        calibration=calibration,
        profile=profile,
        left=left,
        keep=keep,
    )
    models, reports = objective.models(calibration), []
    expected = with_plan(profile, plan)
    for family in plan.families:
        given: tuple[JoinPlan, ...] = ()
        if family.id in chains:
            labels = labels_of(family, stream_names(plan))
            names = {side: f'"{labels[side]}"' for side in SIDES}
            given = explicit_chain(family, chains[family.id]["a"], chains[family.id]["b"], names=names)
        reports.append(explain_family(family, expected, models, given=given))
    steps = diff(previous, plan)
    rows, size = (moved(previous, counts, steps) for counts in (held, held_bytes))
    return Preview(plan, previous, steps, rows, tuple(reports), profile, size)


def explain_plan(plan: Plan, profile: Profile, models: CostModels) -> dict[str, FamilyReport]:
    """Return the costs of a plan's families under every strategy, by family id."""
    expected = with_plan(profile, plan)
    return {family.id: explain_family(family, expected, models) for family in plan.families}


def price_plan(plan: Plan, profile: Profile, models: CostModels) -> dict[str, tuple[Cost, Cost]]:
    """Return two costs of each family of a plan, by family id: as planned, and with a join per query."""
    expected = with_plan(profile, plan)
    return {family.id: sharing_costs(family, expected, models) for family in plan.families}


def moved(previous: Plan | None, held: HeldRows | None, steps: Sequence[Primitive]) -> float | None:
    """Return an upper bound on the held rows that change slices, or None if rows were not counted.

    Args:
        previous: Plan in force, or None before the first plan.
        held: Rows or bytes that the slices of ``previous`` hold, or None if they were not counted.
        steps: Primitives that lead to the next plan.
    """
    if previous is None:
        return 0.0
    return None if held is None else rows_moved(_with_rows(shapes(previous), held), steps)


def _with_rows(joins: Mapping[JoinKey, Shape], held: HeldRows) -> dict[JoinKey, Shape]:
    """Return the shapes of joins with the number of rows that each slice holds."""
    filled = {}
    for (family, join), shape in joins.items():
        for side in SIDES:
            pieces = tuple(
                replace(piece, rows=held.get((family, join, side, number), 0.0))
                for number, piece in enumerate(shape.side(side), start=1)
            )
            shape = shape.with_side(side, pieces)
        filled[family, join] = shape
    return filled
