"""Figure 11: savings of state-slice over both alternatives by Equation 4, over ρ = W1/W2 and S_σ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np

from planner.costs.paper_savings import figure_11
from tests.bench.paper.plots import surfaces
from tests.bench.paper.setting import JOIN_SELECTIVITIES

#: Points of each axis, from 0 to 1.
STEPS = 21


@dataclass(frozen=True, slots=True)
class Saving:
    """One point of the surfaces, as fractions of what the alternative costs; a row of the CSV file.

    Attributes:
        rho: W1/W2.
        filter_selectivity: S_σ.
        join_selectivity: S_1.
        memory_over_pullup: Rows held.
        memory_over_pushdown: The same against stream partition.
        cpu_over_pullup: Comparisons.
        cpu_over_pushdown: The same against stream partition.
    """

    rho: float
    filter_selectivity: float
    join_selectivity: float
    memory_over_pullup: float
    memory_over_pushdown: float
    cpu_over_pullup: float
    cpu_over_pushdown: float


def figure_11_savings() -> list[Saving]:
    """Return the surfaces' points."""
    grid = [step / (STEPS - 1) for step in range(STEPS)]
    return [
        Saving(p.window_ratio, p.filter_selectivity, p.join_selectivity, *astuple(p.savings))
        for p in figure_11(grid, grid, JOIN_SELECTIVITIES)
    ]


def draw_figure_11(savings: Sequence[Saving], path: Path) -> None:
    """Draw memory, which S_1 does not touch, and CPU for every S_1; a row for each alternative."""
    panels = {}
    for alternative in ("pull-up", "push-down"):
        field = alternative.replace("-", "")
        first = [s for s in savings if s.join_selectivity == JOIN_SELECTIVITIES[0]]
        panels[f"memory, against {alternative}"] = _surface(first, f"memory_over_{field}")
        for join in JOIN_SELECTIVITIES:
            points = [s for s in savings if s.join_selectivity == join]
            panels[f"CPU, against {alternative}, S₁ = {join}"] = _surface(points, f"cpu_over_{field}")
    surfaces(path, panels, "Figure 11: savings of state-slice by Equation 4")


def _surface(points: Sequence[Saving], field: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    shape = (-1, STEPS)
    return (
        np.array([p.rho for p in points]).reshape(shape),
        np.array([p.filter_selectivity for p in points]).reshape(shape),
        100 * np.array([getattr(p, field) for p in points]).reshape(shape),
    )
