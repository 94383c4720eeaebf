"""Expected work of outer, semi and anti joins outside their slices: marks, verdicts and result rows.

    a row of a ── first match behind, first match ahead ──> at most two marks, held for its longest window
               ── the opposite watermark passes a window ──> a verdict; without a match the row is a result

Matches arrive as a Poisson process, as in ``planner.costs.rates``: a row of a has no match for a query with
the probability exp(-S λ_b P(σ_b) (W_a + W_b)). Queries with equal conditions share marks and verdicts. If
the watermark passes several windows of a row in the same batch, the result row is stored once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from catalog.values.plan import FamilyPlan, PlannedQuery
from planner.costs.cost import VerdictLoad
from planner.costs.rates import FamilyRates
from planner.families.families import (
    SIDES,
    Family,
    SideName,
    other_side,
    result_columns,
    side_filter,
    side_window_us,
)


def verdict_load(family: Family | FamilyPlan, rates: FamilyRates) -> VerdictLoad:
    """Return the expected work of the verdicts of a family.

    Args:
        family: The family; if all its joins are inner, there is no such work.
        rates: Known or assumed rates of the family.
    """
    groups: dict[tuple[SideName, int | None, int | None, str | None], list[PlannedQuery]] = {}
    for query in family.queries:
        for side in SIDES:
            if side in query.preserved:
                groups.setdefault((side, query.filter_a, query.filter_b, query.residual), []).append(query)
    marks_per_s = marks_held = verdicts_per_s = given_per_s = 0.0
    for (side, *_), queries in groups.items():
        rows_per_s, matches_per_s = _rates_of(queries[0], side, rates)
        mates = other_side(side)
        windows_s = [
            (rates.seconds(side_window_us(q, side), side), rates.seconds(side_window_us(q, mates), mates))
            for q in queries
        ]
        longest = [max(reach) for reach in zip(*windows_s, strict=True)]
        marks = rows_per_s * sum(-math.expm1(-matches_per_s * reach_s) for reach_s in longest)
        marks_per_s += marks
        marks_held += marks * longest[0]
        absent = sorted({w for w, q in zip(windows_s, queries, strict=True) if q.kind != "semi"})
        verdicts_per_s += rows_per_s * len(absent)
        given_per_s += rows_per_s * _absent_times(absent, matches_per_s, rates.batch_s.value)
        semi = [sum(w) for w, q in zip(windows_s, queries, strict=True) if q.kind == "semi"]
        given_per_s += rows_per_s * -math.expm1(-matches_per_s * max(semi, default=0.0))
    return VerdictLoad(
        marks_per_s=marks_per_s,
        marks_held=marks_held,
        verdicts_per_s=verdicts_per_s,
        given_per_s=given_per_s,
        result_columns=sum(len(result_columns(family.queries, side)) for side in SIDES) if groups else 0,
    )


def _rates_of(query: PlannedQuery, side: SideName, rates: FamilyRates) -> tuple[float, float]:
    """Return the rate of a side's rows that a query checks, and the matches per row and second."""
    mates = other_side(side)
    own, other = rates.side(side), rates.side(mates)
    judged = own.rate.value * own.passing_any([side_filter(query, side)])
    matches = other.rate.value * other.passing_any([side_filter(query, mates)])
    return judged, matches * rates.join_selectivity.value


def _absent_times(windows_s: Sequence[tuple[float, float]], matches_per_s: float, batch_s: float) -> float:
    """Return the mean number of times that a row is stored because it had no match in a window."""
    times = 0.0
    for (before_s, _), (own_s, behind_s) in pairwise([(-math.inf, 0.0), *windows_s]):
        in_another_batch = min((own_s - before_s) / batch_s, 1.0)
        times += in_another_batch * math.exp(-matches_per_s * (own_s + behind_s))
    return times
