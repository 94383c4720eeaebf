"""Sluice as its users run it: ``sluice run --results shared``, results written.

What each batch took is read from the manifests it left in its catalog.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

import pyspark

from catalog.store.store import Store
from catalog.values.batch import BatchManifest
from tests.bench.peers.job import Batch, Job, Ran, batches_between
from tests.bench.peers.state import Held, state_ratios
from tests.bench.processes import Finished
from tests.bench.runs import manifests_of, run_workload, write_workload


def batches_of(out: Path, manifests: Sequence[BatchManifest]) -> list[Batch]:
    """Return the batches of a run, of which the first begins when the job starts.

    Args:
        out: Directory of its results.
        manifests: What its batches committed, in their order.
    """
    # Spark writes this file when the job starts, and every batch ends with a commit.
    began_s = (out / "_sluice" / "checkpoint" / "metadata").stat().st_mtime
    ends = ((m.committed_at_us / 1e6, sum(s.rows for s in m.streams)) for m in manifests)
    return batches_between(began_s, ends)


def run_sluice(job: Job, timeout_s: float) -> tuple[Ran, Finished, dict[str, float]]:
    """Run Sluice over the job's files. Where it joins two streams, also compare its state with the least.

    Raises:
        ProgramFailed: It did not end well, or not in time.
    """
    scratch, inputs, out = Path(job.scratch), Path(job.directory), Path(job.scratch) / "out"
    workload = write_workload(
        scratch / "workload.yaml",
        inputs,
        {query.name: query.cql(names=job.streams.names) for query in job.queries},
        names=job.streams.names,
        files_per_batch=job.options["files_per_batch"],
    )
    settings = {"SLUICE_CORES": str(job.cores), "SLUICE_LOG_LEVEL": "WARNING"}
    settings |= job.options.get("environment", {})
    finished, summary = run_workload(workload, out, job.cores, timeout_s=timeout_s, environment=settings)
    with Store.open(f"sqlite:///{out / '_sluice' / 'catalog.db'}") as store:
        streams = [store.streams.get(name).id for name in job.streams.names]
    manifests = manifests_of(out)
    held = []
    for manifest in manifests:
        newest = {s.stream_id: s.max_event_time_us or 0 for s in manifest.streams}
        held.append(Held(manifest.state_rows, manifest.state_bytes, *(newest[s] for s in streams[:2])))
    batches = batches_of(out, manifests)
    ran = Ran(
        results=summary["results"],
        input_rows=summary["input_rows"],
        job_s=batches[-1].ended_s - batches[0].began_s,
        batches=[batches],
        paced=True,
        versions={"Spark": pyspark.__version__, "Python": platform.python_version()},
    )
    # Once the streams have ended, no row is of use.
    compared = job.streams.count == 2 and not job.streams.ended
    state = state_ratios(inputs, job.queries, held) if compared else {}
    return ran, finished, state
