"""Plots of the peers benchmark: rates beside each other, and how they hold up as windows grow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.bench.peers.medians import Section
from tests.bench.plots import BLUE, GREY, MARKERS, RED, Points, drawn

_COLOURS = {"sluice": BLUE, "peer": RED, "limit": GREY}


def plot_rates(path: Path, section: Section) -> None:
    """Draw rows per second of every peer, steady state over whole job, on a logarithmic axis.

    Of a peer that is measured over several parts of the rows, the largest one is shown.
    """
    rows = [r for r in section.rows if r.rates.job is not None and section.row(r.first.peer) is r]
    with drawn(path, size=(8.5, 0.3 * len(rows) + 1.2)) as axis:
        for place, row in enumerate(rows):
            whole = row.rates.job or 0.0
            axis.barh(place, whole, height=0.6, color=_COLOURS[row.peer.kind])
            if row.rates.steady is not None:
                axis.plot(row.rates.steady, place, marker="|", markersize=12, color="black")
            axis.text(whole * 1.05, place, f"{whole:,.0f}", va="center", fontsize=8)
        axis.set_yticks(range(len(rows)), [r.peer.name for r in rows], fontsize=8)
        axis.invert_yaxis()
        axis.set_xscale("log")
        axis.set_xlim(right=axis.get_xlim()[1] * 3)
        axis.set_xlabel("input rows per second, whole job (bar) and steady state (stroke)")
        axis.grid(axis="x", alpha=0.3)


def plot_long_windows(path: Path, rates: Mapping[str, Points]) -> None:
    """Draw rates over the length of the windows, a line per peer."""
    with drawn(path, size=(6.5, 3.6)) as axis:
        for (name, line), marker in zip(rates.items(), MARKERS, strict=False):
            axis.plot(*zip(*line, strict=True), marker=marker, label=name)
        axis.set(
            xscale="log", yscale="log", xlabel="windows, times as long", ylabel="rows per second, whole job"
        )
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
