"""Distinct filters of a side and their lineage bits (State-Slice, VLDB 2006, §6.1; tuple lineage in CACQ).

Every distinct filter of a family's side is evaluated once per row and sets one bit in the row's lineage.
(The paper instead attaches to a row the number of the last query whose selection the row passes.)
Invariant: a bit's number always means the same filter, in every row, plan, stored segment and replayed batch.
Stored rows keep the lineage of their arrival. If a number were given to another filter later, old rows would
pass a filter that was never evaluated on them. So numbers are never reused. An unused number takes no space,
because each segment maps only the numbers that it uses to bits of its lineage words (``segments.segment``).

    next_bit   ("*", 40)  ("s1s2-52383a8d/a", 17)  ("s1s2-52383a8d/b", 3)

``next_bit`` has the next free number of each scope (family and side). When a family leaves the plan, its
numbers are merged into the entry "*", at which the numbers of new scopes start. So a family that returns
assigns only numbers above all numbers that it used before, even if a bucket never saw the version without it.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from catalog.values.plan import FamilyPlan, PlannedFilter
from planner.families.families import Family, SideName
from planner.families.threshold import threshold
from planner.predicates.logic.implication import NormalForms, implies, normal_forms
from planner.predicates.read_condition import read_condition


def assign_bits(
    wanted: Mapping[str, tuple[str, ...]], previous: Sequence[PlannedFilter], next_bit: int
) -> tuple[tuple[PlannedFilter, ...], int]:
    """Assign a lineage bit to every wanted filter.

    A filter of the previous plan keeps its bit; new filters get the next bits in the order of their texts. A
    filter that left and returns gets a new bit, because it was not evaluated on rows that arrived in between.

    Args:
        wanted: For each wanted filter, as a canonical predicate, the columns that it reads.
        previous: Filters of the same family and side in the previous plan.
        next_bit: First bit that was never assigned.

    Returns:
        The wanted filters sorted by bit, and the first bit that is still unassigned.

    >>> old = PlannedFilter(0, "v < 2", ("v",))
    >>> [f.bit for f in assign_bits({"v < 2": ("v",), "v < 1": ("v",)}, [old], 1)[0]]
    [0, 1]
    """
    known = {f.sql: f for f in previous}
    filters = [
        PlannedFilter(bit, sql, wanted[sql], threshold(read_condition(sql)))
        for bit, sql in enumerate(sorted(wanted.keys() - known.keys()), next_bit)
    ]
    next_bit += len(filters)
    filters += [known[sql] for sql in wanted if sql in known]
    return tuple(sorted(filters, key=lambda f: f.bit)), next_bit


#: Scope that has the merged count of all families that are not in the plan.
ANY_SCOPE = "*"


def first_bit(next_bit: Mapping[str, int], scope: str) -> int:
    """Return the first number that was never assigned in a scope.

    >>> first_bit({"*": 40, "s1s2-52383a8d/a": 17}, "s1s2-52383a8d/a")
    17
    >>> first_bit({"*": 40}, "s1s3-52383a8d/a"), first_bit({}, "s1s3-52383a8d/a")
    (40, 0)
    """
    return next_bit.get(scope, next_bit.get(ANY_SCOPE, 0))


def kept_counts(next_bit: Mapping[str, int], families: Collection[str]) -> tuple[tuple[str, int], ...]:
    """Return the next free bit of each scope in a plan, and one for all families that are not in the plan.

    Args:
        next_bit: First bit that was never assigned, by scope.
        families: Ids of the plan's families.

    Returns:
        First bit that was never assigned, by scope; sorted.

    >>> kept_counts({"*": 4, "f/a": 9, "f/b": 2, "g/a": 7}, {"g"})
    (('*', 9), ('g/a', 7))
    """
    kept = {scope: bit for scope, bit in next_bit.items() if scope.rpartition("/")[0] in families}
    gone = max((bit for scope, bit in next_bit.items() if scope not in kept), default=0)
    return tuple(sorted((kept | {ANY_SCOPE: gone}).items() if gone else kept.items()))


#: For each filter, the filters that it implies, by lineage bit: a row that passes a filter also passes every
#: filter that this filter implies.
Weaker = Mapping[int, frozenset[int]]

NOTHING_IMPLIED: Weaker = MappingProxyType({})

#: Maximum number of filters of a side to compare pairwise: every added query repeats the comparisons.
_MOST_COMPARED = 64


def weaker_filters(family: Family | FamilyPlan, side: SideName) -> Weaker:
    """Return the filters that each filter of a side implies, by bit; filters that imply no other are absent.

    Some implications are not found. Then a slice keeps both filters, which does not change results.
    """
    return _weaker(family.filters_a if side == "a" else family.filters_b)


@lru_cache(maxsize=128)
def _weaker(filters: tuple[PlannedFilter, ...]) -> Weaker:
    if len(filters) > _MOST_COMPARED:
        return NOTHING_IMPLIED
    implied: dict[int, set[int]] = {}
    for f, g in itertools.permutations(filters, 2):
        if implies(_forms(f.sql), _forms(g.sql)):
            implied.setdefault(f.bit, set()).add(g.bit)
    return MappingProxyType({bit: frozenset(bits) for bit, bits in implied.items()})


@lru_cache(maxsize=1_000)
def _forms(sql: str) -> NormalForms:
    """Parse a filter; cached, because a new plan has most of the previous plan's filters."""
    return normal_forms(read_condition(sql))


def keep_bits(bits: Iterable[int | None], weaker: Weaker = NOTHING_IMPLIED) -> tuple[int, ...] | None:
    """Return the bits of a slice's filter cond'_i: a query can still use a row that has one of these bits.

    Args:
        bits: Bit of the filter of each query that reaches the slice; None for a query without a filter.
        weaker: Filters that each filter implies; a filter of ``bits`` that implies another one is left out.

    Returns:
        Distinct bits, ascending, or None if some query takes every row.

    Source: State-Slice §6.1, cond'_i = cond_i or ... or cond_N.

    >>> keep_bits([3, 1, 3])
    (1, 3)
    >>> keep_bits([3, 1], {3: frozenset({1})})
    (1,)
    >>> keep_bits([3, None])
    """
    distinct: set[int] = set()
    for bit in bits:
        if bit is None:
            return None
        distinct.add(bit)
    for bit in sorted(distinct & weaker.keys(), reverse=True):
        # Compare only with the remaining filters, so that one of two equivalent filters stays.
        if not distinct.isdisjoint(weaker[bit] - {bit}):
            distinct.remove(bit)
    return tuple(sorted(distinct))
