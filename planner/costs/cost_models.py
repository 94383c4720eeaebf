"""The cost models, and the cost of a family under both of them."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.values.calibration import Calibration
from catalog.values.plan import FamilyPlan
from planner.costs.calibration.calibrated import CalibratedModel
from planner.costs.cost import Cost, CostModel, CostModelName, Terms
from planner.costs.loads.loads import join_input, slice_loads
from planner.costs.loads.verdicts import verdict_load
from planner.costs.paper_model import PaperModel
from planner.costs.rates import FamilyRates


@dataclass(frozen=True, slots=True)
class CostModels:
    """The models that price a plan.

    Attributes:
        paper: Comparisons per second.
        calibrated: CPU seconds per second on this machine.
        objective: Name of the model that decides.
    """

    paper: CostModel
    calibrated: CostModel
    objective: CostModelName = "paper"

    @classmethod
    def of(cls, objective: CostModelName, c_sys: float, calibration: Calibration) -> CostModels:
        """Return the models with their constants.

        Args:
            objective: Name of the model that decides.
            c_sys: C_sys of the paper's model.
            calibration: Constants of this machine.
        """
        return cls(PaperModel(c_sys), CalibratedModel(calibration), objective)

    @property
    def deciding(self) -> CostModel:
        """The model that decides."""
        return self.paper if self.objective == "paper" else self.calibrated

    def family_cost(self, family: FamilyPlan, rates: FamilyRates) -> Cost:
        """Return the expected cost of a planned family: the sum over its slices, its input and its verdicts.

        Args:
            family: The family, with joins of any strategy.
            rates: Known or assumed rates of the family.

        Returns:
            The cost under both models.

        Source: State-Slice §5.2, Lemma 2: a chain's cost is the sum of its slices'. For joins of one slice,
            the paper model's cost is given by Equations 1 and 2.
        """
        loads = [load for join in family.joins for load in slice_loads(family, join, rates)]
        arriving, verdicts = join_input(family, family.joins, rates), verdict_load(family, rates)

        def terms(model: CostModel) -> Terms:
            besides = [model.input_terms(arriving), model.verdict_terms(verdicts)]
            return sum((model.slice_terms(load) for load in loads), start=sum(besides, start=Terms()))

        return Cost(
            memory_rows=sum(load.held_rows for load in loads),
            memory_bytes=sum(load.held_bytes for load in loads) + verdicts.marks_bytes,
            comparisons=terms(self.paper),
            cpu_s=terms(self.calibrated),
        )
