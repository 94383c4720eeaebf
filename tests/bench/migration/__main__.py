"""``python -m tests.bench.migration``: plans that change under load; writes docs/bench/migration.md, plots.

python -m tests.bench.migration                     everything: about 45 minutes on 2 quiet cores
python -m tests.bench.migration --part carrying     one part; the others stay as they were measured
python -m tests.bench.migration --quick --out DIR   small sizes, a few minutes; its times mean little
python -m tests.bench.migration --report-only       write the report again from the JSON file
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from tests.bench.migration.activation import activations
from tests.bench.migration.carrying import through_spark
from tests.bench.migration.load import Load
from tests.bench.migration.report import write_report
from tests.bench.migration.service_under_load import loaded_service
from tests.bench.migration.throughput import alternate, standing_queries
from tests.bench.reports import machine, read_figures

PARTS = ("carrying", "activation", "throughput")

FULL = Load()
#: 100,000 rows of state, 20 queries.
QUICK = Load().sized(longest_s=2.0, queries=20)


def main(
    part: Annotated[list[str] | None, typer.Option(help=f"Only these: {', '.join(PARTS)}.")] = None,
    out: Annotated[Path, typer.Option(help="Directory of the report.")] = Path("docs/bench"),
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes.")] = False,
    report_only: Annotated[bool, typer.Option("--report-only", help="Measure nothing.")] = False,
    runs: Annotated[int, typer.Option(help="Runs of the part `carrying`; medians are reported.")] = 3,
    minutes: Annotated[float, typer.Option(help="Minutes of changes in the part `throughput`.")] = 10.0,
    cores: Annotated[int, typer.Option(help="Cores of Spark.")] = 2,
) -> None:
    """Measure the chosen parts and write the report."""
    chosen = [] if report_only else list(part or PARTS)
    if unknown := set(chosen) - set(PARTS):
        raise typer.BadParameter(f"no such part: {', '.join(sorted(unknown))}")
    load = QUICK if quick else FULL
    if quick:
        runs, minutes = 1, min(minutes, 0.5)
    out.mkdir(parents=True, exist_ok=True)
    measured = read_figures(out / "migration.json")
    for name in chosen:
        typer.echo(f"{name} ...")
        measured[name] = _measure(name, load, quick=quick, runs=runs, minutes=minutes, cores=cores)
        measured["machine"], measured["quick"] = machine(), quick
        typer.echo(write_report(out, measured))
    if report_only:
        typer.echo(write_report(out, measured))


def _measure(name: str, load: Load, *, quick: bool, runs: int, minutes: float, cores: int) -> Any:
    """Measure one part; JSON values."""
    if name == "carrying":
        return [through_spark(load, cores) for _ in range(runs)]
    with (
        tempfile.TemporaryDirectory(prefix="sluice-migration-", ignore_cleanup_errors=True) as root,
        loaded_service(Path(root), load, standing_queries(load)) as loaded,
    ):
        if name == "activation":
            return activations(loaded, load, 12 if quick else 120)
        return alternate(loaded, load, minutes * 60 / 2)


if __name__ == "__main__":
    typer.run(main)
