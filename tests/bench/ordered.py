"""Joins without windows compared with `[NOW]` joins of the same rows: CPU time, rows held, accuracy.

    python -m tests.bench.ordered [--rows 40000] [--batches 30] [--scramble 500]

Two streams come in the order of ``e``, each value twice, out of order by at most the scramble. Event time
goes with the order, so that a `[NOW]` join over the same rows gives the same pairs once its lateness covers
the scramble. The workers' own code runs in this process, without Spark: read, PACK, join, store, write. Loads
take turns batch by batch; figures are medians over batches.

    load               is compared with
    [NOW]
    ordered            [NOW]: at most 1.1
    12 ordered         ordered: at most 1.15; queries that differ in their filters
    monitored          declared: rows held, and the part of all pairs that it makes
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import typer

from catalog.values.stream import Column, FilesSource, Order, Stream
from operators.kernels.keys import Int64s
from operators.orders.order_progress import scrambling_factor
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from service.calibrate.in_process_job import InProcessJob, write_piece

BUCKETS = 2
#: Batches before the first that counts.
WARM = 3
MICROSECONDS = 1_000
COLUMNS = (Column("ts", "timestamp"), Column("e", "bigint"), Column("v", "double"))
ORDERED = "SELECT A.v AS v, B.v AS w FROM A JOIN B ON A.e = B.e"
NOW = "SELECT A.v AS v, B.v AS w FROM A [NOW] JOIN B [NOW] ON A.e = B.e"
TWELVE = tuple(f"{ORDERED} WHERE A.v < {n / 12!r}" for n in range(1, 13))


@dataclass(slots=True)
class Load:
    """Queries over streams of one contract, and what was measured of them.

    Attributes:
        texts: The queries.
        order: Order of the streams; None: they have event times alone.
        batches_s: CPU time of each batch, s.
        held: Most rows held at the end of a batch.
        results: Results of the first query.
    """

    texts: tuple[str, ...]
    order: Order | None
    batches_s: list[float] = field(default_factory=list)
    held: int = 0
    results: Counter[int] = field(default_factory=Counter)

    @property
    def cpu_ms(self) -> float:
        """CPU time of a batch, ms."""
        return statistics.median(self.batches_s[WARM:]) * 1e3


def scrambled(rng: np.random.Generator, rows: int, scramble: int) -> Int64s:
    """Return values that stand twice each, out of order by about so many rows."""
    places = np.arange(rows) + rng.uniform(0, scramble / 2, rows)
    values: Int64s = np.arange(rows)[np.argsort(places, kind="stable")] // 2
    return values


def main(
    rows: Annotated[int, typer.Option(help="Rows of each stream in a batch.")] = 40_000,
    batches: Annotated[int, typer.Option(help="Batches.")] = 30,
    scramble: Annotated[int, typer.Option(help="How far rows come out of order.")] = 500,
) -> None:
    """Measure all loads and print a table."""
    rng = np.random.default_rng(1)
    values = {name: scrambled(rng, rows * batches, scramble) for name in "AB"}
    factor = max(scrambling_factor(of) for of in values.values())
    loads = {
        "[NOW]": Load((NOW,), None),
        "ordered": Load((ORDERED,), Order("e", factor)),
        "12 ordered": Load(TWELVE, Order("e", factor)),
        "monitored": Load((ORDERED,), Order("e", None)),
    }
    counts = [Counter(of.tolist()) for of in values.values()]
    pairs = sum(n * counts[1][value] for value, n in counts[0].items())
    with tempfile.TemporaryDirectory(prefix="sluice-ordered-") as root:
        jobs = {}
        for name, load in loads.items():
            streams = {
                n: Stream(
                    i, n, COLUMNS, "ts", factor * MICROSECONDS, FilesSource("parquet", root), order=load.order
                )
                for i, n in enumerate("AB", 1)
            }
            queries = [bind(text, streams, name=f"q{n}", query_id=n) for n, text in enumerate(load.texts, 1)]
            plan = build_plan(queries, {s.id: s for s in streams.values()})
            jobs[name] = InProcessJob(plan, BUCKETS, Path(root)), streams
        for batch in range(batches):
            tables = {}
            for name, of in values.items():
                taken = of[batch * rows : (batch + 1) * rows]
                times = pa.array(taken * MICROSECONDS, pa.timestamp("us"))
                tables[name] = pa.table(
                    {"ts": times, "e": taken, "v": rng.uniform(0, 1, rows)},
                )
            _, streams = jobs["[NOW]"]
            pieces = [write_piece(Path(root), streams[n], batch, table) for n, table in tables.items()]
            for name in sorted(loads, key=lambda n: (n, batch) if batch % 2 else (n[::-1], batch)):
                job, load = jobs[name][0], loads[name]
                began_s = time.process_time()
                packets = job.pack(batch, pieces)
                reports = [job.join(bucket, packets[bucket]) for bucket in packets]
                load.batches_s.append(time.process_time() - began_s)
                load.held = max(load.held, sum(s.rows for r in reports for s in r.slices))
                for report in reports:
                    load.results.update(dict(report.query_rows))
                job.discard_results(reports)
        for job, _ in jobs.values():
            job.close()
    typer.echo(f"{rows:,} rows a batch and stream, scrambling factor {factor}, {pairs:,} pairs")
    typer.echo(
        "| load | CPU, ms a batch | to | ratio | most rows held | pairs made |\n|---|---|---|---|---|---|"
    )
    for name, to in (
        ("[NOW]", ""),
        ("ordered", "[NOW]"),
        ("12 ordered", "ordered"),
        ("monitored", "ordered"),
    ):
        load = loads[name]
        ratio = f"{load.cpu_ms / loads[to].cpu_ms:.2f}" if to else ""
        made = load.results[len(load.texts)] / pairs
        typer.echo(f"| {name} | {load.cpu_ms:.1f} | {to} | {ratio} | {load.held:,} | {made:.2%} |")


if __name__ == "__main__":
    typer.run(main)
