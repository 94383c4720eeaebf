"""Mem-Opt: the chain that holds the fewest rows (State-Slice, VLDB 2006, §5.1, §6.1).

q1 [RANGE 10 SECONDS]    q2 [RANGE 20 SECONDS] A.v < 0.2    q3 [RANGE 30 SECONDS] A.v < 0.2

slices of A   [0s, 10s)                [10s, 20s)             [20s, 30s)
serve         q1 q2 q3                 q2 q3                  q3
keep          every row                A.v < 0.2              A.v < 0.2
"""

from __future__ import annotations

from catalog.values.plan import JoinPlan, Slice
from planner.costs.cost import CostModel
from planner.costs.rates import FamilyRates
from planner.families.families import Family, SideName, side_window_us
from planner.families.filters import weaker_filters
from planner.strategies.shared_join import shared_join
from planner.strategies.slice_dag import chain_of_path


def mem_opt(family: Family, rates: FamilyRates, model: CostModel) -> tuple[JoinPlan, ...]:
    """Cut the chain of each side at every distinct window: all edges e_(i,i+1) of the slice DAG.

    Without selections the state equals the state of one join with the largest window (Theorem 3). With
    selections, the state is the rows that some query can still use (Theorem 4), because rows are filtered at
    each boundary. Merging slices can only save CPU, never state.

    Args:
        family: Queries and their filters.
        rates: Not needed: the state is minimal for any rates.
        model: Not needed.

    Returns:
        The one join that all queries share.

    Source: State-Slice §5.1, Theorem 3, and §6.1, Theorem 4. Difference from the paper: each side has its own
        windows. Definition 3 allows this, but the theorems do not cover it.
    """
    return shared_join(family, _chain(family, "a"), _chain(family, "b"))


def _chain(family: Family, side: SideName) -> tuple[Slice, ...]:
    # The path from each boundary to the next one, without merged slices.
    path = [0, *sorted({side_window_us(q, side) for q in family.queries})]
    return chain_of_path(path, family.queries, side, weaker_filters(family, side))
