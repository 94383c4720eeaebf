"""Results of a query, page by page.

A pair is stored once, with its route; a query is a view over the routes that name it. The results of a query
are ordered by (batch, event time, position of the a row, position of the b row). The name of a query refers
to a series of queries: each update adds a query to the series, which replaces the query before. A series
has the results of all its queries, oldest query first. A page never has results of two queries with different
columns. A cursor is the position of a reader:

    "7.250"     everything before batch 7, and the first 250 of the query's results in batch 7

Committed batches never change, so a cursor stays valid as long as the results are kept. A reader whose cursor
is before the kept results gets an error (``results.pages.result_expiry``). Pages are cut out of sorted runs
(``results.pages``). A missing run is built from exactly the batches that the page needs, since the catalog
has the number of results per batch and query. For a reader that reads page after page, the run also has
later batches.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain, groupby, pairwise
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from catalog.store.store import Store
from catalog.values.query import Query
from operators.storage.folder import Folder
from planner.families.families import family_of
from service.errors import CorruptResults, InvalidCursor
from service.results.pages.page import ResultExport, ResultPage, Span, format_cursor, parse_cursor
from service.results.pages.runs import RunMaker, Runs
from service.results.pages.spans import Spans, of_equal_columns, spans_until
from service.results.query_rows import family_files, not_whole, query_sql, reading
from service.results.result_sql import order_sql

#: Maximum number of rows in a page: about 10 MB as JSON, read in well below a second.
MAX_PAGE_ROWS = 10_000

#: DuckDB's memory limit in a reader that may spill to disk.
SPILLING_MEMORY = "256MB"

#: Turns off DuckDB's cache, which would keep an entry for each file until the connection is closed.
_NO_FILE_CACHE = {"enable_external_file_cache": "false"}

#: Maximum number of rows in a table of an export.
_ROWS_PER_TABLE = 1 << 16

#: Maximum bytes of results that are sorted in memory.
SORTED_BYTES = 512 << 20


class ResultReader:
    """Reads results of running and of removed queries; safe to use from many threads.

    Args:
        store: The catalog.
        results_dir: Folder that the manifests' paths are relative to.
        threads: Threads that DuckDB may use for one page.
        spill_dir: Directory to which DuckDB spills when sorting needs more than ``SPILLING_MEMORY``. None to
            sort in memory only.
        runs: Cache of sorted runs, or None for a cache with default limits.
        sorted_bytes: Maximum bytes of a run that is sorted in memory; larger runs are sorted by DuckDB, which
            may spill.
    """

    def __init__(
        self,
        store: Store,
        results_dir: Folder,
        *,
        threads: int = 1,
        spill_dir: Path | None = None,
        runs: Runs | None = None,
        sorted_bytes: int = SORTED_BYTES,
    ) -> None:
        self._store = store
        self._spans = Spans(store)
        self._runs = runs or Runs()
        self._results_dir = results_dir
        spilling = {} if spill_dir is None else {"temp_directory": str(spill_dir)}
        if spilling:
            spilling["memory_limit"] = SPILLING_MEMORY
        self._connection = duckdb.connect(config={"threads": threads, **_NO_FILE_CACHE, **spilling})
        self._maker = RunMaker(store, results_dir, self._connection, self._runs, sorted_bytes)

    def close(self) -> None:
        """Release DuckDB's memory and all runs."""
        self._runs.clear()
        self._connection.close()

    def count(self, series: int) -> int:
        """Return how many results a series has so far."""
        totals = self._store.counts.totals()
        return sum(totals.get(query_id, 0) for query_id in self._store.queries.series_ids(series))

    def page(self, series: int, after: str | None, limit: int) -> ResultPage:
        """Read the results that follow a cursor.

        Args:
            series: Id of the series, which is the id of its first query.
            after: Cursor, or None for the first results.
            limit: Maximum number of rows, 1 to ``MAX_PAGE_ROWS``.

        Raises:
            InvalidCursor: ``after`` is not a cursor of this series.
            ResultsExpired: Results after ``after`` are no longer kept.
            QueryNotFound: The series does not exist, or is no longer kept.
            CorruptResults: The files differ from the manifests.
        """
        _check_limit(limit)
        page = self._look(series, after, limit, though_empty=True)
        assert page is not None
        return page

    def page_if_any(self, series: int, after: str | None, limit: int) -> ResultPage | None:
        """Read the results that follow a cursor, as ``page`` does, or return None if there are none yet."""
        _check_limit(limit)
        return self._look(series, after, limit, though_empty=False)

    def _look(self, series: int, after: str | None, limit: int, *, though_empty: bool) -> ResultPage | None:
        again = False
        while True:
            found, has_more, dropped = self._spans.of_page(series, after, limit)
            if not found and not though_empty:
                return None
            try:
                page = self._page(series, after, found, has_more)
            except (CorruptResults, duckdb.IOException):
                # If the batch was dropped during the read, the retry refuses the cursor or starts the page
                # later. If its file was merged during the read, the retry finds the batch in another file.
                dropped_now = found and found[0].batch < self._store.retention.kept_from()[0]
                merged = found and not again and found[0].batch < self._store.result_files.merged_until()
                if not dropped_now and not merged:
                    raise
                again = True
                continue
            if after is not None or dropped is None:
                return page
            return replace(page, dropped=dropped.results, kept_since_us=self._store.retention.kept_from()[1])

    def _page(self, series: int, after: str | None, found: Sequence[Span], has_more: bool) -> ResultPage:
        """Read the rows of the leading spans that have the same columns."""
        ids = (
            {span.query_id for span in found} or set(self._store.queries.series_ids(series)[-1:]) or {series}
        )
        queries = {query_id: self._store.queries.by_id(query_id).query for query_id in ids}
        spans = of_equal_columns(found, queries)
        has_more = has_more or len(spans) < len(found)
        groups = [list(group) for _, group in groupby(spans, key=lambda span: span.query_id)]
        newest = queries[spans[-1].query_id if spans else max(ids)]
        reached = None if after is None else parse_cursor(after)[0]
        tables = [
            table for group in groups for table in self._maker.cut(queries[group[0].query_id], group, reached)
        ]
        table = pa.concat_tables(tables) if tables else self._empty(newest)
        next_cursor = format_cursor(spans[-1].batch, spans[-1].first + spans[-1].rows) if spans else after
        return ResultPage(newest.outputs, table, tuple(spans), next_cursor, has_more)

    def export(self, series: int, after: str | None, until: str | None) -> ResultExport:
        """Read all results between two cursors.

        Args:
            series: Id of the series, which is the id of its first query.
            after: Cursor after which to start, or None to start at the first result.
            until: Cursor of the last result to read, or None to read all existing results.

        Raises:
            InvalidCursor: A cursor is not one of this series, or columns change between the cursors.
            ResultsExpired: Results after ``after`` are no longer kept.
            QueryNotFound: The series does not exist, or is no longer kept.
            CorruptResults: The files differ from the manifests; after the first table, the error is raised
                while tables are read.
        """
        found, _, lost = self._spans.of_page(series, after, sys.maxsize)
        spans: Sequence[Span] = found
        if until is not None:
            batch, returned = parse_cursor(until)
            if returned > self._spans.given(series, batch) or (
                after and parse_cursor(after) > (batch, returned)
            ):
                raise InvalidCursor(
                    f'cursor "{until}" is not between "{after or "0.0"}" and the last result of this query',
                    hint="Send a cursor of a later page of this query, or none to read all results so far.",
                )
            spans = spans_until(spans, batch, returned)
        queries = {each: self._store.queries.by_id(each).query for each in {s.query_id for s in spans}}
        alike = of_equal_columns(spans, queries)
        if len(alike) < len(spans):
            end = format_cursor(alike[-1].batch, alike[-1].first + alike[-1].rows)
            raise InvalidCursor(
                f'the columns of the query change after cursor "{end}"',
                detail="The query was updated, and a file can have the columns of one version only.",
                hint=f"Export with until={end}, then export the later results with after={end}.",
            )
        rows = sum(span.rows for span in spans)
        next_cursor = format_cursor(spans[-1].batch, spans[-1].first + spans[-1].rows) if spans else after
        # Start from an explicit cursor, so that results dropped meanwhile raise an error.
        start = format_cursor(spans[0].batch, spans[0].first) if spans else after
        tables = self._tables(series, start, rows)
        first = next(tables) if rows else self.page(series, after, 1).table.slice(0, 0)
        dropped = 0 if lost is None or after is not None else lost.results
        return ResultExport(first.schema, rows, next_cursor, dropped, chain([first], tables))

    def _tables(self, series: int, after: str | None, rows: int) -> Iterator[pa.Table]:
        """Yield the first ``rows`` existing results after a cursor."""
        while rows:
            page = self._look(series, after, min(rows, _ROWS_PER_TABLE), though_empty=False)
            if page is None:
                raise CorruptResults(f'results after cursor "{after}" no longer exist')
            yield page.table
            after, rows = page.next_cursor, rows - page.table.num_rows

    def whole_batches(
        self, query_id: int, batches: Sequence[tuple[int, int]], *, at_a_time: int
    ) -> Generator[tuple[int, pa.RecordBatch]]:
        """Yield all results of a query in order, in parts (batch number, rows) of one batch each.

        Reading many small batches at once takes little more time than reading one of them.

        Args:
            query_id: The query.
            batches: (batch, number of its results according to the catalog), ascending; at least one.
            at_a_time: Approximate number of rows read into memory at a time.

        Raises:
            CorruptResults: The files differ from a manifest; detected after the batch's last row.
        """
        query = self._store.queries.by_id(query_id).query
        family = family_of(query)
        numbers = [batch for batch, _ in batches]
        files = family_files(self._store, self._results_dir, family, numbers)
        found: dict[int, int] = {}
        cursor = self._connection.cursor()
        try:
            text = query_sql(cursor, self._store, query, files, numbers, besides=("_event_time", "_batch"))
            with reading(query.name):
                for part in cursor.sql(f"{text} ORDER BY {order_sql()}").to_arrow_reader(at_a_time):
                    for batch, rows in _by_batch(part):
                        if batch not in found:
                            # Earlier batches must be complete: the caller uses their rows from now on.
                            _check_whole(query, [before for before in batches if before[0] < batch], found)
                        found[batch] = found.get(batch, 0) + rows.num_rows
                        yield batch, rows
        finally:
            cursor.close()
        _check_whole(query, batches, found)

    def _empty(self, query: Query) -> pa.Table:
        """Return an empty table with a query's columns."""
        with closing(self._connection.cursor()) as cursor:
            return cursor.sql(query_sql(cursor, self._store, query, (), ())).to_arrow_table()


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= MAX_PAGE_ROWS:
        raise ValueError(f"limit must be 1 to {MAX_PAGE_ROWS}, not {limit}")


def _by_batch(part: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Split rows, ordered by the batch number in their last column, by batch; drop that column."""
    numbers = part.column(part.num_columns - 1).to_numpy()
    rows = part.select(list(range(part.num_columns - 1)))
    starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist()]
    for start, end in pairwise((*starts, len(numbers))):
        if end > start:
            yield int(numbers[start]), rows.slice(start, end - start)


def _check_whole(query: Query, batches: Sequence[tuple[int, int]], found: Mapping[int, int]) -> None:
    """Refuse results whose rows per batch differ from ``batches``: pairs of (batch, number of rows)."""
    if list(found.items()) != list(batches):
        wanted = dict(batches)
        raise not_whole(query, min(wanted), max(wanted), sum(found.values()), sum(wanted.values()))
