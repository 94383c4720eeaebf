"""Sorted runs: a query's results of some batches, in order, from which pages are cut.

    result files     b17  b17  b18  b18       pairs of all queries, as the buckets wrote them
      -> run         17.1 17.2 ... | 18.1     one query's results in order, as Arrow
      -> pages       rows 5 to 9 of the run   no copy, no sort

A batch is sorted when one of its results is first read, and not again while its run is cached. So the cost of
a page depends only on the page's own rows. The cursor "17.250" points to the row that is 250 rows after the
start of batch 17 in its run. Committed batches never change, so a run never changes, even if the files of its
batches are merged.

A small run is in memory. A larger run is an unnamed file mapped into memory. The operating system evicts the
file's pages when it needs memory, and deletes the file once no reader is left or the process ends.

Readers that follow a query need a run of a few rows for nearly every batch, and never read it again. So a run
in memory is dropped after a minute without use. If runs stayed until the limit was reached, the memory of a
service would grow for hours. The rows of a small run take less memory than the Arrow objects around them, so
the size of a run includes these objects.

A run is built when a page needs it: from the page's batches and, for a reader that continues, also from later
batches.
"""

from __future__ import annotations

import mmap
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import accumulate, chain, takewhile
from pathlib import Path

import duckdb
import pyarrow as pa

from catalog.store.store import Store
from catalog.values.query import Query
from operators.storage.folder import Folder
from planner.families.families import family_of
from service.errors import CorruptResults, DiskFailed
from service.results.pages.page import Span
from service.results.pages.row_order import row_order
from service.results.pages.spans import Spans
from service.results.query_rows import family_files, not_whole, query_sql, reading
from service.results.result_sql import order_sql

#: Size, in bytes, above which a run is stored in a file.
FILE_FROM_BYTES = 8 << 20
#: Maximum total bytes of runs in memory, and of runs in files.
MEMORY_BYTES = 64 << 20
DISK_BYTES = 2 << 30
#: How long an unused run in memory is kept, seconds.
KEPT_S = 60.0
#: Bytes of Arrow's and Python's objects per run, per column, and per batch (measured).
_RUN_BYTES, _COLUMN_BYTES, _BATCH_BYTES = 2048, 1024, 160
#: Maximum number of rows in a run, unless a single batch has more.
_ROWS_PER_RUN = 1 << 20
#: For a reader that reads page after page, each run is _AHEAD_TIMES as long as the run before, up to
#: _ROWS_AHEAD rows.
_AHEAD_TIMES = 4
_ROWS_AHEAD = 1 << 18
#: Rows read from DuckDB at a time.
_ROWS_AT_A_TIME = 1 << 17
#: Columns that rows are sorted by in memory, in addition to the event time.
_BESIDES = ("_batch", "_pos_a", "_pos_b")
#: Maximum number of runs built at the same time, for different queries.
_LOCKS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Results of one query in order.

    Attributes:
        table: The rows.
        starts: Index of each batch's first row in the table, by batch, ascending.
        memory_bytes: Bytes in memory, including those of Arrow and Python objects.
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
    """Cache of sorted runs.

    Above its limits, the cache drops the least recently used runs. It also drops a run in memory after a
    minute without use.

    Args:
        directory: Directory for files of runs, or None for the system's directory of temporary files.
        file_from_bytes: Size, in bytes, above which a run is stored in a file.
        memory_bytes: Maximum total bytes of runs in memory.
        disk_bytes: Maximum total bytes of runs in files.
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
        #: In order of last use, least recent first.
        self._runs: OrderedDict[tuple[int, int], Run] = OrderedDict()
        self._used_s: dict[tuple[int, int], float] = {}
        self._of_batch: dict[tuple[int, int], Run] = {}
        self._bytes = (0, 0)
        self._lock = threading.Lock()

    def find(self, query_id: int, batch: int) -> Run | None:
        """Return the cached run that contains a query's results of a batch, or None if no run does."""
        with self._lock:
            run = self._of_batch.get((query_id, batch))
            if run is not None:
                key = (query_id, next(iter(run.starts)))
                self._runs.move_to_end(key)
                self._used_s[key] = self._clock_s()
            return run

    def keep(self, query_id: int, run: Run) -> None:
        """Add a run to the cache."""
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
        """Drop all runs."""
        with self._lock:
            for key in tuple(self._runs):
                self._forget(key)

    def written(
        self, schema: pa.Schema, parts: Iterable[pa.RecordBatch], batches: Sequence[tuple[int, int]]
    ) -> Run:
        """Return a run of rows given in sorted order; the caller must check that no rows are missing.

        Args:
            schema: Schema of the rows.
            parts: The rows.
            batches: (batch, number of rows) of the run, ascending.

        Raises:
            DiskFailed: The run needs a file, and the file cannot be written.
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
        """Write rows to an unnamed file; return the memory-mapped table and the file's length."""
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
        """Release in-memory runs that were not used for long; the caller must hold the lock."""
        until_s = self._clock_s() - KEPT_S
        unused = list(takewhile(lambda key: self._used_s[key] <= until_s, self._runs))
        for key in unused:
            if not self._runs[key].disk_bytes:
                self._forget(key)

    def _forget(self, key: tuple[int, int]) -> None:
        """Drop a run if it is cached; the caller must hold the lock."""
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
    """Translate system errors for readers of results.

    Raises:
        DiskFailed: The block raised a system error.
    """
    try:
        yield
    except OSError as error:
        raise DiskFailed(
            f"results cannot be sorted: {(error.strerror or str(error)).lower()}",
            detail="A batch with many results is sorted in a temporary file.",
            hint="Free some space, and ask again.",
        ) from error


