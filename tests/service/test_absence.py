"""Outer, semi and anti joins through `sluice run`, row by row against DuckDB's own over the same files."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.sluice_run import finish, sluice, start

SECOND_US = 1_000_000
#: Rows come late by less than the lateness, so that none is lost.
LATENESS_S = 20
FILES = 6
ROWS = 120

#: Name, CQL, and what DuckDB is asked in place of FROM and WHERE; windows in seconds: of a, of b.
QUERIES = (
    ("left_short", "{a}[RANGE 30 SECONDS] a LEFT JOIN {b}[RANGE 5 SECONDS] b ON a.k = b.k", (30, 5)),
    ("left_long", "{a}[RANGE 90 SECONDS] a LEFT JOIN {b}[RANGE 45 SECONDS] b ON a.k = b.k", (90, 45)),
    (
        "left_on",
        "{a}[RANGE 60 SECONDS] a LEFT JOIN {b}[RANGE 5 SECONDS] b ON a.k = b.k AND a.v > 3 AND b.v < 7 "
        "WHERE a.v < 9",
        (60, 5),
    ),
    (
        "right",
        "{a}[RANGE 30 SECONDS] a RIGHT JOIN {b}[RANGE 30 SECONDS] b ON a.k = b.k AND a.v < b.v",
        (30, 30),
    ),
    ("whole", "{a}[RANGE 30 SECONDS] a FULL JOIN {b}[RANGE 60 SECONDS] b ON a.k = b.k", (30, 60)),
    ("semi", "{a}[RANGE 60 SECONDS] a SEMI JOIN {b}[RANGE 60 SECONDS] b ON a.k = b.k AND b.v > 2", (60, 60)),
    ("anti", "{a}[RANGE 60 SECONDS] a ANTI JOIN {b}[RANGE 60 SECONDS] b ON a.k = b.k AND b.v > 2", (60, 60)),
    (
        "neither",
        "{a}[RANGE 20 SECONDS] a WHERE NOT EXISTS (SELECT 1 FROM {b}[RANGE 20 SECONDS] b "
        "WHERE b.k = a.k AND b.v > a.v)",
        (20, 20),
    ),
    ("inner", "{a}[RANGE 30 SECONDS] a JOIN {b}[RANGE 30 SECONDS] b ON a.k = b.k", (30, 30)),
)


def write_stream(directory: Path, numbers: random.Random) -> None:
    directory.mkdir()
    clock = 1_700_000_000 * SECOND_US
    for number in range(FILES):
        rows = []
        for _ in range(ROWS):
            clock += numbers.choice((0, SECOND_US // 2, SECOND_US, 3 * SECOND_US))
            late = numbers.randrange(LATENESS_S) * SECOND_US if numbers.random() < 0.2 else 0
            rows.append(
                (clock - late, numbers.choice([None, *range(12)]), numbers.choice([None, *range(10)]))
            )
        times, keys, values = zip(*rows, strict=True)
        table = pa.table(
            {
                "ts": pa.array(times, pa.int64()).cast(pa.timestamp("us")),
                "k": pa.array(keys, pa.int64()),
                "v": pa.array(values, pa.int32()),
            }
        )
        pq.write_table(table, directory / f"{number}.parquet")


def select(name: str) -> str:
    return (
        "a.ts, a.k, a.v" if name in ("semi", "anti", "neither") else "a.ts, a.k, a.v, b.ts AS bts, b.v AS bv"
    )


def write_workload(directory: Path, strategy: str) -> Path:
    text = f"strategy: {strategy}\nstreams:\n"
    for name in ("A", "B"):
        text += (
            f"  - {{name: {name}, columns: {{ts: timestamp, k: bigint, v: int}}, event_time: ts, "
            f"lateness: {LATENESS_S}s, "
            f"source: {{type: files, format: parquet, path: {name}, max_files_per_batch: 1}}}}\n"
        )
    text += "queries:\n"
    for name, joined, _ in QUERIES:
        text += f"  - {{name: {name}, cql: 'SELECT {select(name)} FROM {joined.format(a='A ', b='B ')}'}}\n"
    path = directory / "workload.yaml"
    path.write_text(text)
    return path


def expected(name: str, joined: str, windows: tuple[int, int], directory: Path) -> list[str]:
    near = (
        f"(b.ts >= a.ts AND b.ts < a.ts + INTERVAL {windows[0]} SECOND "
        f"OR a.ts >= b.ts AND a.ts < b.ts + INTERVAL {windows[1]} SECOND)"
    )
    a, b = (f"read_parquet('{directory / stream}/*.parquet')" for stream in ("A", "B"))
    text = re.sub(r"\[.*?\]", " ", joined).format(a=a, b=b).replace("a.k = b.k", f"a.k = b.k AND {near}")
    text = text.replace("b.k = a.k", f"b.k = a.k AND {near}")
    return sorted(map(repr, duckdb.sql(f"SELECT {select(name)} FROM {text}").fetchall()))


def check(directory: Path) -> None:
    for name, joined, windows in QUERIES:
        found = duckdb.sql(
            f"SELECT * EXCLUDE _event_time FROM read_parquet('{directory / 'out' / name}/*.parquet')"
        )
        rows = sorted(map(repr, found.fetchall()))
        wanted = expected(name, joined, windows, directory)
        assert len(wanted) > 20, f"{name}: the case says little"
        assert rows == wanted, f"{name}: {len(rows)} rows, {len(wanted)} wanted"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    ("seed", "strategy"),
    list(enumerate(("mem-opt", "unshared", "pullup", "pushdown", "cpu-opt"), 1)),
)
def test_results_are_those_of_duckdb(seed: int, strategy: str, tmp_path: Path) -> None:
    print(f"seed {seed}, {strategy}: {tmp_path}")
    for name in ("A", "B"):
        write_stream(tmp_path / name, random.Random(f"{seed}{name}"))
    workload = write_workload(tmp_path, strategy)
    ended = sluice("run", workload, "--out", tmp_path / "out", "--buckets", "3", "--final")
    assert ended.returncode == 0, ended.stderr
    check(tmp_path)


@pytest.mark.slow
@pytest.mark.spark
def test_a_killed_run_goes_on_with_its_marks(tmp_path: Path) -> None:
    for name in ("A", "B"):
        write_stream(tmp_path / name, random.Random(f"7{name}"))
    workload = write_workload(tmp_path, "mem-opt")
    first = start(workload, tmp_path / "out")
    manifests = tmp_path / "out" / "_sluice" / "checkpoint" / "commits"
    while first.poll() is None and not (manifests / "1").exists():
        time.sleep(0.05)
    first.kill()
    finish(first)
    ended = sluice("run", workload, "--out", tmp_path / "out", "--buckets", "2", "--final")
    assert ended.returncode == 0, ended.stderr
    check(tmp_path)
