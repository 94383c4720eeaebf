"""Chains that no strategy chose: slices merged at will, and cut where no window ends."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

from catalog.values.plan import FamilyPlan, JoinPlan, Plan, PlannedQuery, Slice


def rechained(plan: Plan, seed: int) -> Plan:
    """Return the plan with other chains in all joins: any subset of the windows, and boundaries of nobody."""
    order = random.Random(seed + plan.version)
    return replace(plan, families=tuple(_rechained(family, order) for family in plan.families))


def _rechained(family: FamilyPlan, order: random.Random) -> FamilyPlan:
    return replace(family, joins=tuple(_with_any_chains(family, join, order) for join in family.joins))


def _with_any_chains(family: FamilyPlan, join: JoinPlan, order: random.Random) -> JoinPlan:
    queries = [q for q in family.queries if q.id in join.queries]
    return replace(
        join,
        chain_a=a_chain(queries, "a", _boundaries([q.w_a_us for q in queries], order)),
        chain_b=a_chain(queries, "b", _boundaries([q.w_b_us for q in queries], order)),
    )


def _boundaries(windows: Sequence[int], order: random.Random) -> list[int]:
    inner = {w for w in windows if order.random() < 0.5} | set(
        order.choices(range(1, 40), k=order.randrange(3))
    )
    return [*sorted(w for w in inner if w < max(windows)), max(windows)]


def a_chain(queries: Sequence[PlannedQuery], side: str, ends: Sequence[int]) -> tuple[Slice, ...]:
    """Return the slices with these ends, contiguous from 0."""
    slices = []
    for start, end in itertools.pairwise([0, *ends]):
        reaching = [q for q in queries if (q.w_a_us if side == "a" else q.w_b_us) > start]
        bits = [q.filter_a if side == "a" else q.filter_b for q in reaching]
        keep = None if None in bits else tuple(sorted({bit for bit in bits if bit is not None}))
        slices.append(Slice(start, end, keep))
    return tuple(slices)
