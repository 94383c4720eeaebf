"""Cost of a family as it is joined: loads priced under both models, and their sum."""

from __future__ import annotations

from catalog.values.plan import FamilyPlan
from planner.costs.cost import Cost, CostModel, Terms
from planner.costs.loads import join_input, slice_loads
from planner.costs.rates import FamilyRates
from planner.costs.verdicts import verdict_load


def family_cost(family: FamilyPlan, rates: FamilyRates, paper: CostModel, calibrated: CostModel) -> Cost:
    """Return the expected cost of a planned family: the sum over its slices, its input and its verdicts.

    Args:
        family: The family, with joins of any strategy.
        rates: Known or assumed rates of the family.
        paper: Comparisons per second.
        calibrated: CPU seconds per second.

    Returns:
        The cost under both models.

    Source: State-Slice §5.2, Lemma 2: a chain's cost is the sum of its slices'. Joins of one slice cost what
        Equations 1 and 2 say.
    """
    loads = [load for join in family.joins for load in slice_loads(family, join, rates)]
    arriving, verdicts = join_input(family, family.joins, rates), verdict_load(family, rates)

    def terms(model: CostModel) -> Terms:
        besides = [model.input_terms(arriving), model.verdict_terms(verdicts)]
        return sum((model.slice_terms(load) for load in loads), start=sum(besides, start=Terms()))

    return Cost(
        memory_rows=sum(load.held_rows for load in loads),
        memory_bytes=sum(load.held_bytes for load in loads) + verdicts.marks_bytes,
        comparisons=terms(paper),
        cpu_s=terms(calibrated),
    )
