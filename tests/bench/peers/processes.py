"""A program in a process of its own: its answer, how long it took in all, and the most memory it had."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil

#: How often memory is looked at; a look takes a millisecond.
_LOOK_EVERY_S = 0.5


class ProgramFailed(Exception):
    """A program ended with an error, or not in time."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A program that ended well.

    Attributes:
        stdout: What it printed.
        seconds: From its start to its end.
        peak_bytes: Most resident memory, children included; shared pages count once for each process.
    """

    stdout: str
    seconds: float
    peak_bytes: int


def run_program(
    command: Sequence[str], timeout_s: float, environment: Mapping[str, str] | None = None
) -> Finished:
    """Run a program to its end.

    Raises:
        ProgramFailed: It did not end well, or took too long; none of its processes is left.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        began_s = time.monotonic()
        process = subprocess.Popen(command, stdout=out, stderr=errors, text=True, env=environment)
        watch = _Memory(process.pid)
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ProgramFailed(f"not done after {timeout_s:,.0f} s") from None
        finally:
            seconds = time.monotonic() - began_s
            watch.stop()
            watch.kill_rest()
            process.wait()
        out.seek(0)
        errors.seek(0)
        if status != 0:
            raise ProgramFailed(f"exit status {status}\n{out.read()[-4000:]}\n{errors.read()[-8000:]}")
        return Finished(out.read(), seconds, watch.peak_bytes)


class _Memory:
    """Looks at a process and its children now and then."""

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self._root = psutil.Process(pid)
        self._known = {pid: self._root}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()
        self._thread.join()

    def kill_rest(self) -> None:
        """End what is left of the program: no JVM may stay behind."""
        self._look()
        for process in self._known.values():
            with contextlib.suppress(psutil.NoSuchProcess):  # it ended by itself
                process.kill()

    def _watch(self) -> None:
        while not self._stopped.wait(_LOOK_EVERY_S):
            self._look()

    def _look(self) -> None:
        held_bytes = 0
        with contextlib.suppress(psutil.NoSuchProcess):  # ended between two looks; its children are known
            self._known |= {child.pid: child for child in self._root.children(recursive=True)}
        for process in self._known.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                held_bytes += process.memory_info().rss
        self.peak_bytes = max(self.peak_bytes, held_bytes)
