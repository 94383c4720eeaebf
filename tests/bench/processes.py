"""Processes: programs that are run to their end, and CPU time and memory of a process with all below it."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
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
        began_s, peak_bytes = time.monotonic(), 0
        process = subprocess.Popen(command, stdout=out, stderr=errors, text=True, env=environment)
        known = {process.pid: psutil.Process(process.pid)}
        try:
            while process.poll() is None:
                if time.monotonic() > began_s + timeout_s:
                    raise ProgramFailed(f"not done after {timeout_s:,.0f} s")
                peak_bytes = max(peak_bytes, _held_bytes(process.pid, known))
                with contextlib.suppress(psutil.NoSuchProcess):  # it ended between both looks
                    if look is not None:
                        look(process.pid)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_EVERY_S)
            seconds = time.monotonic() - began_s
        finally:
            for one in known.values():  # no JVM may stay behind
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            process.wait()
        out.seek(0)
        errors.seek(0)
        if process.returncode != 0:
            raise ProgramFailed(
                f"exit status {process.returncode}\n{out.read()[-4000:]}\n{errors.read()[-8000:]}"
            )
        return Finished(out.read(), seconds, peak_bytes)


def _held_bytes(pid: int, known: dict[int, psutil.Process]) -> int:
    """Return the resident memory of a process and all that it was ever seen to start, which is noted."""
    with contextlib.suppress(psutil.NoSuchProcess):  # ended since; its children are known
        known |= {child.pid: child for child in known[pid].children(recursive=True)}
    held_bytes = 0
    for process in known.values():
        with contextlib.suppress(psutil.NoSuchProcess):
            held_bytes += process.memory_info().rss
    return held_bytes


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
        return process.name() if module == "service.job.workers.fork_server" else module
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
