"""DuckDB's batch join of the same files: what every engine must count, and a limit to how fast it can be.

One join of the largest window; its pairs are counted by the steps of windows and filters that they reach, and
each query adds up what is below its own: a thousand conditions per pair would take longer than the join.
Where a key has many rows, rows of A meet only those of B within a window or two: both sides carry the number
of their window, B that of its neighbours, too.

Run as a process of its own: ``python -m tests.bench.peers.batch_join JOB.json``.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import numpy as np

from tests.bench.peers.job import Job, Ran, answer, read_job
from tests.bench.peers.workloads import Query, Streams

#: With more candidates per row than this, pairs out of reach are worth avoiding.
_MANY_CANDIDATES = 20
#: Counts that were taken, beside the files.
_KEPT = "expected.json"


def expected_counts(directory: Path, streams: Streams, queries: Sequence[Query]) -> dict[str, int]:
    """Return the number of results of every query by name; it is taken once and kept beside the files."""
    path = directory / _KEPT
    known: dict[str, int] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    identities = {
        q.name: f"{q.window_us} {q.a_below} {q.b_below}" + (" left" if q.left else "") for q in queries
    }
    if missing := [q for q in queries if identities[q.name] not in known]:
        found = count_results(directory, missing, streams)
        known |= {identities[name]: count for name, count in found.items()}
        path.write_text(json.dumps(known), encoding="utf-8")
    return {name: known[identity] for name, identity in identities.items()}


def differences(found: Mapping[str, int], wanted: Mapping[str, int]) -> str:
    """Return in words where counts differ, or nothing."""
    wrong = [
        f"{name}: {found.get(name, 0):,} instead of {count:,}"
        for name, count in wanted.items()
        if found.get(name, 0) != count
    ]
    more = f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    return "; ".join(wrong[:3]) + more


def count_results(
    directory: Path, queries: Sequence[Query], streams: Streams, threads: int | None = None
) -> dict[str, int]:
    """Return the number of results of every query; ``threads`` are DuckDB's, None is all cores."""
    if any(q.left for q in queries):
        return _left_results(directory, queries, streams, threads)
    windows = sorted({q.window_us for q in queries})
    bounds = {
        "av": sorted({q.a_below for q in queries if q.a_below is not None}),
        "bv": sorted({q.b_below for q in queries if q.b_below is not None}),
    }
    cells = ", ".join(
        f"{_reached(column, steps)} AS {column}_cell" for column, steps in {"d": windows, **bounds}.items()
    )
    pairs = _pairs(directory, windows[-1], streams)
    with duckdb.connect(config={} if threads is None else {"threads": threads}) as connection:
        found = connection.sql(
            f"SELECT d_cell, av_cell, bv_cell, count(*) FROM "
            f"(SELECT {cells} FROM ({pairs}) WHERE d < {windows[-1]}) GROUP BY ALL"
        ).fetchnumpy()
    d_cell, a_cell, b_cell, counts = found.values()

    def passed(cell: np.ndarray, steps: Sequence[float], below: float | None) -> np.ndarray:
        return cell <= (len(steps) if below is None else steps.index(below))

    return {
        q.name: int(
            counts[
                passed(d_cell, windows, q.window_us)
                & passed(a_cell, bounds["av"], q.a_below)
                & passed(b_cell, bounds["bv"], q.b_below)
            ].sum()
        )
        for q in queries
    }


def _left_results(
    directory: Path, queries: Sequence[Query], streams: Streams, threads: int | None
) -> dict[str, int]:
    """Return the number of results of LEFT JOINs: pairs, and rows of A without one but the last row."""
    windows = sorted({q.window_us for q in queries})
    with duckdb.connect(config={} if threads is None else {"threads": threads}) as connection:
        connection.execute(
            "CREATE TABLE pair AS SELECT a_us, d FROM "
            f"({_pairs(directory, windows[-1], streams)}) WHERE d < {windows[-1]}"
        )
        # No two rows of A have the same time.
        pairs, matched = (
            connection.sql(f"SELECT {_reached('d', windows)} AS cell, count(*) FROM ({of}) GROUP BY ALL")
            for of in ("FROM pair", "SELECT min(d) AS d FROM pair GROUP BY a_us")
        )
        more: Counter[int] = Counter(dict(pairs.fetchall()))
        more.subtract(dict(matched.fetchall()))
    rows = streams.rows - 1
    return {q.name: rows + sum(more[n] for n in range(windows.index(q.window_us) + 1)) for q in queries}


def _reached(column: str, steps: Sequence[float], first: int = 0) -> str:
    """Return SQL for how many steps a value has reached, and ``first`` more: a binary search among them.

    Args:
        column: Column of the value.
        steps: Steps, ascending.
        first: Number of steps before these.
    """
    if not steps:
        return str(first)
    middle = len(steps) // 2
    below = _reached(column, steps[:middle], first)
    above = _reached(column, steps[middle + 1 :], first + middle + 1)
    return f"CASE WHEN {column} < {steps[middle]!r} THEN {below} ELSE {above} END"


def _pairs(directory: Path, largest_us: int, streams: Streams) -> str:
    """Return a query for the distance d of all results of the largest window, and of some beyond it."""
    a, b, *more = (
        f"(SELECT epoch_us(ts) AS us, k, v FROM '{directory / side}/*.parquet')" for side in streams.names
    )
    if more:
        columns = "greatest(a.us, b.us, c.us) - least(a.us, b.us, c.us) AS d, a.v AS av, b.v AS bv"
        return f"SELECT {columns} FROM {a} a JOIN {b} b ON a.k = b.k JOIN {more[0]} c ON a.k = c.k"
    columns = "a.us AS a_us, abs(a.us - b.us) AS d, a.v AS av, b.v AS bv"
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
        input_rows=job.streams.count * job.streams.rows,
        job_s=time.time() - began,
        versions={"DuckDB": duckdb.__version__},
    )


if __name__ == "__main__":
    answer(run(read_job(sys.argv[1])))
