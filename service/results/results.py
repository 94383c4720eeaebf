"""Results of a query, page by page.

A pair is stored once, with its route; a query is a view over the routes that name it. Its results are ordered
by (batch, event time, position of the a row, position of the b row). What has one name for people is a series
of queries, in force one after the other, so the results of a series are theirs in turn. A page never has
results of two of them whose columns differ. A cursor says how far a reader is:

    "7.250"     everything before batch 7, and the first 250 of the query's results in batch 7

Committed batches never change, so a cursor stays good for as long as the results are kept; whoever is behind
what is kept is told so (``results.result_expiry``). Pages are cut out of sorted runs (``results.runs``). One
that is not there yet is made of the batches that the page needs and no others, for the catalog knows how many
results each batch gave the query; for a reader that goes on from page to page it has more batches ahead.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, groupby, pairwise, takewhile
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from catalog.store.retention import DroppedOfSeries
from catalog.store.store import Store
from catalog.values.query import Output, Query
from operators.storage.folder import Folder
from planner.families.families import family_of
from service.errors import CorruptResults, InvalidCursor, ResultsExpired
from service.results.result_check import check_files
from service.results.result_expiry import has_lost
from service.results.result_sql import order_sql, pairs_sql, results_sql
from service.results.row_order import row_order
from service.results.runs import Run, Runs

#: Rows of one page at most: about 10 MB as JSON, and well below a second.
MAX_PAGE_ROWS = 10_000

#: Memory of a reader that may spill.
SPILLING_MEMORY = "256MB"

#: Batches looked up in the catalog at a time.
_BATCHES_PER_LOOKUP = 256

#: Rows of an export that come together.
_ROWS_PER_TABLE = 1 << 16

#: Rows of a run at most, unless one batch has more.
_ROWS_PER_RUN = 1 << 20

#: Of a reader that goes on, each run is so many times as long as the one before, up to so many rows.
_AHEAD_TIMES = 4
_ROWS_AHEAD = 1 << 18

#: Rows that come from DuckDB at a time.
_ROWS_AT_A_TIME = 1 << 17

#: Columns that rows are sorted by in memory, beside the event time.
_BESIDES = ("_batch", "_pos_a", "_pos_b")

#: Bytes of results that are sorted in memory.
SORTED_BYTES = 512 << 20

#: Runs made at the same time, each for other queries.
_LOCKS = 64

#: Table of the routes that are read, in the connection that reads them.
_ROUTES = "_wanted_routes"

_CURSOR = re.compile(r"(\d{1,18})\.(\d{1,18})")


@dataclass(frozen=True, slots=True)
class Span:
    """Results of one batch that stand together.

    Attributes:
        batch: Batch number.
        query_id: Query of the series whose results they are.
        first: Results of the query in that batch before the first one here.
        rows: How many stand here.
    """

    batch: int
    query_id: int
    first: int
    rows: int


@dataclass(frozen=True, slots=True, eq=False)
class ResultPage:
    """Some results of a query, in order.

    Attributes:
        columns: Result columns as declared; ``table`` has ``_event_time`` besides.
        table: The rows.
        spans: Where the rows stand, in order; their ``rows`` add up to the table's.
        next_cursor: Cursor after the last row; None before the first result of all.
        has_more: Whether further results are there already.
        dropped: Results before the first one of all that is kept; only where a reader starts there.
        kept_since_us: Wall clock from which results are kept where some were dropped, µs UTC.
    """

    columns: tuple[Output, ...]
    table: pa.Table
    spans: tuple[Span, ...]
    next_cursor: str | None
    has_more: bool
    dropped: int = 0
    kept_since_us: int | None = None

    def cursors(self) -> Iterator[str]:
        """Yield for every row the cursor after it."""
        for span in self.spans:
            for n in range(span.first + 1, span.first + span.rows + 1):
                yield format_cursor(span.batch, n)


@dataclass(frozen=True, slots=True, eq=False)
class ResultExport:
    """All results between two cursors.

    Attributes:
        schema: Schema of the tables.
        rows: How many results.
        next_cursor: Cursor after the last one; None before the first result of all.
        dropped: Results before the first one of all that is kept; only where a reader starts there.
        tables: The results in order, read as they are asked for.
    """

    schema: pa.Schema
    rows: int
    next_cursor: str | None
    dropped: int
    tables: Iterator[pa.Table]


def format_cursor(batch: int, returned: int) -> str:
    """Return the cursor after ``returned`` results of ``batch``."""
    return f"{batch}.{returned}"


def parse_cursor(text: str) -> tuple[int, int]:
    """Return batch and number of results returned of it.

    >>> parse_cursor("7.250")
    (7, 250)

    Raises:
        InvalidCursor: The text is not a cursor.
    """
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise InvalidCursor(
            f'"{text}" is not a cursor',
            hint='Send "next_cursor" of an earlier page, or nothing to start at the first result.',
        )
    return int(match[1]), int(match[2])


class ResultReader:
    """Reads results of running and of removed queries; safe to use from many threads.

    Args:
        store: The catalog.
        results_dir: Folder that the manifests' paths are relative to.
        threads: Threads that DuckDB may use for one page.
        spill_dir: Where DuckDB puts what is more than ``SPILLING_MEMORY`` while it sorts; None sorts in
            memory.
        runs: Where sorted runs are kept; None: as they are by default.
        sorted_bytes: Rows of a run are sorted in memory up to so many bytes; DuckDB, which may spill, sorts
            more.
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
        self._sorted_bytes = sorted_bytes
        self._store = store
        self._runs = runs or Runs()
        self._making = tuple(threading.Lock() for _ in range(_LOCKS))
        self._results_dir = results_dir
        spilling = {} if spill_dir is None else {"temp_directory": str(spill_dir)}
        if spilling:
            spilling["memory_limit"] = SPILLING_MEMORY
        self._connection = duckdb.connect(config={"threads": threads, **spilling})

    def close(self) -> None:
        """Let go of DuckDB's memory."""
        self._runs.clear()
        self._connection.close()

    def count(self, series: int) -> int:
        """Return how many results a series has so far."""
        totals = self._store.counts.totals()
        return sum(totals.get(query_id, 0) for query_id in self._store.queries.series_ids(series))

    def page(self, series: int, after: str | None, limit: int) -> ResultPage:
        """Read the results that follow a cursor.

        Args:
            series: Id of the series: that of its first query.
            after: Cursor, or None for the first results.
            limit: Rows at most, 1 to ``MAX_PAGE_ROWS``.

        Raises:
            InvalidCursor: ``after`` is no cursor of this series.
            ResultsExpired: Results that follow it are not kept any more.
            QueryNotFound: There is no such series, or nothing of it is kept.
            CorruptResults: The files hold other rows than the manifests say.
        """
        _check_limit(limit)
        page = self._look(series, after, limit, though_empty=True)
        assert page is not None
        return page

    def page_if_any(self, series: int, after: str | None, limit: int) -> ResultPage | None:
        """Read the results that follow a cursor, as ``page`` does; None if there are none yet."""
        _check_limit(limit)
        return self._look(series, after, limit, though_empty=False)

    def _look(self, series: int, after: str | None, limit: int, *, though_empty: bool) -> ResultPage | None:
        again = False
        while True:
            found, has_more, dropped = self._spans(series, after, limit)
            if not found and not though_empty:
                return None
            try:
                page = self._page(series, after, found, has_more)
            except (CorruptResults, duckdb.IOException):
                # Dropped while it was read: at the next look a cursor is refused, or the page starts later.
                # Merged while it was read: at the next look it is in another file.
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
        """Read the rows of spans, as far as their columns are the same."""
        ids = (
            {span.query_id for span in found} or set(self._store.queries.series_ids(series)[-1:]) or {series}
        )
        queries = {query_id: self._store.queries.by_id(query_id).query for query_id in ids}
        spans = _of_equal_columns(found, queries)
        has_more = has_more or len(spans) < len(found)
        groups = [list(group) for _, group in groupby(spans, key=lambda span: span.query_id)]
        newest = queries[spans[-1].query_id if spans else max(ids)]
        reached = None if after is None else parse_cursor(after)[0]
        tables = [
            table for group in groups for table in self._cut(queries[group[0].query_id], group, reached)
        ]
        table = pa.concat_tables(tables) if tables else self._empty(newest)
        next_cursor = format_cursor(spans[-1].batch, spans[-1].first + spans[-1].rows) if spans else after
        return ResultPage(newest.outputs, table, tuple(spans), next_cursor, has_more)

    def export(self, series: int, after: str | None, until: str | None) -> ResultExport:
        """Read all results between two cursors.

        Args:
            series: Id of the series: that of its first query.
            after: Cursor that results follow, or None for the first results.
            until: Cursor of the last result, or None for the last one that is there now.

        Raises:
            InvalidCursor: One is no cursor of this series, or columns change between them.
            ResultsExpired: Results that follow ``after`` are not kept any more.
            QueryNotFound: There is no such series, or nothing of it is kept.
            CorruptResults: The files hold other rows than the manifests say; where it is not the first table
                that is read, while they are.
        """
        found, _, lost = self._spans(series, after, sys.maxsize)
        spans: Sequence[Span] = found
        if until is not None:
            batch, returned = parse_cursor(until)
            if returned > self._given(series, batch) or (after and parse_cursor(after) > (batch, returned)):
                raise InvalidCursor(
                    f'cursor "{until}" is not between "{after or "0.0"}" and the last result of this query',
                    hint="Send a cursor of a later page of this query, or nothing to read all that is there.",
                )
            spans = _until(spans, batch, returned)
        queries = {each: self._store.queries.by_id(each).query for each in {s.query_id for s in spans}}
        alike = _of_equal_columns(spans, queries)
        if len(alike) < len(spans):
            end = format_cursor(alike[-1].batch, alike[-1].first + alike[-1].rows)
            raise InvalidCursor(
                f'the columns of the query change after cursor "{end}"',
                detail="The query was updated, and a file has the columns of one text.",
                hint=f"Export until={end}, and what follows with after={end}.",
            )
        rows = sum(span.rows for span in spans)
        next_cursor = format_cursor(spans[-1].batch, spans[-1].first + spans[-1].rows) if spans else after
        # With a cursor, so that what is dropped meanwhile is not left out without a word.
        start = format_cursor(spans[0].batch, spans[0].first) if spans else after
        tables = self._tables(series, start, rows)
        first = next(tables) if rows else self.page(series, after, 1).table.slice(0, 0)
        dropped = 0 if lost is None or after is not None else lost.results
        return ResultExport(first.schema, rows, next_cursor, dropped, chain([first], tables))

    def _tables(self, series: int, after: str | None, rows: int) -> Iterator[pa.Table]:
        """Yield so many results that follow a cursor, and are there."""
        while rows:
            page = self._look(series, after, min(rows, _ROWS_PER_TABLE), though_empty=False)
            if page is None:
                raise CorruptResults(f'results after cursor "{after}" are not there any more')
            yield page.table
            after, rows = page.next_cursor, rows - page.table.num_rows

    def whole_batches(
        self, query_id: int, batches: Sequence[tuple[int, int]], *, at_a_time: int
    ) -> Generator[tuple[int, pa.RecordBatch]]:
        """Yield all results that batches gave a query, in order, each part with the batch it is of.

        One read for many small batches takes little more than one for each of them.

        Args:
            query_id: The query.
            batches: (batch, how many results it gave, as the catalog says), ascending; one at least.
            at_a_time: About so many rows are in memory and come together.

        Raises:
            CorruptResults: The files hold other rows than a manifest says; known after the batch's last row.
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
                            # All before it must be whole: what is made of them is used from now on.
                            _check_whole(query, [before for before in batches if before[0] < batch], found)
                        found[batch] = found.get(batch, 0) + rows.num_rows
                        yield batch, rows
        finally:
            cursor.close()
        _check_whole(query, batches, found)

    def _spans(
        self, series: int, after: str | None, limit: int
    ) -> tuple[tuple[Span, ...], bool, DroppedOfSeries | None]:
        """Find out from the catalog alone what a page holds, whether more follows, and what is not kept."""
        batch, returned = parse_cursor(after) if after is not None else (0, 0)
        found, has_more = self._kept_spans(series, after, batch, returned, limit)
        given = 0 if found or after is None else self._given(series, batch)
        # Looked up last, so that what was dropped since the first look is noticed.
        dropped = self._store.retention.dropped(series)
        if after is None:
            return found, has_more, dropped
        if dropped is not None and has_lost(dropped, batch, returned):
            raise ResultsExpired(after, dropped.results, self._store.retention.kept_from()[1] or 0)
        if dropped is not None and dropped.batch == batch:
            if returned > dropped.of_batch:
                raise self._beyond(after)
        elif not found and returned > given:
            raise self._beyond(after)
        return found, has_more, dropped

    def _kept_spans(
        self, series: int, after: str | None, batch: int, returned: int, limit: int
    ) -> tuple[tuple[Span, ...], bool]:
        """Find the results that a page holds among those that are kept, and whether more follow."""
        spans: list[Span] = []
        missing = limit
        for number, query_id, rows in self._batches_of(self._store.queries.series_ids(series), batch):
            if spans and not missing:
                return tuple(spans), True
            first = returned if number == batch else 0
            if first > rows:
                raise self._beyond(after)
            if first == rows:
                continue
            taken = min(rows - first, missing)
            spans.append(Span(number, query_id, first, taken))
            missing -= taken
            if first + taken < rows:
                return tuple(spans), True
        return tuple(spans), False

    def _batches_of(self, query_ids: Collection[int], from_batch: int) -> Iterator[tuple[int, int, int]]:
        """Yield (batch, query, results) for the batches that have any, from ``from_batch`` on."""
        more = True
        while more:
            found = self._store.counts.of_queries(query_ids, from_batch, limit=_BATCHES_PER_LOOKUP)
            yield from found
            more = len(found) == _BATCHES_PER_LOOKUP
            from_batch = found[-1][0] + 1 if found else from_batch

    def _given(self, series: int, batch: int) -> int:
        """Return how many results a batch gave a series, as far as they are kept."""
        given = next(iter(self._store.counts.of_series(series, batch, 1)), (batch, 0, 0))
        return given[2] if given[0] == batch else 0

    def _beyond(self, after: str | None) -> InvalidCursor:
        return InvalidCursor(
            f'cursor "{after}" is beyond the results of this query',
            hint='Send "next_cursor" of an earlier page of this query, or nothing to start over.',
        )

    def _cut(self, query: Query, spans: Sequence[Span], reached: int | None) -> Iterator[pa.Table]:
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
        """Return a run that has the first of some spans; if there is none, make one of as many as may be."""
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
                # A damaged file of a later batch is no reason to refuse this page.
                run = self._made(query, self._batches_of_run(query, spans, 0))
            self._runs.keep(query.id, run)
            return run

    def _batches_of_run(self, query: Query, spans: Sequence[Span], ahead: int) -> list[tuple[int, int]]:
        """Return (batch, results) of the batches of a run: those of spans, and of so many rows ahead."""
        found: list[tuple[int, int]] = []
        total = 0
        for batch, _, rows in self._batches_of((query.id,), spans[0].batch):
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
            raise _not_whole(query, numbers[0], numbers[-1], run.table.num_rows, rows)
        return run

    def _empty(self, query: Query) -> pa.Table:
        """Return no rows, with a query's columns."""
        with closing(self._connection.cursor()) as cursor:
            return cursor.sql(query_sql(cursor, self._store, query, (), ())).to_arrow_table()


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= MAX_PAGE_ROWS:
        raise ValueError(f"limit must be 1 to {MAX_PAGE_ROWS}, not {limit}")


