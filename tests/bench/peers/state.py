"""Least state that a workload needs, against the state held (the minimum of State-Slice, §6.1, Theorem 4).

The reference are the rows that some query can still use, given the watermarks at the end of a batch: a row of
A at time t, if t > watermark of B - W for the largest window W of the queries whose filter on A it passes.
Its bytes are those of the columns that queries name, as plain Arrow: event time and key, 16 per row, and 8
for ``v`` where a filter asks for it, since a later query asks held rows for it, too (``backfill: state``).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import duckdb

from tests.bench.peers.workloads import Query

#: A timestamp and a bigint; a double.
ARROW_ROW_BYTES, ARROW_FILTERED_BYTES = 16, 8


class Held(NamedTuple):
    """Rows and encoded bytes of both streams at the end of a batch, and the newest event time of each."""

    rows: int
    bytes: int
    a_us: int
    b_us: int


def state_ratios(directory: Path, queries: Sequence[Query], held: Sequence[Held]) -> dict[str, float]:
    """Return rows and bytes held over the reference's, each of the batch where that is largest."""
    wanted = usable_rows(directory, queries, held)
    filtered = any(bound is not None for query in queries for bound in (query.a_below, query.b_below))
    row_bytes = ARROW_ROW_BYTES + filtered * ARROW_FILTERED_BYTES
    return {
        "state_rows": max(h.rows / rows for h, rows in zip(held, wanted, strict=True)),
        "state_bytes": max(h.bytes / (row_bytes * rows) for h, rows in zip(held, wanted, strict=True)),
    }


def usable_rows(directory: Path, queries: Sequence[Query], held: Sequence[Held]) -> list[int]:
    """Return how many rows of both streams are still of use at the end of each batch."""
    a, b = [(h.a_us, h.b_us) for h in held], [(h.b_us, h.a_us) for h in held]
    of_streams = {
        "A": (a, [(q.window_us, q.a_below) for q in queries]),
        "B": (b, [(q.window_us, q.b_below) for q in queries]),
    }
    totals = [0] * len(held)
    with duckdb.connect() as connection:
        for stream, (newest, bounds) in of_streams.items():
            counts = ", ".join(
                f"count(*) FILTER (us <= {own} AND us > {other} - reach)" for own, other in newest
            )
            (rows,) = connection.sql(
                f"SELECT {counts} FROM (SELECT epoch_us(ts) AS us, {_reach(bounds)} AS reach "
                f"FROM '{directory / stream}/*.parquet')"
            ).fetchall()
            totals = [total + int(more) for total, more in zip(totals, rows, strict=True)]
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
