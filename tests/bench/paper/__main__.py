"""``python -m tests.bench.paper``: measures, and writes the report, its plots and its tables.

    python -m tests.bench.paper                      everything, under 20 minutes on 2 quiet cores
    python -m tests.bench.paper --figure 19          one figure; the others are taken from their CSV files
    python -m tests.bench.paper --quick --out DIR    small sizes, a minute; its speeds mean nothing
    python -m tests.bench.paper --report-only        write the report again from the CSV files

State and comparisons are counted, so they are the same on every machine; service rates are this machine's.
"""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tests.bench.paper.figure_11 import figure_11_savings
from tests.bench.paper.load import load_settings
from tests.bench.paper.many_queries import many_query_settings, measure_many_queries
from tests.bench.paper.measure import Shape
from tests.bench.paper.report import C_SYS, FIGURE_11, FIGURE_17_18, FIGURE_19, LOAD, SPARK, write_report
from tests.bench.paper.run import run_settings
from tests.bench.paper.setting import MANY_QUERIES_JOIN_SELECTIVITY, RATE_FACTOR
from tests.bench.paper.spark_runs import run_subset
from tests.bench.paper.system_overhead import measure_system_overhead, system_overhead_settings
from tests.bench.paper.three_queries import measure_three_queries, three_query_settings
from tests.bench.reports import write_rows

FIGURES = ("11", "17", "18", "load", "19", "c-sys", "spark")
#: Event time and rates of the quick form: a tenth of the rates, large batches.
QUICK = Shape(seconds=42.0, batch_s=3.0)
QUICK_PART = 0.1


def main(
    figure: Annotated[list[str] | None, typer.Option(help=f"Only these: {', '.join(FIGURES)}.")] = None,
    out: Annotated[Path, typer.Option(help="Directory of the report.")] = Path("docs/paper"),
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, without Spark.")] = False,
    report_only: Annotated[bool, typer.Option("--report-only", help="Measure nothing.")] = False,
    jobs: Annotated[int, typer.Option(help="Settings measured at a time.")] = max(1, (os.cpu_count() or 2)),
) -> None:
    """Measure the chosen figures and write the report."""
    chosen = set() if report_only else set(figure or FIGURES)
    if unknown := chosen - set(FIGURES):
        raise typer.BadParameter(f"no such figure: {', '.join(sorted(unknown))}")
    if quick:
        chosen -= {"spark"}
    shape, part = (QUICK, QUICK_PART) if quick else (Shape(), 1.0)
    out.mkdir(parents=True, exist_ok=True)
    if "11" in chosen:
        write_rows(out / FIGURE_11, figure_11_savings())
    if chosen & {"17", "18"}:
        settings = list(three_query_settings({s: part * f for s, f in RATE_FACTOR.items()}))
        measured = run_settings("figures 17, 18", settings, partial(measure_three_queries, shape=shape), jobs)
        write_rows(out / FIGURE_17_18, measured)
    if "load" in chosen:
        settings = list(load_settings((0.125, 0.25) if quick else None))
        measured = run_settings("load", settings, partial(measure_three_queries, shape=shape), jobs)
        write_rows(out / LOAD, measured)
    if "19" in chosen:
        settings = list(many_query_settings(part * RATE_FACTOR[MANY_QUERIES_JOIN_SELECTIVITY]))
        many = partial(measure_many_queries, shape=shape)
        write_rows(out / FIGURE_19, run_settings("figure 19", settings, many, jobs))
    if "c-sys" in chosen:
        overhead = partial(measure_system_overhead, shape=shape)
        write_rows(out / C_SYS, run_settings("C_sys", list(system_overhead_settings()), overhead, jobs))
    if "spark" in chosen:
        with tempfile.TemporaryDirectory(prefix="sluice-paper-") as directory:
            write_rows(out / SPARK, run_subset(Path(directory)))
    typer.echo(write_report(out))


if __name__ == "__main__":
    typer.run(main)
