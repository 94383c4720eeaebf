"""Check of a cluster's workers before the first batch: do they have the engine's storage and versions?

    engine    writes a token file to the storage and to the checkpoint's directory
    workers   each reads both token files, writes answer files next to them, and reports versions and time
    engine    reads the answer files

Spark decides which executor runs a task. The check therefore runs four tasks for each core, and each task
lasts 50 ms, so that every registered executor gets a task. An executor that registers later is not checked.
"""

from __future__ import annotations

import platform
import re
import socket
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Final

from pyspark.sql import SparkSession

from catalog.errors import SluiceError
from catalog.times.clock import wall_clock_us
from operators.storage.folder import Folder, create, place_of, read, remove
from service.errors import StorageDiffers, WorkerDiffers

#: Packages whose versions affect the format of state, payloads and results.
_PACKAGES: Final = ("sluice", "pyspark", "pyarrow", "numpy", "pandas", "numba", "duckdb")
#: Seconds for which the tasks may wait for an executor. Spark itself would wait without end.
PATIENCE_S: Final = 120.0
#: Maximum difference between the wall clocks of engine and worker, µs. The clocks affect `max_ahead`,
#: retention and results.
MOST_SKEW_US: Final = 60_000_000
#: Error of a PySpark worker with another Python, and of a Python that cannot load the daemon or a task.
_OTHER_PYTHON: Final = re.compile(
    r"Python in worker has different version: ([\d.]+) than that in driver: ([\d.]+)"
)
_NO_MODULE: Final = re.compile(r"No module named '?([\w.]+)")
_PYTHON_HINT: Final = (
    "Install the same Python, with Sluice, on all machines, at the same path as on the engine's machine: "
    f"workers run {sys.executable}."
)
_TASKS_PER_CORE: Final = 4
_TASK_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Worker:
    """Versions, clock and access to the storage that a worker reports about itself.

    Attributes:
        host: Name of the worker's machine.
        python: Version of the worker's Python.
        packages: Versions of the packages whose versions must agree, by name.
        clock_us: The worker's wall clock, µs UTC.
        failure: Why the worker cannot use the engine's storage, or None if it can.
        answers: Names of the worker's answer files, in the order of the folders.
    """

    host: str
    python: str
    packages: dict[str, str]
    clock_us: int
    failure: str | None = None
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """Task for a worker: read the engine's token in each folder, and write an answer beside it.

    Attributes:
        folders: Folders that all workers must be able to read and write.
        token: Name, and also content, of the file that the engine has written in each folder.
    """

    folders: tuple[Folder, ...]
    token: str

    def __call__(self, numbers: object) -> list[Worker]:
        """Return the report of this worker, in a list of one item, as Spark requires."""
        time.sleep(_TASK_S)
        worker = this_process()
        answers = []
        try:
            for folder in self.folders:
                if read(folder, self.token) != self.token.encode():
                    return [
                        replace(worker, failure=f'There is no file "{self.token}" in {place_of(folder)}.')
                    ]
                name = f"{self.token}.{uuid.uuid4().hex}"
                create(folder, name, self.token.encode())
                answers.append(name)
        except (OSError, SluiceError) as error:
            return [replace(worker, failure=f"{error}")]
        return [replace(worker, answers=tuple(answers))]


def this_process() -> Worker:
    """Return the versions and the clock of this process."""
    versions = {name: version(name) for name in _PACKAGES}
    return Worker(socket.gethostname(), platform.python_version(), versions, wall_clock_us())


def check_workers(session: SparkSession, folders: Sequence[Folder], patience_s: float = PATIENCE_S) -> None:
    """Refuse workers on which a batch would fail or give wrong results.

    Args:
        session: Spark of a cluster.
        folders: Folders that engine and workers share.
        patience_s: Seconds for which the tasks of the check may wait for executors.

    Raises:
        StorageDiffers: A worker does not see the engine's files, or the engine does not see a worker's files.
        WorkerDiffers: The tasks do not end in time, or a worker's Python, packages or clock differ from the
            engine's.
    """
    token = f"look-{uuid.uuid4().hex}"
    answers: list[str] = []
    try:
        for folder in folders:
            create(folder, token, token.encode())
        began_us = wall_clock_us()
        workers = _ask(session, Look(tuple(folders), token), patience_s)
        compare(this_process(), workers, began_us, wall_clock_us())
        for worker in workers:
            answers += worker.answers
            for folder, name in zip(folders, worker.answers, strict=True):
                if read(folder, name) is None:
                    raise _differs(
                        worker, f'The engine does not see the worker\'s file "{name}" in {place_of(folder)}.'
                    )
    finally:
        for folder in folders:
            remove(folder, [token, *answers])


