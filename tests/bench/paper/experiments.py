"""The experiments: which settings, and which plans race in each.

Figures 17 and 18 join three queries in all combinations of Table 3. Figure 19 joins 12, 24 and 36 queries
over the windows of Table 4. One more is not in the paper: service rate against load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from catalog.values.plan import Plan, Strategy
from planner.costs.cost import CostModelName
from tests.bench.paper.measure import Measurement, Shape, measure
from tests.bench.paper.setting import (
    FILTER_SELECTIVITIES,
    JOIN_SELECTIVITIES,
    MANY_QUERIES_FILTER_SELECTIVITY,
    MANY_QUERIES_JOIN_SELECTIVITY,
    QUERY_COUNTS,
    RATE_FACTOR,
    RATES_PER_S,
    THREE_WINDOWS_S,
    TWELVE_WINDOWS_S,
    Setting,
    many_windows_s,
    plan_of,
)
from tests.bench.worker import spread

#: C_sys at the paper's rates, comparisons per row and operator. The paper gives no value; this is the largest
#: at which no two of the 12 uniform windows are merged at any rate, as in its Figure 19 (a).
C_SYS_AT_PAPER_RATES = 0.5
#: Two neighbours are merged where λ ΔW S_1 < 1 + C_sys: at higher rates this one merges where that one does.
#: (Not at the start of a chain: merging saves a union there, too, whatever C_sys is.)
C_SYS = RATE_FACTOR[MANY_QUERIES_JOIN_SELECTIVITY] * (1 + C_SYS_AT_PAPER_RATES) - 1
LOAD_FACTORS = (1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True, slots=True)
class PlanBy:
    """How queries are planned: a strategy, and the model by which CPU-Opt chooses its chain."""

    strategy: Strategy
    c_sys: float = 0.0
    cost_model: CostModelName = "paper"

    def plan(self, setting: Setting, batch_s: float) -> Plan:
        """Return the plan of a setting."""
        return plan_of(setting, self.strategy, batch_s, self.c_sys, self.cost_model)


#: The paper's names of the strategies. State-slice is Mem-Opt, as in its Figures 17 and 18.
THREE = {"pullup": PlanBy("pullup"), "pushdown": PlanBy("pushdown"), "state-slice": PlanBy("mem-opt")}
MEM_OPT, CPU_OPT_PAPER, CPU_OPT_CALIBRATED = "mem-opt", "cpu-opt (paper)", "cpu-opt (calibrated)"
MANY = {
    MEM_OPT: PlanBy("mem-opt"),
    CPU_OPT_PAPER: PlanBy("cpu-opt", C_SYS),
    CPU_OPT_CALIBRATED: PlanBy("cpu-opt", cost_model="calibrated"),
}


def table_3() -> Iterator[Setting]:
    """Yield all combinations of Table 3 at four rates."""
    for (name, windows_s), sigma, join, rate in product(
        THREE_WINDOWS_S.items(), FILTER_SELECTIVITIES, JOIN_SELECTIVITIES, RATES_PER_S
    ):
        yield Setting(name, windows_s, rate, RATE_FACTOR[join], join, sigma)


def growing_load() -> Iterator[Setting]:
    """Yield the middle of Table 3 at its highest rate, times a growing factor.

    How much a saved comparison is worth depends on how much of a batch's time comparisons take, and that
    grows with the square of the rate.
    """
    for (name, windows_s), factor in product(THREE_WINDOWS_S.items(), LOAD_FACTORS):
        yield Setting(name, windows_s, RATES_PER_S[-1], factor, 0.1, 0.5)


def table_4() -> Iterator[Setting]:
    """Yield the windows of Table 4 at both ends of the rates, without selection and with one (not on Q1)."""
    for sigma, name, queries, rate in product(
        (None, MANY_QUERIES_FILTER_SELECTIVITY),
        TWELVE_WINDOWS_S,
        QUERY_COUNTS,
        (RATES_PER_S[0], RATES_PER_S[-1]),
    ):
        windows_s, join = many_windows_s(name, queries), MANY_QUERIES_JOIN_SELECTIVITY
        yield Setting(name, windows_s, rate, RATE_FACTOR[join], join, sigma)


@dataclass(frozen=True, slots=True)
class Experiment:
    """Settings, and the plans that race in each."""

    settings: Callable[[], Iterator[Setting]]
    plans: Mapping[str, PlanBy]


#: By the name of their CSV file.
EXPERIMENTS = {
    "figure17_18": Experiment(table_3, THREE),
    "figure18_load": Experiment(growing_load, THREE),
    "figure19": Experiment(table_4, MANY),
}


def measured_in(setting: Setting, plans: Mapping[str, PlanBy], shape: Shape) -> list[Measurement]:
    """Measure all plans in one setting."""
    return measure(setting, {name: by.plan(setting, shape.batch_s) for name, by in plans.items()}, shape)


def run(experiment: Experiment, shape: Shape, part: float, jobs: int) -> list[Measurement]:
    """Measure all settings, with a part of their rates, and return the rows in the order of the settings."""
    settings = [replace(s, factor=part * s.factor) for s in experiment.settings()]
    # The longest first, so that no core is left alone with one at the end.
    order = sorted(settings, key=lambda s: -s.arrivals_per_s)
    call = partial(measured_in, plans=experiment.plans, shape=shape)
    found = dict(zip(order, spread(call, order, jobs), strict=True))
    return [row for setting in settings for row in found[setting]]
