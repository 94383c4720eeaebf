"""One engine per data directory, and none but the living one.

The lock is the operating system's (``flock``), so it goes with the process however that ends. The file
says who holds it: the driver's pid and, once Spark runs, the JVM's with its start time. A JVM can outlive
its driver for a while; the next engine ends the one the file names, and nothing else, before it writes.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path

import psutil

from service.errors import DataDirInUse

#: A killed JVM is gone in well under a second; a stuck disk may take longer.
KILL_TIMEOUT_S = 30.0


@dataclass(slots=True)
class EngineLock:
    """The held lock of a data directory.

    Attributes:
        path: Lock file.
    """

    path: Path
    _file: TextIOWrapper | None = field(default=None)

    def acquire(self) -> None:
        """Take the lock and end what a dead driver has left.

        Raises:
            DataDirInUse: Another process holds it.
        """
        file = self.path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _read(self.path).get("pid")
            file.close()
            raise DataDirInUse(
                f'data directory "{self.path.parent}" is in use',
                detail=f"Process {holder} runs an engine on it." if holder else None,
                hint="Stop that process, or name another directory with --data-dir.",
            ) from error
        self._file = file
        _end_survivor(_read(self.path))
        self._write({"pid": os.getpid()})

    def name_jvm(self, pid: int) -> None:
        """Record the JVM that this engine has started."""
        started = psutil.Process(pid).create_time()
        self._write({"pid": os.getpid(), "jvm_pid": pid, "jvm_started": started})

    def release(self) -> None:
        """Give the lock back; its JVM must have ended."""
        if self._file is not None:
            self._write({})
            self._file.close()
            self._file = None

    def _write(self, facts: dict[str, float]) -> None:
        # Replaced in place: a rename would leave the lock on the old file.
        assert self._file is not None
        self._file.seek(0)
        self._file.truncate()
        self._file.write(json.dumps(facts))
        self._file.flush()


def _read(path: Path) -> dict[str, float]:
    try:
        content = json.loads(path.read_text() or "{}")
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _end_survivor(facts: dict[str, float]) -> None:
    if "jvm_pid" not in facts:
        return
    try:
        process = psutil.Process(int(facts["jvm_pid"]))
        # A pid alone may have been given to somebody else since.
        if abs(process.create_time() - facts["jvm_started"]) < 1.0:
            process.kill()
            process.wait(KILL_TIMEOUT_S)
    except psutil.NoSuchProcess:
        return
