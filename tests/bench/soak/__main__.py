"""``python -m tests.bench.soak``: an hour under load, with queries coming and going.

    python -m tests.bench.soak                  65 minutes
    python -m tests.bench.soak --minutes 3      too short to tell what grows; results are compared

Writes docs/bench/soak.md and soak.json. The exit status is 1 where results differ or something grew.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from tests.bench.options import DOCS, Out
from tests.bench.reports import publish, table
from tests.bench.soak.expected import compare
from tests.bench.soak.soak import Soaked, soak
from tests.bench.soak.verdict import stretches, verdict

STRETCH_S = 600.0


def main(
    out: Out = DOCS,
    minutes: Annotated[float, typer.Option(min=0.1, help="How long rows are posted.")] = 60,
    rate: Annotated[int, typer.Option(min=2, help="Rows per second, both streams.")] = 20_000,
    warm_up: Annotated[
        int, typer.Option(min=0, help="Stretches of ten minutes that are not judged: caches and files fill.")
    ] = 2,
    work: Annotated[
        Path | None, typer.Option(help="Directory for data and log; by default a new one that is kept.")
    ] = None,
) -> None:
    """Run the soak and write the report."""
    directory = Path(tempfile.mkdtemp(prefix="sluice-soak-") if work is None else work.absolute())
    typer.echo(f"data and log of the service are in {directory}", err=True)
    soaked = soak(minutes * 60, rate // 2, directory)
    figures, tables, fails = report(soaked, warm_up)
    typer.echo(publish(out, "soak", figures, tables))
    if fails:
        raise typer.Exit(1)


def report(soaked: Soaked, warm_up: int) -> tuple[dict[str, Any], dict[str, str], bool]:
    """Return figures and tables, and whether results differ or something grew."""
    compared = compare(soaked)
    wrong = compared[compared.drop(columns="expected").any(axis=1)]
    figures = stretches(soaked, STRETCH_S)
    text, grown = verdict(figures, STRETCH_S, warm_up) if len(figures.columns) else ("", [])
    began = pd.Timestamp(soaked.rows.start_us, unit="us").strftime("%Y-%m-%d %H:%M UTC")
    facts = {
        "began": began,
        "rows posted": sum(int(posted["end"][-1]) for posted in soaked.posted.values()),
        "rows/s of both streams": 2 * int(soaked.rows.rate_per_s),
        "late rows": int(soaked.batches["late_rows"].sum()),
        "results of all batches": int(soaked.batches["results"].sum()),
        "batches": len(soaked.batches),
        "plan versions in force": int(soaked.batches["plan_version"].nunique()),
        "queries that came": sum(name.startswith("visitor") for name in soaked.phases),
        "results expected by DuckDB": int(compared["expected"].sum()),
        "queries with other results": f"{len(wrong)} of {len(compared)}",
        "figures that grew": ", ".join(grown) or "none",
    }
    tables = {"facts": table(("", ""), facts.items()), "figures": text or "The run was too short to say."}
    if len(wrong):
        tables["wrong"] = table(("", *wrong.columns), wrong.itertuples())
    document = {
        "facts": facts,
        "wrong": wrong.to_dict("index"),
        "stretch_s": STRETCH_S,
        "figures": {str(name): medians for name, *medians in figures.itertuples()},
    }
    return document, tables, bool(len(wrong) or grown)


if __name__ == "__main__":
    typer.run(main)
