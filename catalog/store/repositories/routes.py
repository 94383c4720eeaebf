"""Routes in the catalog: which queries a stored pair belongs to.

    batch_routes   batch 17  since 17  plan version 4   queries [3, 7, 9]   routes {"8801": "6", "2417": "1"}
                   batch 20  since 17  plan version 4   queries [3, 9]      routes {"5120": "3"}
                   batch 31  since 31  plan version 5   queries [3, 7]      routes {"7745": "3", "2417": "1"}

A route is a set of queries: 0x6 = 0b110 are the second and the third of its row's, 7 and 9. Where a query
comes or goes, a plan version brings hundreds of other routes, each of many queries. So they are kept by the
row, not by the member, and by *generation*: one begins where the one before has become large by versions, and
has every route that occurs until the next one begins. So the routes of a batch are those of its generation,
and old ones go with their batches; a version that brings no new route adds nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, Row, bindparam, delete, func, insert, select

from catalog.store import tables
from catalog.store.database import Database
from catalog.store.repository import Repository
from catalog.values.batch import BatchManifest, Route

Int64s = npt.NDArray[np.int64]

_r = tables.batch_routes.c

#: Bytes of numbers of routes kept in memory, and what keeping an array takes besides, however short it is.
_KEPT_BYTES = 16 << 20
_ARRAY_BYTES = 256
#: Rows asked for by number at a time; databases bound the parameters of a statement.
_ROWS_AT_A_TIME = 500

_ALL = select(_r.plan_version, _r.queries, _r.routes).order_by(_r.batch)
_ROWS = select(_r.batch, _r.queries, _r.routes).where(_r.batch.in_(bindparam("rows", expanding=True)))
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
        # By row and query, since rows never change: reading them anew took 7 to 8 of the 21 to 24 ms of a
        # page of results, and a reader asks with every batch.
        self._numbers: dict[tuple[int, int], Int64s] = {}
        self._kept_bytes = 0

    def all(self) -> tuple[Route, ...]:
        """Return all routes, by number, each with the first plan version that is known to have had it."""
        found: dict[int, Route] = {}
        with self._database.read() as connection:
            for row in connection.execute(_ALL):
                for route in _routes(row):
                    found.setdefault(route.route, route)
        return tuple(found[number] for number in sorted(found))

    def of_query(self, query_id: int, batches: Collection[int]) -> tuple[int, ...]:
        """Return the routes whose pairs belong to a query.

        Args:
            query_id: The query.
            batches: Committed batches whose pairs are looked at; at least one.

        Returns:
            Numbers, ascending: at least those that occur in these batches.
        """
        bounds = {"first": min(batches), "last": max(batches)}
        known = self._numbers
        with self._database.read() as connection:
            rows = connection.execute(_ROWS_OF_BATCHES, bounds).scalars().all()
            found = {row: known[row, query_id] for row in rows if (row, query_id) in known}
            new = [row for row in rows if row not in found]
            for start in range(0, len(new), _ROWS_AT_A_TIME):
                for row in connection.execute(_ROWS, {"rows": new[start : start + _ROWS_AT_A_TIME]}):
                    found[row.batch] = _numbers_of(row, query_id)
        self._keep({(row, query_id): found[row] for row in new if row in found})
        if not found:
            return ()
        # Not np.unique, which hashes them first: 0.4 ms for 4,400 routes. Each row is in order, or nearly.
        numbers = np.sort(np.concatenate(list(found.values())), kind="stable")
        first = np.ones(len(numbers), dtype=np.bool_)
        first[1:] = numbers[1:] != numbers[:-1]
        return tuple(numbers[first].tolist())

    def _keep(self, numbers: Mapping[tuple[int, int], Int64s]) -> None:
        """Keep numbers of rows; all others are forgotten when there are too many."""
        self._kept_bytes += sum(_ARRAY_BYTES + some.nbytes for some in numbers.values())
        if self._kept_bytes > _KEPT_BYTES:
            self._numbers, self._kept_bytes = {}, 0
        else:
            self._numbers |= numbers


def add_routes(connection: Connection, manifest: BatchManifest) -> None:
    """Keep the routes that a batch brings, inside a write transaction."""
    if not manifest.routes:
        return
    queries = sorted({query_id for route in manifest.routes for query_id in route.queries})
    places = {query_id: 1 << place for place, query_id in enumerate(queries)}
    sets = {str(r.route): f"{sum(map(places.__getitem__, r.queries)):x}" for r in manifest.routes}
    connection.execute(
        insert(tables.batch_routes).values(
            batch=manifest.batch,
            since=manifest.batch if manifest.routes_since is None else manifest.routes_since,
            plan_version=manifest.plan_version,
            queries=json.dumps(queries, separators=(",", ":")),
            routes=json.dumps(sets, separators=(",", ":")),
        )
    )


def drop_routes(connection: Connection, kept_from: int) -> None:
    """Drop the generations that had ended before a batch, inside a write transaction."""
    connection.execute(_DROP, {"kept_from": kept_from})


def _routes(row: Row[*tuple[Any, ...]]) -> Iterator[Route]:
    """Yield the routes of a row of ``_ALL``."""
    queries = json.loads(row.queries)
    for number, text in json.loads(row.routes).items():
        members = int(text, 16)
        ids = tuple(query_id for place, query_id in enumerate(queries) if members >> place & 1)
        yield Route(int(number), row.plan_version, ids)


def _numbers_of(row: Row[*tuple[Any, ...]], query_id: int) -> Int64s:
    """Return the numbers of a row's routes that a query is in."""
    queries = json.loads(row.queries)
    if query_id not in queries:
        return np.empty(0, dtype=np.int64)
    member = 1 << queries.index(query_id)
    routes = json.loads(row.routes).items()
    return np.array([int(number) for number, text in routes if int(text, 16) & member], dtype=np.int64)
