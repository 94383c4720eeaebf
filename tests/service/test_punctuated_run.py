"""Punctuations in `sluice run`: rows of a file that close keys, compared with DuckDB on the same files."""

from __future__ import annotations

import random
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.store.store import Store
from tests.sluice_run import finish, sluice, start

SECOND_US = 1_000_000
FILES = 6
ROWS = 300
WINDOW_S = 60


def write_streams(directory: Path, numbers: random.Random) -> None:
    """Write bids of A and items of B, of which one in eight closes its key; some keys return afterwards."""
    for name in ("A", "B"):
        (directory / name).mkdir()
        clock = 1_700_000_000 * SECOND_US
        for number in range(FILES):
            rows = []
            for _ in range(ROWS):
                clock += numbers.choice((0, SECOND_US // 20, SECOND_US // 10))
                key = number * 10 + numbers.randrange(30)
                rows.append((clock, key, f"item {key % 7}", name == "B" and numbers.random() < 0.125))
            times, keys, texts, closes = zip(*rows, strict=True)
            table = pa.table(
                {
                    "ts": pa.array(times, pa.int64()).cast(pa.timestamp("us")),
                    "k": pa.array(keys, pa.int64()),
                    "m": pa.array(texts, pa.string()),
                    "closes": pa.array(closes, pa.bool_()),
                }
            )
            pq.write_table(table, directory / name / f"{number}.parquet")


def write_workload(directory: Path) -> Path:
    columns = "{ts: timestamp, k: bigint, m: string, closes: boolean}"
    source = "{{type: files, format: parquet, path: {name}, max_files_per_batch: 1}}"
    text = "streams:\n"
    for name, contract in (("A", ""), ("B", "    punctuations: {on: [[k, m]], column: closes}\n")):
        text += f"  - name: {name}\n    columns: {columns}\n    event_time: ts\n"
        text += f"    source: {source.format(name=name)}\n{contract}"
    windows = f"A [RANGE {WINDOW_S} SECONDS] a, B [RANGE {WINDOW_S} SECONDS] b"
    text += (
        "queries:\n"
        f"  - {{name: both, cql: 'SELECT a.ts, a.k, b.ts AS bts FROM {windows} "
        "WHERE a.k = b.k AND a.m = b.m'}\n"
        f"  - {{name: key, cql: 'SELECT a.ts, a.k, b.ts AS bts FROM {windows} WHERE a.k = b.k'}}\n"
    )
    path = directory / "workload.yaml"
    path.write_text(text)
    return path


def rows_of(directory: Path, stream: str) -> str:
    """Return a subquery of rows with their positions in the stream."""
    files = " UNION ALL ".join(
        f"SELECT *, {number}::BIGINT << 32 | file_row_number AS pos "
        f"FROM read_parquet('{directory / stream / f'{number}.parquet'}', file_row_number = true)"
        for number in range(FILES)
    )
    return f"({files})"


@pytest.mark.slow
@pytest.mark.spark
def test_results_are_those_over_rows_that_keep_their_promises(tmp_path: Path) -> None:
    write_streams(tmp_path, random.Random(25))
    ended = sluice("run", write_workload(tmp_path), "--out", tmp_path / "out", "--buckets", "3")
    assert ended.returncode == 0, ended.stderr
    check(tmp_path)


@pytest.mark.slow
@pytest.mark.spark
def test_a_killed_run_remembers_what_was_promised(tmp_path: Path) -> None:
    write_streams(tmp_path, random.Random(26))
    workload = write_workload(tmp_path)
    first = start(workload, tmp_path / "out", buckets=3)
    commits = tmp_path / "out" / "_sluice" / "checkpoint" / "commits"
    while first.poll() is None and not (commits / "2").exists():
        time.sleep(0.05)
    first.kill()
    finish(first)
    ended = sluice("run", workload, "--out", tmp_path / "out", "--buckets", "3")
    assert ended.returncode == 0, ended.stderr
    check(tmp_path)


@pytest.mark.slow
@pytest.mark.spark
def test_a_contract_can_say_to_stop_before_the_batch_is_committed(tmp_path: Path) -> None:
    write_streams(tmp_path, random.Random(27))
    workload = write_workload(tmp_path)
    workload.write_text(workload.read_text().replace("column: closes", "column: closes, violation: stop"))
    ended = sluice("run", workload, "--out", tmp_path / "out", "--buckets", "3")
    assert ended.returncode == 1
    assert 'a row of stream "B" breaks a promise: k = ' in ended.stderr
    assert not list((tmp_path / "out" / "_sluice" / "late").glob("*.parquet"))


def check(tmp_path: Path) -> None:
    """Compare results and counters with DuckDB's over the rows that are not recorded."""
    a, b = rows_of(tmp_path, "A"), rows_of(tmp_path, "B")
    late = tmp_path / "out" / "_sluice" / "late"
    broken = f"(SELECT * FROM read_parquet('{late}/*.parquet', union_by_name = true))"
    recorded = duckdb.sql(f"SELECT count(*), count(DISTINCT _pos) FROM {broken}").fetchall()
    assert recorded[0][0] == recorded[0][1] > 20, "the case says little"
    # Only rows behind a punctuation of their key are recorded.
    unfounded = (
        f"SELECT * FROM {broken} v WHERE NOT EXISTS (SELECT 1 FROM {b} p "
        "WHERE p.closes AND p.k = v.k AND p.m = v.m AND p.pos < v._pos)"
    )
    assert duckdb.sql(unfounded).fetchall() == []
    near = f"abs(epoch_us(a.ts) - epoch_us(b.ts)) < {WINDOW_S * SECOND_US}"
    for name, keys, excluded in (
        ("both", "a.k = b.k AND a.m = b.m", f"AND b.pos NOT IN (SELECT _pos FROM {broken})"),
        # A punctuation of two columns closes no single-column key.
        ("key", "a.k = b.k", ""),
    ):
        wanted = duckdb.sql(
            f"SELECT a.ts, a.k, b.ts AS bts FROM {a} a, {b} b WHERE {keys} AND {near} "
            f"AND NOT b.closes {excluded}"
        ).fetchall()
        found = duckdb.sql(f"SELECT ts, k, bts FROM read_parquet('{tmp_path / 'out' / name}/*.parquet')")
        assert sorted(found.fetchall()) == sorted(wanted)
        assert len(wanted) > 500, "the case says little"
    with Store.open(f"sqlite:///{tmp_path / 'out' / '_sluice' / 'catalog.db'}", migrate=False) as store:
        manifests = [m for n in range(FILES + 2) if (m := store.batches.manifest(n)) is not None]
        counters = [c for m in manifests for c in m.punctuations]
        received = sum(r.received for m in manifests for r in m.received)
    assert sum(c.violating for c in counters) == recorded[0][0]
    assert sum(c.discarded + c.purged for c in counters) > 100
    closes = duckdb.sql(f"SELECT count(*) FROM {b} WHERE closes").fetchall()[0][0]
    assert received == closes
