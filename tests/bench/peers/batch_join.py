"""DuckDB's batch join of the same files: what every engine must count, and a limit to how fast it can be.

One join of the largest window, then a count per query. Where a key has many rows, rows of A meet only those
of B within a window or two: both sides carry the number of their window, B that of its neighbours, too.

Run as a process of its own: ``python -m tests.bench.peers.batch_join JOB.json``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import duckdb

from tests.bench.peers.job import Job, Ran, answer, read_job
from tests.bench.peers.workloads import Query, Streams

#: With more candidates per row than this, pairs out of reach are worth avoiding.
_MANY_CANDIDATES = 20


def count_results(
    directory: Path, queries: Sequence[Query], streams: Streams, threads: int | None = None
) -> dict[str, int]:
    """Return the number of results of every query.

    Args:
        directory: Of both streams.
        queries: Queries.
        streams: What the files hold.
        threads: DuckDB's; None is its default, all cores.
    """
    largest_us = max(q.window_us for q in queries)
    counts = ", ".join(f"count(*) FILTER ({_condition(q)})" for q in queries)
    with duckdb.connect(config={} if threads is None else {"threads": threads}) as connection:
        rows = connection.sql(
            f"SELECT {counts} FROM ({_pairs(directory, largest_us, streams)}) WHERE d < {largest_us}"
        ).fetchall()
    return dict(zip((q.name for q in queries), rows[0], strict=True))


def _condition(query: Query) -> str:
    terms = [f"d < {query.window_us}"]
    if query.a_below is not None:
        terms.append(f"av < {query.a_below!r}")
    if query.b_below is not None:
        terms.append(f"bv < {query.b_below!r}")
    return " AND ".join(terms)


def _pairs(directory: Path, largest_us: int, streams: Streams) -> str:
    """Return a query for the distance of all pairs within the largest window, and some beyond it."""
    a, b = (f"(SELECT epoch_us(ts) AS us, k, v FROM '{directory / side}/*.parquet')" for side in ("A", "B"))
    columns = "abs(a.us - b.us) AS d, a.v AS av, b.v AS bv"
    if streams.zipf is None and streams.rows / streams.keys <= _MANY_CANDIDATES:
        return f"SELECT {columns} FROM {a} a JOIN {b} b ON a.k = b.k"
    near = f"(SELECT *, us // {largest_us} + unnest([-1, 0, 1]) AS w FROM {b})"
    return f"SELECT {columns} FROM {a} a JOIN {near} b ON a.k = b.k AND a.us // {largest_us} = b.w"


def run(job: Job) -> Ran:
    """Run the job's queries."""
    began = time.time()
    counts = count_results(Path(job.directory), job.queries, job.streams, job.cores)
    return Ran(
        results=counts,
        input_rows=2 * job.streams.rows,
        job_s=time.time() - began,
        versions={"DuckDB": duckdb.__version__},
    )


if __name__ == "__main__":
    answer(run(read_job(sys.argv[1])))
