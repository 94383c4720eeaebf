"""Least state that a workload needs, against the state held (the minimum of State-Slice, §6.1, Theorem 4).

The reference are the rows that some query can still use, given the watermarks at the end of a batch: a row of
A at time t, if t > watermark of B - W for the largest window W of the queries whose filter on A it passes.
Its bytes are those of the columns that queries name, as plain Arrow: event time and key, 16 per row, and 8
for ``v`` where a filter asks for it, since a later query asks held rows for it, too (``backfill: state``).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb

from tests.bench.peers.job import Held
from tests.bench.peers.workloads import Query

#: A timestamp and a bigint.
ARROW_ROW_BYTES = 16
#: A double.
ARROW_FILTERED_BYTES = 8


def state_ratios(
    directory: Path, queries: Sequence[Query], held: Sequence[Held]
) -> tuple[float | None, float | None]:
    """Return rows and bytes held over the reference's, each of the batch where that is largest.

    Args:
        directory: Of both streams' files.
        queries: Queries.
        held: State at the end of the batches; with none there is no ratio.
    """
    if not held:
        return None, None
    wanted = usable_rows(directory, queries, held)
    if not all(wanted):
        raise ValueError("after a batch of both streams some row is always of use")
    filtered = any(bound is not None for query in queries for bound in (query.a_below, query.b_below))
    row_bytes = ARROW_ROW_BYTES + filtered * ARROW_FILTERED_BYTES
    return (
        max(h.rows / rows for h, rows in zip(held, wanted, strict=True)),
        max(h.bytes / (row_bytes * rows) for h, rows in zip(held, wanted, strict=True)),
    )


def usable_rows(directory: Path, queries: Sequence[Query], held: Sequence[Held]) -> list[int]:
    """Return how many rows of both streams are still of use at the end of each batch."""
    with duckdb.connect() as connection:
        totals = [0] * len(held)
        for stream, bounds in (
            ("A", [(q.window_us, q.a_below) for q in queries]),
            ("B", [(q.window_us, q.b_below) for q in queries]),
        ):
            counts = ", ".join(
                "count(*) FILTER (us <= {} AND us > {} - reach)".format(
                    *((h.a_us, h.b_us) if stream == "A" else (h.b_us, h.a_us))
                )
                for h in held
            )
            rows = connection.sql(
                f"SELECT {counts} FROM (SELECT epoch_us(ts) AS us, {_reach(bounds)} AS reach "
                f"FROM '{directory / stream}/*.parquet')"
            ).fetchall()
            totals = [total + int(more) for total, more in zip(totals, rows[0], strict=True)]
    return totals


def _reach(bounds: Sequence[tuple[int, float | None]]) -> str:
    """Return as SQL how far the largest window reaches that a row's ``v`` is of use for; NULL is none."""
    largest: dict[float | None, int] = {}
    for window_us, below in bounds:
        largest[below] = max(largest.get(below, 0), window_us)
    whole = largest.pop(None, None)
    reach = "NULL" if whole is None else str(whole)
    # From the loosest filter inwards: a row that passes a tighter one passes the looser ones, too.
    for below in sorted((b for b in largest if b is not None), reverse=True):
        whole = max(largest[below], whole or 0)
        reach = f"CASE WHEN v < {below!r} THEN {whole} ELSE {reach} END"
    return reach
