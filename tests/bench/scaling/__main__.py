"""``python -m tests.bench.scaling``: what a batch costs, term by term, and what that means for many cores.

python -m tests.bench.scaling                     everything: about ten minutes on 2 quiet cores
python -m tests.bench.scaling --quick --out DIR   small sizes, a minute or two; its times mean little
python -m tests.bench.scaling --report-only       fit and write the report again from the JSON file

Writes docs/bench/scaling.md and scaling.json; docs/scaling.md says what to make of them.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import typer

from tests.bench.options import DOCS, Out, Quick, ReportOnly
from tests.bench.reports import publish, read_figures, table
from tests.bench.scaling.model import (
    CORES_PER_NODE,
    NETWORK_BYTES_PER_S,
    Model,
    Shape,
    batch_s,
    cost_s,
    fitted,
    predicted,
    rows_at,
)
from tests.bench.scaling.phases import PHASES, RUNS, Phase, SparkRun, measure

#: Batches of each phase.
BATCHES = 10
QUICK_RUNS = (SparkRun(2, 2), SparkRun(8, 4))
QUICK_PHASES = (Phase("even", 20_000), Phase("few"), Phase("lone", 20_000))

CORES = (10, 30, 100, 300, 1000)
INTERVALS_S = (1.0, 5.0, 30.0)
#: Where limits are looked for: tenth parts of powers of ten, up to 10,000 cores.
MANY_CORES = tuple(round(10 ** (n / 10)) for n in range(3, 41))
LEAST_EFFICIENCY = 0.5
#: As settings are by default: rows of a piece of input, and of a batch.
DEFAULT_PIECE, DEFAULT_BATCH = 500_000, 1_000_000


def main(out: Out = DOCS, quick: Quick = False, report_only: ReportOnly = False) -> None:
    """Measure everything and write the report."""
    figures = read_figures(out / "scaling.json") if report_only else {"phases": []}
    if not report_only:
        for run in QUICK_RUNS if quick else RUNS:
            for seen in measure(run, QUICK_PHASES if quick else PHASES, BATCHES):
                figures["phases"].append(seen)
                typer.echo(f"{seen['run']}, {seen['rows']:,} rows: {1e3 * seen['wall_s']:.0f} ms", err=True)
    typer.echo(publish(out, "scaling", figures, tables(pd.DataFrame(figures["phases"]))))


def tables(seen: pd.DataFrame) -> dict[str, str]:
    """Fit the model to phases, and return the report's tables."""
    ours = seen[seen.fitted]
    model, shape = fitted(ours), Shape.of(ours)
    parts = {
        "pack": "reading and packing, CPU",
        "chain": "the chain, CPU",
        "spark": "tasks in Spark besides, CPU",
        "serial": "the driver, clock",
    }
    constants = [
        (text, name, 1e6 * seconds) for part, text in parts.items() for name, seconds in model[part].items()
    ]
    assumed = {
        "bytes shuffled for a row": shape.bytes_per_row,
        "bytes shuffled for a payload": shape.bytes_per_payload,
        "cores to a machine": CORES_PER_NODE,
        "Gbit/s": NETWORK_BYTES_PER_S * 8e-9,
        "standard deviation of a batch's buckets, from the hottest": f"{shape.bucket_deviation:.1%}",
    }
    return {
        "constants": table(("", "for each", "µs"), constants, texts=2),
        "errors": _errors(model, seen),
        "phases": _phases(model, seen),
        "assumed": table(("", ""), assumed.items()),
        **_predictions(model, shape),
    }


def _errors(model: Model, seen: pd.DataFrame) -> str:
    """Return how far the model is off what it was fitted to, and off jobs of other masters."""
    lines = []
    for name, own in (("fitted to", seen[seen.fitted]), ("not fitted to", seen[~seen.fitted])):
        shown = {
            "packing": cost_s(model, own, "pack") / own.pack_s,
            "chain": cost_s(model, own, "chain") / own.chain_s,
            "batch, by the clock": batch_s(model, own) / own.wall_s,
        }
        for what, ratio in shown.items():
            errors = (ratio - 1).abs()
            quantiles = (f"{errors.quantile(part):.1%}" for part in (0.5, 0.9))
            lines.append((what, f"{len(own)} phases that it was {name}", *quantiles))
    return table(("", "", "median error", "9 of 10 within"), lines, texts=2)


