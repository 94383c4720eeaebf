"""Cost of every strategy for a family, and the cost term in which two strategies differ most.

    FamilyPlan ── STRATEGIES ── joins of each ── family_cost ── Cost ── decisive ── Decision

Costs are expected values for one profile of statistics; both models price the same loads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

from catalog.values.plan import FamilyPlan, JoinPlan, Strategy
from catalog.values.statistics import Profile
from planner.build.placement.replication import HASHED, predicted_imbalance
from planner.costs.cost import Cost, CostModelName, SliceLoad, Terms
from planner.costs.cost_models import CostModels
from planner.costs.loads.loads import slice_loads
from planner.costs.rates import FamilyRates, family_rates
from planner.families.families import SIDES, Family, SideName, side_chain
from planner.strategies.strategies import STRATEGIES

Unit = Literal["rows", "comparisons/s", "cpu s/s"]

#: Unit of a model's terms.
UNITS: Mapping[CostModelName, Unit] = {"paper": "comparisons/s", "calibrated": "cpu s/s"}

#: Name of a chain that was requested in addition to the strategies.
GIVEN_CHAIN = "chain"
#: Name of the plan as an alternative, if the plan's strategy would choose other joins now.
PLANNED = "plan"


@dataclass(frozen=True, slots=True)
class SliceCost:
    """Expected rows and cost of a slice.

    Attributes:
        memory_rows: Rows held.
        memory_bytes: Encoded bytes of the rows held.
        comparisons: Terms of the paper's model, per second of event time.
        cpu_s: Terms of the calibrated model, CPU seconds per second of event time.
    """

    memory_rows: float
    memory_bytes: float
    comparisons: Terms
    cpu_s: Terms


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to answer the queries of a family.

    Attributes:
        name: Name of the strategy, ``chain`` for given boundaries, or ``plan`` for a plan that its strategy
            would not choose now.
        joins: Joins of this alternative.
        cost: Cost of the joins.
    """

    name: str
    joins: tuple[JoinPlan, ...]
    cost: Cost


@dataclass(frozen=True, slots=True)
class Decision:
    """The cost term in which the chosen alternative and another one differ most.

    Attributes:
        against: Name of the other alternative.
        term: Name of the term: ``memory_rows``, or a term of the CPU cost.
        unit: Unit of all numbers.
        chosen: Value of this term for the chosen alternative.
        other: Value of this term for the other alternative.
        chosen_total: Total cost of the chosen alternative. The other alternative can cost less if the
            strategy was requested, or if the cheapest alternative is not a chain.
        other_total: Total cost of the other alternative.
    """

    against: str
    term: str
    unit: Unit
    chosen: float
    other: float
    chosen_total: float
    other_total: float


@dataclass(frozen=True, slots=True)
class FamilyReport:
    """Cost of a planned family, beside the cost of its alternatives.

    Attributes:
        family: The family as planned.
        rates: Rates on which its costs are based.
        objective: Name of the cost model by which CPU costs are compared.
        planned: The plan, named after its strategy if the strategy would choose the same joins now, otherwise
            ``plan``. The strategy would choose other joins if the chain is pinned, if it has boundaries of
            departed queries, or if the plan was based on other statistics.
        slices: Cost of each slice, by join id, side and start in µs.
        alternatives: Every strategy with the joins that it would choose now, in the order of ``STRATEGIES``.
        given: The requested chain, or None if no chain was requested.
        decided_by: Term in which the plan differs most from the next best alternative; None if all cost the
            same.
    """

    family: FamilyPlan
    rates: FamilyRates
    objective: CostModelName
    planned: Alternative
    slices: Mapping[tuple[str, SideName, int], SliceCost]
    alternatives: tuple[Alternative, ...]
    given: Alternative | None
    decided_by: Decision | None

    @property
    def cost(self) -> Cost:
        """Cost of the plan."""
        return self.planned.cost

    @property
    def hottest_bucket(self) -> float:
        """Predicted work of the hottest bucket divided by the mean; 1 if no keys are known."""
        return predicted_imbalance(self.family, self.rates, self.family.replication)

    @property
    def hottest_hashed(self) -> float:
        """Predicted work of the hottest bucket divided by the mean, if each key had only one bucket."""
        return predicted_imbalance(self.family, self.rates, HASHED)


def sharing_costs(family: FamilyPlan, profile: Profile, models: CostModels) -> tuple[Cost, Cost]:
    """Return the cost of a planned family, and its cost if each query had its own join.

    Costs of other strategies are left out because CPU-Opt alone takes ten seconds for 2,000 windows.

    Args:
        family: The family as planned.
        profile: Known statistics of streams, filters and family.
        models: The cost models.
    """
    rates = family_rates(family, family.stream_a, family.stream_b, profile)
    apart = replace(family, joins=STRATEGIES["unshared"](_unplanned(family), rates, models.deciding))
    return models.family_cost(family, rates), models.family_cost(apart, rates)


