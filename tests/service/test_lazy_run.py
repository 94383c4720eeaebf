"""`sluice run` over segments that are large enough to stay closed: results as by DuckDB."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.store.store import Store
from operators.lazy.lazy_segment import LEAST_ROWS
from tests.sluice_run import run, shared_results

FILES = 6
#: One bucket gets so many rows of a stream in each batch, which it keeps as one segment.
ROWS = LEAST_ROWS + 1000
#: Keys rise with time, and a partner is so many rows away at most, so most batches look into few segments.
NEAR = ROWS // 2
CQL = (
    "SELECT a.k, a.r AS x, b.r AS y FROM A [RANGE UNBOUNDED] a, B [RANGE 2 HOURS] b "
    "WHERE a.k = b.k AND a.v + b.v < 0.3"
)
SQL = (
    "SELECT a.k, a.r AS x, b.r AS y FROM '{0}/A/*.parquet' a, '{0}/B/*.parquet' b "
    "WHERE a.k = b.k AND a.v + b.v < 0.3 AND (a.ts <= b.ts OR epoch_us(a.ts) - epoch_us(b.ts) < 7200000000)"
)


def write_workload(directory: Path) -> Path:
    """Write the files of both streams, whose rows are 20 ms apart, and a workload of one query."""
    rng = np.random.default_rng(11)
    count = FILES * ROWS
    position = np.arange(count)
    times = pa.array(1_700_000_000_000_000 + position * 20_000, pa.timestamp("us"))
    keys = {"A": position, "B": np.maximum(position - rng.integers(0, NEAR, count), 0)}
    streams = []
    for name, key in keys.items():
        (directory / name).mkdir()
        table = pa.table({"ts": times, "k": key, "v": rng.random(count), "r": position})
        for number in range(FILES):
            pq.write_table(table.slice(number * ROWS, ROWS), directory / name / f"{number}.parquet")
        streams.append(
            {
                "name": name,
                "columns": {"ts": "timestamp", "k": "bigint", "v": "double", "r": "bigint"},
                "event_time": "ts",
                "source": {"type": "files", "format": "parquet", "path": name, "max_files_per_batch": 1},
            }
        )
    path = directory / "workload.yaml"
    path.write_text(json.dumps({"streams": streams, "queries": [{"name": "q", "cql": CQL}]}))
    return path


@pytest.mark.slow
@pytest.mark.spark
def test_a_join_whose_segments_stay_closed_gives_what_duckdb_gives(tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = run(write_workload(tmp_path), out, mode="shared", buckets=1)
    assert ended.returncode == 0, ended.stderr[-6000:]
    found = shared_results(out, "q").select(["k", "x", "y"])  # DuckDB reads it
    wanted = duckdb.sql(SQL.format(tmp_path)).to_arrow_table()
    assert found.num_rows == wanted.num_rows > ROWS // 10
    assert not duckdb.sql("SELECT * FROM found EXCEPT ALL SELECT * FROM wanted").fetchall()

    with Store.open(f"sqlite:///{out / '_sluice' / 'catalog.db'}", migrate=False) as store:
        manifests = [m for n in range(FILES) if (m := store.batches.manifest(n)) is not None]
    slices = [counters for manifest in manifests for counters in manifest.slices]
    closed = sum(counters.lazy_segments - counters.read_segments for counters in slices)
    assert len(manifests) == FILES
    assert closed >= FILES