def _phases(model: Model, seen: pd.DataFrame) -> str:
    columns = {
        "run": seen.run,
        "R": seen.rows,
        "P": seen.partitions,
        "clock": 1e3 * seen.wall_s,
        "by the model": 1e3 * batch_s(model, seen),
        "tasks, CPU": 1e3 * (seen.workers_s + seen.tasks_s),
        "of it our own": 1e3 * (seen.pack_s + seen.chain_s),
        "driver's JVM, CPU": 1e3 * (seen.jvm_s - seen.tasks_s),
        "shuffled, KB": seen.shuffled_bytes / 1e3,
        "hottest bucket / mean": seen.hottest,
    }
    return table(list(columns), zip(*columns.values(), strict=True))


def _largest(model: Model, shape: Shape, cores: int, interval_s: float) -> dict[str, float] | None:
    """Return the largest batch of an interval: rows, rates, and shares of its parts; None: there is none."""
    rows = rows_at(model, cores, shape, interval_s)
    if rows is None:
        return None
    parts = predicted(model, cores, shape, rows)
    rate = rows / sum(parts.values())
    shares = {name: part_s / sum(parts.values()) for name, part_s in parts.items()}
    found = {"cores": cores, "interval_s": interval_s, "rows": rows, "rate": rate, "per_core": rate / cores}
    return found | shares


def _predictions(model: Model, shape: Shape) -> dict[str, str]:
    """Predict the largest batches of each interval on more cores, how far that goes, and default settings."""
    settings = {
        "four buckets and a piece of input for each core": shape,
        "one bucket and a piece of input for each core": replace(shape, buckets_per_core=1),
        "four buckets, pieces of 500,000 rows": replace(shape, rows_per_piece=DEFAULT_PIECE),
    }
    found = pd.DataFrame(
        {"settings": name} | line
        for name, own in settings.items()
        for interval_s in INTERVALS_S
        for cores in CORES
        if (line := _largest(model, own, cores, interval_s))
    )
    best = found["per_core"].max()
    lines = []
    for s in found.to_dict("records"):
        rates = (s["rows"] / 1e6, s["rate"] / 1e6, s["per_core"] / 1e3)
        shares = (f"{share:.0%}" for share in (s["per_core"] / best, s["the driver"], s["the network"]))
        lines.append((s["settings"], s["cores"], s["interval_s"], *rates, *shares))
    header = (
        *("settings", "cores", "interval, s", "million rows of a batch", "million rows/s"),
        *("per core, thousand rows/s", "efficiency", "driver", "network"),
    )
    limits = []
    for interval_s in INTERVALS_S:
        batches = (_largest(model, shape, cores, interval_s) for cores in MANY_CORES)
        enough = [b for b in batches if b and b["per_core"] >= LEAST_EFFICIENCY * best]
        if not enough:
            limits.append((f"{interval_s:g} s", f"fewer than {MANY_CORES[0]}", "", ""))
            continue
        others = {name: enough[-1][name] for name in list(enough[-1])[5:] if name != "our own code"}
        most = max(others, key=lambda name: others[name])
        limits.append((f"{interval_s:g} s", enough[-1]["cores"], most, f"{others[most]:.0%}"))
    default = replace(shape, rows_per_piece=DEFAULT_PIECE, buckets_per_core=1)
    batches_s = {n: sum(predicted(model, n, default, DEFAULT_BATCH).values()) for n in (2, *CORES)}
    defaults = [(cores, seconds, DEFAULT_BATCH / 1e6 / seconds) for cores, seconds in batches_s.items()]
    return {
        "more cores": table(header, lines),
        "limits": table(("a batch every", "cores", "takes most", "of the batch"), limits),
        "default batches": table(("cores", "batch, s", "million rows/s"), defaults),
    }


if __name__ == "__main__":
    typer.run(main)
