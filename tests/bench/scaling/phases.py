"""What a batch costs in the Spark job, phase by phase, with batches of few and many rows and pieces.

One run is one number of buckets and of shuffle partitions, which a checkpoint fixes. Its input has several
phases of equal batches; how many pieces a batch is read in follows from the sizes of its files:

    even   8 files of n/8 rows and stream    P = 16
    lone   1 large, 7 tiny                   P = 4: the large one, and the rest together
    tiny   8 of more rows than share a task  P = 16, hardly any rows
    few    8 that share a task               P = 2, hardly any rows

The load is twelve queries whose windows are 1/12, 2/12 ... of the longest, as in many-keys. A batch is a
second of event time, and the longest window six batches.

CPU time of all processes is sampled while the job runs, and read between the commits of a phase's first and
last batch; what tasks take in the JVM, and what is shuffled, is in Spark's event log.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from catalog.values.batch import BatchManifest
from service.calibrate.workload import WindowQuery
from tests.bench.processes import cpu_times
from tests.bench.runs import (
    batches_of_stages,
    event_log,
    events_of,
    manifests_of,
    run_workload,
    write_part,
    write_workload,
)
from tests.sluice_run import link_home

FILES = 8
#: Rows up to which files share a reader task; with fewer a file is tiny, with more it has a task of its own.
SHARED_ROWS = 100
#: Batches at the beginning of each phase that are left out, and of the first, while the JVM compiles.
SETTLE, WARM_UP = 2, 6
QUERIES, LONGEST_S = 12, 6.0
#: Distinct keys: a row of the largest batches has 0.1 partners in the longest window.
KEYS = 6_000_000
#: Bytes that no rows take: all of them go through Spark, as they do on a cluster.
NO_FILES_KB = 1 << 40

_ROWS_OF = {
    "even": lambda rows: [rows // FILES] * FILES,
    "lone": lambda rows: [rows - (FILES - 1) * 10, *[10] * (FILES - 1)],
    "tiny": lambda rows: [SHARED_ROWS + 10] * FILES,
    "few": lambda rows: [10] * FILES,
}
_PIECES = {"even": FILES, "lone": 2, "tiny": FILES, "few": 1}


@dataclass(frozen=True, slots=True)
class Phase:
    """Equal batches of a kind (the module's table), of so many rows of both streams where there are many."""

    kind: str
    rows: int = 0

    @property
    def files(self) -> list[int]:
        """Rows of each file of a stream."""
        return _ROWS_OF[self.kind](self.rows // 2)


#: The first warms up: nothing is measured of it that is not measured again.
PHASES = (
    Phase("lone", 60_000),
    Phase("even", 200_000),
    Phase("few"),
    Phase("even", 60_000),
    Phase("tiny"),
    Phase("lone", 200_000),
)


@dataclass(frozen=True, slots=True)
class SparkRun:
    """A run.

    Attributes:
        buckets: Buckets, V.
        tasks: Shuffle partitions, S: tasks of the chain.
        columns: Columns carried along, of each stream, and selected by every query.
        master: Spark's master.
        cores: How many tasks run at a time.
    """

    buckets: int
    tasks: int
    columns: int = 0
    master: str = "local[2]"
    cores: int = 2

    @property
    def fitted(self) -> bool:
        """Whether the model is fitted to it; one core, and two executors with JVMs of their own, are not."""
        return self.master == "local[2]"

    def facts(self, phase: Phase) -> dict[str, Any]:
        """Return what the model knows of a phase before it runs."""
        return {
            "run": f"V={self.buckets} S={self.tasks} columns={self.columns} {self.master}",
            "fitted": self.fitted,
            "cores": self.cores,
            "rows": 2 * sum(phase.files),
            "partitions": 2 * _PIECES[phase.kind],
            "buckets": self.buckets,
            "tasks": self.tasks,
            "carried": self.columns,
        }


RUNS = (
    SparkRun(2, 2),
    SparkRun(8, 2),
    SparkRun(8, 8),
    SparkRun(32, 2),
    SparkRun(32, 8),
    SparkRun(32, 32),
    SparkRun(8, 4, columns=6),
    SparkRun(8, 2, master="local[1]", cores=1),
    SparkRun(8, 2, master="local-cluster[2,1,1024]"),
)


def measure(run: SparkRun, phases: Sequence[Phase], batches: int) -> list[dict[str, Any]]:
    """Run one job over all phases, so many batches of each, and return what a batch of each takes.

    The first phase only warms up.

    Raises:
        ProgramFailed: The job has failed.
    """
    with tempfile.TemporaryDirectory(prefix="sluice-scaling-", ignore_cleanup_errors=True) as directory:
        root = Path(directory)
        windows_s = (LONGEST_S * n / QUERIES for n in range(1, QUERIES + 1))
        carried = {f"x{n}": "double" for n in range(run.columns)}
        document = write_workload(
            root / "workload.yaml",
            _write_inputs(root / "inputs", [*carried], phases, batches),
            {f"q{n}": WindowQuery(w, w, columns=run.columns).cql() for n, w in enumerate(windows_s, 1)},
            columns={"ts": "timestamp", "k": "bigint", **carried},
            files_per_batch=FILES,
        )
        samples = _sampled(run, document, root)
        tasks = _tasks(root / "events")
        manifests = manifests_of(root / "out")
    assert len(manifests) == batches * len(phases), "a batch of files is a batch of the job"
    seen = []
    for number, phase in enumerate(phases):
        first = number * batches + (SETTLE if number else min(WARM_UP, batches - 2))
        own = manifests[first : (number + 1) * batches]
        seen.append(run.facts(phase) | _seen(run, own, samples, tasks))
    return seen[1:]


def _write_inputs(directory: Path, carried: Sequence[str], phases: Sequence[Phase], batches: int) -> Path:
    """Write the files of all phases and return their directory."""
    rng = np.random.default_rng(len(carried))
    for stream in "AB":
        number = 0
        for batch in range(batches * len(phases)):
            for rows in phases[batch // batches].files:
                start_us = round(number / FILES * 1_000_000)
                ts_us = np.sort(rng.integers(start_us, start_us + 1_000_000 // FILES, rows))
                values = {name: rng.random(rows) for name in carried}
                write_part(directory, stream, number, ts_us, k=rng.integers(0, KEYS, rows), **values)
                number += 1
    return directory


@dataclass(slots=True)
class _Samples:
    """CPU time so far by kind of process, as time goes on; that of processes that ended counts on."""

    looks: list[dict[str, float]] = field(default_factory=list)
    _last: dict[tuple[int, str], float] = field(default_factory=dict)

    def look(self, pid: int) -> None:
        """Take the times of a process and all below it."""
        self._last |= cpu_times(pid)
        totals: defaultdict[str, float] = defaultdict(float)
        for (_, kind), cpu_s in self._last.items():
            totals[kind] += cpu_s
        self.looks.append({"at_s": time.time(), **totals})

    def between(self, kind: str, from_s: float, to_s: float) -> float:
        """Return the CPU time spent between two points of the wall clock by a kind of process."""
        known = pd.DataFrame(self.looks).fillna(0.0).set_index("at_s")
        before_s, after_s = np.interp([from_s, to_s], known.index, known[kind])
        return float(after_s - before_s)


def _sampled(run: SparkRun, document: Path, root: Path) -> _Samples:
    """Run the job and look at its processes."""
    environment = {
        "SLUICE_SPARK_MASTER": run.master,
        "SLUICE_CORES": str(run.tasks),
        "SLUICE_ROWS_PER_PARTITION": str(SHARED_ROWS),
        "SLUICE_PARTITIONING": "hash",
        "SLUICE_ROWS_FILE_KB": str(NO_FILES_KB),
        "SLUICE_LOG_LEVEL": "WARNING",
        **event_log(root / "events"),
    }
    if run.master.startswith("local-cluster"):  # its executors work below Spark's home
        environment["SPARK_HOME"] = str(link_home(root / "spark"))
    samples = _Samples()
    run_workload(document, root / "out", run.buckets, environment=environment, look=samples.look)
    return samples


def _tasks(log: Path) -> dict[str, Counter[int]]:
    """Return what Spark's log says of each batch's tasks: CPU time in ns, and bytes shuffled."""
    events = list(events_of(log))
    batch_of = batches_of_stages(events)
    found: dict[str, Counter[int]] = {"cpu_ns": Counter(), "shuffled_bytes": Counter()}
    for event in events:
        if event["Event"] == "SparkListenerTaskEnd" and event["Stage ID"] in batch_of:
            metrics, batch = event.get("Task Metrics"), batch_of[event["Stage ID"]]
            if metrics is not None:
                found["cpu_ns"][batch] += metrics["Executor CPU Time"]
                found["shuffled_bytes"][batch] += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
    return found


def _seen(
    run: SparkRun, manifests: Sequence[BatchManifest], samples: _Samples, tasks: dict[str, Counter[int]]
) -> dict[str, float]:
    """Sum up the batches after the first, from the first one's commit: means of a batch.

    ``tasks_s`` is CPU time of tasks in the JVM, ``hottest`` that of the slowest bucket over the mean one's.
    """
    from_s, to_s = (m.committed_at_us / 1e6 for m in (manifests[0], manifests[-1]))
    own = manifests[1:]
    sums = {
        "wall_s": to_s - from_s,
        "pack_s": sum(m.cpu.pack_us for m in own) / 1e6,
        "chain_s": sum(m.cpu.chain_us for m in own) / 1e6,
        "workers_s": samples.between("worker_daemon", from_s, to_s),
        "jvm_s": samples.between("JVM", from_s, to_s),
        "tasks_s": sum(tasks["cpu_ns"][m.batch] for m in own) / 1e9,
        "shuffled_bytes": float(sum(tasks["shuffled_bytes"][m.batch] for m in own)),
        "hottest": sum(m.buckets.hottest_us * run.buckets / max(m.cpu.chain_us, 1) for m in own),
    }
    return {name: value / len(own) for name, value in sums.items()}
