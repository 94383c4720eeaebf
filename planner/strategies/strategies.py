"""The strategies that users can name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from catalog.values.plan import JoinPlan, Strategy
from planner.costs.cost import CostModel
from planner.costs.rates import FamilyRates
from planner.families.families import Family
from planner.strategies.cpu_opt import cpu_opt
from planner.strategies.mem_opt import mem_opt
from planner.strategies.pullup import pullup
from planner.strategies.pushdown import pushdown
from planner.strategies.unshared import unshared

#: Strategies by name. Mem-Opt is the default because its state is minimal whatever the statistics are.
STRATEGIES: Mapping[Strategy, Callable[[Family, FamilyRates, CostModel], tuple[JoinPlan, ...]]] = (
    MappingProxyType(
        {
            "unshared": unshared,
            "pullup": pullup,
            "pushdown": pushdown,
            "mem-opt": mem_opt,
            "cpu-opt": cpu_opt,
        }
    )
)
