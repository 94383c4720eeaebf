"""Figures 17 and 18: three queries, all combinations of Table 3's windows and selectivities, four rates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from catalog.values.plan import Strategy
from tests.bench.paper.measure import Measurement, Shape, measure
from tests.bench.paper.plans import plan_of
from tests.bench.paper.setting import (
    FILTER_SELECTIVITIES,
    JOIN_SELECTIVITIES,
    RATE_FACTOR,
    RATES_PER_S,
    THREE_WINDOWS_S,
    Setting,
)

#: The paper's names of the strategies. State-slice is Mem-Opt, as in its Figures 17 and 18.
STRATEGIES: Mapping[str, Strategy] = {
    "pullup": "pullup",
    "pushdown": "pushdown",
    "state-slice": "mem-opt",
}


def three_query_settings(factors: Mapping[float, float] = RATE_FACTOR) -> Iterator[Setting]:
    """Yield every setting; ``factors`` has the rate factor by join selectivity."""
    for distribution, windows_s in THREE_WINDOWS_S.items():
        for filter_selectivity in FILTER_SELECTIVITIES:
            for join_selectivity in JOIN_SELECTIVITIES:
                for rate_per_s in RATES_PER_S:
                    yield Setting(
                        distribution,
                        windows_s,
                        rate_per_s,
                        factors[join_selectivity],
                        join_selectivity,
                        filter_selectivity,
                    )


def measure_three_queries(setting: Setting, shape: Shape) -> list[Measurement]:
    """Measure selection pull-up, stream partition with push-down, and state-slice."""
    plans = {name: plan_of(setting, strategy, shape.batch_s) for name, strategy in STRATEGIES.items()}
    return measure(setting, plans, shape)
