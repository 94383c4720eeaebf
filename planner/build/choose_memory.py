"""Memory policy of a join without windows: the first one under which its rows should fit.

    plain     k_i + r_i k_j / r_j + L_ij             every row in memory
    dbf       k_i + r_i k_j / r_j + C                leading rows wait on disk; C rows are read ahead
    hybrid    k_i + Mul_i + r_i Mul_j / r_j + C      like dbf, and the last k_i rows wait for their place
    msf       k_i + Mul_i + r_i Mul_j / r_j + L'     like hybrid without the disk; only if requested

Sorting delays results by k rows, so a policy with sorting is chosen only if no other policy stays within the
memory limit.

Source: Window-Oblivious Join (Wu, Tan, Zhou), §4 and §4.2. Symbols, differences: ``planner.orders.buffers``.
"""

from __future__ import annotations

from catalog.values.plan import FamilyPlan
from catalog.values.policies.memory import Memory
from planner.build.objective import Objective
from planner.costs.rates import FamilyRates, memory_rows
from planner.families.families import SIDES

_BYTES_PER_MB = 1_000_000
#: The policies from which the planner chooses, in the order in which it tries them.
_CHOICES = (Memory(), Memory("dbf"), Memory("hybrid"))


def choose_memory(family: FamilyPlan, objective: Objective, rates: FamilyRates) -> Memory:
    """Return the memory policy of a family: where its rows wait for their partners.

    Args:
        family: The family; a family with windows keeps all its rows in memory.
        objective: The requested memory policy, and the memory limit.
        rates: Known or assumed rates of the family.

    Returns:
        The requested policy. If the planner chooses, the first policy that is expected to stay within the
            memory limit, or the last policy if none does.
    """
    if not family.ordered:
        return Memory()
    if objective.oblivious_memory != "auto":
        return Memory(objective.oblivious_memory)
    limit = objective.oblivious_memory_mb
    if limit is None:
        return Memory()
    fitting = (memory for memory in _CHOICES if memory_mb(memory, rates) <= limit)
    return next(fitting, _CHOICES[-1])


def may_sort(objective: Objective, former: FamilyPlan | None) -> bool:
    """Return whether rows of a family may be sorted, under the objective or the former plan."""
    sorting = objective.chooses_memory or objective.oblivious_memory in ("msf", "hybrid")
    return sorting or (former is not None and former.memory.sorts)


def memory_mb(memory: Memory, rates: FamilyRates) -> float:
    """Return the memory, in MB, that the rows of an ordered family are expected to take."""
    size = 0.0
    for side, other in ((SIDES[0], SIDES[1]), (SIDES[1], SIDES[0])):
        rows = memory_rows(memory, rates.side(side), rates.side(other))
        size += 0.0 if rows is None else rows * rates.side(side).row_bytes.value
    return size / _BYTES_PER_MB
