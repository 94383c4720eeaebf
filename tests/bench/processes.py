"""Processes: programs that are run to their end, and CPU time and memory of a process with all below it."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

Value = TypeVar("Value")
#: Process id and kind.
Process = tuple[int, str]
#: How often processes are looked at; a look takes a millisecond.
_LOOK_EVERY_S = 0.2


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
    command: Sequence[str],
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    look: Callable[[int], None] | None = None,
) -> Finished:
    """Run a program to its end.

    Args:
        command: Its command.
        timeout_s: When it is given up.
        environment: Its variables; None for those of this process.
        look: Called with its process id five times a second.

    Raises:
        ProgramFailed: It did not end well, or took too long; none of its processes is left.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        began_s = time.monotonic()
        process = subprocess.Popen(command, stdout=out, stderr=errors, text=True, env=environment)
        watch = _Watch(process.pid, look)
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


class _Watch:
    """Looks at a process and its children now and then."""

    def __init__(self, pid: int, look: Callable[[int], None] | None) -> None:
        self.peak_bytes = 0
        self._pid, self._also = pid, look
        self._known = {pid: psutil.Process(pid)}
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
            if self._also is not None:
                with contextlib.suppress(psutil.NoSuchProcess):  # it ended between both looks
                    self._also(self._pid)

    def _look(self) -> None:
        held_bytes = 0
        with contextlib.suppress(psutil.NoSuchProcess):  # ended between two looks; its children are known
            children = self._known[self._pid].children(recursive=True)
            self._known |= {child.pid: child for child in children}
        for process in self._known.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                held_bytes += process.memory_info().rss
        self.peak_bytes = max(self.peak_bytes, held_bytes)


def of_each(pid: int, value: Callable[[psutil.Process], Value]) -> Iterator[tuple[Process, Value]]:
    """Yield a value of a process and of all below it; a worker that idles may end at any moment."""
    root = psutil.Process(pid)
    for process in (root, *root.children(recursive=True)):
        try:
            yield (process.pid, kind_of(process)), value(process)
        except psutil.Error:
            continue


def kind_of(process: psutil.Process) -> str:
    """Return what a process is in this system."""
    command = process.cmdline()
    if "-m" in command:
        module = command[command.index("-m") + 1]
        if any(part.endswith("python_launcher.py") for part in command):
            return "launcher"
        if module == "api.main":
            return "service"
        # What was forked from it has its command line, and a name of its own.
        return process.name() if module == "service.workers.fork_server" else module
    return "JVM" if command and Path(command[0]).name == "java" else "service"


def cpu_times(pid: int) -> dict[Process, float]:
    """Return the CPU time of each process so far, seconds."""

    def used(process: psutil.Process) -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    return dict(of_each(pid, used))


def cores_used(pid: int, seconds: float) -> dict[str, float]:
    """Return the CPU time per second that is used in a stretch of time, by kind of process."""
    before, began_s = cpu_times(pid), time.monotonic()
    time.sleep(seconds)
    after, took_s = cpu_times(pid), time.monotonic() - began_s
    found: dict[str, float] = defaultdict(float)
    for process, cpu_s in after.items():
        found[process[1]] += (cpu_s - before.get(process, 0.0)) / took_s
    return dict(found)
