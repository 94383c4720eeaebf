"""`sluice run` over files of two streams: its workload, its command, and what it leaves behind."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from catalog.store.store import Store
from catalog.values.batch import BatchManifest
from tests.bench.processes import Finished, run_program
from tests.sluice_run import command

COLUMNS = {"ts": "timestamp", "k": "bigint", "v": "double"}


def write_part(inputs: Path, stream: str, number: int, ts_us: np.ndarray, **columns: np.ndarray) -> None:
    """Write rows of a stream as its next file; it is there whole or not at all."""
    path = inputs / stream / f"part-{number:06}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{number}.tmp")
    pq.write_table(pa.table({"ts": pa.array(ts_us, pa.timestamp("us")), **columns}), unfinished)
    unfinished.rename(path)


def write_workload(
    path: Path,
    inputs: Path,
    queries: Mapping[str, str],
    *,
    columns: Mapping[str, str] = COLUMNS,
    strategy: str = "mem-opt",
    files_per_batch: int | None = 1,
    names: Sequence[str] = ("A", "B"),
) -> Path:
    """Write a workload file and return its path.

    Args:
        path: Where to.
        inputs: Directory with a directory of Parquet files for each stream.
        queries: CQL by name.
        columns: Columns of all streams.
        strategy: How queries are joined.
        files_per_batch: Files of a batch; None leaves that to Sluice.
        names: Names of the streams.
    """
    admitted = {} if files_per_batch is None else {"max_files_per_batch": files_per_batch}
    streams = [
        {
            "name": name,
            "columns": dict(columns),
            "event_time": "ts",
            "lateness": "0s",
            "source": {"type": "files", "format": "parquet", "path": str((inputs / name).resolve())}
            | admitted,
        }
        for name in names
    ]
    asked = [{"name": name, "cql": cql} for name, cql in queries.items()]
    document = {"streams": streams, "queries": asked, "strategy": strategy}
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return path


def run_workload(
    workload: Path,
    out: Path,
    buckets: int = 2,
    *,
    timeout_s: float = 600.0,
    environment: Mapping[str, str] | None = None,
    look: Callable[[int], None] | None = None,
    below: Sequence[str] = (),
) -> tuple[Finished, dict[str, Any]]:
    """Run a workload in a process of its own; return how that went, and the summary that it printed.

    Args:
        workload: The workload's file.
        out: Where results go.
        buckets: Number of buckets.
        timeout_s: When it is given up.
        environment: Settings, besides those of this process.
        look: Called with its process id five times a second.
        below: Command that starts it in turn.

    Raises:
        ProgramFailed: It did not end well, or not in time.
    """
    line = [*below, *command("run", workload, "--out", out, "--results", "shared", "--buckets", str(buckets))]
    finished = run_program(line, timeout_s, {**os.environ, **(environment or {})}, look)
    return finished, json.loads(finished.stdout.strip().splitlines()[-1])


def manifests_of(out: Path) -> list[BatchManifest]:
    """Return what the batches with rows of a run committed."""
    with Store.open(f"sqlite:///{out / '_sluice' / 'catalog.db'}") as store:
        return [m for m in store.batches.manifests(0, 10**6) if any(s.rows for s in m.streams)]


def event_log(directory: Path) -> dict[str, str]:
    """Return the environment in which Spark logs its events to a directory, which is made."""
    directory.mkdir()
    facts = {"enabled": "true", "dir": directory.as_uri(), "compress": "false"}
    return {"SLUICE_SPARK_CONF": json.dumps({f"spark.eventLog.{key}": fact for key, fact in facts.items()})}


def events_of(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield the events that Spark has logged."""
    for path in sorted(directory.rglob("events*")):
        if path.is_file():
            with path.open(encoding="utf-8") as lines:
                yield from map(json.loads, lines)


def batches_of_stages(events: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """Return the batch of each stage."""
    started = [event for event in events if event["Event"] == "SparkListenerJobStart"]
    return {
        stage: int(batch)
        for event in started
        if (batch := (event.get("Properties") or {}).get("streaming.sql.batchId")) is not None
        for stage in event["Stage IDs"]
    }
