"""What Spark adds: the same load in the job, phase by phase, with batches of few and many rows and pieces.

One run is one number of buckets and of shuffle partitions, which a checkpoint fixes. Its input has several
phases of equal batches; how many pieces a batch is read in follows from the sizes of its files:

    even   8 files of n/8 rows and stream    P = 16
    lone   1 large, 7 tiny                   P = 4: the large one, and the rest together
    tiny   8 of more rows than share a task  P = 16, hardly any rows
    few    8 that share a task               P = 2, hardly any rows

CPU time of all processes is sampled while the job runs, and read between the commits of a phase's first and
last batch; what tasks take in the JVM, and what is shuffled, is in Spark's event log.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from catalog.values.batch import BatchManifest
from tests.bench.processes import cpu_times, run_program
from tests.bench.runs import (
    batches_of_stages,
    event_log,
    events_of,
    manifests_of,
    run_command,
    write_workload,
)
from tests.bench.scaling.load import BATCH_S, NO_FILES, Case, Point, workload
from tests.sluice_run import link_home

FILES = 8
#: Rows up to which files share a reader task; with fewer a file is tiny, with more it has a task of its own.
SHARED_ROWS = 100
#: Batches at the beginning of each phase that are left out, and of the first, while the JVM compiles.
SETTLE, WARM_UP = 2, 6
TIMEOUT_S = 300

_ROWS_OF = {
    "even": lambda rows: [rows // FILES] * FILES,
    "lone": lambda rows: [rows - (FILES - 1) * 10, *[10] * (FILES - 1)],
    "tiny": lambda rows: [SHARED_ROWS + 10] * FILES,
    "few": lambda rows: [10] * FILES,
}
_PIECES = {"even": FILES, "lone": 2, "tiny": FILES, "few": 1}


@dataclass(frozen=True, slots=True)
class Phase:
    """Equal batches.

    Attributes:
        kind: See the module's table.
        rows: Rows of a batch, both streams, where there are many.
    """

    kind: str
    rows: int = 0

    @property
    def files(self) -> list[int]:
        """Rows of each file of a stream."""
        return _ROWS_OF[self.kind](self.rows // 2)

    @property
    def batch_rows(self) -> int:
        """Rows of a batch, both streams."""
        return 2 * sum(self.files)

    @property
    def partitions(self) -> int:
        """Pieces of a batch, P."""
        return 2 * _PIECES[self.kind]


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
        columns: Columns carried along.
        master: Spark's master.
    """

    buckets: int
    tasks: int
    columns: int = 0
    master: str = "local[2]"

    @property
    def cores(self) -> int:
        """How many tasks run at a time."""
        if self.master.startswith("local-cluster["):
            executors, cores, _ = self.master.removeprefix("local-cluster[").rstrip("]").split(",")
            return int(executors) * int(cores)
        return int(self.master.removeprefix("local[").rstrip("]"))

    @property
    def name(self) -> str:
        """What it is."""
        return f"V={self.buckets} S={self.tasks} columns={self.columns} {self.master}"


RUNS = (
    SparkRun(2, 2),
    SparkRun(8, 2),
    SparkRun(8, 8),
    SparkRun(32, 2),
    SparkRun(32, 8),
    SparkRun(32, 32),
    SparkRun(8, 4, columns=6),
)
#: Not fitted to, only predicted: one core, and two executors that are JVMs of their own.
CHECKED = (SparkRun(8, 2, master="local[1]"), SparkRun(8, 2, master="local-cluster[2,1,1024]"))


def run_phases(run: SparkRun, inputs: Path, phases: Sequence[Phase], batches: int) -> list[Case]:
    """Run one job over all phases and measure each.

    Args:
        run: The run.
        inputs: What ``write_inputs`` wrote, of the same columns.
        phases: The phases that were written.
        batches: Batches of each that were written.

    Raises:
        ProgramFailed: The job has failed.
    """
    with tempfile.TemporaryDirectory(prefix="sluice-scaling-", ignore_cleanup_errors=True) as root:
        out, log = Path(root) / "out", Path(root) / "events"
        load = workload(Point(PHASES[1].rows, columns=run.columns))
        document = write_workload(
            Path(root) / "workload.yaml",
            inputs,
            {f"q{n}": query.cql() for n, query in enumerate(load.queries, 1)},
            columns={c.name: c.type for c in load.streams["A"].columns},
            files_per_batch=FILES,
        )
        samples = _sampled(run, document, out, log, Path(root))
        tasks = _tasks(log)
        manifests = manifests_of(out)
    assert len(manifests) == batches * len(phases), "a batch of files is a batch of the job"
    seen = []
    for number, phase in enumerate(phases):
        first = number * batches + (SETTLE if number else min(WARM_UP, batches - 2))
        own = manifests[first : (number + 1) * batches]
        seen.append(_seen(run, phase, own, samples, tasks))
    return seen


