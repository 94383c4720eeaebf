"""Plots of the peers benchmark: rates beside each other, and how they hold up as windows grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt  # the backend is chosen before
from matplotlib.figure import Figure

from tests.bench.peers.medians import Row, Section

_COLOURS = {"sluice": "#1f6f8b", "peer": "#b5473c", "limit": "#8a8a8a"}
_LINES = ("o", "s", "^", "D", "v", "P", "X")


def plot_rates(path: Path, section: Section) -> None:
    """Draw rows per second of every peer, steady state over whole job, on a logarithmic axis."""
    rows = [r for r in section.rows if r.rates.job is not None and _shown(section, r)]
    figure, axis = plt.subplots(figsize=(8.5, 0.3 * len(rows) + 1.2), layout="constrained")
    for place, row in enumerate(rows):
        colour = _COLOURS[row.peer.kind]
        whole = row.rates.job or 0.0
        axis.barh(place, whole, height=0.6, color=colour)
        if row.rates.steady is not None:
            axis.plot(row.rates.steady, place, marker="|", markersize=12, color="black")
        axis.text(whole * 1.05, place, f"{whole:,.0f}", va="center", fontsize=8)
    axis.set_yticks(range(len(rows)), [r.peer.name for r in rows], fontsize=8)
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.set_xlim(right=axis.get_xlim()[1] * 3)
    axis.set_xlabel("input rows per second, whole job (bar) and steady state (stroke)")
    axis.grid(axis="x", alpha=0.3)
    _save(figure, path)


def _shown(section: Section, row: Row) -> bool:
    """Whether a row is its peer's largest part: Sluice is measured over smaller ones, too."""
    return section.row(row.first.peer) is row


def plot_long_windows(path: Path, rates: Mapping[str, Sequence[tuple[int, float]]]) -> None:
    """Draw rates over the length of the windows, a line per peer."""
    figure, axis = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
    for (name, line), marker in zip(rates.items(), _LINES, strict=False):
        axis.plot(*zip(*line, strict=True), marker=marker, label=name)
    axis.set(xscale="log", yscale="log", xlabel="windows, times as long", ylabel="rows per second, whole job")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    # Without the date and version of the library, equal data gives an equal file.
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)
