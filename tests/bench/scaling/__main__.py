"""``python -m tests.bench.scaling``: what a batch costs, term by term, and what that means for many cores.

python -m tests.bench.scaling                     everything: about eleven minutes on 2 quiet cores
python -m tests.bench.scaling --quick --out DIR   small sizes, a minute or two; its times mean little
python -m tests.bench.scaling --report-only       fit and write the report again from the JSON file

Writes docs/bench/scaling.md, scaling.json and plots; docs/scaling.md says what to make of them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tests.bench.reports import machine
from tests.bench.scaling.driver import BUCKETS, PARTITIONS, measure_partitions, measure_reports
from tests.bench.scaling.in_process import BATCHES, measure_points
from tests.bench.scaling.in_spark import (
    CHECKED,
    PHASES,
    RUNS,
    Phase,
    SparkRun,
    run_phases,
    write_inputs,
)
from tests.bench.scaling.load import GRID, QUICK_GRID, Case
from tests.bench.scaling.measured import Measured, read
from tests.bench.scaling.report import write_report

#: Batches of each phase.
PHASE_BATCHES = 10
QUICK_RUNS = (SparkRun(2, 2), SparkRun(8, 4))
QUICK_PHASES = (Phase("even", 20_000), Phase("few"), Phase("lone", 20_000))


def main(
    out: Annotated[Path, typer.Option(help="Directory of the report.")] = Path("docs/bench"),
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes.")] = False,
    report_only: Annotated[bool, typer.Option("--report-only", help="Measure nothing.")] = False,
    conditions: Annotated[str, typer.Option(help="Who else uses the machine, for the report.")] = "",
) -> None:
    """Measure everything and write the report."""
    measured = read(out) if report_only else measure(quick=quick, conditions=conditions)
    typer.echo(write_report(out, measured))


def measure(*, quick: bool, conditions: str) -> Measured:
    """Measure everything, in this order: what is in process, the driver, the job."""
    before = os.getloadavg()[0]
    own = []
    for point in measure_points(QUICK_GRID if quick else GRID, 4 if quick else BATCHES):
        own.append(point)
        typer.echo(f"{point['name']}: {1e3 * (point['pack_s'] + point['chain_s']):.1f} ms of CPU", err=True)
    reports = measure_reports(BUCKETS[:2] if quick else BUCKETS)
    partitions = measure_partitions(PARTITIONS[:2] if quick else PARTITIONS)
    runs = QUICK_RUNS if quick else RUNS
    phases = QUICK_PHASES if quick else PHASES
    seen = in_spark(runs, phases)
    checked = in_spark(CHECKED[:1] if quick else CHECKED, phases)
    return Measured(
        machine=machine(),
        conditions=f"{conditions or 'Not said who else used the machine'}; load {before:.1f} before.",
        own=own,
        reports=reports,
        partitions=partitions,
        seen=seen,
        checked=checked,
    )


def in_spark(runs: Sequence[SparkRun], phases: Sequence[Phase], batches: int = PHASE_BATCHES) -> list[Case]:
    """Run the job over the phases again and again; the first phase only warms up."""
    seen: list[Case] = []
    with tempfile.TemporaryDirectory(prefix="sluice-scaling-inputs-") as root:
        for run in runs:
            inputs = Path(root) / str(run.columns)
            if not inputs.exists():
                write_inputs(inputs, run.columns, phases, batches)
            for case in run_phases(run, inputs, phases, batches)[1:]:
                seen.append(case)
                typer.echo(f"{case['name']}: {1e3 * case['wall_s']:.0f} ms", err=True)
    return seen


if __name__ == "__main__":
    typer.run(main)