def explain_family(
    family: FamilyPlan,
    profile: Profile,
    models: CostModels,
    *,
    given: Sequence[JoinPlan] = (),
) -> FamilyReport:
    """Return the cost of a planned family under its own and every other strategy.

    Args:
        family: The family as planned.
        profile: Known statistics of streams, filters and family.
        models: The cost models.
        given: Joins of a requested chain, whose cost is reported beside the costs of the strategies.

    Returns:
        The report.
    """
    rates = family_rates(family, family.stream_a, family.stream_b, profile)

    def costed(name: str, joins: Sequence[JoinPlan]) -> Alternative:
        planned = replace(family, joins=tuple(joins))
        return Alternative(name, tuple(joins), models.family_cost(planned, rates))

    unplanned = _unplanned(family)
    alternatives = tuple(
        costed(strategy, choose(unplanned, rates, models.deciding)) for strategy, choose in STRATEGIES.items()
    )
    own = next(a for a in alternatives if a.name == family.strategy)
    planned = own if own.joins == family.joins else costed(PLANNED, family.joins)
    return FamilyReport(
        family=family,
        rates=rates,
        objective=models.objective,
        planned=planned,
        slices={
            (join.id, side, start): _slice_cost(load, models)
            for join in family.joins
            for side, start, load in _loads(family, join, rates)
        },
        alternatives=alternatives,
        given=costed(GIVEN_CHAIN, given) if given else None,
        decided_by=_decided_by(family.strategy, planned, alternatives, models.objective),
    )


def _unplanned(family: FamilyPlan) -> Family:
    """Return a family without its joins."""
    return Family(family.id, family.queries, family.filters_a, family.filters_b)


def decisive(
    chosen: Alternative, other: Alternative, model: CostModelName, *, by_memory: bool = False
) -> Decision | None:
    """Return the term that contributes most to the difference between two alternatives.

    Args:
        chosen: One alternative.
        other: The other alternative.
        model: Model whose terms are compared.
        by_memory: Whether to compare the rows held, and the CPU cost only if the rows are equal.

    Returns:
        The term in which the cheaper alternative saves most, or None if the costs are equal.
    """
    rows = (chosen.cost.memory_rows, other.cost.memory_rows)
    if by_memory and _differ(*rows):
        return Decision(other.name, "memory_rows", "rows", *rows, *rows)
    mine, theirs = terms(chosen.cost, model), terms(other.cost, model)
    if not _differ(mine.total, theirs.total):
        return None
    sign = 1 if theirs.total > mine.total else -1
    ones, others = asdict(mine), asdict(theirs)
    term = max(ones, key=lambda name: sign * (others[name] - ones[name]))
    return Decision(other.name, term, UNITS[model], ones[term], others[term], mine.total, theirs.total)


def terms(cost: Cost, model: CostModelName) -> Terms:
    """Return the terms of a cost under one model."""
    return cost.comparisons if model == "paper" else cost.cpu_s


def _decided_by(
    strategy: Strategy, chosen: Alternative, alternatives: Sequence[Alternative], model: CostModelName
) -> Decision | None:
    """Compare the plan with the best alternative of another cost, by the cost that its strategy minimizes."""
    by_memory = strategy == "mem-opt"

    def aim(alternative: Alternative) -> tuple[float, float]:
        cpu = terms(alternative.cost, model).total
        return (alternative.cost.memory_rows, cpu) if by_memory else (cpu, alternative.cost.memory_rows)

    found = (
        decision
        for other in sorted(alternatives, key=aim)
        if other is not chosen
        and (decision := decisive(chosen, other, model, by_memory=by_memory)) is not None
    )
    return next(found, None)


def _differ(one: float, other: float) -> bool:
    """Return whether two costs differ by more than rounding errors."""
    return abs(one - other) > 1e-9 * max(abs(one), abs(other))


def _loads(family: FamilyPlan, join: JoinPlan, rates: FamilyRates) -> list[tuple[SideName, int, SliceLoad]]:
    """Return the loads of a join's slices, each with the slice's side and start."""
    loads = slice_loads(family, join, rates)
    return [
        (side, piece.w_start_us, load)
        for side in SIDES
        for piece, load in zip(
            side_chain(join, side), [load for load in loads if load.side == side], strict=True
        )
    ]


def _slice_cost(load: SliceLoad, models: CostModels) -> SliceCost:
    return SliceCost(
        memory_rows=load.held_rows,
        memory_bytes=load.held_bytes,
        comparisons=models.paper.slice_terms(load),
        cpu_s=models.calibrated.slice_terms(load),
    )
