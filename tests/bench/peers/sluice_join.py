"""Sluice as its users run it: ``sluice run --results shared``, results written.

What each batch took is read from the manifests it left in its catalog.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

import pyspark
import yaml

from catalog.store.store import Store
from catalog.values.batch import BatchManifest
from tests.bench.peers.job import Batch, Held, Job, Ran
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
        {
            **os.environ,
            "SLUICE_CORES": str(job.cores),
            "SLUICE_LOG_LEVEL": "WARNING",
            **job.options.get("environment", {}),
        },
    )
    summary = json.loads(finished.stdout.strip().splitlines()[-1])
    # Spark writes this file when the job starts, and every batch ends with a commit.
    began_s = (out / "_sluice" / "checkpoint" / "metadata").stat().st_mtime
    manifests, streams = _manifests(out)
    batches = _batches(manifests, began_s)
    ran = Ran(
        results=summary["results"],
        input_rows=summary["input_rows"],
        job_s=batches[-1].ended_s - began_s,
        batches=[batches],
        paced=True,
        versions={"Spark": pyspark.__version__, "Python": platform.python_version()},
        held=[_held(manifest, streams) for manifest in manifests],
    )
    return ran, finished


def _manifests(out: Path) -> tuple[list[BatchManifest], list[int]]:
    """Return what the batches with rows committed, and the ids of both streams."""
    with Store.open(f"sqlite:///{out / '_sluice' / 'catalog.db'}") as store:
        manifests = [m for m in store.batches.manifests(0, 10**6) if any(s.rows for s in m.streams)]
        return manifests, [store.streams.get(name).id for name in STREAMS]


def _batches(manifests: Sequence[BatchManifest], began_s: float) -> list[Batch]:
    ends_s = [m.committed_at_us / 1e6 for m in manifests]
    return [
        Batch(before_s, end_s, sum(s.rows for s in m.streams))
        for before_s, end_s, m in zip([began_s, *ends_s], ends_s, manifests, strict=False)
    ]


def _held(manifest: BatchManifest, streams: Sequence[int]) -> Held:
    """Return the state at the end of a batch; both streams have rows in every batch."""
    newest = {s.stream_id: s.max_event_time_us for s in manifest.streams}
    a_us, b_us = (newest[stream] for stream in streams)
    assert a_us is not None, "both streams have as many files"
    assert b_us is not None, "both streams have as many files"
    return Held(manifest.state_rows, manifest.state_bytes, a_us, b_us)


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
                **_files_per_batch(job),
            },
        }
        for name in STREAMS
    ]
    queries = [{"name": query.name, "cql": query.cql()} for query in job.queries]
    return {"streams": streams, "queries": queries, "strategy": "mem-opt"}


def _files_per_batch(job: Job) -> dict[str, int]:
    """Return one file a batch unless the job says otherwise; nothing where Sluice is to choose."""
    files = job.options.get("files_per_batch", 1)
    return {} if files is None else {"max_files_per_batch": files}
