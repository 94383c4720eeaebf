"""Sluice as its users run it: ``sluice run --results shared``, results written.

What each batch took is read from the manifests it left in its catalog.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path

import pyspark
import yaml

from catalog.store import Store
from tests.bench.peers.job import Batch, Job, Ran
from tests.bench.peers.processes import Finished, run_program
from tests.bench.peers.workloads import STREAMS


def run_sluice(job: Job, timeout_s: float) -> tuple[Ran, Finished]:
    """Run Sluice over the job's files.

    Raises:
        ProgramFailed: It did not end well, or not in time.
    """
    out = Path(job.scratch) / "out"
    path = Path(job.scratch) / "workload.yaml"
    path.write_text(yaml.safe_dump(workload_document(job), sort_keys=False), encoding="utf-8")
    sluice = str(Path(sys.executable).parent / "sluice")
    command = [sluice, "run", str(path), "--out", str(out), "--results", "shared"]
    finished = run_program(
        [*command, "--buckets", str(job.cores)],
        timeout_s,
        {**os.environ, "SLUICE_CORES": str(job.cores), "SLUICE_LOG_LEVEL": "WARNING"},
    )
    summary = json.loads(finished.stdout.strip().splitlines()[-1])
    # Spark writes this file when the job starts, and every batch ends with a commit.
    began_s = (out / "_sluice" / "checkpoint" / "metadata").stat().st_mtime
    batches = _batches(out, began_s)
    ran = Ran(
        results=summary["results"],
        input_rows=summary["input_rows"],
        job_s=batches[-1].ended_s - began_s,
        batches=[batches],
        paced=True,
        versions={"Spark": pyspark.__version__, "Python": platform.python_version()},
    )
    return ran, finished


def _batches(out: Path, began_s: float) -> list[Batch]:
    store = Store.open(f"sqlite:///{out / '_sluice' / 'catalog.db'}")
    try:
        manifests = [m for m in store.manifests(0, 10**6) if any(s.rows for s in m.streams)]
    finally:
        store.close()
    ends_s = [m.committed_at_us / 1e6 for m in manifests]
    return [
        Batch(before_s, end_s, sum(s.rows for s in m.streams))
        for before_s, end_s, m in zip([began_s, *ends_s], ends_s, manifests, strict=False)
    ]


def workload_document(job: Job) -> dict[str, object]:
    """Return the job as a workload file of Sluice."""
    streams = [
        {
            "name": name,
            "columns": {"ts": "timestamp", "k": "bigint", "v": "double"},
            "event_time": "ts",
            "lateness": "0s",
            "source": {
                "type": "files",
                "format": "parquet",
                "path": str((Path(job.directory) / name).resolve()),
                "max_files_per_batch": job.options.get("files_per_batch", 1),
            },
        }
        for name in STREAMS
    ]
    queries = [{"name": query.name, "cql": query.cql()} for query in job.queries]
    return {"streams": streams, "queries": queries, "strategy": "mem-opt"}
