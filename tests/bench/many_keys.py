"""The many-keys benchmark: 12 shared window joins against one native Spark join of the largest window.

    python -m tests.bench.many_keys                 2 x 10M rows: about ten minutes on 2 cores
    python -m tests.bench.many_keys --rows 400000   smoke size

On the same files, one after another, each in processes of its own:

* `sluice run --results shared` with all 12 queries (2.5, 5, ... 30 s);
* the same with one query alone: q2_5, which is query 1 in the order of the list, and q30, the largest;
* the native Spark join of the largest window (``tests.bench.native_join``).

Whole run is `seconds` of Sluice's summary, Spark's start-up included, and for the native join the time from
the start of its streaming query to the end, its start-up not included: the comparison favours the baseline.
Steady state leaves the first two batches out. Every engine's counts are compared with DuckDB's before any
speed is printed. The requirement on sharing is checked on steady state, where start-up does not hide the cost
of the other queries, and against q2_5, which is the smaller of the two.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from catalog.store import Store
from tests.bench.many_keys_data import (
    WINDOWS_S,
    Shape,
    expected_counts,
    query_name,
    write_input,
    write_workload,
)
from tests.sluice_run import run

#: Sluice with 12 queries is to be this many times faster than one native join.
FLOOR = 5.0
#: Queries 2 to 12 together are to cost less than this part of query 1 alone.
SHARING = 0.5


def run_sluice(
    directory: Path, windows_s: tuple[float, ...], buckets: int, expected: dict[str, int]
) -> dict[str, Any]:
    """Run Sluice over the input and check its counts.

    Raises:
        RuntimeError: The run failed, or counted other results than DuckDB.
    """
    out = directory / f"out-{len(windows_s)}-{query_name(windows_s[0])}"
    shutil.rmtree(out, ignore_errors=True)
    workload = write_workload(directory, windows_s, directory / f"{out.name}.yaml")
    began = time.monotonic()
    outcome = run(workload, out, mode="shared", buckets=buckets)
    process_s = time.monotonic() - began
    if outcome.returncode != 0:
        raise RuntimeError(f"sluice run failed with exit {outcome.returncode}:\n{outcome.stderr[-4000:]}")
    summary = outcome.summary
    wanted = {query_name(w): expected[query_name(w)] for w in windows_s}
    if summary["results"] != wanted:
        raise RuntimeError(f"sluice counted {summary['results']} instead of {wanted}")
    measured = {k: summary[k] for k in ("input_rows", "batches", "seconds", "rows_per_s", "results")}
    return {"queries": len(windows_s), "process_seconds": round(process_s, 3)} | measured | _steady(out)


def _steady(out: Path) -> dict[str, Any]:
    """Return speed and seconds from the commit of the second batch to that of the last."""
    store = Store.open(f"sqlite:///{out / '_sluice' / 'catalog.db'}")
    try:
        manifests = [m for m in store.manifests(0, 10**6) if any(s.rows for s in m.streams)]
    finally:
        store.close()
    if len(manifests) < 3:
        return {"steady_seconds": None, "steady_rows_per_s": None}
    seconds = (manifests[-1].committed_at_us - manifests[1].committed_at_us) / 1e6
    rows = sum(s.rows for m in manifests[2:] for s in m.streams)
    return {"steady_seconds": round(seconds, 3), "steady_rows_per_s": round(rows / seconds)}


def run_native(directory: Path, expected: dict[str, int], memory: str) -> dict[str, Any]:
    """Run the native join of the largest window and check its count.

    Raises:
        RuntimeError: The run failed, or counted other results than DuckDB.
    """
    began = time.monotonic()
    command = [sys.executable, "-m", "tests.bench.native_join", str(directory), "--memory", memory]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    process_s = time.monotonic() - began
    if outcome.returncode != 0:
        raise RuntimeError(f"the native join failed:\n{outcome.stderr[-4000:]}")
    measured = json.loads(outcome.stdout.strip().splitlines()[-1])
    wanted = expected[query_name(max(WINDOWS_S))]
    if measured["results"] != wanted:
        raise RuntimeError(f"the native join counted {measured['results']} instead of {wanted}")
    return {"process_seconds": round(process_s, 3)} | dict(measured)


def compare(
    shared: dict[str, Any], alone: dict[str, dict[str, Any]], native: dict[str, Any]
) -> dict[str, Any]:
    """Return the ratios that the requirements speak of, whole run and steady state."""

    def ratio(x: dict[str, Any], y: dict[str, Any], key: str) -> float | None:
        return round(x[key] / y[key], 3) if x[key] and y[key] else None

    return {
        "times_native_whole": ratio(shared, native, "rows_per_s"),
        "times_native_steady": ratio(shared, native, "steady_rows_per_s"),
        "queries_2_to_12_over_query_alone": {
            name: {
                "whole": _less_one(ratio(shared, one, "seconds")),
                "steady": _less_one(ratio(shared, one, "steady_seconds")),
            }
            for name, one in alone.items()
        },
    }


def _less_one(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio - 1, 3)


def _line(name: str, measured: dict[str, Any]) -> str:
    whole, steady = measured["rows_per_s"], measured["steady_rows_per_s"]
    return (
        f"{name:<28} {measured['seconds']:>9.1f} s {whole:>12,.0f} rows/s {steady or 0:>12,.0f} rows/s"
        f" {measured['process_seconds']:>9.1f} s"
    )


def main(
    rows: Annotated[int, typer.Option(help="Rows per stream.")] = 10_000_000,
    files: Annotated[int, typer.Option(help="Files per stream, one per batch.")] = 20,
    buckets: Annotated[int, typer.Option(help="Buckets of Sluice, partitions of Spark.")] = 2,
    memory: Annotated[str, typer.Option(help="Heap of the native join's JVM.")] = "10g",
    directory: Annotated[Path, typer.Option(help="Where input and output go.")] = Path(
        "build/bench/many_keys"
    ),
    native: Annotated[bool, typer.Option(help="Run the native join too.")] = True,
    single: Annotated[bool, typer.Option(help="Run the smallest and the largest window alone too.")] = True,
    report: Annotated[Path | None, typer.Option(help="JSON report; default: in the directory.")] = None,
) -> None:
    """Measure, check and print; write a JSON report; exit 1 if a requirement is missed at full size."""
    shape = Shape(rows=rows, files=files, keys=max(rows // 2, 1))
    directory.mkdir(parents=True, exist_ok=True)
    write_input(directory, shape)
    expected = expected_counts(directory)
    print(f"2 x {rows:,} rows, {files} files per stream, {shape.keys:,} keys, {buckets} buckets")
    print("every count is checked against DuckDB's")
    print(f"{'':<28} {'whole':>11} {'whole':>19} {'steady':>19} {'process':>11}")
    shared = run_sluice(directory, WINDOWS_S, buckets, expected)
    print(_line("sluice, 12 queries", shared), flush=True)
    alone = {}
    for window_s in (min(WINDOWS_S), max(WINDOWS_S)) if single else ():
        one = run_sluice(directory, (window_s,), buckets, expected)
        print(_line(f"sluice, {query_name(window_s)} alone", one), flush=True)
        alone[query_name(window_s)] = one
    document: dict[str, Any] = {"rows": rows, "files": files, "shared": shared, "alone": alone}
    if native:
        baseline = run_native(directory, expected, memory)
        print(_line("native join, 30 s", baseline), flush=True)
        document |= {"native": baseline, "ratios": compare(shared, alone, baseline)}
        print(json.dumps(document["ratios"], indent=2))
    path = report or directory / "report.json"
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"report: {path}")
    if native and single and rows >= Shape().rows and not _holds(document["ratios"]):
        raise typer.Exit(1)


def _holds(ratios: dict[str, Any]) -> bool:
    sharing = ratios["queries_2_to_12_over_query_alone"][query_name(min(WINDOWS_S))]["steady"]
    return bool(ratios["times_native_whole"] >= FLOOR and sharing < SHARING)


if __name__ == "__main__":
    typer.run(main)
