"""Routes in the catalog: the sets of queries that stored pairs belong to.

    batch_routes   batch 17  since 17  plan version 4   routes {8801: {7, 9}, 2417: {3}}
                   batch 20  since 17  plan version 4   routes {5120: {3, 9}}
                   batch 31  since 31  plan version 5   routes {7745: {3, 7}, 2417: {3}}

When a query is added or leaves, the new plan version has hundreds of new routes, each with many queries.
Routes are therefore stored in *generations*, each of which has one or more rows of the table with an encoded
``RouteTable``. A generation contains every route that occurs before the next generation begins, so all routes
of a batch are in the batch's generation. The next generation begins when new plan versions have made the
current one large. Old generations are removed with their batches. A plan version without new routes adds no
rows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
from sqlalchemy import Connection, bindparam, delete, func, insert, select

from catalog.store.database import tables
from catalog.store.database.database import Database
from catalog.store.database.repository import Repository, parts
from catalog.values.batch import BatchManifest
from catalog.values.routes.query_sets import Int64s
from catalog.values.routes.route_table import BatchRoutes, RouteTable, numbers_having

_r = tables.batch_routes.c

#: Most bytes of route numbers that are cached, and the additional bytes that each cached array takes.
_KEPT_BYTES = 16 << 20
_ARRAY_BYTES = 256
#: Seconds after which unused route numbers are dropped from the cache, at the latest after twice this time;
#: they become unused because readers proceed to later generations.
_KEPT_S = 60.0

_ALL = select(_r.plan_version, _r.routes).order_by(_r.batch)
_GENERATION = select(_r.routes).where(_r.since == bindparam("since")).order_by(_r.batch)
_ROWS = select(_r.batch, _r.routes).where(_r.batch.in_(bindparam("rows", expanding=True)))
_ROWS_OF_BATCHES = select(_r.batch).where(
    _r.since >= select(func.max(_r.since)).where(_r.since <= bindparam("first")).scalar_subquery(),
    _r.since <= bindparam("last"),
)
_DROP = delete(tables.batch_routes).where(
    _r.since < select(func.max(_r.since)).where(_r.since <= bindparam("kept_from")).scalar_subquery()
)


class RouteRepository(Repository):
    """Routes that occur in committed batches."""

    def __init__(self, database: Database, now_us: Callable[[], int]) -> None:
        super().__init__(database, now_us)
        # Route numbers are cached by row and query, because rows never change and a reader needs the numbers
        # at every batch. Reading them again took 7 to 8 ms of the 21 to 24 ms for a page of results.
        self._numbers: dict[tuple[int, int], Int64s] = {}
        self._kept_bytes = 0
        self._asked: set[tuple[int, int]] = set()
        self._cleaned_s = time.monotonic()
        self._lock = threading.Lock()

    def all(self) -> Iterator[tuple[int, RouteTable]]:
        """Yield every route once, in tables, with the first plan version whose batches have the routes."""
        seen = np.empty(0, dtype=np.int64)
        with self._database.read() as connection:
            for row in connection.execute(_ALL):
                table = RouteTable.decode(row.routes)
                table = table.take(np.isin(table.numbers, seen, invert=True))
                seen = np.concatenate([seen, table.numbers])
                yield row.plan_version, table

    def generation(self, since: int) -> Iterator[RouteTable]:
        """Yield the tables of the generation that batch ``since`` began; a route may be in two tables."""
        with self._database.read() as connection:
            for encoded in connection.execute(_GENERATION, {"since": since}).scalars():
                yield RouteTable.decode(encoded)

    def of_query(self, query_id: int, batches: Collection[int]) -> Int64s:
        """Return the routes whose pairs belong to a query.

        Args:
            query_id: Id of the query.
            batches: Committed batches whose pairs are read.

        Returns:
            int64[n], route numbers of the query, ascending: all that occur in these batches, and perhaps
            more.
        """
        if not batches:
            return np.empty(0, dtype=np.int64)
        bounds = {"first": min(batches), "last": max(batches)}
        with self._database.read() as connection:
            rows = connection.execute(_ROWS_OF_BATCHES, bounds).scalars().all()
            found = self._known(query_id, rows)
            new = [row for row in rows if row not in found]
            for some in parts(new):
                for row in connection.execute(_ROWS, {"rows": some}):
                    found[row.batch] = numbers_having(row.routes, query_id)
        self._keep({(row, query_id): found[row] for row in new if row in found})
        if not found:
            return np.empty(0, dtype=np.int64)
        # A stable sort, because the numbers of each row are sorted already, or nearly so. np.unique hashes
        # first, which takes 0.4 ms for 4,400 routes.
        numbers = np.sort(np.concatenate(list(found.values())), kind="stable")
        first = np.ones(len(numbers), dtype=np.bool_)
        first[1:] = numbers[1:] != numbers[:-1]
        return numbers[first]

    def _known(self, query_id: int, rows: Sequence[int]) -> dict[int, Int64s]:
        """Return the cached route numbers of some rows, by row, and mark them as used."""
        keys = [(row, query_id) for row in rows]
        with self._lock:
            self._asked.update(keys)
            return {row: self._numbers[row, query] for row, query in keys if (row, query) in self._numbers}

    def _keep(self, numbers: Mapping[tuple[int, int], Int64s]) -> None:
        """Cache numbers of rows; drop entries that are unused, or all entries if they take too many bytes."""
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._cleaned_s >= _KEPT_S:
                self._numbers = {key: some for key, some in self._numbers.items() if key in self._asked}
                self._kept_bytes = _bytes(self._numbers)
                self._asked, self._cleaned_s = set(), now_s
            # Two readers may have read the same row.
            new = {key: some for key, some in numbers.items() if key not in self._numbers}
            self._kept_bytes += _bytes(new)
            self._numbers |= new
            if self._kept_bytes > _KEPT_BYTES:
                self._numbers, self._kept_bytes = {}, 0


def _bytes(numbers: Mapping[tuple[int, int], Int64s]) -> int:
    return sum(_ARRAY_BYTES + some.nbytes for some in numbers.values())


def add_routes(connection: Connection, manifest: BatchManifest, routes: BatchRoutes) -> None:
    """Store the routes that a batch adds to its generation, inside a write transaction."""
    connection.execute(
        insert(tables.batch_routes).values(
            batch=manifest.batch,
            since=routes.since,
            plan_version=manifest.plan_version,
            routes=routes.table.encode(),
        )
    )


def drop_routes(connection: Connection, kept_from: int) -> None:
    """Drop the generations that had ended before a batch, inside a write transaction."""
    connection.execute(_DROP, {"kept_from": kept_from})
