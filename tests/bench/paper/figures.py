"""Pictures of what was measured: Figures 17, 18 and 19, and two that the paper has not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tests.bench.paper.measure import Measurement
from tests.bench.paper.plots import grid_of_lines
from tests.bench.plots import Points

RATE = "rate of each stream (the paper's, rows/s)"
MIDDLE_JOIN, MIDDLE_FILTER = 0.1, 0.5


def draw_figure_17(rows: Sequence[Measurement], path: Path) -> None:
    """Draw state over rates; it does not depend on S_1."""
    chosen = [m for m in rows if m.join_selectivity == MIDDLE_JOIN]
    grid_of_lines(
        path,
        _panels(chosen, _by_filter, lambda m: m.state_rows),
        title="Figure 17: rows held",
        x_label=RATE,
        y_label="rows",
    )


def draw_comparisons(rows: Sequence[Measurement], path: Path) -> None:
    """Draw counted comparisons over rates."""
    chosen = [m for m in rows if m.join_selectivity == MIDDLE_JOIN]
    grid_of_lines(
        path,
        _panels(chosen, _by_filter, lambda m: m.comparisons / 1e6),
        title=f"Comparisons counted, S₁ = {MIDDLE_JOIN:g}",
        x_label=RATE,
        y_label="million per s of event time",
    )


def draw_figure_18(rows: Sequence[Measurement], by_filter: Path, by_join: Path) -> None:
    """Draw service rates, over S_σ at the middle S_1 and the other way round."""
    for path, chosen, column, which in (
        (by_filter, [m for m in rows if m.join_selectivity == MIDDLE_JOIN], _by_filter, "S₁ = 0.1"),
        (by_join, [m for m in rows if m.filter_selectivity == MIDDLE_FILTER], _by_join, "S_σ = 0.5"),
    ):
        grid_of_lines(
            path,
            _panels(chosen, column, lambda m: m.service_rate / 1e3),
            title=f"Figure 18: service rate, {which}",
            x_label=RATE,
            y_label="1,000 input rows per s",
        )


def draw_load(rows: Sequence[Measurement], path: Path) -> None:
    """Draw service rates over the load."""
    panels: dict[tuple[str, str], dict[str, Points]] = {}
    for m in rows:
        lines = panels.setdefault(("S_σ = 0.5, S₁ = 0.1", m.distribution), {})
        lines[m.strategy] = [*lines.get(m.strategy, ()), (m.rate_per_s * m.factor, m.service_rate / 1e3)]
    grid_of_lines(
        path,
        panels,
        title="Service rate and load",
        x_label="rate of each stream here, rows/s",
        y_label="1,000 input rows per s",
    )


def draw_figure_19(rows: Sequence[Measurement], path: Path, *, filtered: bool) -> None:
    """Draw service rates of Mem-Opt and CPU-Opt."""
    chosen = [m for m in rows if (m.filter_selectivity is not None) == filtered]
    grid_of_lines(
        path,
        _panels(chosen, lambda m: f"{m.queries} queries", lambda m: m.service_rate / 1e3),
        title="As Figure 19, with S_σ = 0.5: service rate" if filtered else "Figure 19: service rate",
        x_label=RATE,
        y_label="1,000 input rows per s",
    )


def _panels(
    rows: Sequence[Measurement], column: Callable[[Measurement], str], y: Callable[[Measurement], float]
) -> dict[tuple[str, str], dict[str, Points]]:
    panels: dict[tuple[str, str], dict[str, Points]] = {}
    for m in rows:
        lines = panels.setdefault((m.distribution, column(m)), {})
        lines[m.strategy] = [*lines.get(m.strategy, ()), (m.rate_per_s, y(m))]
    return panels


def _by_filter(m: Measurement) -> str:
    return f"S_σ = {m.filter_selectivity:g}"


def _by_join(m: Measurement) -> str:
    return f"S₁ = {m.join_selectivity:g}"
