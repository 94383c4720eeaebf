"""Failpoints: places in the code where a test can request a crash, to test the recovery from it.

With ``SLUICE_FAILPOINT="after-result-commit@3"``, the process that reaches the point in batch 3 kills the
engine and then itself, with SIGKILL. The engine is the Python driver and the JVM, whose pids are in its lock
file.

With ``after-result-commit@3:wait``, the process waits at this point instead, so that a test can kill any
process. It creates the file ``failpoint-after-result-commit-3`` next to the lock file, and continues once
there is a file ``failpoint-after-result-commit-3.passed``. The variable may
list several points, separated by commas. Without the variable, a failpoint costs one look-up.
"""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

VARIABLE = "SLUICE_FAILPOINT"

POINTS = (
    "before-offset-log",
    "after-offset-log",
    "before-state-commit",
    "before-result-commit",
    "after-result-commit",
    "after-commit-log",
    "after-change",
    "after-drop",
    "before-compaction",
    "after-compaction",
)

#: Seconds after which a waiting process checks again whether it may continue.
_WAIT_STEP_S = 0.02


def reached(point: str, batch: int, engine_lock: str) -> None:
    """Kill the engine and this process, or wait, if the environment asks for it.

    Args:
        point: One of ``POINTS``.
        batch: Number of the batch that is being processed. For "after-change", it is the plan version that
            was appended; for "after-drop", the first batch whose results are kept; for the points of
            compaction, the first batch whose files are merged.
        engine_lock: Path of the lock file that contains the engine's pids.
    """
    asked = os.environ.get(VARIABLE)
    if not asked:
        return
    for entry in asked.split(","):
        wanted, _, when = entry.partition("@")
        at, _, how = when.partition(":")
        if wanted != point or batch != int(at):
            continue
        if how == "wait":
            _wait(Path(engine_lock).with_name(f"failpoint-{point}-{batch}"))
        else:
            _die(Path(engine_lock))


def _wait(mark: Path) -> None:
    passed = mark.with_suffix(".passed")
    while not passed.exists():
        mark.touch()
        time.sleep(_WAIT_STEP_S)


def _die(engine_lock: Path) -> None:
    pids = json.loads(engine_lock.read_text())
    for pid in (pids["pid"], pids["jvm_pid"]):
        if pid != os.getpid():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
