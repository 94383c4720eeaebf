"""Plots of the scaling model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tests.bench.plots import drawn, predicted_against_measured
from tests.bench.scaling.model import Checked, Prediction

_LABELS = {
    "pack": "reading and packing, CPU",
    "chain": "chain, CPU",
    "cpu": "all tasks in Spark, CPU",
    "batch": "batch in Spark, clock",
}
_PARTS = {
    "own_s": "our own code",
    "spark_s": "Spark's part of the tasks",
    "waiting_s": "waiting for the last task",
    "network_s": "network",
    "serial_s": "driver",
}


def plot_checked(path: Path, checked: Sequence[Checked]) -> None:
    """Draw predictions over measurements."""
    points = {
        label: [(1e3 * c.measured_s, 1e3 * c.predicted_s) for c in checked if c.what == what]
        for what, label in _LABELS.items()
    }
    predicted_against_measured(path, points, "per batch")


def plot_throughput(path: Path, lines: Mapping[str, Sequence[Prediction]]) -> None:
    """Draw rows per second over cores, a line per interval, and what as many times one core would be."""
    best = max(p.rows_per_s / p.cluster.cores for line in lines.values() for p in line)
    cores = sorted({p.cluster.cores for line in lines.values() for p in line})
    with drawn(path, size=(7.0, 5.0)) as axis:
        axis.plot(cores, [best * c / 1e6 for c in cores], color="black", linewidth=1, label="in proportion")
        for name, line in lines.items():
            rates = [p.rows_per_s / 1e6 for p in line]
            axis.plot([p.cluster.cores for p in line], rates, marker="o", label=name)
        axis.set(xscale="log", yscale="log", xlabel="cores", ylabel="predicted, million rows/s")
        axis.legend()
        axis.grid(alpha=0.3)


def plot_budget(path: Path, predictions: Sequence[Prediction]) -> None:
    """Draw what the time of a batch goes to, by number of cores."""
    names = [f"{p.cluster.cores:,}" for p in predictions]
    bottom = np.zeros(len(predictions))
    with drawn(path, size=(7.0, 4.5)) as axis:
        for part, label in _PARTS.items():
            shares = np.array([100 * getattr(p, part) / p.batch_s for p in predictions])
            axis.bar(names, shares, bottom=bottom, label=label)
            bottom += shares
        axis.set(xlabel="cores", ylabel="% of a batch's time")
        axis.legend(loc="lower left", bbox_to_anchor=(0, 1.01), ncol=3, frameon=False)
