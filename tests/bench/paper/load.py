"""Service rate against load: the middle of Table 3 at its highest rate, times a growing factor.

Not in the paper. How much a saved comparison is worth depends on how much of a micro-batch's time comparisons
take, and that grows with the square of the rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.bench.paper.setting import RATES_PER_S, THREE_WINDOWS_S, Setting

LOAD_FACTORS = (1.0, 2.0, 4.0, 8.0)
JOIN_SELECTIVITY, FILTER_SELECTIVITY = 0.1, 0.5


def load_settings(factors: Sequence[float] | None = None) -> Iterator[Setting]:
    """Yield the middle setting of every distribution at every factor, by default of ``LOAD_FACTORS``."""
    for distribution, windows_s in THREE_WINDOWS_S.items():
        for factor in factors or LOAD_FACTORS:
            yield Setting(
                distribution, windows_s, RATES_PER_S[-1], factor, JOIN_SELECTIVITY, FILTER_SELECTIVITY
            )
