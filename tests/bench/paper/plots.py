"""Plots: small multiples of lines over the paper's rates, and the surfaces of Figure 11."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt

from tests.bench.plots import BLUE, RED, Points, drawn, legend_below, save

#: Colour and marker per line, told apart without colour, too; the same everywhere in the report.
STYLES = {
    "pullup": (RED, "s"),
    "pushdown": ("#c99700", "^"),
    "state-slice": (BLUE, "o"),
    "mem-opt": (BLUE, "o"),
    "cpu-opt (paper)": ("#7a4f9a", "D"),
    "cpu-opt (calibrated)": ("#3f8f4f", "v"),
}


def grid_of_lines(
    path: Path,
    panels: Mapping[tuple[str, str], Mapping[str, Points]],
    *,
    title: str,
    x_label: str,
    y_label: str,
) -> None:
    """Draw one panel per (row, column) and save the picture.

    Args:
        path: PNG file.
        panels: Lines by name, by row and column label; rows and columns come in order of appearance.
        title: Title of the picture.
        x_label: Label of every x-axis.
        y_label: Label of every y-axis.
    """
    rows = list(dict.fromkeys(row for row, _ in panels))
    columns = list(dict.fromkeys(column for _, column in panels))
    size = (3.4 * len(columns) + 0.6, 2.5 * len(rows) + 1.0)
    with drawn(path, len(rows), len(columns), size=size, sharex=True, squeeze=False) as axes:
        for (row, column), lines in panels.items():
            axis = axes[rows.index(row)][columns.index(column)]
            for name, line in lines.items():
                colour, marker = STYLES[name]
                axis.plot(*zip(*line, strict=True), color=colour, marker=marker, markersize=4, label=name)
            axis.set_title(f"{row}, {column}", fontsize=9)
            axis.grid(alpha=0.3)
            axis.tick_params(labelsize=8)
            axis.set_ylim(bottom=0)
        for axis in axes[-1]:
            axis.set_xlabel(x_label, fontsize=9)
        for line_of_axes in axes:
            line_of_axes[0].set_ylabel(y_label, fontsize=9)
        legend_below(axes)
        axes[0][0].figure.suptitle(title, fontsize=11)


def surfaces(path: Path, panels: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]], title: str) -> None:
    """Draw savings in percent over (ρ, S_σ), one surface per panel.

    Args:
        path: PNG file.
        panels: Title to grids of ρ, S_σ and percent, each of the same shape.
        title: Title of the picture.
    """
    figure = plt.figure(figsize=(4.2 * len(panels) / 2 + 0.4, 7.4), layout="constrained")
    for number, (name, (rho, sigma, percent)) in enumerate(panels.items(), 1):
        axis = figure.add_subplot(2, (len(panels) + 1) // 2, number, projection="3d")
        axis.plot_surface(rho, sigma, percent, cmap="viridis", linewidth=0.2, edgecolor="#ffffff40")
        axis.set_title(name, fontsize=9)
        axis.set_xlabel("ρ = W1/W2", fontsize=8)
        axis.set_ylabel("S_σ", fontsize=8)
        axis.set_zlabel("saving, %", fontsize=8)
        axis.tick_params(labelsize=7)
        # So turned that what falls with both ρ and S_σ is seen from its low corner, and so is the rest.
        falls = percent[-1].mean() < percent[0].mean() and percent[:, -1].mean() < percent[:, 0].mean()
        axis.view_init(elev=24, azim=40 if falls else -130)
    figure.suptitle(title, fontsize=11)
    save(figure, path)
