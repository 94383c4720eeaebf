"""Export of results to files: a directory per query, or the shared pairs with a view per query.

    per query    DIR/<query>/part-00000.parquet ...   selected columns and _event_time, in order
    shared       DIR/routes.parquet                   queries by route
                 DIR/views.sql                        CREATE VIEW per query, for DuckDB
                 RESULTS_DIR/*.parquet                each joined pair once, as the engine wrote it

Both kinds of export contain only committed batches and are written after the engine has stopped; a new export
replaces the previous one. Memory is bounded: results are read and written a few batches at a time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from catalog.errors import InvariantBroken
from catalog.sql_text import quoted, text_literal
from catalog.steps import widest_sides
from catalog.store.store import Store
from catalog.values.query import Query
from operators.storage.folder import Folder
from planner.families.families import family_of
from service.errors import CorruptResults
from service.results.query_rows import family_files, query_sql, reading
from service.results.result_sql import order_sql, pairs_sql, results_sql

#: Maximum number of results sorted at a time. Small batches are read together, to share one scan.
_ROWS_PER_READ = 2_000_000

#: Results in one Parquet file.
_ROWS_PER_PART = 4_000_000

#: Rows handed from DuckDB to the Parquet writer at a time, which is also the size of a row group.
_ROWS_PER_GROUP = 122_880

#: Batches looked up in the catalog at a time.
_BATCHES_PER_LOOKUP = 1_000

#: DuckDB's memory limit while sorting; rows beyond it spill to disk, next to the output.
_SORT_MEMORY = "512MB"

#: Maximum number of rows of the routes table built at a time; the table has a row per route and query.
_ROUTE_ROWS = 1 << 22

#: Parquet options for the routes table: query ids ascend within a route, and nobody needs statistics of
#: names. A million rows take 33 ms of CPU time and 2.1 MB; with the default options, 119 ms and 3.5 MB.
_ROUTES_WRITTEN: Final[Mapping[str, Any]] = {
    "compression": "zstd",
    "use_dictionary": ["query", "route", "plan_version"],
    "column_encoding": {"query_id": "DELTA_BINARY_PACKED"},
    "write_statistics": ["route"],
}

#: Columns of the routes table. The names are dictionary-encoded in memory, and plain strings in the file.
_ROUTES_SCHEMA = pa.schema(
    {
        "route": pa.int64(),
        "plan_version": pa.int32(),
        "query_id": pa.int64(),
        "query": pa.dictionary(pa.int32(), pa.string()),
    }.items()
)


def export_query(
    store: Store, results_dir: Folder, name: str, queries: Sequence[Query], out_dir: Path
) -> int:
    """Write all results of a query to ``out_dir/<query name>/part-*.parquet``.

    An existing directory of that name is replaced once the new one is complete.

    Args:
        store: The catalog.
        results_dir: Directory that the manifests' paths are relative to.
        name: Query name.
        queries: Running and removed queries of that name, oldest first.
        out_dir: Parent of the query's directory.

    Returns:
        Number of results written.

    Raises:
        CorruptResults: The files differ from the manifests.
    """
    partial = out_dir / f".{name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    connection = duckdb.connect(
        config={"threads": 1, "memory_limit": _SORT_MEMORY, "temp_directory": str(partial / "sort")}
    )
    rows, parts = 0, 0
    try:
        for query in queries:
            schema = _arrow_schema(connection, query_sql(connection, store, query, (), ()))
            with _PartWriter(partial, schema, parts) as writer:
                for batches in _groups(store, query.id):
                    _export_batches(connection, store, results_dir, query, batches, writer)
            rows, parts = rows + writer.rows, writer.parts
    finally:
        connection.close()
    shutil.rmtree(partial / "sort", ignore_errors=True)
    final = out_dir / name
    shutil.rmtree(final, ignore_errors=True)
    partial.rename(final)
    return rows


def export_shared(store: Store, results_dir: Path, out_dir: Path) -> None:
    """Write the routes table and the views, and delete result files that no manifest names.

    A killed engine can leave files of an uncommitted batch. Readers that use the manifests do not see these
    files. Readers of ``results_dir/*.parquet`` must not see them either, so they are deleted. The engine must
    have stopped before.

    Args:
        store: The catalog.
        results_dir: Directory of the pairs.
        out_dir: Directory for ``routes.parquet`` and ``views.sql``.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    files: dict[str, list[str]] = {}
    committed: set[Path] = set()
    for path, family in _committed_files(store):
        committed.add(Path(os.path.abspath(results_dir / path)))
        if family is not None:
            files.setdefault(family, []).append(os.path.relpath(results_dir / path, out_dir))
    for found in results_dir.rglob("*.parquet"):
        if Path(os.path.abspath(found)) not in committed:
            found.unlink()
    records = [record for record in store.queries.all() if record.entered]
    queries = {record.query.id: record.query for record in records}
    series = {record.query.id: record.series for record in records}
    _replace(out_dir / "routes.parquet", lambda path: _write_routes(path, store, queries))
    views = "\n".join(_views(store, queries, series, files))
    _replace(out_dir / "views.sql", lambda path: path.write_text(views, encoding="utf-8"))


class _PartWriter:
    """Writes tables one after another into ``part-*.parquet`` files of a bounded size; at least one file.

    Args:
        directory: Directory for the parts.
        schema: Schema of every table.
        parts: Number of the first part.
    """

    def __init__(self, directory: Path, schema: pa.Schema, parts: int) -> None:
        self._directory = directory
        self._schema = schema
        self.parts = parts
        self._rows_in_part = 0
        self._open = self._next_part()
        self.rows = 0

    def __enter__(self) -> _PartWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        if self._rows_in_part >= _ROWS_PER_PART:
            self._open.close()
            self._open = self._next_part()
        self._open.write_batch(batch)
        self._rows_in_part += batch.num_rows
        self.rows += batch.num_rows

    def _next_part(self) -> pq.ParquetWriter:
        path = self._directory / f"part-{self.parts:05}.parquet"
        self.parts += 1
        self._rows_in_part = 0
        return pq.ParquetWriter(path, self._schema)


def _arrow_schema(connection: duckdb.DuckDBPyConnection, text: str) -> pa.Schema:
    return connection.sql(f"{text} LIMIT 0").to_arrow_table().schema


def _groups(store: Store, query_id: int) -> Iterator[list[tuple[int, int]]]:
    """Yield groups of (batch, number of the query's results) whose batches are read together."""
    group: list[tuple[int, int]] = []
    batch = 0
    while found := store.counts.of_query(query_id, batch, _BATCHES_PER_LOOKUP):
        for number, rows in found:
            if group and sum(r for _, r in group) + rows > _ROWS_PER_READ:
                yield group
                group = []
            group.append((number, rows))
        batch = found[-1][0] + 1
    if group:
        yield group


def _export_batches(
    connection: duckdb.DuckDBPyConnection,
    store: Store,
    results_dir: Folder,
    query: Query,
    batches: Sequence[tuple[int, int]],
    writer: _PartWriter,
) -> None:
    family = family_of(query)
    numbers = [batch for batch, _ in batches]
    files = family_files(store, results_dir, family, numbers)
    before, expected = writer.rows, sum(rows for _, rows in batches)
    text = f"{query_sql(connection, store, query, files, numbers)} ORDER BY {order_sql()}"
    with reading(query.name):
        for found in connection.sql(text).to_arrow_reader(_ROWS_PER_GROUP):
            writer.write(found)
    written = writer.rows - before
    if written != expected:
        raise CorruptResults(
            f'results of query "{query.name}" are not whole',
            detail=f"The files of batches {batches[0][0]} to {batches[-1][0]} have {written} of "
            f"{expected} rows.",
        )


def _committed_files(store: Store) -> Iterator[tuple[str, str | None]]:
    """Yield every file that a manifest names, with its family, or None for a file of late rows."""
    for named in store.result_files.all():
        yield from ((file.path, file.family) for file in named.files)
        yield from ((file.path, None) for file in named.late_files)


def _write_routes(path: Path, store: Store, queries: Mapping[int, Query]) -> None:
    """Write a row for each query of each route, a few routes at a time.

    For ten thousand queries these can be a billion rows, which compress to a small fraction of their size.
    """
    ids = np.array(sorted(queries), dtype=np.int64)
    names = pa.array([queries[query_id].name for query_id in ids.tolist()], pa.string())
    # Place of each query id in ``ids``; -1 for ids without a query. The last entry is for larger ids.
    place_of = np.full(int(ids.max(initial=0)) + 2, -1, dtype=np.int32)
    place_of[ids] = np.arange(len(ids))
    with pq.ParquetWriter(path, _ROUTES_SCHEMA, store_schema=False, **_ROUTES_WRITTEN) as writer:
        for version, routes in store.routes.all():
            at_once = max(_ROUTE_ROWS // len(routes.sets.queries), 1)
            for start in range(0, len(routes), at_once):
                some = routes.take(np.arange(start, min(start + at_once, len(routes))))
                places, query_ids = some.sets.listed().members()
                named = place_of[np.minimum(query_ids, len(place_of) - 1)]
                if (named < 0).any():
                    raise InvariantBroken("a route serves a query that the catalog does not have")
                columns = [
                    some.numbers[places],
                    np.full(len(places), version, dtype=np.int32),
                    query_ids,
                    pa.DictionaryArray.from_arrays(pa.array(named), names),
                ]
                writer.write_table(pa.table(columns, schema=_ROUTES_SCHEMA), row_group_size=_ROUTE_ROWS)


def _views(
    store: Store, queries: Mapping[int, Query], series: Mapping[int, int], files: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Yield the statements of ``views.sql``: a view per family, then one per query.

    The view of an updated query has all results of its series that have the columns of the newest query text.
    Results with other columns, and results of an earlier query of the same name, have separate views, named
    with the query id.
    """
    yield "-- Run in this directory: duckdb -init views.sql"
    by_family: dict[str, list[Query]] = {}
    for query in queries.values():
        by_family.setdefault(family_of(query), []).append(query)
    for family, members in sorted(by_family.items()):
        a, b = widest_sides(members, store.streams.by_id)
        pairs = pairs_sql(a, b, files.get(family, ()), queries=members)
        yield f"CREATE OR REPLACE VIEW {quoted('_pairs_' + family)} AS {pairs};"
    newest = {query.name.lower(): query for query in queries.values()}
    texts: dict[str, list[str]] = {}
    for query in queries.values():
        last = newest[query.name.lower()]
        same = series[query.id] == series[last.id] and _columns(query) == _columns(last)
        family = family_of(query)
        routes = (
            f"SELECT route FROM read_parquet({text_literal('routes.parquet')}) WHERE query_id = {query.id}"
        )
        text = results_sql(query, quoted("_pairs_" + family), routes)
        texts.setdefault(last.name if same else f"{query.name}@{query.id}", []).append(text)
    for name, parts in texts.items():
        yield f"CREATE OR REPLACE VIEW {quoted(name)} AS {' UNION ALL '.join(parts)};"
    yield ""


def _columns(query: Query) -> list[tuple[str, str]]:
    return [(output.name, output.type) for output in query.outputs]


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file under another name, then rename it, so that readers never see a partial file."""
    partial = path.with_name(f".{path.name}.partial")
    write(partial)
    partial.replace(path)
