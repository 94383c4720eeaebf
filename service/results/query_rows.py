"""Rows of a query, unordered, read from the result files of its family."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from catalog.steps import side_streams
from catalog.store.store import Store
from catalog.values.query import Query
from operators.storage.folder import Folder
from service.errors import CorruptResults
from service.results.files.result_check import check_files
from service.results.result_sql import pairs_sql, results_sql

#: Name of the table of routes in a connection.
_ROUTES = "_wanted_routes"


def family_files(store: Store, results_dir: Folder, family: str, batches: Collection[int]) -> list[str]:
    """Return the paths of files with a family's results of some batches, and possibly of other batches, too.

    Raises:
        CorruptResults: There are no files, or one of them is damaged.
    """
    found = store.result_files.of_family(family, batches)
    if batches and not found:
        raise CorruptResults(
            f"batches {min(batches)} to {max(batches)} have results, but no file of them is kept"
        )
    check_files(results_dir, found)
    return [str(results_dir / file.path) for file in found]


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Convert errors while reading result files into an error that names the query.

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
    """Return the SQL that reads a query's results of some batches, unordered, from its family's files.

    ``besides`` names the order columns to append to the select list.

    A query can have thousands of routes. Written as SQL literals, routes took 28 ms of the 34 ms of a page.
    So the routes are registered as a table of the connection, which the next call replaces.
    """
    a, b = side_streams(query, store.streams.by_id)
    pairs = pairs_sql(a, b, files, batches, (query,))
    connection.register(_ROUTES, pa.table({"route": store.routes.of_query(query.id, batches)}))
    return results_sql(query, f"({pairs})", f"SELECT w.route FROM {_ROUTES} AS w", besides=besides)


def not_whole(query: Query, first: int, last: int, found: int, rows: int) -> CorruptResults:
    """Return the error for batches whose number of results differs from the catalog's."""
    return CorruptResults(
        f'results of query "{query.name}" are not whole',
        detail=f"The files of batches {first} to {last} have {found} of {rows} rows.",
    )
