"""The lock of a data directory, and the lock of an engine that hangs out of reach."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from service.engine.ownership.catalog_lease import this_process
from service.engine.ownership.engine_lock import EngineLock
from service.errors import DataDirInUse

ROOT = Path(__file__).parents[4]
_HOLDER = """
import sys
from pathlib import Path
from service.engine.ownership.engine_lock import EngineLock
lock = EngineLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held(path: Path) -> Iterator[int]:
    """Let another process hold the lock, and yield its id."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield holder.pid
        holder.stdin.close()


def test_a_lock_that_is_held_is_refused_and_free_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "engine.lock"
    lock = EngineLock(path)
    with held(path) as pid:
        with pytest.raises(DataDirInUse, match="in use") as refused:
            lock.acquire()
        assert f"Process {pid} runs" in str(refused.value)
    lock.acquire()
    lock.release()


def test_the_lock_of_an_engine_that_has_lost_its_lease_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "engine.lock"
    lock, third, me = EngineLock(path), EngineLock(path), this_process(tmp_path)
    with held(path) as pid:
        for other in (replace(me, pid=pid + 1), replace(me, pid=pid, host="elsewhere")):
            with pytest.raises(DataDirInUse):
                lock.acquire(other)
        lock.acquire(replace(me, pid=pid))
        with pytest.raises(DataDirInUse):
            third.acquire()
    lock.release()
    third.acquire()
    third.release()