class RunMaker:
    """Cuts spans out of runs and makes missing runs; safe to use from many threads.

    Args:
        store: The catalog.
        results_dir: Folder that the manifests' paths are relative to.
        connection: Reads the files, and sorts runs larger than ``sorted_bytes``.
        runs: Cache of runs.
        sorted_bytes: Size, in bytes, of the largest run that is sorted in memory.
    """

    def __init__(
        self,
        store: Store,
        results_dir: Folder,
        connection: duckdb.DuckDBPyConnection,
        runs: Runs,
        sorted_bytes: int,
    ) -> None:
        self._store, self._results_dir = store, results_dir
        self._connection = connection
        self._runs = runs
        self._sorted_bytes = sorted_bytes
        self._spans = Spans(store)
        self._making = tuple(threading.Lock() for _ in range(_LOCKS))

    def cut(self, query: Query, spans: Sequence[Span], reached: int | None) -> Iterator[pa.Table]:
        """Yield the rows of consecutive spans of a query, cut out of its runs.

        Args:
            query: The query.
            spans: Spans; all but the last reach to the end of their batch.
            reached: Last batch that the reader has read, or None at the first page.
        """
        waiting = list(spans)
        while waiting:
            run = self._run(query, waiting, reached)
            starts = run.starts
            here = [span for span in waiting if span.batch in starts]
            first = starts[here[0].batch] + here[0].first
            yield run.table.slice(first, sum(span.rows for span in here))
            del waiting[: len(here)]
            reached = here[-1].batch

    def _run(self, query: Query, spans: Sequence[Span], reached: int | None) -> Run:
        """Return the run that has the first span; if missing, build it with as many spans as allowed."""
        first = spans[0].batch
        if (run := self._runs.find(query.id, first)) is not None:
            return run
        with self._making[query.id % _LOCKS]:
            if (run := self._runs.find(query.id, first)) is not None:
                return run
            before = None if reached is None else self._runs.find(query.id, reached)
            ahead = 0
            if before is not None and before.last == reached:
                ahead = min(_AHEAD_TIMES * before.table.num_rows, _ROWS_AHEAD)
            try:
                run = self._made(query, self._batches_of_run(query, spans, ahead))
            except CorruptResults:
                if not ahead:
                    raise
                # A damaged file of a later batch is not a reason to refuse this page.
                run = self._made(query, self._batches_of_run(query, spans, 0))
            self._runs.keep(query.id, run)
            return run

    def _batches_of_run(self, query: Query, spans: Sequence[Span], ahead: int) -> list[tuple[int, int]]:
        """Return (batch, results) of a run: the batches of spans, and later ones up to ``ahead`` rows."""
        found: list[tuple[int, int]] = []
        total = 0
        for batch, _, rows in self._spans.batches_of((query.id,), spans[0].batch):
            enough = batch > spans[-1].batch and total + rows > ahead
            if found and (enough or total + rows > _ROWS_PER_RUN):
                break
            found.append((batch, rows))
            total += rows
        if not found or found[0][0] != spans[0].batch:
            # The batch was dropped after the page was planned.
            raise CorruptResults(f"results of batch {spans[0].batch} are not kept any more")
        return found

    def _made(self, query: Query, batches: Sequence[tuple[int, int]]) -> Run:
        """Read and sort a query's results of some batches."""
        numbers = [batch for batch, _ in batches]
        files = family_files(self._store, self._results_dir, family_of(query), numbers)
        rows = sum(rows for _, rows in batches)
        with reading(query.name):
            with closing(self._connection.cursor()) as cursor:
                besides = ("_event_time", *_BESIDES)
                text = query_sql(cursor, self._store, query, files, numbers, besides=besides)
                found = _up_to(cursor.sql(text).to_arrow_reader(_ROWS_AT_A_TIME), self._sorted_bytes)
            if found is not None:
                run = self._runs.written(*_in_order(found), batches)
            else:
                with closing(self._connection.cursor()) as cursor:
                    text = query_sql(cursor, self._store, query, files, numbers)
                    parts = cursor.sql(f"{text} ORDER BY {order_sql()}").to_arrow_reader(_ROWS_AT_A_TIME)
                    run = self._runs.written(parts.schema, parts, batches)
        if run.table.num_rows != rows:
            raise not_whole(query, numbers[0], numbers[-1], run.table.num_rows, rows)
        return run


def _up_to(parts: pa.RecordBatchReader, most_bytes: int) -> pa.Table | None:
    """Return all rows of a reader, or None if they exceed ``most_bytes``."""
    found: list[pa.RecordBatch] = []
    size = 0
    for part in parts:
        found.append(part)
        size += part.nbytes
        if size > most_bytes:
            return None
    return pa.Table.from_batches(found, parts.schema)


def _in_order(rows: pa.Table) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Sort rows and return them in parts, without the last columns, which are only sort keys."""
    results = rows.select(range(rows.num_columns - len(_BESIDES)))
    # Select by position, since an output may have the name of one of these columns.
    event_time, batch, *positions = rows.columns[results.num_columns - 1 :]
    order = row_order([batch, event_time, *positions])
    firsts = range(0, len(order), _ROWS_AT_A_TIME)
    parts = (results.take(pa.array(order[first : first + _ROWS_AT_A_TIME])) for first in firsts)
    return results.schema, (batch for part in parts for batch in part.combine_chunks().to_batches())
