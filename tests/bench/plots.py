"""Pictures of benchmarks: axes to draw on, saved so that equal data gives an equal file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt  # the backend is chosen before
import numpy as np
import pandas as pd

#: Markers of several lines, told apart without colour, too.
MARKERS = "os^DvPX"

#: Points: x, y.
Points = Sequence[tuple[float, float]]


@contextmanager
def drawn(
    path: Path, rows: int = 1, columns: int = 1, *, size: tuple[float, float], **given: Any
) -> Iterator[Any]:
    """Give axes, an array of them where there are several, and save the picture in the end."""
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", **given)
    yield axes
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    """Save a picture without date and version of the library, and forget it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def legend_below(axes: Any) -> None:
    """Put the legend of the first panel below all of them."""
    handles, labels = axes[0][0].get_legend_handles_labels()
    below = {"loc": "outside lower center", "ncols": len(labels), "frameon": False, "fontsize": 9}
    axes[0][0].figure.legend(handles, labels, **below)


def grid_of_lines(
    path: Path, data: pd.DataFrame, x: str, y: str, *, column: str, x_label: str, y_label: str
) -> None:
    """Draw a panel for each distribution and each value of a column, in each a line for each strategy."""
    rows, columns = (list(dict.fromkeys(data[name])) for name in ("distribution", column))
    size = (3.4 * len(columns) + 0.6, 2.5 * len(rows) + 1.0)
    with drawn(path, len(rows), len(columns), size=size, sharex=True, squeeze=False) as axes:
        for (place, across), some in data.groupby(["distribution", column], sort=False):
            axis = axes[rows.index(place)][columns.index(across)]
            for (name, line), marker in zip(some.groupby("strategy", sort=False), MARKERS, strict=False):
                axis.plot(line[x], line[y], marker=marker, markersize=4, label=name)
            axis.set_title(f"{place}, {column.replace('_', ' ')} {across}", fontsize=9)
            axis.grid(alpha=0.3)
            axis.set_ylim(bottom=0)
        for axis in axes[-1]:
            axis.set_xlabel(x_label, fontsize=9)
        for line_of_axes in axes:
            line_of_axes[0].set_ylabel(y_label, fontsize=9)
        legend_below(axes)


def surfaces(path: Path, panels: Mapping[str, tuple[Any, Any, Any]], labels: tuple[str, str, str]) -> None:
    """Draw a surface per panel over x and y, two rows of panels."""
    columns = -(-len(panels) // 2)
    given = {"size": (4.2 * columns + 0.4, 7.4), "subplot_kw": {"projection": "3d"}}
    with drawn(path, 2, columns, **given) as axes:
        for axis, (name, (x, y, z)) in zip(axes.flat, panels.items(), strict=False):
            axis.plot_trisurf(x, y, z, cmap="viridis")
            axis.set_title(name, fontsize=9)
            axis.set(xlabel=labels[0], ylabel=labels[1], zlabel=labels[2])


def predicted_against_measured(path: Path, points: Mapping[Any, Points], what: str) -> None:
    """Draw (measured, predicted) milliseconds by group, and the band within 20%."""
    with drawn(path, size=(6.5, 6.0)) as axis:
        for (name, group), marker in zip(points.items(), MARKERS, strict=False):
            axis.scatter(*np.reshape(group, (-1, 2)).T, s=22, marker=marker, alpha=0.75, label=name)
        values = [value for group in points.values() for point in group for value in point if value > 0]
        ends = np.array([0.8 * min(values), 1.25 * max(values)])
        axis.plot(ends, ends, color="black", linewidth=1)
        axis.fill_between(ends, ends * 0.8, ends * 1.2, color="black", alpha=0.08, label="within 20%")
        axis.set(xscale="log", yscale="log", xlabel=f"measured {what}, ms", ylabel="predicted, ms")
        axis.legend()
