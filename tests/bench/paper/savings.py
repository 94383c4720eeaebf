"""Savings of slicing in closed form: Equation 4 and Figure 11 (State-Slice, VLDB 2006).

Equation 4 follows from Equations 1-3 with ρ = W1 / W2, 0 < ρ < 1, terms linear in λ left out (purging,
splitting, unions by punctuation: they vanish beside those in λ² as rates or windows grow):

                          memory                            CPU
    over pull-up          (1-ρ)(1-S_σ) / 2                  ((1-ρ)(1-S_σ) + (2-ρ) S_1) / (1 + 2 S_1)
    over push-down        ρ / (1 + 2ρ + (1-ρ) S_σ)          S_σ S_1 / (ρ (1-S_σ) + S_σ + S_σ S_1 + ρ S_1)

All are fractions of the alternative's cost, and none is negative. At rates so low that the terms linear in λ
decide, state-slice costs more: they are 7 λ, against 2 λ of pull-up and 4 λ of push-down.
"""

from __future__ import annotations

from dataclasses import dataclass

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
