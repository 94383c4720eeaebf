"""Sluice as its users run it: ``sluice run --results shared``, results written.

What each batch took is read from the manifests it left in its catalog.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import pyspark

from catalog.store.store import Store
from catalog.values.batch import BatchManifest
from tests.bench.peers.job import Batch, Held, Job, Ran
from tests.bench.peers.workloads import STREAMS
from tests.bench.processes import Finished, run_program
from tests.bench.runs import manifests_of, run_command, write_workload


def run_sluice(job: Job, timeout_s: float) -> tuple[Ran, Finished]:
    """Run Sluice over the job's files.

    Raises:
        ProgramFailed: It did not end well, or not in time.
    """
    out = Path(job.scratch) / "out"
    workload = write_workload(
        Path(job.scratch) / "workload.yaml",
        Path(job.directory),
        {query.name: query.cql() for query in job.queries},
        files_per_batch=job.options.get("files_per_batch", 1),
    )
    finished = run_program(
        run_command(workload, out, job.cores),
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
    manifests, streams = manifests_of(out), _stream_ids(out)
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


def _stream_ids(out: Path) -> list[int]:
    with Store.open(f"sqlite:///{out / '_sluice' / 'catalog.db'}") as store:
        return [store.streams.get(name).id for name in STREAMS]


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
