"""Running, paused and removed queries in the catalog; a removed query stays while its results stay.

The records are ``catalog.values.query.QueryRecord``. This module adds records, marks queries as having left
the plan, and finds records by name, id and series.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import Row, and_, bindparam, exists, insert, or_, select, update

from catalog.documents.codec import decode, encode
from catalog.errors import InvariantBroken, NameTaken, QueryNotFound
from catalog.steps import stream_sides
from catalog.store.database import tables
from catalog.store.database.database import Database
from catalog.store.database.repository import Repository, all_rows, next_ids, parts
from catalog.values.query import LeftBy, Query, QueryRecord
from catalog.wording.wording import did_you_mean

#: Number of decoded queries that a process caches besides the running ones: queries whose results are read,
#: and queries that were just resumed or removed.
QUERIES_KEPT = 512

_q = tables.queries.c
_later = tables.queries.alias("later")
_ALL = select(
    _q.document,
    _q.added_version,
    _q.removed_version,
    _q.created_at_us,
    _q.removed_at_us,
    _q.series,
    _q.left_by,
    _q.missing,
    _q.pause_reason,
).order_by(_q.id)
#: Condition for a query that is still paused. Its series has no later query, because the query was not
#: resumed or updated since.
PAUSED = and_(
    _q.left_by == "pause",
    ~exists().where(_later.c.series == _q.series, _later.c.id > _q.id),
)
_RUNNING = _ALL.where(_q.removed_version.is_(None))
_PAUSED = _ALL.where(PAUSED)
_NAME = _q.folded_name == bindparam("name")
_WANTED_BY_NAME = _ALL.where(_NAME, or_(_q.removed_version.is_(None), PAUSED))
_WANTED_BY_NAMES = _ALL.where(
    _q.folded_name.in_(bindparam("names", expanding=True)), or_(_q.removed_version.is_(None), PAUSED)
)
_NAMES = select(_q.id, _q.name).order_by(_q.id)
_WANTED_NAMES = _NAMES.where(or_(_q.removed_version.is_(None), PAUSED))
_NEWEST_BY_NAME = _ALL.where(_NAME).order_by(None).order_by(_q.id.desc()).limit(1)
_BY_ID = _ALL.where(_q.id == bindparam("id"))
_BY_IDS = _ALL.where(_q.id.in_(bindparam("ids", expanding=True)))
_BY_SERIES = _ALL.where(_q.series == bindparam("series"))
_SERIES_IDS = select(_q.id).where(_q.series == bindparam("series")).order_by(_q.id)
_SERIES = select(_q.series, _q.id).where(_q.series.in_(bindparam("series", expanding=True))).order_by(_q.id)
_OVER = _ALL.where(
    _q.stream_a == bindparam("a"),
    _q.stream_b == bindparam("b"),
    or_(_q.removed_version.is_(None), _q.removed_version > bindparam("version")),
)
_BEFORE = (
    _ALL.where(_q.series == bindparam("series"), _q.id < bindparam("id"))
    .order_by(None)
    .order_by(_q.id.desc())
    .limit(1)
)


@dataclass(frozen=True, slots=True)
class EnteringQuery:
    """A query that enters the plan.

    Attributes:
        query: The query, with an id from ``reserve_ids``.
        series: Id of the series that the query continues; None if it starts a series.
        missing: Columns that rows stored before its activation lack (``QueryRecord.missing``).
    """

    query: Query
    series: int | None = None
    missing: tuple[str, ...] = ()


class QueryRepository(Repository):
    """Queries. A name is unique among running and paused queries, without regard to case.

    Args:
        database: Database of the catalog.
        now_us: Function that returns the wall clock, µs UTC.
    """

    def __init__(self, database: Database, now_us: Callable[[], int]) -> None:
        super().__init__(database, now_us)
        # Result of the last read, by row. It is kept because each change reads all running queries, of which
        # only few are new. A cache by query id also kept thousands of queries that had left, which took 2% of
        # the process's memory.
        self._running: dict[tuple[Any, ...], QueryRecord] = {}

    def reserve_ids(self, count: int) -> range:
        """Reserve new query ids and return them, ascending; ids are never reused."""
        with self._database.write() as connection:
            return next_ids(connection, "query", count)

    def add(
        self, query: Query, version: int, *, series: int | None = None, missing: tuple[str, ...] = ()
    ) -> QueryRecord:
        """Add one running query; ``add_all`` describes the arguments and errors."""
        return self.add_all((EnteringQuery(query, series, missing),), version)[0]

    def add_all(self, entering: Sequence[EnteringQuery], version: int) -> tuple[QueryRecord, ...]:
        """Add running queries, with one statement for thousands of them.

        Args:
            entering: The queries.
            version: Plan version that activates them.

        Returns:
            The records of the queries, in the order of ``entering``.

        Raises:
            NameTaken: A running or paused query of another series has one of the names.
            InvariantBroken: An id was not reserved, or another query has it.
        """
        now_us = self._now_us()
        records = tuple(
            QueryRecord(
                query=new.query,
                added_version=version,
                removed_version=None,
                created_at_us=now_us,
                removed_at_us=None,
                series=new.query.id if new.series is None else new.series,
                left_by=None,
                missing=new.missing,
            )
            for new in entering
        )
        with self._database.write() as connection:
            taken = self.find_all([new.query.name for new in entering])
            for new in entering:
                found = taken.get(new.query.name.lower())
                if found is not None and (found.series != new.series or found.running):
                    raise NameTaken(
                        f'query "{new.query.name}" exists already',
                        hint="Choose another name, or remove it first.",
                    )
            reserved = connection.execute(
                select(tables.counters.c.value).where(tables.counters.c.name == "query")
            ).scalar()
            for new in entering:
                if not 0 < new.query.id <= (reserved or 0):
                    raise InvariantBroken(f"query id {new.query.id} was not reserved")
            if records:
                rows = [_row_of(record) for record in records]
                connection.execute(insert(tables.queries), rows)
                # The next plan reads all running queries, so the added ones are cached in decoded form.
                self._running |= {_as_read(row): each for row, each in zip(rows, records, strict=True)}
        return records

    def running(self) -> tuple[QueryRecord, ...]:
        """Return the running queries, by id."""
        with self._database.read() as connection:
            rows = all_rows(connection, _RUNNING)
        found = {tuple(row): self._query_record(row) for row in rows}
        self._running = dict(sorted(found.items(), key=lambda item: item[1].query.id))
        return tuple(self._running.values())

    def paused(self) -> tuple[QueryRecord, ...]:
        """Return the paused queries, by id."""
        with self._database.read() as connection:
            return self._by_id(all_rows(connection, _PAUSED))

    def all(self) -> tuple[QueryRecord, ...]:
        """Return all queries in the catalog, including removed ones, by id."""
        with self._database.read() as connection:
            return self._by_id(all_rows(connection, _ALL))

    def names(self) -> dict[int, str]:
        """Return the names of all queries in the catalog, including removed ones, by id."""
        with self._database.read() as connection:
            return dict(sorted(all_rows(connection, _NAMES)))

    def wanted_names(self) -> dict[int, str]:
        """Return the names of the queries that run or are paused, by id."""
        with self._database.read() as connection:
            return dict(sorted(all_rows(connection, _WANTED_NAMES)))

    def get(self, name: str) -> QueryRecord:
        """Return a running or paused query.

        Args:
            name: Name of the query, in any case.

        Returns:
            The query's record.

        Raises:
            QueryNotFound: No running or paused query has that name.
        """
        found = self.find(name)
        if found is None:
            raise self._not_found(name)
        return found

    def find(self, name: str) -> QueryRecord | None:
        """Return the running or paused query with a name, in any case, or None if there is none."""
        with self._database.read() as connection:
            row = connection.execute(_WANTED_BY_NAME, {"name": name.lower()}).first()
        return None if row is None else self._query_record(row)

    def find_all(self, names: Iterable[str]) -> dict[str, QueryRecord]:
        """Return the running and paused queries with the given names, by name in lower case."""
        folded = sorted({name.lower() for name in names})
        with self._database.read() as connection:
            rows = [
                row
                for some in parts(folded)
                for row in all_rows(connection, _WANTED_BY_NAMES, {"names": some})
            ]
        records = map(self._query_record, rows)
        return {record.query.name.lower(): record for record in records}

    def newest(self, name: str) -> QueryRecord:
        """Return the newest query with a name, even if it does not run.

        Args:
            name: Name of the query, in any case.

        Returns:
            The query's record.

        Raises:
            QueryNotFound: No query in the catalog has that name.
        """
        with self._database.read() as connection:
            row = connection.execute(_NEWEST_BY_NAME, {"name": name.lower()}).first()
        if row is None:
            raise self._not_found(name)
        return self._query_record(row)

    def by_id(self, query_id: int) -> QueryRecord:
        """Return a query, even a removed one.

        Args:
            query_id: Id of the query.

        Returns:
            The query's record.

        Raises:
            QueryNotFound: No query has that id.
        """
        with self._database.read() as connection:
            row = connection.execute(_BY_ID, {"id": query_id}).first()
        if row is None:
            raise QueryNotFound(f"query {query_id} does not exist")
        return self._query_record(row)

    def by_ids(self, ids: Collection[int]) -> tuple[QueryRecord, ...]:
        """Return the queries with the given ids, by id; unknown ids are ignored."""
        with self._database.read() as connection:
            rows = [
                row for some in parts(sorted(ids)) for row in all_rows(connection, _BY_IDS, {"ids": some})
            ]
        return self._by_id(rows)

    def series(self, series: int) -> tuple[QueryRecord, ...]:
        """Return the queries of a series, by id, which is the order in which they were added.

        Raises:
            QueryNotFound: There is no such series.
        """
        with self._database.read() as connection:
            found = tuple(
                self._query_record(row) for row in connection.execute(_BY_SERIES, {"series": series})
            )
        if not found:
            raise QueryNotFound(f"query series {series} does not exist")
        return found

    def series_ids(self, series: int) -> tuple[int, ...]:
        """Return the ids of the queries of a series, in the order in which they were added."""
        with self._database.read() as connection:
            return tuple(connection.scalars(_SERIES_IDS, {"series": series}))

    def ids_of_series(self, series: Iterable[int]) -> dict[int, tuple[int, ...]]:
        """Return the ids of the queries of each given series, in the order in which they were added."""
        wanted = sorted(set(series))
        found: dict[int, list[int]] = {each: [] for each in wanted}
        with self._database.read() as connection:
            for some in parts(wanted):
                for row in all_rows(connection, _SERIES, {"series": some}):
                    found[row.series].append(row.id)
        return {each: tuple(sorted(ids)) for each, ids in found.items()}

    def over(self, stream_a: int, stream_b: int, after_version: int) -> tuple[QueryRecord, ...]:
        """Return the queries over two streams that were in a plan after a given version, by id.

        Args:
            stream_a: Id of the stream that is side a.
            stream_b: Id of the stream that is side b.
            after_version: The given plan version; queries that left with this version or before are left out.
        """
        bounds = {"a": stream_a, "b": stream_b, "version": after_version}
        with self._database.read() as connection:
            return self._by_id(all_rows(connection, _OVER, bounds))

    def before(self, record: QueryRecord) -> QueryRecord | None:
        """Return the previous query of a query's series, or None for the first query."""
        with self._database.read() as connection:
            row = connection.execute(_BEFORE, {"series": record.series, "id": record.query.id}).first()
        return None if row is None else self._query_record(row)

    def leave(
        self, query_id: int, version: int, by: LeftBy, *, pause_reason: str | None = None
    ) -> QueryRecord:
        """Mark a running query as having left the plan.

        Args:
            query_id: Id of the query.
            version: First plan version without the query.
            by: Operation that takes the query out of the plan.
            pause_reason: Reason for a pause by the engine; None for all other operations.

        Returns:
            The changed record of the query.

        Raises:
            QueryNotFound: No running query has that id.
        """
        with self._database.write() as connection:
            changed = connection.execute(
                update(tables.queries)
                .where(_q.id == query_id, _q.removed_version.is_(None))
                .values(
                    removed_version=version,
                    removed_at_us=self._now_us(),
                    left_by=by,
                    pause_reason=pause_reason,
                )
            )
            if changed.rowcount != 1:
                raise QueryNotFound(f"query {query_id} does not run")
            return self.by_id(query_id)

    def remove(self, name: str, version: int) -> QueryRecord:
        """Mark a running or paused query as removed.

        Args:
            name: Name of the query, in any case.
            version: First plan version without the query; a query that is already paused keeps the version of
                its pause.

        Returns:
            The changed record of the query.

        Raises:
            QueryNotFound: No running or paused query has that name.
        """
        with self._database.write() as connection:
            record = self.get(name)
            if record.running:
                return self.leave(record.query.id, version, "remove")
            connection.execute(
                update(tables.queries)
                .where(_q.id == record.query.id)
                .values(removed_at_us=self._now_us(), left_by="remove")
            )
            return self.by_id(record.query.id)

    def _by_id(self, rows: Iterable[Row[*tuple[Any, ...]]]) -> tuple[QueryRecord, ...]:
        """Return the records of rows of ``_ALL``, by id."""
        return tuple(sorted(map(self._query_record, rows), key=lambda record: record.query.id))

    def _query_record(self, row: Row[*tuple[Any, ...]]) -> QueryRecord:
        """Return the record of a row of ``_ALL``."""
        return self._running.get(tuple(row)) or _record_of(*row)

    def _not_found(self, name: str) -> QueryNotFound:
        """Return an error that suggests the running or paused query with the most similar name."""
        wanted = (*self.running(), *self.paused())
        return QueryNotFound(
            f'query "{name}" does not exist',
            hint=did_you_mean(name, (record.query.name for record in wanted)),
        )


