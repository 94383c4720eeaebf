"""Cost of a family as it is joined: loads priced under both models, and their sum."""

from __future__ import annotations

from collections.abc import Iterable

from catalog.values.plan import FamilyPlan
from planner.costs.cost import Cost, CostModel, Terms
from planner.costs.loads import join_input, slice_loads
from planner.costs.rates import FamilyRates


def family_cost(family: FamilyPlan, rates: FamilyRates, paper: CostModel, calibrated: CostModel) -> Cost:
    """Return the expected cost of a planned family: the sum of its slices, and what comes before them.

    Args:
        family: The family, with joins of any strategy.
        rates: What is known of it.
        paper: Comparisons per second.
        calibrated: CPU seconds per second.

    Returns:
        The cost under both models.

    Source: State-Slice §5.2, Lemma 2: a chain's cost is the sum of its slices'. Joins of one slice cost what
        Equations 1 and 2 say.
    """
    loads = [load for join in family.joins for load in slice_loads(family, join, rates)]
    arriving = join_input(family, family.joins, rates)
    return Cost(
        memory_rows=sum(load.held_rows for load in loads),
        memory_bytes=sum(load.held_bytes for load in loads),
        comparisons=_summed([paper.input_terms(arriving), *(paper.slice_terms(load) for load in loads)]),
        cpu_s=_summed([calibrated.input_terms(arriving), *(calibrated.slice_terms(load) for load in loads)]),
    )


def _summed(terms: Iterable[Terms]) -> Terms:
    return sum(terms, start=Terms())
