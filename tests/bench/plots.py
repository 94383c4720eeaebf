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

BLUE, RED, GREY = "#1f6f8b", "#b5473c", "#8a8a8a"
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
    save(figure, path)


def save(figure: Any, path: Path) -> None:
    """Save a picture without date and version of the library, and forget it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def legend_below(axes: Any) -> None:
    """Put the legend of the first panel below all of them."""
    handles, labels = axes[0][0].get_legend_handles_labels()
    below = {"loc": "outside lower center", "ncols": len(labels), "frameon": False, "fontsize": 9}
    axes[0][0].figure.legend(handles, labels, **below)


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