def write_inputs(directory: Path, columns: int, phases: Sequence[Phase], batches: int) -> Path:
    """Write the files of all phases, so many batches of each, and return their directory."""
    load = workload(Point(PHASES[1].rows, columns=columns))
    rng = np.random.default_rng(columns)
    for stream in load.streams.values():
        (directory / stream.name).mkdir(parents=True)
        number = 0
        for batch in range(batches * len(phases)):
            files = phases[batch // batches].files
            for place, rows in enumerate(files):
                start, end = (round((batch + (place + n) / FILES) * BATCH_S * 1_000_000) for n in (0, 1))
                values = {
                    "ts": pa.array(np.sort(rng.integers(start, end, rows))).cast(pa.timestamp("us")),
                    "k": pa.array(rng.integers(0, load.keys, rows)),
                }
                values |= {c.name: pa.array(rng.random(rows)) for c in stream.columns if c.name not in values}
                pq.write_table(pa.table(values), directory / stream.name / f"{number:06}.parquet")
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

    def between(self, from_s: float, to_s: float) -> dict[str, float]:
        """Return the CPU time spent between two points of the wall clock, by kind."""
        known = pd.DataFrame(self.looks).fillna(0.0).set_index("at_s")
        return {
            str(kind): float(np.diff(np.interp([from_s, to_s], known.index, values))[0])
            for kind, values in known.items()
        }


def _sampled(run: SparkRun, document: Path, out: Path, log: Path, root: Path) -> _Samples:
    """Run the job and look at its processes."""
    environment = {
        **os.environ,
        "SLUICE_SPARK_MASTER": run.master,
        "SLUICE_CORES": str(run.tasks),
        "SLUICE_ROWS_PER_PARTITION": str(SHARED_ROWS),
        **event_log(log),
        "SLUICE_PARTITIONING": "hash",
        "SLUICE_ROWS_FILE_KB": str(NO_FILES >> 10),
        "SLUICE_LOG_LEVEL": "WARNING",
    }
    if run.master.startswith("local-cluster"):  # its executors work below Spark's home
        environment["SPARK_HOME"] = str(link_home(root / "spark"))
    samples = _Samples()
    run_program(run_command(document, out, run.buckets), TIMEOUT_S, environment, samples.look)
    return samples


@dataclass(slots=True)
class _Tasks:
    """What Spark's log says of a batch's tasks."""

    cpu_s: float = 0.0
    shuffled_bytes: int = 0


def _tasks(log: Path) -> dict[int, _Tasks]:
    """Return what tasks took, by batch."""
    events = list(events_of(log))
    batch_of = batches_of_stages(events)
    tasks: dict[int, _Tasks] = {}
    for event in events:
        if event["Event"] == "SparkListenerTaskEnd" and event["Stage ID"] in batch_of:
            metrics = event.get("Task Metrics")
            if metrics is not None:
                known = tasks.setdefault(batch_of[event["Stage ID"]], _Tasks())
                known.cpu_s += metrics["Executor CPU Time"] / 1e9
                known.shuffled_bytes += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
    return tasks


def phase_facts(run: SparkRun, phase: Phase) -> Case:
    """Return what the model knows of a phase before it runs."""
    return {
        "name": f"{run.name}: R={phase.batch_rows:,} P={phase.partitions}",
        "run": run.name,
        "cores": run.cores,
        "rows": phase.batch_rows,
        "partitions": phase.partitions,
        "buckets": run.buckets,
        "tasks": run.tasks,
        "carried": run.columns,
    }


def _seen(
    run: SparkRun,
    phase: Phase,
    manifests: Sequence[BatchManifest],
    samples: _Samples,
    tasks: dict[int, _Tasks],
) -> Case:
    """Sum up the batches after the first, from the first one's commit: means of a batch.

    ``tasks_s`` is CPU time of tasks in the JVM, ``hottest`` that of the slowest bucket over the mean one's.
    """
    from_s, to_s = (m.committed_at_us / 1e6 for m in (manifests[0], manifests[-1]))
    spent, own = samples.between(from_s, to_s), manifests[1:]
    sums = {
        "wall_s": to_s - from_s,
        "pack_s": sum(m.cpu.pack_us for m in own) / 1e6,
        "chain_s": sum(m.cpu.chain_us for m in own) / 1e6,
        "workers_s": spent.get("worker_daemon", 0.0),
        "tasks_s": sum(tasks[m.batch].cpu_s for m in own),
        "jvm_s": spent.get("JVM", 0.0),
        "source_s": sum(s for kind, s in spent.items() if kind not in _KNOWN),
        "service_s": spent.get("service", 0.0),
        "shuffled_bytes": sum(tasks[m.batch].shuffled_bytes for m in own),
        "results": sum(s.results for m in own for s in m.slices),
        "segments": sum(s.segments for m in own for s in m.slices),
    }
    hottest = [m.buckets.hottest_us * run.buckets / m.cpu.chain_us for m in own if m.cpu.chain_us]
    means = {name: value / len(own) for name, value in sums.items()}
    return phase_facts(run, phase) | means | {"hottest": float(np.mean(hottest))}


_KNOWN = ("worker_daemon", "JVM", "service")
