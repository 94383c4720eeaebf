"""Killed runs of joins that remember more than rows: groups, windows of rows, orders, several streams.

The manifests of their buckets also have open groups, ranks, rows that wait for these, and how far a stream
has come in its order. The expected results are DuckDB's over the rows that are neither late nor disordered by
the definition. `make test` kills one run, whose segments and results are in an object store, and continues it
with an empty cache.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.store.store import Store
from tests.crash.killing import POINTS, dead, failpoint
from tests.s3 import S3Server
from tests.sluice_run import per_query_results, shared_results, sluice, table_difference

SECOND_US = 1_000_000
LATENESS_S = 2
#: Rows come up to so many seconds too late, and so many places out of their order.
DISORDER_S, NOISE = 12, 5
#: Of C the factor is monitored: it is at least 64, so that no row of it is disordered.
SCRAMBLES: Mapping[str, int | None] = {"A": 6, "B": 9, "C": None}
FILES = 6
ROWS = 80
#: Batches in which queries come, go and migrate; the last one only ends the streams.
ENTERS, MIGRATES, LEAVES, LAST = 2, 3, 4, FILES
#: All rows in files, and those of such small batches in packets.
ROWS_IN: tuple[dict[str, str], ...] = ({"SLUICE_ROWS_FILE_KB": "0"}, {})


@dataclass(frozen=True, slots=True)
class Written:
    """A query.

    Attributes:
        cql: Its text.
        sql: The same over the tables ``a``, ``b`` and ``c`` of all rows, and views of them.
        enters: Batch in which it is added.
        leaves: Batch in which it is removed.
    """

    cql: str
    sql: str
    enters: int = 0
    leaves: int | None = None


def near(x: str, y: str, window_x_s: int, window_y_s: int) -> str:
    """Return the condition that two rows are in the window of one of both streams."""
    behind = f"epoch_us({y}.ts) - epoch_us({x}.ts)"
    return (
        f"({behind} BETWEEN 0 AND {window_x_s * SECOND_US - 1} "
        f"OR -({behind}) BETWEEN 0 AND {window_y_s * SECOND_US - 1})"
    )


def last_rows(x: str, y: str, rows: int, *, by_key: bool = False) -> str:
    """Return the condition that ``x`` is one of the last rows of its stream, or key, at the time of ``y``."""
    own, same = (f"{x}.rank_of_key", f" AND p.k = {x}.k") if by_key else (f"{x}.rank", "")
    passed = f"(SELECT count(*) FROM punctual_{x} p WHERE p.ts <= {y}.ts{same})"
    return f"({x}.ts <= {y}.ts AND {passed} - {own} < {rows})"


def pairs(where: str, rows: str = "punctual") -> str:
    return f"SELECT a.r AS x, b.r AS y FROM {rows}_a a, {rows}_b b WHERE a.k = b.k AND {where}"


def grouped(values: str, where: str, width_s: int, having: str = "true") -> str:
    width = width_s * SECOND_US
    start = f"make_timestamp(greatest(epoch_us(a.ts), epoch_us(b.ts)) // {width} * {width})"
    return (
        f"SELECT a.k AS k, {start} AS start, {values} FROM ranked_a a, ranked_b b "
        f"WHERE a.k = b.k AND {where} GROUP BY ALL HAVING {having}"
    )


BOTH = "A [RANGE 10 SECONDS] a, B [RANGE 10 SECONDS] b"
TOTALS = "count(*) AS n, sum(a.v) AS total, max(b.r) AS last"
QUERIES = {
    "pairs": Written(
        "SELECT a.r AS x, b.r AS y FROM A [RANGE 5 SECONDS] a, B [RANGE 3 SECONDS] b WHERE a.k = b.k",
        pairs(near("a", "b", 5, 3)),
    ),
    "groups": Written(
        f"SELECT a.k, TUMBLE(20 SECONDS) AS start, COUNT(*) AS n, SUM(a.v) AS total, MAX(b.r) AS last "
        f"FROM {BOTH} WHERE a.k = b.k GROUP BY a.k, TUMBLE(20 SECONDS)",
        grouped(f"{TOTALS}, 'watermark' AS _closed_by", near("a", "b", 10, 10), 20),
    ),
    "entering_groups": Written(
        f"SELECT a.k, TUMBLE(7 SECONDS) AS start, AVG(b.v) AS mean FROM {BOTH} "
        "WHERE a.k = b.k AND a.v < b.v GROUP BY a.k, TUMBLE(7 SECONDS) HAVING COUNT(*) > 2",
        grouped(
            "avg(b.v) AS mean",
            f"a.v < b.v AND {near('a', 'b', 10, 10)} AND least(a.file, b.file) >= {ENTERS}",
            7,
            "count(*) > 2",
        ),
        enters=ENTERS,
    ),
    "leaving_groups": Written(
        f"SELECT a.k, TUMBLE(1 HOUR) AS start, COUNT(*) AS n, SUM(a.v) AS total, MAX(b.r) AS last "
        f"FROM {BOTH} WHERE a.k = b.k AND a.v > 1 GROUP BY a.k, TUMBLE(1 HOUR)",
        grouped(
            f"{TOTALS}, 'leave' AS _closed_by",
            f"a.v > 1 AND {near('a', 'b', 10, 10)} AND greatest(a.file, b.file) < {LEAVES}",
            3600,
        ),
        leaves=LEAVES,
    ),
    "three": Written(
        "SELECT a.r AS x, b.r AS y, c.r AS z FROM A [RANGE 4 SECONDS] a, B [RANGE 3 SECONDS] b, "
        "C [RANGE 2 SECONDS] c WHERE a.k = b.k AND b.k = c.k AND a.v <= c.v",
        "SELECT a.r AS x, b.r AS y, c.r AS z FROM punctual_a a, punctual_b b, punctual_c c "
        f"WHERE a.k = b.k AND b.k = c.k AND a.v <= c.v AND {near('a', 'b', 4, 3)} "
        f"AND {near('a', 'c', 4, 2)} AND {near('b', 'c', 3, 2)}",
    ),
    "two_keys": Written(
        "SELECT a.r AS x, b.r AS y, c.r AS z FROM A [RANGE 20 SECONDS] a, B [RANGE 20 SECONDS] b, "
        "C [RANGE 20 SECONDS] c WHERE a.k = b.k AND b.e = c.e AND a.v <= c.v",
        "SELECT a.r AS x, b.r AS y, c.r AS z FROM punctual_a a, punctual_b b, punctual_c c "
        f"WHERE a.k = b.k AND b.e = c.e AND a.v <= c.v AND {near('a', 'b', 20, 20)} "
        f"AND {near('a', 'c', 20, 20)} AND {near('b', 'c', 20, 20)}",
    ),
    "entering_two_keys": Written(
        "SELECT a.r AS x, b.r AS y, c.r AS z, a2.r AS w FROM A [RANGE 20 SECONDS] a, "
        "B [RANGE 20 SECONDS] b, C [RANGE 20 SECONDS] c, A [RANGE 9 SECONDS] a2 "
        "WHERE a.k = b.k AND b.e = c.e AND a2.k = c.k AND a.v <= c.v",
        "SELECT a.r AS x, b.r AS y, c.r AS z, a2.r AS w FROM punctual_a a, punctual_b b, punctual_c c, "
        "punctual_a a2 WHERE a.k = b.k AND b.e = c.e AND a2.k = c.k AND a.v <= c.v "
        f"AND {near('a', 'b', 20, 20)} AND {near('a', 'c', 20, 20)} AND {near('b', 'c', 20, 20)} "
        f"AND {near('a', 'a2', 20, 9)} AND {near('b', 'a2', 20, 9)} AND {near('c', 'a2', 20, 9)} "
        f"AND least(a.file, b.file, c.file, a2.file) >= {ENTERS}",
        enters=ENTERS,
    ),
    "leaving_two_keys": Written(
        "SELECT a.r AS x, b.r AS y, c.r AS z FROM A [RANGE 15 SECONDS] a, B [RANGE 15 SECONDS] b, "
        "C [RANGE 15 SECONDS] c WHERE a.k = b.k AND b.e = c.e",
        # The pairs of B and C, which are fewer, are joined with A one batch later, up to its last batch.
        "SELECT a.r AS x, b.r AS y, c.r AS z FROM punctual_a a, punctual_b b, punctual_c c "
        f"WHERE a.k = b.k AND b.e = c.e AND {near('a', 'b', 15, 15)} AND {near('a', 'c', 15, 15)} "
        f"AND {near('b', 'c', 15, 15)} AND greatest(a.file, b.file + 1, c.file + 1) < {LEAVES}",
        leaves=LEAVES,
    ),
    "pairs_of_pairs": Written(
        "SELECT a.r AS x, b.r AS y, c.r AS z, a2.r AS w FROM A [RANGE 4 SECONDS] a, B [RANGE 5 SECONDS] b, "
        "C [RANGE 3 SECONDS] c, A [RANGE 4 SECONDS] a2 "
        "WHERE a.k = b.k AND b.k = c.k AND c.k = a2.k AND a.v <= a2.v TREE ((a, b), (c, a2))",
        "SELECT a.r AS x, b.r AS y, c.r AS z, a2.r AS w FROM punctual_a a, punctual_b b, punctual_c c, "
        "punctual_a a2 WHERE a.k = b.k AND b.k = c.k AND c.k = a2.k AND a.v <= a2.v "
        f"AND {near('a', 'b', 4, 5)} AND {near('a', 'c', 4, 3)} AND {near('b', 'c', 5, 3)} "
        f"AND {near('a', 'a2', 4, 4)} AND {near('b', 'a2', 5, 4)} AND {near('c', 'a2', 3, 4)}",
    ),
    "exchanged_pairs_of_pairs": Written(
        "SELECT a.r AS x, b.r AS y, c.r AS z, a2.r AS w FROM A [RANGE 20 SECONDS] a, "
        "B [RANGE 20 SECONDS] b, C [RANGE 20 SECONDS] c, A [RANGE 9 SECONDS] a2 "
        "WHERE a.k = b.k AND b.e = c.e AND a2.k = c.k AND a.v <= c.v TREE ((a, b), (c, a2))",
        "SELECT a.r AS x, b.r AS y, c.r AS z, a2.r AS w FROM punctual_a a, punctual_b b, punctual_c c, "
        "punctual_a a2 WHERE a.k = b.k AND b.e = c.e AND a2.k = c.k AND a.v <= c.v "
        f"AND {near('a', 'b', 20, 20)} AND {near('a', 'c', 20, 20)} AND {near('b', 'c', 20, 20)} "
        f"AND {near('a', 'a2', 20, 9)} AND {near('b', 'a2', 20, 9)} AND {near('c', 'a2', 20, 9)}",
    ),
    "rows": Written(
        "SELECT a.r AS x, b.r AS y FROM A [ROWS 40] a, B [RANGE 2 SECONDS] b WHERE a.k = b.k",
        pairs(f"({last_rows('a', 'b', 40)} OR (b.ts <= a.ts AND {near('b', 'a', 2, 0)}))", "ranked"),
    ),
    "last": Written(
        "SELECT a.r AS x, b.r AS y FROM A [PARTITION BY k ROWS 1] a, B [NOW] b WHERE a.k = b.k AND a.v < 3",
        pairs(f"a.v < 3 AND (a.ts = b.ts OR {last_rows('a', 'b', 1, by_key=True)})", "ranked"),
    ),
    "entering_rows": Written(
        "SELECT a.r AS x, b.r AS y FROM A [PARTITION BY k ROWS 3] a, B [NOW] b WHERE a.k = b.k",
        pairs(
            f"(a.ts = b.ts OR {last_rows('a', 'b', 3, by_key=True)}) AND least(a.file, b.file) >= {ENTERS}",
            "ranked",
        ),
        enters=ENTERS,
    ),
    "groups_of_rows": Written(
        "SELECT a.k, TUMBLE(20 SECONDS) AS start, COUNT(*) AS n, SUM(a.v) AS total, MAX(b.r) AS last "
        "FROM A [ROWS 30] a, B [PARTITION BY k ROWS 2] b WHERE a.k = b.k GROUP BY a.k, TUMBLE(20 SECONDS)",
        grouped(TOTALS, f"({last_rows('a', 'b', 30)} OR {last_rows('b', 'a', 2, by_key=True)})", 20),
    ),
    "ordered": Written(
        "SELECT a.r AS x, b.r AS y FROM A a JOIN B b ON a.e = b.e WHERE a.v < 4",
        "SELECT a.r AS x, b.r AS y FROM ordered_a a, ordered_b b WHERE a.e = b.e AND a.v < 4",
    ),
    "ordered_leaving": Written(
        "SELECT a.r AS x, b.r AS y FROM A a JOIN B b ON a.e = b.e WHERE b.v < 4",
        "SELECT a.r AS x, b.r AS y FROM ordered_a a, ordered_b b WHERE a.e = b.e AND b.v < 4 "
        f"AND a.file < {LEAVES} AND b.file < {LEAVES}",
        leaves=LEAVES,
    ),
    "ordered_three": Written(
        "SELECT a.r AS x, b.r AS y, c.r AS z FROM A a, B b, C c WHERE a.e = b.e AND b.e = c.e",
        "SELECT a.r AS x, b.r AS y, c.r AS z FROM ordered_a a, ordered_b b, ordered_c c "
        "WHERE a.e = b.e AND b.e = c.e",
    ),
    "near": Written(
        "SELECT a.r AS x, b.r AS y FROM A a, B b WHERE a.k = b.k AND abs(a.e - b.e) <= 2",
        pairs("abs(a.e - b.e) <= 2", "ordered"),
    ),
}


def write_streams(directory: Path, rng: np.random.Generator) -> dict[str, pa.Table]:
    """Write the files of all streams; return their rows and which of these are late and disordered."""
    return {name: _write_stream(directory / name, rng, scramble) for name, scramble in SCRAMBLES.items()}


def _write_stream(directory: Path, rng: np.random.Generator, scramble: int | None) -> pa.Table:
    directory.mkdir()
    count = FILES * ROWS
    clock = 1_700_000_000 * SECOND_US + np.arange(count) * SECOND_US // 2
    times = clock - rng.integers(0, 2 * DISORDER_S + 1, count) * (SECOND_US // 2) * (rng.random(count) < 0.5)
    steps = np.arange(count) // 2 + rng.integers(-NOISE, NOISE + 1, count)
    key = rng.integers(0, 6, count)
    table = pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us")),
            "k": pa.array(key, pa.int64(), mask=rng.random(count) < 0.05),
            "e": pa.array(steps, pa.int64(), mask=rng.random(count) < 0.05),
            "v": pa.array(rng.integers(0, 20, count) / 4, pa.float64()),
            "r": pa.array(np.arange(count), pa.int64()),
        }
    )
    for number in range(FILES):
        pq.write_table(table.slice(number * ROWS, ROWS), directory / f"{number}.parquet")
    late, disordered = [False] * count, [False] * count
    values = table.column("e").to_pylist()
    for begin in range(ROWS, count, ROWS):
        watermark = times[:begin].max() - LATENESS_S * SECOND_US
        before = [value for value in values[:begin] if value is not None]
        for row in range(begin, begin + ROWS):
            late[row] = bool(times[row] < watermark)
            if scramble is not None and values[row] is not None:
                disordered[row] = values[row] <= max(before[: len(before) - scramble])
    table = table.append_column("file", pa.array(np.arange(count) // ROWS, pa.int64()))
    return table.append_column("late", [late]).append_column("disordered", [disordered])


def write_workload(directory: Path) -> Path:
    streams: list[dict[str, Any]] = [
        {
            "name": name,
            "columns": {"ts": "timestamp", "k": "bigint", "e": "bigint", "v": "double", "r": "bigint"},
            "event_time": "ts",
            "lateness": f"{LATENESS_S}s",
            "order": {"column": "e", "scramble": "monitor" if scramble is None else scramble},
            "source": {"type": "files", "format": "parquet", "path": name, "max_files_per_batch": 1},
        }
        for name, scramble in SCRAMBLES.items()
    ]
    texts = {name: {"name": name, "cql": query.cql} for name, query in QUERIES.items()}
    script: list[dict[str, Any]] = [{"at_batch": MIGRATES, "migrate": {"strategy": "cpu-opt"}}]
    script += [{"at_batch": q.enters, "add": texts[name]} for name, q in QUERIES.items() if q.enters]
    script += [{"at_batch": q.leaves, "remove": name} for name, q in QUERIES.items() if q.leaves is not None]
    script.sort(key=lambda step: int(step["at_batch"]))
    first = [texts[name] for name, query in QUERIES.items() if not query.enters]
    path = directory / "workload.yaml"
    path.write_text(json.dumps({"streams": streams, "queries": first, "script": script}, indent=1))
    return path


def expected(tables: Mapping[str, pa.Table]) -> dict[str, list[tuple[object, ...]]]:
    """Return the rows of each query, sorted."""
    with duckdb.connect() as duck:
        for stream, table in tables.items():
            name = stream.lower()
            duck.register(f"all_{name}", table)
            duck.execute(f"CREATE TABLE punctual_{name} AS SELECT * FROM all_{name} WHERE NOT late")
            duck.execute(f"CREATE TABLE ordered_{name} AS SELECT * FROM all_{name} WHERE NOT disordered")
            duck.execute(
                f"CREATE TABLE ranked_{name} AS SELECT *, row_number() OVER (ORDER BY ts, r) AS rank, "
                f"row_number() OVER (PARTITION BY k ORDER BY ts, r) AS rank_of_key FROM punctual_{name}"
            )
        return {name: sorted(duck.sql(query.sql).fetchall()) for name, query in QUERIES.items()}


def go(
    workload: Path, out: Path, environment: Mapping[str, str], *, buckets: int = 3, results: str = "per-query"
) -> subprocess.CompletedProcess[str]:
    """Run the workload, or go on with it, until its streams have ended for good."""
    options = ("--buckets", str(buckets), "--results", results)
    return sluice("run", workload, "--out", out, "--final", *options, environment=environment)


def die(
    workload: Path,
    out: Path,
    point: str,
    batch: int,
    life: int = 0,
    environment: Mapping[str, str] = MappingProxyType({}),
    **options: Any,
) -> None:
    died = go(workload, out, failpoint(point, batch) | ROWS_IN[life % 2] | environment, **options)
    assert died.returncode == -signal.SIGKILL, f"{point}@{batch}: {died.stderr[-4000:]}"
    dead(point, out)


def check(
    ended: subprocess.CompletedProcess[str],
    out: Path,
    tables: Mapping[str, pa.Table],
    *,
    shared: bool = False,
) -> None:
    """Compare the results of all queries with DuckDB's, and count late rows by their definition."""
    assert ended.returncode == 0, ended.stderr[-6000:]
    for name, wanted in expected(tables).items():
        assert len(wanted) >= 6, f"{name}: the case says little"
        found = shared_results(out, name) if shared else per_query_results(out, name)
        columns = [column.to_pylist() for column in found.columns[: len(wanted[0])]]
        assert sorted(zip(*columns, strict=True)) == wanted, name
    late = sum(sum(table.column("late").to_pylist()) for table in tables.values())
    assert summary_of(ended)["late_rows"] == late > 20