def _ask(session: SparkSession, look: Look, patience_s: float) -> list[Worker]:
    context = session.sparkContext
    tasks = max(context.defaultParallelism, 1) * _TASKS_PER_CORE
    group = f"look at workers {uuid.uuid4().hex[:8]}"
    waited = threading.Event()

    def give_up() -> None:
        waited.set()
        context.cancelJobGroup(group)

    timer = threading.Timer(patience_s, give_up)
    timer.daemon = True
    context.setJobGroup(group, "look at workers")
    timer.start()
    try:
        return context.parallelize(range(tasks), tasks).mapPartitions(look).collect()
    except Exception as error:
        if not waited.is_set():
            if (refused := python_differs(str(context.master), str(error))) is not None:
                raise refused from error
            raise
        raise WorkerDiffers(
            f"no worker of {context.master} has taken a task in {patience_s:g} s",
            hint="Check that the cluster has free cores, and that its workers can reach the engine: "
            "spark.driver.host in SLUICE_SPARK_CONF is the address to which they connect.",
        ) from error
    finally:
        timer.cancel()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # None clears it


def python_differs(master: str, told: str) -> WorkerDiffers | None:
    """Return the error for a worker whose Python cannot run a task, or None for another error of Spark.

    Args:
        master: Spark's master.
        told: Message of Spark's error.
    """
    if versions := _OTHER_PYTHON.search(told):
        return WorkerDiffers(
            f"a worker of {master} runs Python {versions[1]}, the engine {versions[2]}", hint=_PYTHON_HINT
        )
    if module := _NO_MODULE.search(told):
        return WorkerDiffers(
            f'the Python of a worker of {master} lacks the module "{module[1]}"', hint=_PYTHON_HINT
        )
    return None


def compare(engine: Worker, workers: Sequence[Worker], began_us: int, ended_us: int) -> None:
    """Refuse workers that differ from the engine; raises as ``check_workers`` does.

    Args:
        engine: Versions of the engine's process.
        workers: Reports of the workers.
        began_us: Engine's wall clock before the check, µs UTC.
        ended_us: Engine's wall clock after all workers have reported, µs UTC.
    """
    for worker in workers:
        if worker.failure is not None:
            raise _differs(worker, worker.failure)
        if _minor(worker.python) != _minor(engine.python):
            raise WorkerDiffers(
                f'worker "{worker.host}" runs Python {worker.python}, the engine {engine.python}',
                hint=_PYTHON_HINT,
            )
        for name, found in worker.packages.items():
            if found != engine.packages[name]:
                raise WorkerDiffers(
                    f'worker "{worker.host}" has {name} {found}, the engine {engine.packages[name]}',
                    hint="Install the same version of Sluice on all machines, with its constraints.txt.",
                )
        if not began_us - MOST_SKEW_US <= worker.clock_us <= ended_us + MOST_SKEW_US:
            skew_s = max(began_us - worker.clock_us, worker.clock_us - ended_us) / 1e6
            raise WorkerDiffers(
                f'the clock of worker "{worker.host}" differs from the engine\'s by {skew_s:.0f} s',
                detail=f"At most {MOST_SKEW_US // 1_000_000} s are allowed.",
                hint="Synchronize the clocks of all machines with one NTP server.",
            )


def _minor(python: str) -> str:
    return python.rpartition(".")[0]


def _differs(worker: Worker, detail: str) -> StorageDiffers:
    return StorageDiffers(f'worker "{worker.host}" does not share the engine\'s storage', detail=detail)
