"""Experiments of Window-Oblivious Join and of WNL and WHJ, as Markdown tables on stdout.

    python -m tests.bench.oblivious [--figures whj|q1|q2|all] [--rate 100] [--runs 3]

The operators run in this process, without Spark.

WHJ, §4: two streams in order, windows of 30 s, 100 keys, 60 s of which the last 30 s count. Counters stand
beside Equations 1 and 2, CPU time beside that of merging (Figures 4 to 7). Then come the rows that each
invalidation holds where one stream is 100 times as fast (Figure 8).

WO-Join, §5.1: ``queries`` and ``figures``.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tests.bench.oblivious.figures import query_1_tables, query_2_tables
from tests.bench.oblivious.rings import whj


def main(
    figures: Annotated[str, typer.Option(help="whj, q1, q2 or all")] = "all",
    rate: Annotated[float, typer.Option(help="Rows per second of WHJ.")] = 100.0,
    runs: Annotated[int, typer.Option(help="Runs of WO-Join.")] = 3,
) -> None:
    """Run the experiments and print their tables."""
    for name, tables in (("whj", whj(rate)), ("q1", query_1_tables(runs)), ("q2", query_2_tables(runs))):
        for text in tables if figures in (name, "all") else ():
            typer.echo(f"{text}\n")


if __name__ == "__main__":
    typer.run(main)
