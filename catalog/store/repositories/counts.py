"""Numbers of results per query and batch: a row per new batch, a row per group of old batches, and totals.

    query_counts   batches 0..63    added   x        query_totals   query 3: 812 results of batches 0..63
                   batch 64                 x                       (without its results of 64 and 65)
                   batch 65                 x

A batch writes a single row, however many queries have results in it. Once there are ``FOLDED`` such rows,
they are combined into one row, and its counts are added to the totals of the queries. The stored totals
therefore lack the newest batches, and a reader adds the counts of these batches. A row never changes, so a
reader caches the rows that it has decoded.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from catalog.store.database import tables
from catalog.store.database.database import Database
from catalog.store.database.repository import Repository, all_rows
from catalog.values.routes.counts.query_counts import QueryCounts, summed

#: Number of batches whose counts are combined into one row. Every batch that may be replayed is among the
#: newest ``FOLDED`` batches. Pruning and retention (``store.pruning``, ``results.retention``) need complete
#: totals, so they combine the rows first.
FOLDED = 64
#: Bytes of counts that are cached, because a reader that follows results reads the same rows at every batch.
_KEPT_BYTES = 4 << 20

_c = tables.query_counts.c
_qt = tables.query_totals.c
_t = tables.batch_totals.c

_KEPT_FROM = select(_t.kept_from)
_FROM = select(_c.first, _c.last).where(_c.last >= bindparam("batch")).order_by(_c.first)
_COUNTS = select(_c.counts).where(_c.first == bindparam("first"), _c.last == bindparam("last"))
_TAIL = select(_c.first, _c.last, _c.counts).where(_c.added.is_(False)).order_by(_c.first)
_TAIL_LENGTH = select(func.count()).where(_c.added.is_(False))
_OVERLAPPING = (
    select(_c.counts).where(_c.last >= bindparam("begin"), _c.first < bindparam("end")).order_by(_c.first)
)
_SERIES_IDS = select(tables.queries.c.id).where(tables.queries.c.series == bindparam("series"))
_QUERY_TOTALS = select(_qt.query_id, _qt.rows)
_ADD = (
    update(tables.query_totals)
    .where(_qt.query_id == bindparam("of"))
    .values(rows=_qt.rows + bindparam("more"))
)


class CountRepository(Repository):
    """Numbers of results per query and batch."""

    def __init__(self, database: Database, now_us: Callable[[], int]) -> None:
        super().__init__(database, now_us)
        self._known: OrderedDict[tuple[int, int], QueryCounts] = OrderedDict()
        self._known_bytes = 0
        self._lock = threading.Lock()

    def totals(self) -> dict[int, int]:
        """Return the number of results so far of each query that has results, by query id."""
        with self._database.read() as connection:
            totals = dict(all_rows(connection, _QUERY_TOTALS))
            tail = [QueryCounts.decode(row.counts) for row in connection.execute(_TAIL)]
        for query_id, rows in summed(tail).items():
            totals[query_id] = totals.get(query_id, 0) + rows
        return totals

    def of_query(self, query_id: int, from_batch: int = 0, limit: int = 1000) -> tuple[tuple[int, int], ...]:
        """Return the batches in which a query has results, as (batch, number of results), in order.

        Args:
            query_id: Id of the query.
            from_batch: First batch to return.
            limit: Most entries that are returned.
        """
        found = self.of_queries((query_id,), from_batch, limit=limit)
        return tuple((batch, rows) for batch, _, rows in found)

    def of_queries(
        self,
        query_ids: Collection[int],
        from_batch: int = 0,
        *,
        end: int | None = None,
        limit: int | None = None,
    ) -> tuple[tuple[int, int, int], ...]:
        """Return the counts of some queries per batch, as (batch, query id, number of results), in order.

        Args:
            query_ids: Ids of the queries.
            from_batch: First batch to return.
            end: Batch after the last one to return; None for no end.
            limit: Most entries that are returned; None for all.
        """
        found: list[tuple[int, int, int]] = []
        with self._database.read() as connection:
            first = max(from_batch, connection.execute(_KEPT_FROM).scalar() or 0)
            for counts in self._from(connection, first, end):
                found += counts.between(first, 2**62 if end is None else end).of(query_ids)
                if limit is not None and len(found) >= limit:
                    break
        return tuple(found[:limit])

    def of_series(
        self, series: int, from_batch: int = 0, limit: int = 1000
    ) -> tuple[tuple[int, int, int], ...]:
        """Return the batches in which a series has results, as (batch, query id, results), in order.

        The queries of a series replace each other at batch boundaries, so each batch has results of only one
        of them.

        Args:
            series: Id of the series.
            from_batch: First batch to return.
            limit: Most entries that are returned.
        """
        with self._database.read() as connection:
            ids = tuple(connection.scalars(_SERIES_IDS, {"series": series}))
        return self.of_queries(ids, from_batch, limit=limit)

    def _from(self, connection: Connection, first: int, end: int | None) -> Iterator[QueryCounts]:
        """Yield the counts of the table rows that cover a range of batches; recently used rows are cached."""
        for row in connection.execute(_FROM, {"batch": first}).all():
            if end is not None and row.first >= end:
                return
            place = (row.first, row.last)
            with self._lock:
                known = self._known.get(place)
                if known is not None:
                    self._known.move_to_end(place)
            if known is None:
                bounds = {"first": row.first, "last": row.last}
                known = QueryCounts.decode(connection.execute(_COUNTS, bounds).scalar_one())
                if not self._database.in_transaction:
                    self._keep(place, known)
            yield known

    def _keep(self, place: tuple[int, int], counts: QueryCounts) -> None:
        with self._lock:
            if place not in self._known:
                self._known[place] = counts
                self._known_bytes += counts.nbytes
            while self._known_bytes > _KEPT_BYTES:
                self._known_bytes -= self._known.popitem(last=False)[1].nbytes


def add_counts(connection: Connection, batch: int, counts: QueryCounts) -> None:
    """Store the result counts of a batch inside the transaction that commits the batch."""
    if not len(counts):
        return
    connection.execute(
        insert(tables.query_counts).values(first=batch, last=batch, counts=counts.encode(), added=False)
    )
    if connection.execute(_TAIL_LENGTH).scalar_one() >= FOLDED:
        fold_counts(connection)


def fold_counts(connection: Connection) -> None:
    """Add the newest counts to the totals and combine their rows, inside a write transaction."""
    tail = connection.execute(_TAIL).all()
    if not tail:
        return
    counts = QueryCounts.merged([QueryCounts.decode(row.counts) for row in tail])
    connection.execute(delete(tables.query_counts).where(_c.added.is_(False)))
    connection.execute(
        insert(tables.query_counts).values(
            first=tail[0].first, last=tail[-1].last, counts=counts.encode(), added=True
        )
    )
    known = set(connection.scalars(select(_qt.query_id)))
    totals = counts.totals()
    grown = [{"of": query_id, "more": rows} for query_id, rows in totals.items() if query_id in known]
    new = [{"query_id": query_id, "rows": rows} for query_id, rows in totals.items() if query_id not in known]
    if grown:
        connection.execute(_ADD, grown)
    if new:
        connection.execute(insert(tables.query_totals), new)


def counts_between(connection: Connection, first: int, end: int) -> QueryCounts:
    """Return the counts of all queries in the batches ``first`` (inclusive) to ``end`` (exclusive)."""
    encoded = connection.scalars(_OVERLAPPING, {"begin": first, "end": end})
    return QueryCounts.merged([QueryCounts.decode(data).between(first, end) for data in encoded])


def drop_counts(connection: Connection, end: int) -> None:
    """Drop the rows of batches before ``end``; a row that also covers later batches stays."""
    connection.execute(delete(tables.query_counts).where(_c.last < end))
