"""`sluice run` over each kind of tree of four streams: results as by DuckDB."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.steps import is_intermediate
from catalog.store.store import Store
from tests.sluice_run import run, shared_results

STREAMS = "ABCD"
ROWS, FILES, KEYS, STEP_US, WINDOW_US = 3_000, 4, 150, 20_000, 2_000_000
SELECTED = ", ".join(f"{name.lower()}.r AS {name}" for name in STREAMS)
KEY = "a.k = b.k AND b.k = c.k AND c.k = d.k"


def write_workload(directory: Path, tree: str) -> Path:
    """Write the files of all streams, and a workload of one query that names its tree."""
    rng = np.random.default_rng(5)
    streams = []
    for name in STREAMS:
        (directory / name).mkdir()
        position = np.arange(ROWS)
        times_us = 1_700_000_000_000_000 + position * STEP_US
        table = pa.table(
            {
                "ts": pa.array(times_us, pa.timestamp("us")),
                "k": rng.integers(0, KEYS, ROWS),
                "r": position,
            }
        )
        for number in range(FILES):
            rows = table.slice(number * ROWS // FILES, ROWS // FILES)
            pq.write_table(rows, directory / name / f"{number}.parquet")
        streams.append(
            {
                "name": name,
                "columns": {"ts": "timestamp", "k": "bigint", "r": "bigint"},
                "event_time": "ts",
                "source": {"type": "files", "format": "parquet", "path": name, "max_files_per_batch": 1},
            }
        )
    window = f"[RANGE {WINDOW_US // 1000} MILLISECONDS]"
    sources = ", ".join(f"{name} {window} {name.lower()}" for name in STREAMS)
    cql = f"SELECT {SELECTED} FROM {sources} WHERE {KEY} TREE {tree}"
    path = directory / "workload.yaml"
    path.write_text(json.dumps({"streams": streams, "queries": [{"name": "q", "cql": cql}]}))
    return path


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    ("tree", "resting", "bushy"),
    [
        ("(((a, b), c), d)", [True, True, True], False),
        ("((a, b), (c, d))", [True, True, True], True),
        ("(a, b, c, d)", [True, False, False], False),
    ],
    ids=["one stream after the other", "bushy", "MJoin"],
)
def test_each_tree_gives_what_duckdb_gives(
    tmp_path: Path, tree: str, resting: list[bool], bushy: bool
) -> None:
    out = tmp_path / "out"
    ended = run(write_workload(tmp_path, tree), out, mode="shared", buckets=2)
    assert ended.returncode == 0, ended.stderr[-6000:]
    with Store.open(f"sqlite:///{out / '_sluice' / 'catalog.db'}", migrate=False) as store:
        plan = store.control_log.latest_plan()
    assert plan is not None
    assert sorted((family.rests for family in plan.families), reverse=True) == resting
    sides = [(is_intermediate(f.stream_a), is_intermediate(f.stream_b)) for f in plan.families]
    assert ((True, True) in sides) == bushy

    found = shared_results(out, "q").select(list(STREAMS))  # DuckDB reads it
    files = ", ".join(f"'{tmp_path}/{name}/*.parquet' {name.lower()}" for name in STREAMS)
    times = ", ".join(f"epoch_us({name.lower()}.ts)" for name in STREAMS)
    wanted = duckdb.sql(
        f"SELECT {SELECTED} FROM {files} WHERE {KEY} AND greatest({times}) - least({times}) < {WINDOW_US}"
    ).to_arrow_table()
    assert found.num_rows == wanted.num_rows > ROWS // 10
    assert not duckdb.sql("SELECT * FROM found EXCEPT ALL SELECT * FROM wanted").fetchall()
