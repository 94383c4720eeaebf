"""Sorted runs: a query's results of some batches, in order, which pages are cut out of.

    result files     b17  b17  b18  b18       pairs of all queries, as the buckets wrote them
      -> run         17.1 17.2 ... | 18.1     one query's results in order, as Arrow
      -> pages       rows 5 to 9 of the run   no copy, no sort

A batch is sorted when one of its results is first read, and not again while its run is kept: a page then
costs what its own rows cost. The row of a cursor "17.250" is the start of batch 17 in its run plus 250.
Committed batches never change, so a run never does, wherever the files of its batches are merged into.

A small run is in memory. A larger one is a file without a name, mapped into memory: the system drops its
pages when it needs the memory, and the file itself when nobody reads it any more, or the process ends.

Readers that follow a query have a run of nearly every batch, of a few rows each, and never come back. So a
run in memory goes when nobody has used it for a minute: if it stayed until the limit is reached, a service
would grow for hours. A small run takes less for its rows than for Arrow's objects, so these count.
"""

from __future__ import annotations

import mmap
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import accumulate, chain, takewhile
from pathlib import Path

import pyarrow as pa

from service.errors import DiskFailed

#: A run of more bytes is a file.
FILE_FROM_BYTES = 8 << 20
#: Bytes of runs that are kept in memory, and in files.
MEMORY_BYTES = 64 << 20
DISK_BYTES = 2 << 30
#: How long a run in memory is kept that nobody uses.
KEPT_S = 60.0
#: What Arrow and Python take for a run without rows, for each column, and for each batch (measured).
_RUN_BYTES, _COLUMN_BYTES, _BATCH_BYTES = 2048, 1024, 160


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Results of one query in order.

    Attributes:
        table: The rows.
        starts: By batch, the number of its first row in the table; ascending.
        memory_bytes: Bytes in memory, those of its objects included.
        disk_bytes: Bytes in a file.
    """

    table: pa.Table
    starts: dict[int, int]
    memory_bytes: int
    disk_bytes: int

    @property
    def last(self) -> int:
        """Last batch."""
        return next(reversed(self.starts))


class Runs:
    """Runs that were read lately; those that were not used for long, or for longest, are let go.

    Args:
        directory: Where files of runs are; None: where the system has temporary files.
        file_from_bytes: A run of more bytes is a file.
        memory_bytes: Bytes of runs that are kept in memory.
        disk_bytes: Bytes of runs that are kept in files.
        clock_s: Monotonic clock.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        file_from_bytes: int = FILE_FROM_BYTES,
        memory_bytes: int = MEMORY_BYTES,
        disk_bytes: int = DISK_BYTES,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._file_from_bytes = file_from_bytes
        self._most = (memory_bytes, disk_bytes)
        self._clock_s = clock_s
        #: In the order of their last use.
        self._runs: OrderedDict[tuple[int, int], Run] = OrderedDict()
        self._used_s: dict[tuple[int, int], float] = {}
        self._of_batch: dict[tuple[int, int], Run] = {}
        self._bytes = (0, 0)
        self._lock = threading.Lock()

    def find(self, query_id: int, batch: int) -> Run | None:
        """Return a run that has a batch's results of a query, if one is kept."""
        with self._lock:
            run = self._of_batch.get((query_id, batch))
            if run is not None:
                key = (query_id, next(iter(run.starts)))
                self._runs.move_to_end(key)
                self._used_s[key] = self._clock_s()
            return run

    def keep(self, query_id: int, run: Run) -> None:
        """Keep a run, as long as it is used."""
        key = (query_id, next(iter(run.starts)))
        with self._lock:
            self._forget(key)
            self._runs[key] = run
            self._used_s[key] = self._clock_s()
            self._of_batch |= {(query_id, batch): run for batch in run.starts}
            self._bytes = (self._bytes[0] + run.memory_bytes, self._bytes[1] + run.disk_bytes)
            while len(self._runs) > 1 and any(
                used > most for used, most in zip(self._bytes, self._most, strict=True)
            ):
                self._forget(next(iter(self._runs)))
            self._forget_unused()

    def clear(self) -> None:
        """Let go of all runs."""
        with self._lock:
            for key in tuple(self._runs):
                self._forget(key)

    def written(
        self, schema: pa.Schema, parts: Iterable[pa.RecordBatch], batches: Sequence[tuple[int, int]]
    ) -> Run:
        """Return the run of rows that come in order; whoever looks must see that they are all.

        Args:
            schema: Schema of the rows.
            parts: The rows.
            batches: (batch, rows) of the run, ascending.

        Raises:
            DiskFailed: It is too large for memory, and its file cannot be written.
        """
        rows = accumulate((rows for _, rows in batches), initial=0)
        starts = dict(zip((batch for batch, _ in batches), rows, strict=False))
        overhead = _RUN_BYTES + _COLUMN_BYTES * len(schema) + _BATCH_BYTES * len(starts)
        waiting: list[pa.RecordBatch] = []
        size = 0
        parts = iter(parts)
        for part in parts:
            waiting.append(part)
            size += part.nbytes
            if size > self._file_from_bytes:
                table, size = self._in_file(schema, waiting, parts)
                return Run(table, starts, overhead, size)
        return Run(pa.Table.from_batches(waiting, schema), starts, overhead + size, 0)

    def _in_file(
        self, schema: pa.Schema, first: list[pa.RecordBatch], parts: Iterable[pa.RecordBatch]
    ) -> tuple[pa.Table, int]:
        """Write rows to a file without a name; return the table mapped from it and its length."""
        with ExitStack() as open_files:
            with _on_disk():
                file = open_files.enter_context(tempfile.TemporaryFile(dir=self._directory))
                writer = open_files.enter_context(pa.ipc.new_file(file, schema))
            for part in chain(first, parts):
                with _on_disk():
                    writer.write_batch(part)
            first.clear()
            with _on_disk():
                writer.close()
                file.flush()
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return pa.ipc.open_file(pa.py_buffer(mapped)).read_all(), len(mapped)

    def _forget_unused(self) -> None:
        """Let go of runs in memory that nobody has used for long, under the lock."""
        until_s = self._clock_s() - KEPT_S
        unused = list(takewhile(lambda key: self._used_s[key] <= until_s, self._runs))
        for key in unused:
            if not self._runs[key].disk_bytes:
                self._forget(key)

    def _forget(self, key: tuple[int, int]) -> None:
        """Let go of a run, if it is there, under the lock."""
        run = self._runs.pop(key, None)
        if run is None:
            return
        del self._used_s[key]
        self._bytes = (self._bytes[0] - run.memory_bytes, self._bytes[1] - run.disk_bytes)
        for batch in run.starts:
            if self._of_batch.get((key[0], batch)) is run:
                del self._of_batch[key[0], batch]


@contextmanager
def _on_disk() -> Iterator[None]:
    """Say what the system's error means for whoever wants results.

    Raises:
        DiskFailed: The block raised an error of the system.
    """
    try:
        yield
    except OSError as error:
        raise DiskFailed(
            f"results cannot be sorted: {(error.strerror or str(error)).lower()}",
            detail="A batch with many results is sorted in a temporary file.",
            hint="Free some space, and ask again.",
        ) from error
