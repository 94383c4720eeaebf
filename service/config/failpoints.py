"""Places where a crash can be asked for, so that recovery is tested at the moments that matter.

``SLUICE_FAILPOINT="after-result-commit@3"`` makes the process that reaches the point in batch 3 kill the
engine: the Python driver and the JVM, by the pids in the engine's lock file, with SIGKILL, then itself.
Without the variable a point costs one look-up.
"""

from __future__ import annotations

import json
import os
import signal
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
)


def reached(point: str, batch: int, engine_lock: str) -> None:
    """Die here, engine and all, if the environment asks for it.

    Args:
        point: One of ``POINTS``.
        batch: Batch that is being processed; for "after-change" the plan version that was appended, for
            "after-drop" the first batch whose results are kept.
        engine_lock: Path of the lock file that names the engine's pids.
    """
    wanted, _, at = os.environ.get(VARIABLE, "").partition("@")
    if wanted != point or batch != int(at):
        return
    pids = json.loads(Path(engine_lock).read_text())
    for pid in (pids["pid"], pids["jvm_pid"]):
        if pid != os.getpid():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
