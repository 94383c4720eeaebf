"""Plots of the migration benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt  # the backend is chosen before

from tests.bench.migration.activation import Activated
from tests.bench.migration.carrying import Carried

_BLUE, _RED, _GREY = "#1f6f8b", "#b5473c", "#8a8a8a"


def plot_activation(path: Path, found: Sequence[Activated]) -> None:
    """Draw how many batches, and how much time, changes took to become active."""
    figure, (batches, seconds) = plt.subplots(1, 2, figsize=(8.5, 3.2), layout="constrained")
    kinds = list(dict.fromkeys(a.kind for a in found))
    most = max(a.batches for a in found)
    width = 0.8 / len(kinds)
    for number, kind in enumerate(kinds):
        own = [a for a in found if a.kind == kind]
        counts = [sum(a.batches == n for a in own) for n in range(1, most + 1)]
        places = [n + (number - (len(kinds) - 1) / 2) * width for n in range(1, most + 1)]
        batches.bar(places, counts, width, label=kind)
        ordered = sorted(a.active_s for a in own)
        seconds.step(ordered, [(n + 1) / len(ordered) for n in range(len(ordered))], where="post", label=kind)
    batches.set(xlabel="batches until active", ylabel="changes", xticks=range(1, most + 1))
    batches.legend(fontsize=8)
    seconds.set(xlabel="seconds from answer to active", ylabel="part of changes", ylim=(0, 1.02))
    figure.savefig(path, dpi=120)
    plt.close(figure)


def plot_carrying(path: Path, found: Sequence[Carried], target: float) -> None:
    """Draw each batch that carried a migration over the median batches beside it."""
    figure, axis = plt.subplots(figsize=(8.5, 0.34 * len(found) + 1.2), layout="constrained")
    places = range(len(found))
    colours = [_BLUE if c.ratio <= target else _RED for c in found]
    axis.barh(places, [c.ratio for c in found], color=colours, height=0.65)
    axis.axvline(1.0, color=_GREY, linewidth=1)
    axis.axvline(target, color=_GREY, linewidth=1, linestyle="--")
    axis.set_yticks(places, [c.kind for c in found], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel("batch with the migration / median batch")
    figure.savefig(path, dpi=120)
    plt.close(figure)
