"""Readers of results: rows per second of CPU by format and page size.

    python -m tests.bench.readers [--rows 2000000] [--batches 2000] [--pages 100]

A query's results, once as one large batch and once as many small ones, are read page by page as a service
does it: look into the catalog, sorted run, page, bytes. It is CPU time of this process, so figures are about
one core and hardly dependent on what else the machine does. The first page has the sort of the large batch in
it, and *all* the sorts of everything that was read; the others are what a page costs besides.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import typer

from catalog.store.store import Store
from catalog.values.query import Output, Query
from catalog.values.routes.route_table import BatchRoutes, RouteTable
from service.results.files.result_files import ResultWriter
from service.results.pages.page import ResultPage
from service.results.result_formats import arrow_stream, csv_text, events, ndjson, parquet
from service.results.results import MAX_PAGE_ROWS, ResultReader
from tests.bench.reports import table
from tests.catalog.examples import manifest
from tests.service.pairs import Batches, add_query, open_store

START_US = 1_700_000_000_000_000
BATCH_US = 1_000_000
BUCKETS = 2
PAGE_SIZES = (100, 1_000, MAX_PAGE_ROWS)


def _events(page: ResultPage) -> bytes:
    return events(page.table, "result", [pa.array(list(page.cursors()), pa.string())])


FORMATS: dict[str, Callable[[ResultPage], bytes]] = {
    "Arrow": lambda page: arrow_stream(page.table),
    "Parquet": lambda page: parquet(page.table),
    "CSV": lambda page: csv_text(page.table),
    "NDJSON": lambda page: ndjson(page.table),
    "server-sent events": _events,
}


def pairs(batch: int, bucket: int, rows: int) -> pa.RecordBatch:
    """Joined pairs of a bucket, as a job writes them: in no order."""
    rng = np.random.default_rng((batch, bucket))
    ts = START_US + batch * BATCH_US + rng.integers(0, BATCH_US, rows)
    columns: dict[str, object] = {
        "_route": np.full(rows, 1, dtype=np.int64),
        "_plan_version": np.ones(rows, dtype=np.int32),
        "_batch": np.full(rows, batch, dtype=np.int64),
        "_event_time": pa.array(ts, pa.timestamp("us")),
        "_pos_a": rng.permutation(rows) + (1 << 32) * batch,
        "_pos_b": rng.permutation(rows) + (1 << 32) * batch,
        "a_ts": pa.array(ts, pa.timestamp("us")),
        "a_k": rng.integers(0, 5_000_000, rows),
        "a_v": rng.random(rows),
        "b_v": rng.random(rows),
    }
    return pa.RecordBatch.from_pydict(columns)


def commit(store: Store, directory: Path, query: Query, rows: int, batches: int) -> None:
    """Commit results, as an engine does it."""
    writer = ResultWriter(directory, None, epoch=1)
    routes = BatchRoutes(RouteTable.of({1: (query.id,)}), 0)
    share = rows // (batches * BUCKETS)
    with store.transaction():
        for batch in range(batches):
            files = tuple(
                writer.write_pairs(batch, Batches.family, pairs(batch, bucket, share))
                for bucket in range(BUCKETS)
            )
            given = ((query.id, share * BUCKETS),)
            made = replace(manifest(batch, 1), files=files, late_files=(), query_rows=given)
            store.batches.commit(made, routes if batch == 0 else None)


def read(reader: ResultReader, query: Query, form: str, page_rows: int, pages: int) -> tuple[float, ...]:
    """Return the CPU of the first page, ms, and rows per second of CPU of the others, and of all."""
    after: str | None = None
    took_s: list[float] = []
    rows: list[int] = []
    for _ in range(pages):
        began_s = time.process_time()
        page = reader.page(query.id, after, page_rows)
        FORMATS[form](page)
        took_s.append(time.process_time() - began_s)
        rows.append(page.table.num_rows)
        after = page.next_cursor
        if not page.has_more:
            break
    later_s = max(sum(took_s[1:]), 1e-9)
    return 1_000 * took_s[0], sum(rows[1:]) / later_s, sum(rows) / sum(took_s)


def measured(rows: int, batches: int, pages: int) -> Iterator[tuple[str | int | float, ...]]:
    """Yield a line for each format and size of pages, of so many rows in so many batches."""
    with tempfile.TemporaryDirectory() as directory:
        results = Path(directory) / "results"
        results.mkdir()
        store = open_store(Path(directory))
        outputs = [Output("ts", 'a."ts"', "timestamp"), Output("k", 'a."k"', "bigint")]
        outputs += [Output("v", 'a."v"', "double"), Output("w", 'b."v"', "double")]
        query = add_query(store, "q", outputs, ("ts", "k", "v"))
        commit(store, results, query, rows, batches)
        for form in FORMATS:
            for page_rows in PAGE_SIZES:
                # A reader that knows nothing yet.
                with closing(ResultReader(store, results)) as reader:
                    yield (form, page_rows, *read(reader, query, form, page_rows, pages))
        store.close()


def main(
    rows: Annotated[int, typer.Option(help="Results.")] = 2_000_000,
    batches: Annotated[int, typer.Option(help="Small batches that they are in, the second time.")] = 2_000,
    pages: Annotated[int, typer.Option(help="Pages read at most.")] = 200,
) -> None:
    """Print a table for one large batch and one for many small ones."""
    header = ("format", "rows of a page", "first page, ms", "rows/s after it", "rows/s of all")
    for number in (1, batches):
        typer.echo(f"\n{rows:,} results in {number:,} batches, up to {pages} pages\n")
        typer.echo(table(header, measured(rows, number, pages)))


if __name__ == "__main__":
    typer.run(main)
