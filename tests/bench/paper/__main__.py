"""``python -m tests.bench.paper``: measures, and writes the tables and pictures of docs/paper.

    python -m tests.bench.paper                      everything, under 20 minutes on 2 quiet cores
    python -m tests.bench.paper --only figure19      one CSV file; the others stay as they were measured
    python -m tests.bench.paper --quick --out DIR    small sizes, a minute; its speeds mean nothing
    python -m tests.bench.paper --report-only        write the report again from the CSV files

State and comparisons are counted, so they are the same on every machine; service rates are this machine's.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from tests.bench.options import Out, ReportOnly, chosen
from tests.bench.paper.experiments import EXPERIMENTS, run
from tests.bench.paper.measure import Shape
from tests.bench.paper.report import FIGURE_11, SPARK, write_report
from tests.bench.paper.savings import figure_11
from tests.bench.paper.spark_runs import run_subset
from tests.bench.reports import fill_page, machine, write_rows

#: Event time and rates of the quick form: a tenth of the rates, large batches.
QUICK, QUICK_PART = Shape(seconds=42.0, batch_s=3.0), 0.1


def main(
    only: Annotated[
        list[str] | None, typer.Option(help=f"Only these: {', '.join([*EXPERIMENTS, SPARK])}.")
    ] = None,
    out: Out = Path("docs/paper"),
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, without Spark.")] = False,
    report_only: ReportOnly = False,
    jobs: Annotated[int, typer.Option(help="Settings measured at a time.")] = os.cpu_count() or 2,
) -> None:
    """Measure the chosen experiments and write the report."""
    asked = [] if report_only else chosen(only, [*EXPERIMENTS, SPARK], "experiment")
    out.mkdir(parents=True, exist_ok=True)
    write_rows(out / f"{FIGURE_11}.csv", figure_11())
    shape, part = (QUICK, QUICK_PART) if quick else (Shape(), 1.0)
    for name, experiment in EXPERIMENTS.items():
        if name in asked:
            typer.echo(name, err=True)
            write_rows(out / f"{name}.csv", run(experiment, shape, part, jobs))
    if SPARK in asked and not quick:
        with tempfile.TemporaryDirectory(prefix="sluice-paper-") as directory:
            write_rows(out / f"{SPARK}.csv", run_subset(Path(directory)))
    if asked:
        fill_page(out / "README.md", {"machine": machine()})
    write_report(out)


if __name__ == "__main__":
    typer.run(main)
