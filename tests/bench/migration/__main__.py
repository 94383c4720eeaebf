"""``python -m tests.bench.migration``: plans that change under load; writes docs/bench/migration.md.

python -m tests.bench.migration                     everything: about 45 minutes on 2 quiet cores
python -m tests.bench.migration --part carrying     one part; the others stay as they were measured
python -m tests.bench.migration --quick --out DIR   small sizes, a few minutes; its times mean little
python -m tests.bench.migration --report-only       write the report again from the JSON file
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from tests.bench.migration.carrying import through_spark
from tests.bench.migration.load import Load
from tests.bench.migration.under_load import activations, alternate, changing_service
from tests.bench.options import DOCS, Out, Quick, ReportOnly, Runs, chosen
from tests.bench.reports import machine, publish, read_figures, table

PARTS = ("carrying", "activation", "throughput")
FULL = Load()
#: 100,000 rows of state, 20 queries.
QUICK = Load().sized(longest_s=2.0, queries=20)
#: An added or removed query is to be active within so many batches.
TARGET_BATCHES = 2
#: The batch with a migration is to take at most so many times the median batch.
TARGET_RATIO = 1.5


def main(
    part: Annotated[list[str] | None, typer.Option(help=f"Only these: {', '.join(PARTS)}.")] = None,
    out: Out = DOCS,
    quick: Quick = False,
    report_only: ReportOnly = False,
    runs: Runs = 3,
    minutes: Annotated[float, typer.Option(help="Minutes of changes in the part `throughput`.")] = 10.0,
    cores: Annotated[int, typer.Option(help="Cores of Spark.")] = 2,
) -> None:
    """Measure the chosen parts and write the report."""
    load = FULL
    if quick:
        load, runs, minutes = QUICK, 1, min(minutes, 0.5)
    measured = read_figures(out / "migration.json")
    for name in [] if report_only else chosen(part, PARTS, "part"):
        typer.echo(f"{name} ...", err=True)
        measured[name] = _measure(name, load, quick=quick, runs=runs, minutes=minutes, cores=cores)
        measured["machine"] = machine()
        publish(out, "migration", measured, tables(measured))
    typer.echo(publish(out, "migration", measured, tables(measured)))


def _measure(name: str, load: Load, *, quick: bool, runs: int, minutes: float, cores: int) -> Any:
    """Measure one part; JSON values."""
    if name == "carrying":
        return [through_spark(load, cores) for _ in range(runs)]
    with (
        tempfile.TemporaryDirectory(prefix="sluice-migration-", ignore_cleanup_errors=True) as root,
        changing_service(Path(root), load) as loaded,
    ):
        if name == "activation":
            return activations(loaded, load, 12 if quick else 120)
        return alternate(loaded, load, minutes * 60 / 2)


def tables(measured: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables of what was measured."""
    makers = {"activation": _activation, "carrying": _carrying, "throughput": _throughput}
    return {name: make(measured[name]) for name, make in makers.items() if name in measured}


def _activation(found: list[dict[str, Any]]) -> str:
    lines = []
    for kind, own in pd.DataFrame(found).groupby("kind", sort=False):
        counts = [(own["batches"] == n).sum() for n in range(1, TARGET_BATCHES + 1)]
        counts.append((own["batches"] > TARGET_BATCHES).sum())
        quantiles = own[["request_s", "active_s"]].quantile([0.5, 0.95])
        lines.append((kind, len(own), *counts, *1e3 * quantiles["request_s"], *quantiles["active_s"]))
    header = ("change", "made", "in 1 batch", "in 2", "in more (wanted: 0)", "request ms, p50", "p95")
    return table((*header, "active after s, p50", "p95"), lines)


def _carrying(runs: list[list[dict[str, Any]]]) -> str:
    """Return for each kind of change the run whose ratio is the median."""
    middle = len(runs) // 2
    same = zip(*runs, strict=True)
    found = pd.DataFrame(sorted(of_kind, key=lambda c: c["ratio"])[middle] for of_kind in same)
    found["over"] = np.where(found["ratio"] > TARGET_RATIO, "✗", "")
    columns = {
        "kind": "change",
        "batch_s": "batch, s",
        "before_s": "median before",
        "after_s": "after",
        "ratio": "ratio",
        "over": f"over {TARGET_RATIO}",
        "next_s": "the next batch",
        "state_rows": "rows held",
        "slices": "slices",
    }
    return table(list(columns.values()), found[list(columns)].itertuples(index=False))


def _throughput(found: list[dict[str, Any]]) -> str:
    s = pd.DataFrame(found)
    sums = s.groupby("kind")[["rows", "seconds"]].sum()
    rates = sums["rows"] / sums["seconds"]
    lost = 1 - rates["changes"] / rates["rest"]
    columns = {
        "stretch": s["kind"],
        "s": s["seconds"],
        "rows/s": s["rows"] / s["seconds"],
        "batches": s["batches"],
        "batch s": s["median_batch_s"],
        "changes": s["changes"],
        "per min": 60 * s["changes"] / s["seconds"],
        "versions": s["versions"],
        "request ms": 1e3 * s["median_request_s"],
        "service MB": s["service_bytes"] / 1e6,
        "workers MB": s["workers_bytes"] / 1e6,
    }
    text = f"Changes cost **{lost:.1%}** of the throughput at rest (wanted: ≤ 10%)."
    return f"{text}\n\n{table(list(columns), zip(*columns.values(), strict=True))}"


if __name__ == "__main__":
    typer.run(main)
