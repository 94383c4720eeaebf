"""Queries in the catalog: running under a unique name, then kept for their results."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, bindparam, insert, select, update

from catalog import tables
from catalog.codec import decode, encode
from catalog.errors import InvariantBroken, NameTaken, QueryNotFound
from catalog.part import StorePart, did_you_mean, next_id
from catalog.values.query import Query
from catalog.values.query_record import QueryRecord

_q = tables.queries.c
_ALL = select(_q.document, _q.added_version, _q.removed_version, _q.created_at_us, _q.removed_at_us).order_by(
    _q.id
)
_RUNNING = _ALL.where(_q.removed_version.is_(None))
_RUNNING_BY_NAME = _RUNNING.where(_q.folded_name == bindparam("name"))
_NEWEST_BY_NAME = (
    _ALL.where(_q.folded_name == bindparam("name")).order_by(None).order_by(_q.id.desc()).limit(1)
)
_BY_ID = _ALL.where(_q.id == bindparam("id"))


class QueryStore(StorePart):
    """Queries. A name is unique among running queries, without regard to case."""

    def reserve_query_id(self) -> int:
        """Return a query id that no query had or will have."""
        with self._database.write() as connection:
            return next_id(connection, "query")

    def add_query(self, query: Query, version: int = 0) -> QueryRecord:
        """Add a running query.

        Args:
            query: The query, its id from ``reserve_query_id``.
            version: Plan version that activates it; 0 if it is set later.

        Returns:
            Its record.

        Raises:
            NameTaken: A running query has that name.
            InvariantBroken: Its id was not reserved, or is taken.
        """
        record = QueryRecord(query, version, None, self._now_us(), None)
        with self._database.write() as connection:
            if connection.execute(_RUNNING_BY_NAME, {"name": query.name.lower()}).first():
                raise NameTaken(
                    f'query "{query.name}" exists already', hint="Choose another name, or remove it first."
                )
            reserved = connection.execute(
                select(tables.counters.c.value).where(tables.counters.c.name == "query")
            ).scalar()
            if not 0 < query.id <= (reserved or 0):
                raise InvariantBroken(f"query id {query.id} was not reserved")
            connection.execute(
                insert(tables.queries).values(
                    id=query.id,
                    name=query.name,
                    folded_name=query.name.lower(),
                    stream_a=query.a.stream_id,
                    stream_b=query.b.stream_id,
                    document=encode(query).decode(),
                    added_version=version,
                    created_at_us=record.created_at_us,
                )
            )
        return record

    def set_query_version(self, query_id: int, version: int) -> None:
        """Set the plan version that activates a query.

        Args:
            query_id: The query.
            version: The plan version.

        Raises:
            QueryNotFound: No query has that id.
        """
        with self._database.write() as connection:
            changed = connection.execute(
                update(tables.queries).where(_q.id == query_id).values(added_version=version)
            )
            if changed.rowcount != 1:
                raise QueryNotFound(f"query {query_id} does not exist")

    def queries(self) -> tuple[QueryRecord, ...]:
        """Return the running queries, by id."""
        with self._database.read() as connection:
            return tuple(_record(row) for row in connection.execute(_RUNNING))

    def all_queries(self) -> tuple[QueryRecord, ...]:
        """Return all queries ever, removed ones included, by id."""
        with self._database.read() as connection:
            return tuple(_record(row) for row in connection.execute(_ALL))

    def query(self, name: str) -> QueryRecord:
        """Return a running query.

        Args:
            name: Its name, in any case.

        Returns:
            Its record.

        Raises:
            QueryNotFound: No running query has that name.
        """
        with self._database.read() as connection:
            row = connection.execute(_RUNNING_BY_NAME, {"name": name.lower()}).first()
        if row is None:
            raise self._not_found(name)
        return _record(row)

    def newest_query(self, name: str) -> QueryRecord:
        """Return the newest query of a name, running or removed.

        Args:
            name: Its name, in any case.

        Returns:
            Its record.

        Raises:
            QueryNotFound: No query ever had that name.
        """
        with self._database.read() as connection:
            row = connection.execute(_NEWEST_BY_NAME, {"name": name.lower()}).first()
        if row is None:
            raise self._not_found(name)
        return _record(row)

    def query_by_id(self, query_id: int) -> QueryRecord:
        """Return a query, also a removed one.

        Args:
            query_id: Its id.

        Returns:
            Its record.

        Raises:
            QueryNotFound: No query has that id.
        """
        with self._database.read() as connection:
            row = connection.execute(_BY_ID, {"id": query_id}).first()
        if row is None:
            raise QueryNotFound(f"query {query_id} does not exist")
        return _record(row)

    def remove_query(self, name: str, version: int) -> QueryRecord:
        """Mark a running query as removed.

        Args:
            name: Its name, in any case.
            version: First plan version without it.

        Returns:
            Its record afterwards.

        Raises:
            QueryNotFound: No running query has that name.
        """
        with self._database.write() as connection:
            query_id = self.query(name).query.id
            connection.execute(
                update(tables.queries)
                .where(_q.id == query_id)
                .values(removed_version=version, removed_at_us=self._now_us())
            )
            return self.query_by_id(query_id)

    def _not_found(self, name: str) -> QueryNotFound:
        """Error that names the nearest running query."""
        return QueryNotFound(
            f'query "{name}" does not exist',
            hint=did_you_mean(name, (record.query.name for record in self.queries())),
        )


def _record(row: Row[*tuple[Any, ...]]) -> QueryRecord:
    """Record of a row of ``_ALL``."""
    return QueryRecord(
        query=decode(Query, row.document),
        added_version=row.added_version,
        removed_version=row.removed_version,
        created_at_us=row.created_at_us,
        removed_at_us=row.removed_at_us,
    )
