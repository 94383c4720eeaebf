"""Plots of the migration benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.bench.migration.activation import Activated
from tests.bench.migration.carrying import Carried
from tests.bench.plots import BLUE, GREY, RED, drawn


def plot_activation(path: Path, found: Sequence[Activated]) -> None:
    """Draw how many batches, and how much time, changes took to become active."""
    kinds = list(dict.fromkeys(a.kind for a in found))
    most = max(a.batches for a in found)
    width = 0.8 / len(kinds)
    with drawn(path, 1, 2, size=(8.5, 3.2)) as (batches, seconds):
        for number, kind in enumerate(kinds):
            own = [a for a in found if a.kind == kind]
            counts = [sum(a.batches == n for a in own) for n in range(1, most + 1)]
            places = [n + (number - (len(kinds) - 1) / 2) * width for n in range(1, most + 1)]
            batches.bar(places, counts, width, label=kind)
            taken_s = sorted(a.active_s for a in own)
            parts = [(n + 1) / len(taken_s) for n in range(len(taken_s))]
            seconds.step(taken_s, parts, where="post", label=kind)
        batches.set(xlabel="batches until active", ylabel="changes", xticks=range(1, most + 1))
        batches.legend(fontsize=8)
        seconds.set(xlabel="seconds from answer to active", ylabel="part of changes", ylim=(0, 1.02))


def plot_carrying(path: Path, found: Sequence[Carried], target: float) -> None:
    """Draw each batch that carried a migration over the median batches beside it."""
    places = range(len(found))
    with drawn(path, size=(8.5, 0.34 * len(found) + 1.2)) as axis:
        colours = [BLUE if c.ratio <= target else RED for c in found]
        axis.barh(places, [c.ratio for c in found], color=colours, height=0.65)
        axis.axvline(1.0, color=GREY, linewidth=1)
        axis.axvline(target, color=GREY, linewidth=1, linestyle="--")
        axis.set_yticks(places, [c.kind for c in found], fontsize=8)
        axis.invert_yaxis()
        axis.set_xlabel("batch with the migration / median batch")
