"""Selection pull-up: one join with the largest windows, then a router (State-Slice, VLDB 2006, §3.1).

q1 [RANGE 10 SECONDS]    q2 [RANGE 30 SECONDS] A.v < 0.2

slices of A   [0s, 30s)  every row        pairs ──> router ─┬─ nearer than 10 s ──> q1
└─ A.v < 0.2 ─────────> q2
"""

from __future__ import annotations

from catalog.values.plan import SHARED_JOIN, JoinPlan, Slice
from planner.costs.cost import CostModel
from planner.costs.rates import FamilyRates
from planner.families.families import Family, SideName, side_window_us


def pullup(family: Family, rates: FamilyRates, model: CostModel) -> tuple[JoinPlan, ...]:
    """Join all rows in the largest windows, and apply the filters to joined pairs.

    This is sharing without slices: every row with a key is inserted and probes, even if no query can use it.
    Each pair is routed to queries by the distance of its rows, and then checked with their filters.

    Args:
        family: Queries and their filters.
        rates: Not needed: there is nothing to choose.
        model: Not needed.

    Returns:
        One join with one slice per side.

    Source: State-Slice §3.1, Figure 3.
    """
    ids = tuple(q.id for q in family.queries)

    def whole(side: SideName) -> tuple[Slice, ...]:
        return (Slice(0, max(side_window_us(q, side) for q in family.queries), None),)

    return (JoinPlan(SHARED_JOIN, ids, whole("a"), whole("b"), pulled_up=True),)
