"""The report: tables of migration.md, and the figures as migration.json."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tests.bench.migration.activation import TARGET_BATCHES, Activated
from tests.bench.migration.carrying import TARGET as CARRYING_TARGET
from tests.bench.migration.carrying import Carried
from tests.bench.migration.throughput import TARGET as LOSS_TARGET
from tests.bench.migration.throughput import Stretch, loss
from tests.bench.reports import fill_page, table, write_figures


def write_report(out: Path, measured: dict[str, Any]) -> str:
    """Write the figures and the tables of what was measured, and return the page.

    Args:
        out: Directory.
        measured: Figures by part, as ``tests.bench.migration.__main__`` measures them.
    """
    write_figures(out / "migration.json", measured)
    parts = {"machine": measured["machine"]}
    parts["machine"] += "; **small sizes, whose times mean little**" if measured.get("quick") else ""
    for part, text_of in (("activation", _activation), ("carrying", _carrying), ("throughput", _throughput)):
        if part in measured:
            parts[part] = text_of(measured[part])
    return fill_page(out / "migration.md", parts)


def _activation(found: Sequence[Activated]) -> str:
    rows = []
    for kind, own in pd.DataFrame(found).groupby("kind", sort=False):
        many = (own["batches"] > TARGET_BATCHES).sum()
        request_ms, active_s = (own[of].quantile([0.5, 0.95]) for of in ("request_s", "active_s"))
        rows.append(
            (
                *(kind, len(own), (own["batches"] == 1).sum(), (own["batches"] == 2).sum(), many),
                *(f"{1e3 * value:,.0f}" for value in request_ms),
                *(f"{value:.2f}" for value in active_s),
            )
        )
    header = ("change", "made", "in 1 batch", "in 2", "in more (wanted: 0)", "request ms, p50", "p95")
    return table((*header, "active after s, p50", "p95"), rows)


def _carrying(runs: Sequence[Sequence[Carried]]) -> str:
    """Return for each kind of change the run whose ratio is the median."""
    found = [sorted(same, key=lambda c: c["ratio"])[len(same) // 2] for same in zip(*runs, strict=True)]
    rows = [
        (
            *(c.kind, f"{c.batch_s:,.2f}", f"{c.before_s:,.2f}", f"{c.after_s:,.2f}", f"{c.ratio:.2f}"),
            *("" if c.ratio <= CARRYING_TARGET else "✗", f"{c.next_s:,.2f}", f"{c.state_rows:,}", c.slices),
        )
        for c in pd.DataFrame(found).itertuples()
    ]
    header = ("change", "batch, s", "median before", "after", "ratio", f"over {CARRYING_TARGET}")
    return table((*header, "the next batch", "rows held", "slices"), rows)


def _throughput(found: Sequence[Stretch]) -> str:
    rows = [
        (
            *(
                s.kind,
                f"{s.seconds:,.0f}",
                f"{s.rows / s.seconds:,.0f}",
                s.batches,
                f"{s.median_batch_s:.2f}",
            ),
            *(s.changes, f"{60 * s.changes / s.seconds:.0f}", s.versions, f"{s.median_request_s * 1e3:,.0f}"),
            *(f"{size / 1e6:,.0f}" for size in (s.service_bytes, s.workers_bytes)),
        )
        for s in pd.DataFrame(found).itertuples()
    ]
    header = ("stretch", "s", "rows/s", "batches", "batch s", "changes", "per min", "versions", "request ms")
    lost = f"Changes cost **{loss(found):.1%}** of the throughput at rest (wanted: ≤ {LOSS_TARGET:.0%})."
    return f"{lost}\n\n{table((*header, 'service MB', 'workers MB'), rows)}"
