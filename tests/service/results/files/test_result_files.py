"""Result files: every type of column comes back, to Arrow and to DuckDB."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.results.files.result_files import ResultWriter

LEAST, MOST = -(2**63), 2**63 - 1
COLUMNS = {
    "a_int": pa.array([1, None, -(2**31), 2**31 - 1], pa.int32()),
    "a_bigint": pa.array([MOST, LEAST, None, 0], pa.int64()),
    "a_double": pa.array([1.5, None, -0.0, float("inf")]),
    "a_text": pa.array(["x", None, "", "yy"]),
    "a_boolean": pa.array([True, None, False, True]),
    "a_date": pa.array([dt.date(2020, 1, 1), None, dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "a_decimal": pa.array([Decimal("1.5"), None, Decimal("-9.5"), Decimal("0.0")]),
    "a_ts": pa.array([1, None, LEAST, MOST], pa.timestamp("us")),
}


def written(directory: Path, rows: pa.RecordBatch) -> Path:
    file = ResultWriter(directory, None, epoch=1).write_pairs(3, "f", rows)
    assert file.rows == rows.num_rows
    return directory / file.path


@pytest.mark.parametrize("rows", [4, 1, 0])
def test_every_type_comes_back(tmp_path: Path, rows: int) -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "_route": pa.array([7, 7, 8, MOST]),
            "_plan_version": pa.array([1, 1, 1, 2], pa.int32()),
            "_event_time": pa.array([1, 2, 3, LEAST], pa.timestamp("us")),
            **COLUMNS,
        }
    ).slice(0, rows)
    path = written(tmp_path, batch)
    assert pq.read_table(path).equals(pa.Table.from_batches([batch]))
    counted = duckdb.sql(f"SELECT * EXCLUDE (a_ts, _event_time) FROM '{path}'").fetchall()
    assert counted == [tuple(row.values()) for row in batch.drop_columns(["a_ts", "_event_time"]).to_pylist()]


def test_times_and_positions_take_as_few_bytes_as_their_differences(tmp_path: Path) -> None:
    times = 1_700_000_000_000_000 + np.random.default_rng(5).integers(0, 5_000_000, 100_000)
    batch = pa.RecordBatch.from_arrays([pa.array(times)], names=["_event_time"])
    assert written(tmp_path, batch).stat().st_size < 3.5 * 100_000
