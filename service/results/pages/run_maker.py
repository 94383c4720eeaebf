"""Sorted runs, made when a page needs them: of its batches, or of later ones too for a steady reader."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing

import duckdb
import pyarrow as pa

from catalog.store.store import Store
from catalog.values.query import Query
from operators.storage.folder import Folder
from planner.families.families import family_of
from service.errors import CorruptResults
from service.results.pages.page import Span
from service.results.pages.query_rows import family_files, not_whole, query_sql, reading
from service.results.pages.spans import Spans
from service.results.result_sql import order_sql
from service.results.row_order import row_order
from service.results.runs import Run, Runs

#: Most rows of a run, unless one batch has more.
_ROWS_PER_RUN = 1 << 20

#: For a reader that continues, each run is _AHEAD_TIMES as long as the one before, at most _ROWS_AHEAD rows.
_AHEAD_TIMES = 4
_ROWS_AHEAD = 1 << 18

#: Rows read from DuckDB at a time.
_ROWS_AT_A_TIME = 1 << 17

#: Columns that rows are sorted by in memory, in addition to the event time.
_BESIDES = ("_batch", "_pos_a", "_pos_b")

#: Most runs made at the same time, for different queries.
_LOCKS = 64


class RunMaker:
    """Cutter of spans out of runs, which makes missing runs; safe to use from many threads.

    Args:
        store: The catalog.
        results_dir: Folder that the manifests' paths are relative to.
        connection: Reads the files, and sorts runs that are not sorted in memory.
        runs: Where runs are kept.
        sorted_bytes: Largest run that is sorted in memory, bytes.
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
            spans: All but the last reach to the end of their batch.
            reached: Batch that the reader comes from.
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
        """Return a run that has the first span; if there is none, make one with as many spans as allowed."""
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
        """Return (batch, results) for the batches of a run: those of spans, and up to ``ahead`` rows more."""
        found: list[tuple[int, int]] = []
        total = 0
        for batch, _, rows in self._spans.batches_of((query.id,), spans[0].batch):
            enough = batch > spans[-1].batch and total + rows > ahead
            if found and (enough or total + rows > _ROWS_PER_RUN):
                break
            found.append((batch, rows))
            total += rows
        if not found or found[0][0] != spans[0].batch:
            # Dropped since the page was planned.
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
    """Return all rows of a reader; None if they exceed ``most_bytes``."""
    found: list[pa.RecordBatch] = []
    size = 0
    for part in parts:
        found.append(part)
        size += part.nbytes
        if size > most_bytes:
            return None
    return pa.Table.from_batches(found, parts.schema)


def _in_order(rows: pa.Table) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return rows in order, in parts, without the last columns, which only serve for sorting."""
    results = rows.select(range(rows.num_columns - len(_BESIDES)))
    # By position, since an output may have the name of one of these columns.
    event_time, batch, *positions = rows.columns[results.num_columns - 1 :]
    order = row_order([batch, event_time, *positions])
    firsts = range(0, len(order), _ROWS_AT_A_TIME)
    parts = (results.take(pa.array(order[first : first + _ROWS_AT_A_TIME])) for first in firsts)
    return results.schema, (batch for part in parts for batch in part.combine_chunks().to_batches())