def summary_of(ended: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads(ended.stdout.strip().splitlines()[-1])
    return summary


def counters_of(out: Path) -> list[object]:
    """Return what each batch counted of rows, slices, groups, ranks and orders."""
    found = []
    with Store.open(f"sqlite:///{out / '_sluice' / 'catalog.db'}", migrate=False) as store:
        for batch in range(LAST + 1):
            manifest = store.batches.manifest(batch)
            assert manifest is not None
            # Rows that came in packets and in files take other numbers of bytes.
            slices = [replace(counters, bytes=0, own_bytes=0) for counters in manifest.slices]
            found.append(
                (
                    slices,
                    manifest.streams,
                    manifest.query_rows,
                    manifest.absence,
                    manifest.groups,
                    manifest.punctuations,
                )
            )
    return found


@dataclass(frozen=True, slots=True)
class Uninterrupted:
    """A workload, and a run of it that nobody killed."""

    workload: Path
    out: Path
    tables: Mapping[str, pa.Table]
    ended: subprocess.CompletedProcess[str]

    def check(self, ended: subprocess.CompletedProcess[str], out: Path, *, shared: bool = False) -> None:
        """Check that a run has given the same rows, of each query in the same order, and counted the same."""
        check(ended, out, self.tables, shared=shared)
        for name in QUERIES if not shared else ():
            mine, other = per_query_results(self.out, name), per_query_results(out, name)
            assert not table_difference(other, mine, ordered=True), name
        # A run that was killed while its streams ended ends them again, in a batch more.
        told = ("results", "input_rows", "late_rows")
        one, other_summary = summary_of(self.ended), summary_of(ended)
        assert {key: other_summary[key] for key in told} == {key: one[key] for key in told}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Uninterrupted:
    directory = tmp_path_factory.mktemp("uninterrupted")
    tables = write_streams(directory, np.random.default_rng(2))
    workload = write_workload(directory)
    ended = go(workload, directory / "out", ROWS_IN[0])
    check(ended, directory / "out", tables)
    return Uninterrupted(workload, directory / "out", tables, ended)


@pytest.mark.spark
def test_a_run_that_is_killed_between_results_and_commit_log_gives_them_once(
    s3: S3Server, tmp_path: Path
) -> None:
    tables = write_streams(tmp_path, np.random.default_rng(1))
    workload, out, cache, url = write_workload(tmp_path), tmp_path / "out", tmp_path / "cache", s3.new_url()
    environment = {"SLUICE_STORAGE_URL": url, "SLUICE_STORAGE_CACHE_DIR": str(cache)}
    die(workload, out, "after-result-commit", ENTERS, environment=environment)
    shutil.rmtree(cache)
    check(go(workload, out, ROWS_IN[1] | environment), out, tables)
    kinds = {name.partition("/")[0] for name in s3.objects(url)}
    assert kinds >= {"segments", "results", "late", "identity"}
    directory = out / "_sluice"
    assert not any(directory.glob("results/*"))
    assert not any(directory.glob("checkpoint/segments/*"))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("batch", [0, ENTERS, MIGRATES, LEAVES, LAST])
def test_a_run_is_killed_at_each_step_of_a_batch(
    batch: int, uninterrupted: Uninterrupted, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for life, point in enumerate(POINTS):
        die(uninterrupted.workload, out, point, batch, life)
    ended = go(uninterrupted.workload, out, ROWS_IN[0])
    uninterrupted.check(ended, out)
    assert counters_of(out) == counters_of(uninterrupted.out)


@pytest.mark.slow
@pytest.mark.spark
def test_a_run_of_shared_results_is_killed_in_every_batch(
    uninterrupted: Uninterrupted, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for batch in range(LAST + 1):
        die(uninterrupted.workload, out, POINTS[2 + batch % 3], batch, batch, results="shared")
    uninterrupted.check(go(uninterrupted.workload, out, {}, results="shared"), out, shared=True)


@pytest.mark.slow
@pytest.mark.spark
def test_a_killed_run_goes_on_in_other_numbers_of_buckets(
    uninterrupted: Uninterrupted, tmp_path: Path
) -> None:
    out, buckets = tmp_path / "3", 3
    for batch, more in ((0, 5), (ENTERS, 2), (LEAVES, 4), (LEAVES + 1, 3)):
        die(uninterrupted.workload, out, "after-result-commit", batch, batch, buckets=buckets)
        following = tmp_path / f"{batch}-{more}"
        options = ("--data-dir", out / "_sluice", "--buckets", str(more))
        moved = sluice("move", following / "_sluice", *options)
        assert moved.returncode == 0, moved.stderr
        out, buckets = following, more
    uninterrupted.check(go(uninterrupted.workload, out, {}, buckets=buckets), out)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("memory", ["msf", "dbf", "hybrid"])
def test_a_killed_run_gives_the_same_rows_wherever_those_of_ordered_joins_wait(
    memory: str, tmp_path: Path
) -> None:
    # ``make test`` has the same without Spark: tests/operators/test_ordered_against_duckdb.py.
    tables, environment = (
        write_streams(tmp_path, np.random.default_rng(3)),
        {"SLUICE_OBLIVIOUS_MEMORY": memory},
    )
    workload, out = write_workload(tmp_path), tmp_path / "out"
    for life, batch in enumerate((ENTERS, LEAVES, LAST)):
        die(workload, out, POINTS[2 + life % 3], batch, life, environment=environment)
    check(go(workload, out, ROWS_IN[0] | environment), out, tables)
