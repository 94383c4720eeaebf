"""Limits of an evaluation: a time limit that interrupts it, and a maximum growth of memory.

DuckDB's own memory limit does not count intermediate values of functions: twenty nested calls of ``replace``
on values of megabytes, 2,048 rows at a time, use 40 GB.
"""

from __future__ import annotations

import atexit
import functools
import os
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb

#: Time limit of one expression over the rows of one piece of input: 30 s, which is 30 µs per row for a
#: million rows.
TIME_LIMIT_S: Final = 30.0
#: Memory by which the process may grow during an evaluation.
GROWTH_BYTES: Final = 2 << 30
#: Errors that DuckDB raises if a limit is reached.
FAILURES: Final = (duckdb.OutOfMemoryException, duckdb.InterruptException, MemoryError)

#: Interval at which the time limit is checked.
_LOOK_S: Final = 0.5
_STATM: Final = Path("/proc/self/statm")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class Limits:
    """Limits of all evaluations of a process, checked by one thread, because starting a thread takes 1 ms."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._deadlines: dict[duckdb.DuckDBPyConnection, float] = {}
        self._without = resource.getrlimit(resource.RLIMIT_DATA)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="expressions", daemon=True)
        self._thread.start()
        atexit.register(self._end)

    @contextmanager
    def limited(self, cursor: duckdb.DuckDBPyConnection, seconds: float) -> Iterator[None]:
        """Interrupt a cursor after ``seconds``; let the process grow by at most ``GROWTH_BYTES`` of memory.

        Raises:
            duckdb.InterruptException, duckdb.OutOfMemoryException, MemoryError: A limit was reached.
        """
        with self._lock:
            if not self._deadlines:
                self._limit_memory()
            self._deadlines[cursor] = time.monotonic() + seconds
        try:
            yield
        finally:
            with self._lock:
                del self._deadlines[cursor]
                if not self._deadlines:
                    resource.setrlimit(resource.RLIMIT_DATA, self._without)

    def _limit_memory(self) -> None:
        soft, hard = self._without
        data = int(_STATM.read_text().split()[5]) * _PAGE
        growing = data + GROWTH_BYTES
        if soft == resource.RLIM_INFINITY or growing < soft:
            resource.setrlimit(resource.RLIMIT_DATA, (growing, hard))

    def _run(self) -> None:
        while not self._ending.wait(_LOOK_S):
            with self._lock:
                for cursor, deadline in self._deadlines.items():
                    if time.monotonic() > deadline:
                        cursor.interrupt()

    def _end(self) -> None:
        # The thread must end before the process, because the thread refers to DuckDB's objects, which would
        # be reported as leaks.
        self._ending.set()
        self._thread.join()


#: Limits of this process, created on first use, because a fork does not inherit threads.
limits = functools.cache(Limits)
