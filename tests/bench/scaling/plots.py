"""Plots of the scaling model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.scaling.model import Checked, Prediction

_LABELS = {
    "pack": "reading and packing, CPU",
    "chain": "chain, CPU",
    "cpu": "all tasks in Spark, CPU",
    "batch": "batch in Spark, clock",
}
_PARTS = (
    ("own_s", "our own code"),
    ("spark_s", "Spark's part of the tasks"),
    ("waiting_s", "waiting for the last task"),
    ("network_s", "network"),
    ("serial_s", "driver"),
)


def _pyplot() -> Any:
    """Load the plotter, without a window."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def plot_checked(path: Path, checked: Sequence[Checked]) -> None:
    """Draw predictions over measurements."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(6.5, 6.0))
    for (what, label), marker in zip(_LABELS.items(), "osD^", strict=True):
        own = [c for c in checked if c.what == what]
        axes.scatter(
            [1e3 * c.measured_s for c in own],
            [1e3 * c.predicted_s for c in own],
            s=22,
            marker=marker,
            alpha=0.75,
            label=label,
        )
    values = [1e3 * s for c in checked for s in (c.measured_s, c.predicted_s) if s > 0]
    ends = np.array([min(values) * 0.8, max(values) * 1.25])
    axes.plot(ends, ends, color="black", linewidth=1)
    axes.fill_between(ends, ends * 0.8, ends * 1.2, color="black", alpha=0.08, label="within 20%")
    axes.set(xscale="log", yscale="log", xlabel="measured, ms per batch", ylabel="predicted, ms")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def plot_throughput(path: Path, lines: Mapping[str, Sequence[Prediction]]) -> None:
    """Draw rows per second over cores, a line per interval, and what as many times one core would be."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(7.0, 5.0))
    best = max(p.rows_per_s / p.cluster.cores for line in lines.values() for p in line)
    cores = sorted({p.cluster.cores for line in lines.values() for p in line})
    axes.plot(cores, [best * c / 1e6 for c in cores], color="black", linewidth=1, label="in proportion")
    for name, line in lines.items():
        axes.plot([p.cluster.cores for p in line], [p.rows_per_s / 1e6 for p in line], marker="o", label=name)
    axes.set(xscale="log", yscale="log", xlabel="cores", ylabel="predicted, million rows/s")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def plot_budget(path: Path, predictions: Sequence[Prediction]) -> None:
    """Draw what the time of a batch goes to, by number of cores."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(7.0, 4.5))
    names = [f"{p.cluster.cores:,}" for p in predictions]
    bottom = np.zeros(len(predictions))
    for part, label in _PARTS:
        shares = np.array([100 * getattr(p, part) / p.batch_s for p in predictions])
        axes.bar(names, shares, bottom=bottom, label=label)
        bottom += shares
    axes.set(xlabel="cores", ylabel="% of a batch's time")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.01), ncol=3, frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
