"""Commands of `sluice` in processes of their own, as a user runs them; and the results of `sluice run`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import duckdb
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from service.jvm.class_archive import packaged_home
from tests.oracle import Oracle, runs_of_one_schema

Mode = Literal["per-query", "shared"]
#: Runs a command of `sluice` and returns what it printed and its exit status.
Command = Callable[..., subprocess.CompletedProcess[str]]

#: A run of a few small batches takes 15-20 s here, most of it Spark's start.
TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run.

    Attributes:
        returncode: Exit status; negative is a signal.
        stdout: Its output.
        stderr: Its errors and logs.
    """

    returncode: int
    stdout: str
    stderr: str

    @property
    def summary(self) -> dict[str, Any]:
        """The JSON object on the last line of stdout."""
        document = json.loads(self.stdout.strip().splitlines()[-1])
        assert isinstance(document, dict)
        return document


def link_home(home: Path) -> Path:
    """Make a home of Spark of links into PySpark's; executors of a local cluster write below their home."""
    home.mkdir()
    for name in ("bin", "conf", "jars", "sbin"):
        if (packaged_home() / name).exists():
            (home / name).symlink_to(packaged_home() / name)
    return home


def command(*arguments: str | Path) -> list[str]:
    """Return a command line of `sluice` for this interpreter; its scripts need not be on the path."""
    return [sys.executable, "-m", "api.main", *map(str, arguments)]


def sluice(
    *arguments: str | Path, environment: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return what it printed and its exit status."""
    return subprocess.run(
        command(*arguments),
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def start(
    workload: Path,
    out: Path,
    *,
    mode: Mode = "per-query",
    buckets: int = 2,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Start a run and return its process."""
    return subprocess.Popen(
        command("run", workload, "--out", out, "--results", mode, "--buckets", str(buckets)),
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], timeout_s: float = TIMEOUT_S) -> Run:
    """Wait for a run that ``start`` began."""
    with process:
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
        except BaseException:  # also an interrupt: no JVM of ours may stay behind
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
            raise
    return Run(process.returncode, stdout, stderr)


def run(
    workload: Path,
    out: Path,
    *,
    mode: Mode = "per-query",
    buckets: int = 2,
    environment: Mapping[str, str] | None = None,
) -> Run:
    """Run a workload to its end."""
    return finish(start(workload, out, mode=mode, buckets=buckets, environment=environment))


def per_query_revisions(out: Path, query: str) -> list[pa.Table]:
    """Return the rows of ``DIR/<query>/*.parquet`` in the order in which they were written.

    One table, or several if an update changed the columns.
    """
    parts = sorted((out / query).glob("*.parquet"))
    assert parts, f"no file in {out / query}"
    return runs_of_one_schema([pq.read_table(p) for p in parts])


def per_query_results(out: Path, query: str) -> pa.Table:
    """Return the rows of a query whose columns never changed, in the order in which they were written."""
    (table,) = per_query_revisions(out, query)
    return table


def shared_results(out: Path, query: str) -> pa.Table:
    """Return the rows of the query's view in ``DIR/views.sql``, in no order."""
    with duckdb.connect() as connection:
        connection.execute(f"SET file_search_path = '{out}'")
        connection.execute((out / "views.sql").read_text(encoding="utf-8"))
        return connection.sql(f'SELECT * FROM "{query}"').to_arrow_table()


def stored_pairs(out: Path) -> int:
    """Return how many joined pairs the shared result files hold."""
    return sum(pq.read_metadata(p).num_rows for p in (out / "results").rglob("*.parquet"))


def assert_equals_oracle(outcome: Run, out: Path, oracle: Oracle, mode: Mode) -> None:
    """Check a finished run against the oracle: counters, then every query's rows (and their order)."""
    seed = f"seed {oracle.workload.seed}"
    assert outcome.returncode == 0, f"{seed}: exit {outcome.returncode}\n{outcome.stderr[-6000:]}"
    assert "leaked" not in outcome.stderr, f"{seed}: {outcome.stderr[-6000:]}"
    summary, history = outcome.summary, oracle.history
    wrong: list[str] = []
    for name in oracle.queries():
        found = per_query_revisions(out, name) if mode == "per-query" else [shared_results(out, name)]
        if difference := _differences(found, oracle.revisions(name), ordered=mode == "per-query"):
            wrong.append(f"{name}: {difference}")
            for life in oracle.lives(name):
                force = f"batches {life.added} to {life.removed}, backfill {life.query.backfill}"
                wrong.append(f"    {force}: {life.query.cql()}")
    assert not wrong, f"{seed}, {history.batches} batches:\n" + "\n".join(wrong)
    assert summary["results"] == oracle.counts(), seed
    counters = {"input_rows": history.input_rows, "late_rows": history.late_rows, "batches": history.batches}
    assert {k: summary[k] for k in counters} == counters, seed
    strategies = oracle.workload.strategies()
    assert summary["strategy"] == strategies[-1]
    if mode == "shared" and "unshared" not in strategies:  # joins of their own make pairs of their own
        assert stored_pairs(out) == oracle.distinct_pairs(), seed


def _differences(found: list[pa.Table], expected: list[pa.Table], *, ordered: bool) -> str:
    if len(found) != len(expected):
        return f"{len(found)} revisions instead of {len(expected)}"
    pairs = zip(found, expected, strict=True)
    return "; ".join(d for one, other in pairs if (d := table_difference(one, other, ordered=ordered)))


def table_difference(found: pa.Table, expected: pa.Table, *, ordered: bool) -> str:
    """Return in words how two tables differ, or nothing.

    NaN equals NaN here and -0.0 differs from 0.0: a result carries the very value that came in.
    """
    if found.column_names != expected.column_names:
        return f"columns {found.column_names} instead of {expected.column_names}"
    kinds = [(f.name, str(f.type), str(e.type)) for f, e in zip(found.schema, expected.schema, strict=True)]
    if other := [k for k in kinds if k[1] != k[2]]:
        return f"column types (name, found, expected) {other}"
    rows, wanted = _rows(found), _rows(expected)
    if rows == wanted:
        return ""
    if sorted(rows) != sorted(wanted):
        return _multiset_difference(rows, wanted)
    if not ordered:
        return ""
    first = next(i for i, (x, y) in enumerate(zip(rows, wanted, strict=True)) if x != y)
    return f"right rows in the wrong order from row {first}: {rows[first]} instead of {wanted[first]}"


def _rows(table: pa.Table) -> list[tuple[str, ...]]:
    return list(zip(*([repr(v) for v in c.to_pylist()] for c in table.columns), strict=True))


def _multiset_difference(rows: list[tuple[str, ...]], wanted: list[tuple[str, ...]]) -> str:
    left = dict.fromkeys(wanted, 0)
    for row in wanted:
        left[row] += 1
    extra = []
    for row in rows:
        if left.get(row, 0):
            left[row] -= 1
        else:
            extra.append(row)
    missing = [row for row, count in left.items() for _ in range(count)]
    return (
        f"{len(rows)} rows instead of {len(wanted)}; {len(missing)} missing, such as {missing[:2]}; "
        f"{len(extra)} too many, such as {extra[:2]}"
    )
