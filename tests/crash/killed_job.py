"""A job without Spark whose process is killed at one step after another, and goes on in the next process.

    python -m tests.crash.killed_job ROOT BATCHES STEP...

Each life is a process of its own, forked from one that has imported everything.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tests.crash.powered import Job, a_job


def live_and_die(
    opened: Callable[[Path, Callable[[str], None]], Job], root: str, batches: str, *steps: str
) -> None:
    """Let a process run a job until it kills itself at a step, for each of the steps."""
    for step in steps:
        pid = os.fork()
        if not pid:
            _live(opened, Path(root), int(batches), step)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            sys.exit(f"the process was not killed at the step {step!r}: status {status}")


def _live(opened: Callable[[Path, Callable[[str], None]], Job], root: Path, batches: int, fatal: str) -> None:
    def reached(step: str) -> None:
        if step == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    opened(root, reached).run(batches)
    os._exit(0)


if __name__ == "__main__":
    live_and_die(a_job, *sys.argv[1:])