def _row_of(record: QueryRecord) -> dict[str, Any]:
    """Return the row of the table for an added query."""
    query = record.query
    # A query over more than two streams is stored under the two streams of its first step.
    first, second, *_ = stream_sides(query)
    return {
        "id": query.id,
        "name": query.name,
        "folded_name": query.name.lower(),
        "stream_a": first.stream_id,
        "stream_b": second.stream_id,
        "document": encode(query).decode(),
        "added_version": record.added_version,
        "created_at_us": record.created_at_us,
        "series": record.series,
        "missing": json.dumps(record.missing),
    }


def _as_read(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return an added query's row with the columns that ``_ALL`` selects."""
    return tuple(row.get(column.name) for column in _ALL.selected_columns)


def _record_of(
    document: str,
    added_version: int,
    removed_version: int | None,
    created_at_us: int,
    removed_at_us: int | None,
    series: int,
    left_by: LeftBy | None,
    missing: str,
    pause_reason: str | None,
) -> QueryRecord:
    return QueryRecord(
        query=_query(document),
        added_version=added_version,
        removed_version=removed_version,
        created_at_us=created_at_us,
        removed_at_us=removed_at_us,
        series=series,
        left_by=left_by,
        missing=tuple(json.loads(missing)),
        pause_reason=pause_reason,
    )


@lru_cache(maxsize=QUERIES_KEPT)
def _query(document: str) -> Query:
    """Decode a query's document, which never changes, even when the query leaves the plan."""
    return decode(Query, document)
