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

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import typer

from catalog.values.plan import Plan
from catalog.values.stream import FilesSource, Order, Stream
from operators.kernels.keys import Int64s
from operators.orders.order_progress import scrambling_factor
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from service.calibrate.in_process_job import write_piece
from service.inputs.partitions import FilesPartition
from tests.bench.measuring import Batches
from tests.bench.reports import table
from tests.builders import a_stream
from tests.pipeline import race

BUCKETS = 2
#: Batches before the first that counts.
WARM = 3
MICROSECONDS = 1_000
COLUMNS = (("e", "bigint"), ("v", "double"))
_SOURCE = FilesSource("parquet", "")
ORDERED = "SELECT A.v AS v, B.v AS w FROM A JOIN B ON A.e = B.e"
NOW = "SELECT A.v AS v, B.v AS w FROM A [NOW] JOIN B [NOW] ON A.e = B.e"
#: Loads, and what each is compared with.
COMPARED = {"[NOW]": "", "ordered": "[NOW]", "12 ordered": "ordered", "monitored": "ordered"}
TWELVE = tuple(f"{ORDERED} WHERE A.v < {n / 12!r}" for n in range(1, 13))


@dataclass(frozen=True, slots=True)
class Load:
    """Queries over streams of one contract; without an order they have event times alone."""

    texts: tuple[str, ...]
    order: Order | None

    def plan(self, lateness_us: int) -> Plan:
        """Return its plan."""
        made = {n: a_stream(i, lateness_us, COLUMNS, source=_SOURCE) for i, n in enumerate("AB", 1)}
        streams = {name: replace(stream, order=self.order) for name, stream in made.items()}
        queries = [bind(text, streams, name=f"q{n}", query_id=n) for n, text in enumerate(self.texts, 1)]
        return build_plan(queries, {s.id: s for s in streams.values()})


def batches_of(
    values: Mapping[str, Int64s], rows: int, streams: Sequence[Stream], directory: Path
) -> Iterator[list[FilesPartition]]:
    """Yield the pieces of each batch; event time goes with the order."""
    rng = np.random.default_rng(2)
    for batch in range(len(values["A"]) // rows):
        pieces = []
        for stream in streams:
            taken = values[stream.name][batch * rows : (batch + 1) * rows]
            times = pa.array(taken * MICROSECONDS, pa.timestamp("us"))
            rows_of_batch = pa.table({"ts": times, "e": taken, "v": rng.uniform(0, 1, rows)})
            pieces.append(write_piece(directory, stream, batch, rows_of_batch))
        yield pieces


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
    plans = {name: load.plan(factor * MICROSECONDS) for name, load in loads.items()}
    with tempfile.TemporaryDirectory(prefix="sluice-ordered-") as root:
        pieces = batches_of(values, rows, plans["[NOW]"].streams, Path(root))
        ran = race(plans, pieces, Path(root), buckets=BUCKETS)
    measured = {name: Batches.of(batches, WARM) for name, batches in ran.items()}
    typer.echo(f"{rows:,} rows a batch and stream, scrambling factor {factor}, {pairs:,} pairs")
    header = ("load", "CPU, ms a batch", "to", "ratio", "most rows held", "pairs made")
    lines = []
    for name, to in COMPARED.items():
        found = measured[name]
        ratio = f"{found.cpu_ms / measured[to].cpu_ms:.2f}" if to else ""
        made = found.results[len(loads[name].texts)] / pairs
        lines.append((name, f"{found.cpu_ms:.1f}", to, ratio, f"{found.most_held:,}", f"{made:.2%}"))
    typer.echo(table(header, lines))


if __name__ == "__main__":
    typer.run(main)
