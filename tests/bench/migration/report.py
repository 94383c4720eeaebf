"""The report: tables of migration.md, and the figures as migration.json."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.migration.activation import TARGET_BATCHES, Activated
from tests.bench.migration.carrying import TARGET as CARRYING_TARGET
from tests.bench.migration.carrying import Carried
from tests.bench.migration.throughput import TARGET as LOSS_TARGET
from tests.bench.migration.throughput import Stretch, loss
from tests.bench.reports import fill_page, percentile, table, write_figures


def write_report(out: Path, measured: dict[str, Any]) -> str:
    """Write the figures and the tables of what was measured, and return the page.

    Args:
        out: Directory.
        measured: Figures by part, as ``tests.bench.migration.__main__`` measures them.
    """
    write_figures(out / "migration.json", measured)
    parts = {"machine": measured["machine"]}
    parts["machine"] += "; **small sizes, whose times mean little**" if measured.get("quick") else ""
    if "activation" in measured:
        parts["activation"] = _activation([Activated(**facts) for facts in measured["activation"]])
    if "carrying" in measured:
        runs = [[Carried(**facts) for facts in run] for run in measured["carrying"]]
        parts["carrying"] = _carrying(runs)
    if "throughput" in measured:
        parts["throughput"] = _throughput([Stretch(**facts) for facts in measured["throughput"]])
    return fill_page(out / "migration.md", parts)


def _activation(found: Sequence[Activated]) -> str:
    rows = []
    for kind in dict.fromkeys(a.kind for a in found):
        own = [a for a in found if a.kind == kind]
        batches = [a.batches for a in own]
        rows.append(
            (
                *(
                    kind,
                    len(own),
                    batches.count(1),
                    batches.count(2),
                    sum(b > TARGET_BATCHES for b in batches),
                ),
                *_p50_p95([a.request_s * 1e3 for a in own], "{:,.0f}"),
                *_p50_p95([a.active_s for a in own], "{:.2f}"),
            )
        )
    header = ("change", "made", "in 1 batch", "in 2", "in more (wanted: 0)", "request ms, p50", "p95")
    return table((*header, "active after s, p50", "p95"), rows)


def _carrying(runs: Sequence[Sequence[Carried]]) -> str:
    """Return for each kind of change the run whose ratio is the median."""
    found = [sorted(same, key=lambda c: c.ratio)[len(same) // 2] for same in zip(*runs, strict=True)]
    rows = [
        (
            *(c.kind, f"{c.batch_s:,.2f}", f"{c.before_s:,.2f}", f"{c.after_s:,.2f}", f"{c.ratio:.2f}"),
            *("" if c.ratio <= CARRYING_TARGET else "✗", f"{c.next_s:,.2f}", f"{c.state_rows:,}", c.slices),
        )
        for c in found
    ]
    header = ("change", "batch, s", "median before", "after", "ratio", f"over {CARRYING_TARGET}")
    return table((*header, "the next batch", "rows held", "slices"), rows)


def _throughput(found: list[Stretch]) -> str:
    rows = [
        (
            *(s.kind, f"{s.seconds:,.0f}", f"{s.rows_per_s:,.0f}", s.batches, f"{s.median_batch_s:.2f}"),
            *(s.changes, f"{60 * s.changes / s.seconds:.0f}", s.versions, f"{s.median_request_s * 1e3:,.0f}"),
            *(f"{size / 1e6:,.0f}" for size in (s.service_bytes, s.workers_bytes)),
        )
        for s in found
    ]
    header = ("stretch", "s", "rows/s", "batches", "batch s", "changes", "per min", "versions", "request ms")
    lost = (
        f"Changes cost **{loss(found):.1%}** of the throughput at rest (wanted: at most {LOSS_TARGET:.0%})."
    )
    return f"{lost}\n\n{table((*header, 'service MB', 'workers MB'), rows)}"


def _p50_p95(values: Iterable[float], form: str) -> tuple[str, str]:
    ordered = sorted(values)
    return form.format(median(ordered)), form.format(percentile(ordered, 0.95))
