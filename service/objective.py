"""What plans are chosen for: strategies, and the cost model that decides where one weighs costs.

settings (per service)  <  workload file  <  request or option        the later one rules
a family's own strategy rules over the general one, wherever it comes from
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from catalog.values.calibration import Calibration
from catalog.values.plan import Plan, Strategy
from catalog.values.query import Query
from planner.costs.calibrated import CalibratedModel
from planner.costs.paper_model import PaperModel
from planner.explain import CostModelName, CostModels
from planner.family_names import by_family
from service.settings import Settings


@dataclass(frozen=True, slots=True)
class Objective:
    """What plans are chosen for.

    Attributes:
        strategy: Strategy of families that have none of their own.
        family_strategies: Strategies by family id or key (``A.k = B.k``).
        cost_model: Model whose CPU cost decides.
        c_sys: System overhead C_sys of the paper's model, comparisons per row and slice.
    """

    strategy: Strategy = "mem-opt"
    family_strategies: Mapping[str, Strategy] = field(default_factory=dict)
    cost_model: CostModelName = "calibrated"
    c_sys: float = 0.0

    @classmethod
    def of_settings(cls, settings: Settings) -> Objective:
        """Return the objective of a service."""
        return cls(settings.strategy, settings.family_strategies, settings.cost_model, settings.c_sys)

    def changed(
        self,
        *,
        strategy: Strategy | None = None,
        family_strategies: Mapping[str, Strategy] | None = None,
        cost_model: CostModelName | None = None,
        c_sys: float | None = None,
    ) -> Objective:
        """Return the objective with what is not None put over it."""
        return replace(
            self,
            strategy=self.strategy if strategy is None else strategy,
            family_strategies={**self.family_strategies, **(family_strategies or {})},
            cost_model=self.cost_model if cost_model is None else cost_model,
            c_sys=self.c_sys if c_sys is None else c_sys,
        )

    def by_family(self, queries: Iterable[Query]) -> dict[str, Strategy]:
        """Return the families' own strategies by id; names that no family of the queries has wait for one."""
        return by_family(self.family_strategies, queries, strict=False)

    def is_of(self, plan: Plan, queries: Iterable[Query]) -> bool:
        """Return whether a plan was chosen for these strategies.

        Args:
            plan: A plan of the queries.
            queries: Bound queries that run.
        """
        own = self.by_family(queries)
        return plan.strategy == self.strategy and all(
            f.strategy == own.get(f.id, self.strategy) for f in plan.families
        )

    def weighs_costs(self) -> bool:
        """Return whether any plan can depend on statistics."""
        return "cpu-opt" in (self.strategy, *self.family_strategies.values())

    def models(self, calibration: Calibration) -> CostModels:
        """Return the cost models.

        Args:
            calibration: Constants of this machine.
        """
        return CostModels(PaperModel(self.c_sys), CalibratedModel(calibration), self.cost_model)
