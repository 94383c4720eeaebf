"""The one join that all queries of a family share, with any slices.

slices of A  [0s, 10s) [10s, 30s)      slices of B  [0s, 30s)      one join "shared", for all queries
"""

from __future__ import annotations

from catalog.values.plan import SHARED_JOIN, FamilyPlan, JoinPlan, Slice
from planner.families.families import Family


def shared_join(
    family: Family | FamilyPlan, chain_a: tuple[Slice, ...], chain_b: tuple[Slice, ...]
) -> tuple[JoinPlan, ...]:
    """Return one join, with the given chains, that all queries of a family share.

    Args:
        family: The family.
        chain_a: Slices of a.
        chain_b: Slices of b.

    Returns:
        A tuple with this one join.
    """
    return (JoinPlan(SHARED_JOIN, tuple(q.id for q in family.queries), chain_a, chain_b),)
