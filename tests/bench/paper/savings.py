"""Savings of slicing in closed form: Equation 4, Figure 11, merge difference (State-Slice, VLDB 2006).

Equation 4 follows from Equations 1-3 with ρ = W1 / W2, 0 < ρ < 1, terms linear in λ left out (purging,
splitting, unions by punctuation: they vanish beside those in λ² as rates or windows grow):

                          memory                            CPU
    over pull-up          (1-ρ)(1-S_σ) / 2                  ((1-ρ)(1-S_σ) + (2-ρ) S_1) / (1 + 2 S_1)
    over push-down        ρ / (1 + 2ρ + (1-ρ) S_σ)          S_σ S_1 / (ρ (1-S_σ) + S_σ + S_σ S_1 + ρ S_1)

All are fractions of the alternative's cost, and none is negative. At rates so low that the terms linear in λ
decide, state-slice costs more: they are 7 λ, against 2 λ of pull-up and 4 λ of push-down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.costs.cost import Terms
from tests.bench.paper.setting import JOIN_SELECTIVITIES

#: Points of each axis of Figure 11, from 0 to 1.
STEPS = 21


@dataclass(frozen=True, slots=True)
class Savings:
    """Savings of state-slice for the paper's two queries, as fractions of the alternative's cost.

    Attributes:
        rho: ρ = W1 / W2, 0 to 1.
        filter_selectivity: S_σ, 0 to 1.
        join_selectivity: S_1, 0 to 1; memory does not depend on it.
    """

    rho: float
    filter_selectivity: float
    join_selectivity: float
    memory_over_pullup: float
    memory_over_pushdown: float
    cpu_over_pullup: float
    cpu_over_pushdown: float


def savings(rho: float, sigma: float, join: float) -> Savings:
    """Return Equation 4.

    Source: State-Slice §4.3, Equation 4. It follows from Equations 1-3, as the tests check, if the numerators
        on the left are read as C_p of Eq. 1 in its third line and C_p of Eq. 2 in its fourth; our copy of the
        text has C_m and C_p of Eq. 1 there.

    >>> savings(0.5, 0.5, 0.1).memory_over_pullup
    0.125
    """
    pushed = rho * (1 - sigma) + sigma + sigma * join + rho * join
    return Savings(
        rho,
        sigma,
        join,
        memory_over_pullup=(1 - rho) * (1 - sigma) / 2,
        memory_over_pushdown=rho / (1 + 2 * rho + (1 - rho) * sigma),
        cpu_over_pullup=((1 - rho) * (1 - sigma) + (2 - rho) * join) / (1 + 2 * join),
        cpu_over_pushdown=sigma * join / pushed if pushed else 0.0,
    )


def figure_11() -> list[Savings]:
    """Return Figure 11's surfaces: Equation 4 over a grid of ρ and S_σ, for each S_1 of Table 3."""
    grid = [step / (STEPS - 1) for step in range(STEPS)]
    return [savings(rho, sigma, join) for join in JOIN_SELECTIVITIES for rho in grid for sigma in grid]


def merge_difference(
    rate_per_s: float, widths_s: Sequence[float], join_selectivity: float, *, c_sys: float = 0.0
) -> Terms:
    """Return the cost of a merged slice less that of the slices it replaces, without selections.

    With k slices of widths that sum to ΔW, both sides together:

    - route: each of the 2 λ² ΔW S_1 results is compared with each of the k-1 windows that end inside: more
    - purge: 2 λ arriving rows purge k-1 slices fewer: less
    - system: 2 λ rows pass k-1 operators fewer, C_sys each: less

    Probing and memory are the same: each male meets the same rows. Slices that begin at 0 save besides one
    union for each query that ends in them beyond the first (``PaperModel`` counts it).

    Source: State-Slice §5.2, the difference of Figure 13 (a) and (b), with the sign turned and
        λ_A = λ_B = λ. For slices i to j the paper prints C_sys (j-i+1), all operators of (a). We differ: (b)
        has one operator as well, and by the paper the overhead is proportional to their number, so here it is
        C_sys (j-i).
    """
    inner = len(widths_s) - 1
    return Terms(
        purge=-2 * rate_per_s * inner,
        route=2 * rate_per_s**2 * sum(widths_s) * join_selectivity * inner,
        system=-2 * rate_per_s * c_sys * inner,
    )
