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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from planner.costs.cost import Terms


@dataclass(frozen=True, slots=True)
class Savings:
    """Savings of the state-slice chain for the paper's two queries, as fractions of the alternative's cost.

    Attributes:
        memory_over_pullup: (C_m of Eq. 1 - C_m of Eq. 3) / C_m of Eq. 1.
        memory_over_pushdown: The same against Eq. 2.
        cpu_over_pullup: (C_p of Eq. 1 - C_p of Eq. 3) / C_p of Eq. 1, in the limit of large rates.
        cpu_over_pushdown: The same against Eq. 2.
    """

    memory_over_pullup: float
    memory_over_pushdown: float
    cpu_over_pullup: float
    cpu_over_pushdown: float


def savings(window_ratio: float, filter_selectivity: float, join_selectivity: float) -> Savings:
    """Return Equation 4.

    Args:
        window_ratio: ρ = W1 / W2, 0 to 1.
        filter_selectivity: S_σ, 0 to 1.
        join_selectivity: S_1, 0 to 1.

    Returns:
        The four fractions; 0 where the alternative costs nothing, either.

    Raises:
        ValueError: An argument is no fraction.

    Source: State-Slice §4.3, Equation 4. It follows from Equations 1-3, as the tests check, if the numerators
        on the left are read as C_p of Eq. 1 in its third line and C_p of Eq. 2 in its fourth; our copy of the
        text has C_m and C_p of Eq. 1 there.

    >>> savings(0.5, 0.5, 0.1).memory_over_pullup
    0.125
    """
    for name, value in (
        ("window_ratio", window_ratio),
        ("filter_selectivity", filter_selectivity),
        ("join_selectivity", join_selectivity),
    ):
        if not 0 <= value <= 1:
            raise ValueError(f"{name} is {value}, but a fraction lies between 0 and 1")
    rho, sigma, join = window_ratio, filter_selectivity, join_selectivity
    pushed = rho * (1 - sigma) + sigma + sigma * join + rho * join
    return Savings(
        memory_over_pullup=(1 - rho) * (1 - sigma) / 2,
        memory_over_pushdown=rho / (1 + 2 * rho + (1 - rho) * sigma),
        cpu_over_pullup=((1 - rho) * (1 - sigma) + (2 - rho) * join) / (1 + 2 * join),
        cpu_over_pushdown=sigma * join / pushed if pushed else 0.0,
    )


@dataclass(frozen=True, slots=True)
class SavingsPoint:
    """One point of Figure 11's surfaces.

    Attributes:
        window_ratio: ρ.
        filter_selectivity: S_σ.
        join_selectivity: S_1; memory does not depend on it.
        savings: The surfaces' heights.
    """

    window_ratio: float
    filter_selectivity: float
    join_selectivity: float
    savings: Savings


def figure_11(
    window_ratios: Sequence[float],
    filter_selectivities: Sequence[float],
    join_selectivities: Iterable[float] = (0.4, 0.1, 0.025),
) -> tuple[SavingsPoint, ...]:
    """Return Figure 11's surfaces as data: Equation 4 over a grid of ρ and S_σ.

    Args:
        window_ratios: ρ, 0 to 1.
        filter_selectivities: S_σ, 0 to 1.
        join_selectivities: One surface of CPU savings for each S_1; by default those of Table 3.

    Returns:
        Points by S_1, then ρ, then S_σ.

    Source: State-Slice §4.3, Figure 11 (a) memory, (b) CPU over pull-up, (c) CPU over push-down. Our copy of
        the text has the caption without the drawings, so the axes and the values of S_1 are ours.
    """
    return tuple(
        SavingsPoint(rho, sigma, join, savings(rho, sigma, join))
        for join in join_selectivities
        for rho in window_ratios
        for sigma in filter_selectivities
    )


def merge_difference(
    rate_per_s: float, widths_s: Sequence[float], join_selectivity: float, *, c_sys: float = 0.0
) -> Terms:
    """Return the cost of a merged slice less that of the slices it replaces, without selections.

    With k slices of widths that sum to ΔW, both sides together:

    - route: each of the 2 λ² ΔW S_1 results is compared with each of the k-1 windows that end inside: more
    - purge: 2 λ arriving rows purge k-1 slices fewer: less
    - system: 2 λ rows pass k-1 operators fewer, C_sys each: less

    Probing and memory are the same: each male meets the same rows. Merging pays where the sum is negative: at
    low rates, narrow slices, few results, or dear operators. Slices that begin at 0 save besides one union
    for each query that ends in them beyond the first (``PaperModel`` counts it; here it would need the
    queries).

    Args:
        rate_per_s: λ of each stream.
        widths_s: Widths of the slices, seconds; at least one.
        join_selectivity: S_1.
        c_sys: C_sys, comparisons per row and operator.

    Returns:
        Cost of the merged slice minus cost of the slices, by term.

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
