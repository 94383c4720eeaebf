"""``python -m tests.bench.soak``: an hour under load, with queries coming and going.

python -m tests.bench.soak                      65 minutes
python -m tests.bench.soak --minutes 3          too short to tell what grows; results are compared
python -m tests.bench.soak --report-only --work DIR    judge what was recorded again

Writes docs/bench/soak.md and soak.json. The exit status is 1 where results differ or something grew.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from catalog.durations import parse_duration_us
from tests.bench.reports import machine
from tests.bench.soak.expected import batches_of, compare
from tests.bench.soak.load import read_posted
from tests.bench.soak.report import SoakReport, write_report
from tests.bench.soak.rows import STREAMS
from tests.bench.soak.sampler import read_lines
from tests.bench.soak.soak import FOLLOWED, SoakSetting, read_soaked, soak, visits_file
from tests.bench.soak.verdict import changes, minutes
from tests.bench.soak.visitors import read_visits

STRETCH_S = 600


def main(
    work: Annotated[
        Path | None, typer.Option(help="Directory for what is recorded; by default a new one.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Directory of the report.")] = Path("docs/bench"),
    length: Annotated[float, typer.Option("--minutes", min=0.5, help="How long rows are posted.")] = 60,
    rate: Annotated[int, typer.Option(min=2, help="Rows per second, both streams.")] = 20_000,
    warm_up: Annotated[
        int, typer.Option(min=0, help="Stretches of ten minutes that are not judged: caches and files fill.")
    ] = 2,
    report_only: Annotated[bool, typer.Option("--report-only", help="Measure nothing.")] = False,
    conditions: Annotated[str, typer.Option(help="Who else uses the machine, for the report.")] = "",
) -> None:
    """Run the soak and write the report."""
    directory = Path(tempfile.mkdtemp(prefix="sluice-soak-") if work is None else work.absolute())
    if not report_only:
        typer.echo(f"recording in {directory}", err=True)
        soak(SoakSetting(duration_s=round(length * 60), rate_per_s=rate // 2), directory)
    report = judge(directory, warm_up, conditions)
    typer.echo(write_report(out, report))
    if report.wrong or report.grown:
        raise typer.Exit(1)


def judge(directory: Path, warm_up: int = 2, conditions: str = "") -> SoakReport:
    """Compare and measure what a soak has recorded in a directory."""
    soaked = read_soaked(directory)
    lines = {name: read_lines(directory / f"{name}.jsonl") for name in ("samples", "batches")}
    samples, batches = (pd.DataFrame(of) for of in lines.values())
    visits = read_visits(visits_file(directory))
    acknowledged = {name: int(read_posted(directory, name)["end"][-1]) for name in STREAMS}
    start_s, duration_s = soaked.start_us / 1e6, soaked.setting.duration_s
    by_minute = minutes(directory, start_s, duration_s, FOLLOWED, samples, batches)
    retention_s = parse_duration_us(soaked.setting.retention) / 1e6
    stretches = duration_s // STRETCH_S
    # With one stretch after the warm-up there is nothing to compare it with.
    judged = stretches >= warm_up + 2
    return SoakReport(
        soaked=soaked,
        machine=machine(),
        conditions=conditions,
        facts={
            "rows posted": sum(acknowledged.values()),
            "late rows": int(batches["late_rows"].sum()),
            "results of all batches": int(batches["results"].sum()),
            "batches": len(batches),
            "plan versions in force": batches["plan_version"].nunique(),
            "queries that came": len(visits),
        },
        compared=compare(directory, soaked.rows, acknowledged, batches_of(lines["batches"]), visits),
        minutes=by_minute,
        warm_up=warm_up,
        stretch_s=STRETCH_S,
        changes=changes(samples, batches, by_minute, start_s, retention_s, STRETCH_S, stretches)
        if judged
        else pd.DataFrame(),
    )


if __name__ == "__main__":
    typer.run(main)
