"""Processes of a running service: what they are, and what CPU time and memory they use."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import psutil

Value = TypeVar("Value")
#: Process id and kind.
Process = tuple[int, str]


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
