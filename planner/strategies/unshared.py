"""No sharing: one join per query, with the query's filters before the join.

q1 [RANGE 10 SECONDS]    q2 [RANGE 30 SECONDS] A.v < 0.2

join of q1   slices of A  [0s, 10s)  every row
join of q2   slices of A  [0s, 30s)  A.v < 0.2
"""

from __future__ import annotations

from catalog.values.plan import JoinPlan, PlannedQuery
from planner.costs.cost import CostModel
from planner.costs.rates import FamilyRates
from planner.families.families import SIDES, Family, side_window_us
from planner.strategies.slice_dag import chain_of_path


def unshared(family: Family, rates: FamilyRates, model: CostModel) -> tuple[JoinPlan, ...]:
    """Give each query its own join, as if every query ran as its own job.

    Args:
        family: Queries and their filters.
        rates: Not needed: there is nothing to choose.
        model: Not needed.

    Returns:
        One join per query, with one slice per side; sorted by join id.
    """
    return tuple(sorted((_own_join(query) for query in family.queries), key=lambda join: join.id))


def _own_join(query: PlannedQuery) -> JoinPlan:
    a, b = (chain_of_path([0, side_window_us(query, side)], [query], side) for side in SIDES)
    return JoinPlan(f"q{query.id}", (query.id,), a, b)
