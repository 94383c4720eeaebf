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
        paper: Model of the paper, in comparisons per second of event time.
        calibrated: Calibrated model, in CPU seconds of this machine per second of event time.
        objective: Name of the model by which the planner chooses.
    """

    paper: CostModel
    calibrated: CostModel
    objective: CostModelName = "paper"

    @classmethod
    def of(cls, objective: CostModelName, c_sys: float, calibration: Calibration) -> CostModels:
        """Return the models with their constants.

        Args:
            objective: Name of the model by which the planner chooses.
            c_sys: System overhead C_sys of the paper's model, in comparisons per row and slice.
            calibration: Constants of this machine.
        """
        return cls(PaperModel(c_sys), CalibratedModel(calibration), objective)

    @property
    def deciding(self) -> CostModel:
        """The model by which the planner chooses."""
        return self.paper if self.objective == "paper" else self.calibrated

    def family_cost(self, family: FamilyPlan, rates: FamilyRates) -> Cost:
        """Return the expected cost of a planned family: the sum over its slices, its input and its verdicts.

        Args:
            family: The family, with joins of any strategy.
            rates: Known or assumed rates of the family.

        Returns:
            The cost under both models.

        Source: State-Slice §5.2, Lemma 2: a chain's cost is the sum of the costs of its slices. For joins of
            one slice, Equations 1 and 2 give the cost under the paper's model.
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