def _until(spans: Sequence[Span], batch: int, returned: int) -> list[Span]:
    """Return spans up to a cursor."""
    found = [span for span in spans if span.batch <= batch]
    if found and found[-1].batch == batch:
        last = found.pop()
        if (rows := min(last.rows, returned - last.first)) > 0:
            found.append(replace(last, rows=rows))
    return found


def _up_to(parts: pa.RecordBatchReader, most_bytes: int) -> pa.Table | None:
    """Return all rows of a reader; None if they are more than so many bytes."""
    found: list[pa.RecordBatch] = []
    size = 0
    for part in parts:
        found.append(part)
        size += part.nbytes
        if size > most_bytes:
            return None
    return pa.Table.from_batches(found, parts.schema)


def _in_order(rows: pa.Table) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return rows in order, some at a time, without their last columns, by which they are sorted."""
    results = rows.select(range(rows.num_columns - len(_BESIDES)))
    # By place, since an output may bear the name of one of them.
    event_time, batch, *positions = rows.columns[results.num_columns - 1 :]
    order = row_order([batch, event_time, *positions])
    firsts = range(0, len(order), _ROWS_AT_A_TIME)
    parts = (results.take(pa.array(order[first : first + _ROWS_AT_A_TIME])) for first in firsts)
    return results.schema, (batch for part in parts for batch in part.combine_chunks().to_batches())


def _by_batch(part: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cut rows that are ordered by batch, their last column, into those of each batch, without the column."""
    numbers = part.column(part.num_columns - 1).to_numpy()
    rows = part.select(list(range(part.num_columns - 1)))
    starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist()]
    for start, end in pairwise((*starts, len(numbers))):
        if end > start:
            yield int(numbers[start]), rows.slice(start, end - start)


