"""Input of the many-keys benchmark: two streams of Parquet files, and the counts to be reached.

Row i of a stream has event time i * 10 µs (100,000 rows per second), a uniform key and a double.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

RATE_PER_S = 100_000
#: Windows of the 12 queries, s: 2.5, 5, ... 30.
WINDOWS_S = tuple(2.5 * i for i in range(1, 13))
START_US = 1_700_000_000_000_000
STREAMS = ("A", "B")


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of the input.

    Attributes:
        rows: Rows per stream.
        files: Files per stream; one of each stream makes a batch.
        keys: Distinct keys.
    """

    rows: int = 10_000_000
    files: int = 20
    keys: int = 5_000_000


def write_input(directory: Path, shape: Shape) -> None:
    """Write both streams' files, unless they are there already."""
    done = directory / "shape.json"
    if done.exists() and json.loads(done.read_text(encoding="utf-8")) == asdict(shape):
        return
    per_file = shape.rows // shape.files
    for seed, name in enumerate(STREAMS):
        rng = np.random.default_rng(seed)
        (directory / name).mkdir(parents=True, exist_ok=True)
        for old in (directory / name).glob("*.parquet"):
            old.unlink()
        for i in range(shape.files):
            ts = START_US + np.arange(i * per_file, (i + 1) * per_file) * (1_000_000 // RATE_PER_S)
            table = pa.table(
                {
                    "ts": pa.array(ts, pa.timestamp("us")),
                    "k": rng.integers(0, shape.keys, per_file),
                    "v": rng.random(per_file),
                }
            )
            pq.write_table(table, directory / name / f"part-{i:05d}.parquet")
    done.write_text(json.dumps(asdict(shape)), encoding="utf-8")


def query_name(window_s: float) -> str:
    """Return the name of the query of one window: ``q2_5``, ``q30``."""
    return "q" + f"{window_s:g}".replace(".", "_")


def write_workload(directory: Path, windows_s: tuple[float, ...], path: Path) -> Path:
    """Write the workload file with one query per window."""
    streams = [
        {
            "name": name,
            "columns": {"ts": "timestamp", "k": "bigint", "v": "double"},
            "event_time": "ts",
            "lateness": "0s",
            "source": {
                "type": "files",
                "format": "parquet",
                "path": str((directory / name).resolve()),
                "max_files_per_batch": 1,
            },
        }
        for name in STREAMS
    ]
    queries = []
    for window_s in windows_s:
        window = f"[RANGE {round(window_s * 1000)} MILLISECONDS]"
        cql = f"SELECT A.ts AS ats, B.ts AS bts, A.k AS k FROM A {window}, B {window} WHERE A.k = B.k"
        queries.append({"name": query_name(window_s), "cql": cql})
    document = {"streams": streams, "queries": queries, "strategy": "mem-opt"}
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return path


def expected_counts(directory: Path) -> dict[str, int]:
    """Return the number of results of every query, counted by DuckDB over the same files."""
    largest_us = round(max(WINDOWS_S) * 1_000_000)
    counts = ", ".join(f"count(*) FILTER (d < {round(w * 1_000_000)})" for w in WINDOWS_S)
    with duckdb.connect() as connection:
        rows = connection.sql(
            f"SELECT {counts} FROM (SELECT abs(epoch_us(a.ts) - epoch_us(b.ts)) AS d "
            f"FROM '{directory}/A/*.parquet' a JOIN '{directory}/B/*.parquet' b ON a.k = b.k) "
            f"WHERE d < {largest_us}"
        ).fetchall()
    return {query_name(w): n for w, n in zip(WINDOWS_S, rows[0], strict=True)}
