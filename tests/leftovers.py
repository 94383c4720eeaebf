"""Leftovers of a test: processes, threads, sockets, files, and settings of this process.

A look before a test is compared with one after it. Both see fixtures of a wider scope, because pytest makes
them before those of the test itself. Things that end by themselves get some time to end.
"""

from __future__ import annotations

import gc
import itertools
import logging
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil
import pytest

#: How long what is left may take to end, on a busy machine.
LIMIT_S = 60.0
_STEP_S = 0.02
_STEPS_OF_GARBAGE = 10

#: Threads kept for later calls, by how their names begin: of libraries, and of ``operators.filters.limits``.
_KEPT_THREADS = ("AnyIO worker thread", "asyncio_", "expressions")
#: Processes that ``multiprocessing`` keeps.
_KEPT_PROCESSES = ("from multiprocessing.resource_tracker", "from multiprocessing.forkserver")
#: Where packages are, some of which keep files of theirs open.
_INSTALLED = (sys.prefix, sys.base_prefix, "/usr/")

#: Kind and identity.
Thing = tuple[str, Hashable]
#: Kinds that are left behind also where they are gone or have another value.
_SET = frozenset({"variable", "setting"})
#: Files and variables of pytest, its plugins and ``multiprocessing``, by how their names begin.
_OF_TOOLS = ("PYTEST_CURRENT_TEST", ".", "__pycache__", "pymp-")


class Leftovers:
    """Looks at this process and at some directories.

    Args:
        directories: Where new files are left behind.
    """

    def __init__(self, *directories: Path) -> None:
        self._directories = directories
        self._kept: set[Thing] = set()

    def look(self) -> dict[Thing, str]:
        """Return what there is now, with its name."""
        return dict(_things(self._directories))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        """Keep what fixtures of wider scopes make. Hooks of a conftest see none of those of the session."""
        if fixturedef.scope == "function":
            return (yield)
        before = self.look()
        try:
            return (yield)
        finally:
            self.keep_since(before)

    def keep_since(self, before: Mapping[Thing, str]) -> None:
        """Take what has come for what a fixture of a wider scope has made."""
        self._kept |= self.look().keys() - before.keys()

    def since(self, before: Mapping[Thing, str], limit_s: float = LIMIT_S) -> list[str]:
        """Return in words what is left behind, once what ends by itself has ended.

        Args:
            before: What there was.
            limit_s: How long that may take.
        """
        deadline_s = time.monotonic() + limit_s
        for step in itertools.count():
            left = self._left(before)
            if not left or time.monotonic() >= deadline_s:
                return left
            # Garbage may hold a socket or a file. It is mostly young: to look through all takes long.
            if step == 0:
                gc.collect(1)
            elif step % _STEPS_OF_GARBAGE == 0:
                gc.collect()
            time.sleep(_STEP_S)
        raise AssertionError("unreachable")

    def _left(self, before: Mapping[Thing, str]) -> list[str]:
        now = self.look()
        changed = {thing for thing in before.keys() | now.keys() if before.get(thing) != now.get(thing)}
        gone = {thing for thing in changed - now.keys() if thing[0] not in _SET}
        left = changed - gone - self._kept
        return [_said(thing, before.get(thing), now.get(thing)) for thing in sorted(left, key=repr)]


def _said(thing: Thing, before: str | None, now: str | None) -> str:
    kind, key = thing
    return f"{kind} {key}: {now!r} instead of {before!r}" if kind in _SET else f"{kind} {now}"


def _things(directories: Sequence[Path]) -> Iterator[tuple[Thing, str]]:
    for thread in threading.enumerate():
        if not thread.name.startswith(_KEPT_THREADS):
            yield ("thread", thread.ident), thread.name
    for pid in _children():
        # By its command: a server of the session that a test starts again is the one it was.
        command = _command(pid)
        if not any(kept in command for kept in _KEPT_PROCESSES):
            yield ("process", command), command
    yield from _descriptors()
    for directory in directories:
        for entry in os.scandir(directory):
            if not entry.name.startswith(_OF_TOOLS):
                yield ("file", entry.path), entry.path
    for name, value in os.environ.items():
        if not name.startswith(_OF_TOOLS):
            yield ("variable", name), value
    yield ("setting", "working directory"), os.readlink("/proc/self/cwd")
    yield ("setting", "umask"), _umask()
    yield ("setting", "sys.path"), repr(sys.path)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
        yield ("setting", number.name), repr(signal.getsignal(number))
    logger = logging.getLogger()
    handlers = [type(h).__name__ for h in logger.handlers if not h.__module__.startswith("_pytest")]
    yield ("setting", "root logger"), f"{logging.getLevelName(logger.level)} {handlers}"


def _children() -> Iterator[int]:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # there are none, which is known without a look at every process of the machine
        return
    # Not of /proc/self/task/*/children, which may miss one while others end.
    for child in psutil.Process().children():
        yield child.pid


def _command(pid: int) -> str:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").strip()
    except OSError:
        command = b""
    return command.decode(errors="replace")[:300] or "ended, not waited for"


def _descriptors() -> Iterator[tuple[Thing, str]]:
    """Yield open sockets and regular files of this process, by descriptor."""
    for entry in os.scandir("/proc/self/fd"):
        try:
            target, mode = os.readlink(entry.path), os.stat(entry.path).st_mode
        except OSError:  # that of this very listing
            continue
        if stat.S_ISSOCK(mode):
            yield ("socket", target), target
        elif stat.S_ISREG(mode) and not target.startswith(_INSTALLED):
            yield ("open file", (entry.name, target)), target


def _umask() -> str:
    """Read the umask where nothing needs to be set for it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return line.split()[1]
    return "unknown"
