"""Ways to kill a run: at a failpoint inside, or one of its processes from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.workloads import Size

POINTS = (
    "before-offset-log",
    "after-offset-log",
    "before-state-commit",
    "before-result-commit",
    "after-result-commit",
    "before-commit-log",
    "after-commit-log",
)

#: Rows are few and files many, so that a run is still busy when it is killed.
SIZE = Size(rows=400, queries=8, steps=4, max_pairs=4000, files=(14, 18))
#: Enough for a death in batch 2.
SMALL = Size(rows=500, queries=8, steps=4, max_pairs=4000, files=(5, 6))

_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Engine:
    """The two processes of a running engine, as its lock file names them."""

    pid: int
    jvm_pid: int


def failpoint(point: str, batch: int) -> dict[str, str]:
    """Return the environment in which a run dies at ``point`` of ``batch``."""
    # None of our code runs between the commit of the state and Spark's commit log: ``dead``.
    inside = "after-commit-log" if point == "before-commit-log" else point
    return {"SLUICE_FAILPOINT": f"{inside}@{batch}"}


def dead(point: str, out: Path) -> None:
    """Leave what a death at ``point`` leaves: before the commit log of the last batch, no entry there."""
    if point == "before-commit-log":
        commits = out / "_sluice" / "checkpoint" / "commits"
        max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda p: int(p.name)).unlink()


def wait_for_commit(process: subprocess.Popen[str], out: Path, batch: int, timeout_s: float = 120) -> Engine:
    """Wait until Spark has committed ``batch`` and return the engine's processes."""
    deadline = time.monotonic() + timeout_s
    commit = out / "_sluice" / "checkpoint" / "commits" / str(batch)
    while not commit.exists():
        if process.poll() is not None:
            raise AssertionError(f"the run ended (exit {process.returncode}) before batch {batch}")
        if time.monotonic() > deadline:
            raise AssertionError(f"batch {batch} was not committed within {timeout_s} s")
        time.sleep(_POLL_S)
    lock = json.loads((out / "_sluice" / "engine.lock").read_text(encoding="utf-8"))
    return Engine(lock["pid"], lock["jvm_pid"])


def kill(pid: int) -> None:
    """Send SIGKILL; a process that is gone already is as good."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def is_running(pid: int) -> bool:
    """Return whether a process of that id still runs (a zombie does not)."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
