"""Figure 19 (§7.3): Mem-Opt against CPU-Opt for 12, 24 and 36 queries over the windows of Table 4."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench.paper.measure import Measurement, Shape, measure
from tests.bench.paper.plans import plan_of
from tests.bench.paper.setting import (
    MANY_QUERIES_FILTER_SELECTIVITY,
    MANY_QUERIES_JOIN_SELECTIVITY,
    QUERY_COUNTS,
    RATE_FACTOR,
    RATES_PER_S,
    TWELVE_WINDOWS_S,
    Setting,
    many_windows_s,
)

#: C_sys at the paper's rates, comparisons per row and operator. The paper gives no value; this is the largest
#: at which no two of the 12 uniform windows are merged at any rate, as in its Figure 19 (a).
C_SYS_AT_PAPER_RATES = 0.5
#: Two neighbours are merged where λ ΔW S_1 < 1 + C_sys: at higher rates this one merges where that one does.
#: (Not at the start of a chain: merging saves a union there, too, whatever C_sys is.)
C_SYS = RATE_FACTOR[MANY_QUERIES_JOIN_SELECTIVITY] * (1 + C_SYS_AT_PAPER_RATES) - 1

MEM_OPT, CPU_OPT_PAPER, CPU_OPT_CALIBRATED = "mem-opt", "cpu-opt (paper)", "cpu-opt (calibrated)"


def many_query_settings(factor: float = RATE_FACTOR[MANY_QUERIES_JOIN_SELECTIVITY]) -> Iterator[Setting]:
    """Yield every setting at the lowest and the highest rate, without selection and with one (not on Q1)."""
    for filter_selectivity in (None, MANY_QUERIES_FILTER_SELECTIVITY):
        for distribution in TWELVE_WINDOWS_S:
            for queries in QUERY_COUNTS:
                for rate_per_s in (RATES_PER_S[0], RATES_PER_S[-1]):
                    yield Setting(
                        distribution,
                        many_windows_s(distribution, queries),
                        rate_per_s,
                        factor,
                        MANY_QUERIES_JOIN_SELECTIVITY,
                        filter_selectivity,
                    )


def measure_many_queries(setting: Setting, shape: Shape) -> list[Measurement]:
    """Measure Mem-Opt, and CPU-Opt by the paper's model and by the calibrated one."""
    plans = {
        MEM_OPT: plan_of(setting, "mem-opt", shape.batch_s),
        CPU_OPT_PAPER: plan_of(setting, "cpu-opt", shape.batch_s, C_SYS),
        CPU_OPT_CALIBRATED: plan_of(setting, "cpu-opt", shape.batch_s, cost_model="calibrated"),
    }
    return measure(setting, plans, shape)
