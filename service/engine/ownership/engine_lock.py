"""Lock of a data directory, which is released when its engine dies.

The operating system holds the lock (``flock``) and releases it whenever the process ends, for whatever
reason. The lock file names the holder: the driver's pid and, once Spark runs, the JVM's pid with its start
time. A JVM can outlive its driver for a while. Before the next engine writes, it ends the JVM that the file
names, and no other process.

The lease of the catalog takes precedence. An engine may have taken the lease from a hanging engine that it
cannot kill, for example in another container. It then unlinks the lock file, on which the hanging engine
keeps its lock, and creates a new file.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import psutil

from catalog.store.lease import Holder
from service.errors import DataDirInUse

log = logging.getLogger(__name__)

#: Seconds to wait until a killed JVM has ended. A JVM normally ends in well under a second, but a disk that
#: does not respond may delay it.
KILL_TIMEOUT_S = 30.0


@dataclass(slots=True)
class EngineLock:
    """The lock of a data directory.

    Attributes:
        path: Lock file.
    """

    path: Path
    _file: TextIOWrapper | None = field(default=None)

    def acquire(self, former: Holder | None = None) -> None:
        """Take the lock and end the JVM that a dead driver has left.

        Args:
            former: The engine from which the lease of the catalog was taken, so that its lock is no longer
                valid; or None.

        Raises:
            DataDirInUse: Another process holds the lock.
        """
        file = self._locked()
        facts = _read(self.path)
        if file is None and former is not None and _names(facts, former):
            log.warning("engine lock replaced, because its holder hangs", extra=facts)
            self.path.unlink(missing_ok=True)
            file = self._locked()
        if file is None:
            holder = facts.get("pid")
            raise DataDirInUse(
                f'data directory "{self.path.parent}" is in use',
                detail=f"Process {holder} runs an engine on it." if holder else None,
                hint="Stop that process, or name another directory with --data-dir.",
            )
        self._file = file
        _end_survivor(_read(self.path))
        self._write(_this_process())

    def name_jvm(self, pid: int) -> None:
        """Record the JVM of this engine in the lock file."""
        started = psutil.Process(pid).create_time()
        self._write(_this_process() | {"jvm_pid": pid, "jvm_started": started})

    def release(self) -> None:
        """Release the lock. The engine's JVM must have ended before."""
        if self._file is not None:
            try:
                self._write({})
            except OSError as error:
                # The disk is full or read-only. The file still names this engine's processes, but the next
                # engine finds that they have ended.
                log.warning("lock file not cleared: %s", error)
            self._file.close()
            self._file = None

    def _locked(self) -> TextIOWrapper | None:
        """Open the file, lock it and return it; return None if another process has locked it."""
        file = self.path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return None
        return file

    def _write(self, facts: dict[str, Any]) -> None:
        # The file is written in place, because a rename would leave the lock on the old file.
        assert self._file is not None
        # ``os.pwrite`` does not use the buffer of the file object, whose content would be written again when
        # the file is closed.
        os.ftruncate(self._file.fileno(), 0)
        os.pwrite(self._file.fileno(), json.dumps(facts).encode(), 0)


def _this_process() -> dict[str, Any]:
    return {"pid": os.getpid(), "host": socket.gethostname()}


def _names(facts: dict[str, Any], holder: Holder) -> bool:
    """Return whether the content of a lock file names the given holder of a lease."""
    return (facts.get("pid"), facts.get("host")) == (holder.pid, holder.host)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text() or "{}")
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _end_survivor(facts: dict[str, Any]) -> None:
    if "jvm_pid" not in facts or facts.get("host", socket.gethostname()) != socket.gethostname():
        return
    try:
        process = psutil.Process(int(facts["jvm_pid"]))
        # The pid may belong to another process by now.
        if abs(process.create_time() - facts["jvm_started"]) < 1.0:
            process.kill()
            process.wait(KILL_TIMEOUT_S)
    except psutil.NoSuchProcess:
        return