def _check_whole(query: Query, batches: Sequence[tuple[int, int]], found: Mapping[int, int]) -> None:
    """Refuse results that are not those of the batches, which have (number, rows)."""
    if list(found.items()) != list(batches):
        wanted = dict(batches)
        raise _not_whole(query, min(wanted), max(wanted), sum(found.values()), sum(wanted.values()))


def _not_whole(query: Query, first: int, last: int, found: int, rows: int) -> CorruptResults:
    return CorruptResults(
        f'results of query "{query.name}" are not whole',
        detail=f"Batches {first} to {last} hold {found} of {rows} rows.",
    )


def _of_equal_columns(spans: Sequence[Span], queries: Mapping[int, Query]) -> Sequence[Span]:
    """Return the spans from the first one on whose queries have the same columns."""

    def columns(span: Span) -> list[tuple[str, str]]:
        return [(output.name, output.type) for output in queries[span.query_id].outputs]

    return list(takewhile(lambda span: columns(span) == columns(spans[0]), spans))


def family_files(store: Store, results_dir: Folder, family: str, batches: Collection[int]) -> list[str]:
    """Return the paths of the files that hold one family's results in batches that have any, beside others.

    Raises:
        CorruptResults: There are none, or one of them is damaged.
    """
    found = store.result_files.of_family(family, batches)
    if batches and not found:
        raise CorruptResults(
            f"batches {min(batches)} to {max(batches)} have results, but no files that are kept"
        )
    check_files(results_dir, found)
    return [str(results_dir / file.path) for file in found]


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Turn what DuckDB says of files that it cannot read into an error that names the query.

    Raises:
        CorruptResults: A file cannot be read.
    """
    try:
        yield
    except (duckdb.IOException, duckdb.InvalidInputException, pa.ArrowException, OSError) as error:
        raise CorruptResults(
            f'results of query "{name}" cannot be read',
            detail=f"{error}.",
            hint="Restore the files from a backup, or stop the service and see what sluice repair can do.",
        ) from error


def query_sql(
    connection: duckdb.DuckDBPyConnection,
    store: Store,
    query: Query,
    files: Sequence[str],
    batches: Collection[int],
    *,
    besides: Sequence[str] = ("_event_time",),
) -> str:
    """Return the text that reads a query's results, unordered, out of its family's files in some batches.

    ``besides`` are the order columns that follow the select list.

    Its routes can be thousands: as literals of the text they took 28 of the 34 ms of a page. So they become a
    table of the connection, which the next call replaces.
    """
    a, b = (store.streams.by_id(side.stream_id) for side in (query.a, query.b))
    pairs = pairs_sql(a, b, files, batches)
    connection.register(_ROUTES, pa.table({"route": store.routes.of_query(query.id, batches)}))
    return results_sql(query, f"({pairs})", f"SELECT w.route FROM {_ROUTES} AS w", besides=besides)
