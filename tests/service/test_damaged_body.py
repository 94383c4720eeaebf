"""A Parquet file whose footer is sound and whose body is not: found only while a batch reads it."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.store.store import Store
from tests.sluice_run import run

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SEED = 11
ROWS = 2000

WORKLOAD = """
streams:
  - {name: A, columns: {ts: timestamp, k: bigint}, event_time: ts, lateness: 1s,
     source: {type: files, format: parquet, path: A, max_files_per_batch: 1}}
  - {name: B, columns: {ts: timestamp, k: bigint}, event_time: ts, lateness: 1s,
     source: {type: files, format: parquet, path: B, max_files_per_batch: 1}}
queries:
  - {name: q, cql: "SELECT A.ts AS ats, B.ts AS bts, A.k FROM A, B WHERE A.k = B.k WINDOW 4 SECONDS"}
"""

EXPECTED = """
SELECT count(*) FROM read_parquet({a}) a JOIN read_parquet({b}) b
ON a.k = b.k AND abs(epoch_us(a.ts) - epoch_us(b.ts)) < 4000000
"""


def write_streams(directory: Path) -> None:
    print("seed", SEED)
    random = np.random.default_rng(SEED)
    for stream in ("A", "B"):
        (directory / stream).mkdir()
        for number in range(3):
            times = np.sort(random.integers(number * 5_000_000, (number + 1) * 5_000_000, ROWS))
            table = pa.table({"ts": pa.array(times, pa.timestamp("us")), "k": random.integers(0, 9999, ROWS)})
            pq.write_table(table, directory / stream / f"{number}.parquet")


def damage(file: Path) -> bytes:
    """Damage the body of a file, and return what it was."""
    whole = file.read_bytes()
    content = bytearray(whole)
    for place in range(200, len(content) // 2):
        content[place] ^= 0x5A
    file.write_bytes(content)
    return whole


def test_a_run_stops_before_the_batch_of_a_bad_file_and_goes_on_once_it_is_corrected(tmp_path: Path) -> None:
    write_streams(tmp_path)
    workload = tmp_path / "workload.yaml"
    workload.write_text(WORKLOAD.replace("lateness: 1s", "lateness: 1s, on_error: stop"), encoding="utf-8")
    damaged = tmp_path / "A" / "1.parquet"
    whole = damage(damaged)
    (tmp_path / "B" / "3.parquet").write_text("no Parquet")

    listed = run(workload, tmp_path / "out")
    assert listed.returncode == 2
    assert f'error: file "{tmp_path}/B/3.parquet" of stream "B" is bad: it is not a valid' in listed.stderr
    (tmp_path / "B" / "3.parquet").unlink()

    read = run(workload, tmp_path / "out")
    assert read.returncode == 2
    assert f'error: file "{damaged}" of stream "A" cannot be read' in read.stderr
    damaged.write_bytes(whole)

    outcome = run(workload, tmp_path / "out")
    assert outcome.returncode == 0, outcome.stderr
    a, b = ([str(tmp_path / name / f"{n}.parquet") for n in range(3)] for name in "AB")
    assert outcome.summary["results"] == {"q": duckdb.sql(EXPECTED.format(a=a, b=b)).fetchall()[0][0]}
    assert outcome.summary["input_rows"] == 6 * ROWS


def test_a_run_skips_bad_rows_and_tells_where_they_are(tmp_path: Path) -> None:
    for name in ("A", "B"):
        (tmp_path / name).mkdir()
        rows = [f"2024-05-01T08:00:{n:02}Z,{n if n % 7 else 'none'}" for n in range(50)]
        (tmp_path / name / "1.csv").write_text("\n".join(["ts,k", *rows]) + "\n")
    workload = tmp_path / "workload.yaml"
    text = WORKLOAD.replace("lateness: 1s", "on_error: skip-rows").replace("parquet", "csv")
    workload.write_text(text, encoding="utf-8")

    outcome = run(workload, tmp_path / "out")

    assert outcome.returncode == 3, outcome.stderr
    summary = outcome.summary
    assert (summary["input_rows"], summary["results"]) == (2 * 42, {"q": 42})
    assert [(found["stream"], found["rows"]) for found in summary["skipped"]] == [("A", 8), ("B", 8)]
    assert f'warning: 8 bad rows of file "{tmp_path}/A/1.csv" of stream "A" are skipped' in outcome.stderr
    (file,) = Path(summary["dead_letters"]).glob("A-*")
    letters = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert (letters[1]["row"], letters[1]["line"], letters[1]["column"]) == (8, 9, "k")


def test_a_damaged_body_is_set_aside_by_a_recorded_decision_and_the_job_goes_on(tmp_path: Path) -> None:
    write_streams(tmp_path)
    damaged = tmp_path / "A" / "1.parquet"
    damage(damaged)
    workload = tmp_path / "workload.yaml"
    workload.write_text(WORKLOAD, encoding="utf-8")

    (tmp_path / "B" / "3.parquet").write_text("no Parquet")

    outcome = run(workload, tmp_path / "out")

    assert outcome.returncode == 3, outcome.stderr
    sound = [str(tmp_path / "A" / "0.parquet"), str(tmp_path / "A" / "2.parquet")]
    other = [str(tmp_path / "B" / f"{number}.parquet") for number in range(3)]
    expected = duckdb.sql(EXPECTED.format(a=sound, b=other)).fetchall()[0][0]
    assert expected > 0
    assert outcome.summary["results"] == {"q": expected}
    assert outcome.summary["input_rows"] == 5 * ROWS
    found, listed = outcome.summary["set_aside"]
    assert (found["stream"], found["file"]) == ("A", str(damaged))
    assert (listed["stream"], listed["file"]) == ("B", str(tmp_path / "B" / "3.parquet"))
    told = [line for line in outcome.stderr.splitlines() if "set aside" in line]
    assert told == [
        f'warning: file "{listed["file"]}" of stream "B" is set aside: {listed["reason"]}',
        f"warning: set aside: {found['reason']}",
    ]
    with Store.open(f"sqlite:///{tmp_path / 'out' / '_sluice' / 'catalog.db'}") as store:
        (aside,) = store.source_files.set_aside(1)
    assert aside.path == str(damaged)
    assert aside.reason is not None
    assert aside.reason.startswith(f'file "{damaged}" of stream "A" cannot be read')
