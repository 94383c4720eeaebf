"""Sinks in the catalog: the batches of a series that each sink gets, and the progress of each sink.

Each row of the table is a sink of a series, or a period in which the series has no sink. A sink gets the
batches from the first batch of its row (inclusive) to the first batch of the series' next row (exclusive):

    id   series   sink              from_batch   gets
    3    17       files "alerts"    0            0..3
    5    17       (none)            4            nothing
    8    17       webhook           7            7..

If the change of a sink creates a plan version, the sink's row stores this version instead of the first batch;
``resolve`` stores the batch, too, once the version is in force. Invariant: a new row begins after every
committed batch, so the assignment of committed batches to sinks never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)

from catalog.documents.codec import encode
from catalog.errors import InvariantBroken
from catalog.store.database import tables
from catalog.store.database.database import Database
from catalog.store.database.repository import Repository, next_id
from catalog.store.repositories.counts import CountRepository
from catalog.values.sink import Sink, SinkRecord

_s = tables.sinks.c
_later = tables.sinks.alias("later").c
_other = tables.sinks.alias("other").c
_q = tables.queries.c
_other_q = tables.queries.alias("other_query").c
_b = tables.batches.c


def _first_of_version(version: Any) -> Any:  # Any: columns of any alias
    """Return a subquery for the first batch under a plan version or a later one, or NULL if none exists."""
    return select(func.min(_b.batch)).where(_b.plan_version >= version).scalar_subquery()


_FROM = func.coalesce(_s.from_batch, _first_of_version(_s.from_version))
_UNTIL = (
    select(func.min(func.coalesce(_later.from_batch, _first_of_version(_later.from_version))))
    .where(_later.series == _s.series, _later.id > _s.id)
    .correlate(tables.sinks)
    .scalar_subquery()
)
_ALL = select(
    _s.id,
    _s.series,
    select(func.coalesce(func.max(_q.name), ""))
    .where(_q.series == _s.series)
    .correlate(tables.sinks)
    .scalar_subquery()
    .label("query"),
    _s.document,
    _s.from_version,
    _FROM.label("from_batch"),
    _UNTIL.label("until_batch"),
    _s.next_batch,
    _s.next_row,
    _s.file_end,
    _s.rows,
    _s.batches,
    _s.failures,
    _s.lost,
    _s.lost_rows,
    _s.lost_batch,
    _s.lost_at_us,
    _s.last_batch,
    _s.error,
    _s.error_at_us,
    _s.delivered_at_us,
    _s.created_at_us,
    func.coalesce(
        select(func.min(_later.created_at_us))
        .where(_later.series == _s.series, _later.id > _s.id)
        .correlate(tables.sinks)
        .scalar_subquery(),
        select(func.max(_q.removed_at_us))
        .where(_q.series == _s.series, _q.left_by == "remove")
        .correlate(tables.sinks)
        .scalar_subquery(),
    ).label("ended_at_us"),
).order_by(_s.id)
_OF_SERIES = _ALL.where(_s.series == bindparam("series"))
_WANTED = _ALL.where(_s.document.is_not(None))
_SERIES_IDS = select(_q.id).where(_q.series == bindparam("series"))
_COMMITTED_AT = select(_b.committed_at_us).where(_b.batch == bindparam("batch"))
_LAST_BATCH = select(func.max(_b.batch))
_NEXT_OF_UNRESOLVED = select(func.min(_s.next_batch)).where(_s.document.is_not(None), _s.from_batch.is_(None))
_UNRESOLVED = select(_s.id, _FROM.label("first")).where(_s.from_batch.is_(None))
_FOLLOWED = _ALL.where(_s.from_batch.is_not(None), _UNTIL.is_not(None))
_NONE_FOR_GOOD = and_(_s.document.is_(None), ~exists().where(_other.series == _s.series, _other.id < _s.id))
_OF_GONE_SERIES = ~exists().where(_q.series == _s.series)
_newest_query = select(func.max(_other_q.id)).where(_other_q.series == _s.series).scalar_subquery()
_newest_sink = select(func.max(_other.id)).where(_other.series == _s.series).scalar_subquery()
_LIVE = (
    select(_s.series, _q.name, _s.document)
    .join(tables.queries, _q.series == _s.series)
    .where(
        _s.document.is_not(None),
        _s.id == _newest_sink.correlate(tables.sinks),
        _q.id == _newest_query.correlate(tables.sinks),
        or_(_q.removed_version.is_(None), _q.left_by == "pause"),
    )
    .order_by(_s.id)
)


@dataclass(frozen=True, slots=True)
class Lost:
    """Results that a sink skips.

    Attributes:
        batches: Number of skipped batches with results.
        rows: Number of skipped results, without results of the first batch that were delivered before.
        last: Last skipped batch; None if there is none.
    """

    batches: int = 0
    rows: int = 0
    last: int | None = None

    def __bool__(self) -> bool:
        return self.batches > 0


class SinkRepository(Repository):
    """Sinks of series. A sink is deleted once another one has replaced it and it has got all its batches.

    Args:
        database: Database of the catalog.
        now_us: Function that returns the wall clock, µs UTC.
        counts: Repository of result counts, which tells which batches have results.
    """

    def __init__(self, database: Database, now_us: Callable[[], int], counts: CountRepository) -> None:
        super().__init__(database, now_us)
        self._counts = counts

    def set(self, series: int, sink: Sink | None, from_version: int | None = None) -> int:
        """Set or remove the sink of a series, from a future batch on.

        Args:
            series: Id of the series.
            sink: The new sink; None removes the current sink.
            from_version: Plan version whose first batch is the sink's first batch; None begins with the next
                batch to be committed.

        Returns:
            Id of the new row.
        """
        with self._database.write() as connection:
            last = connection.execute(_LAST_BATCH).scalar()
            following = 0 if last is None else int(last) + 1
            sink_id = next_id(connection, "sink")
            connection.execute(
                insert(tables.sinks).values(
                    id=sink_id,
                    series=series,
                    document=None if sink is None else encode(sink).decode(),
                    from_version=from_version,
                    from_batch=following if from_version is None else None,
                    next_batch=following,
                    next_row=0,
                    rows=0,
                    batches=0,
                    failures=0,
                    lost=0,
                    created_at_us=self._now_us(),
                )
            )
        return sink_id

    def resolve(self) -> None:
        """Store the first batch of each sink that was set with a plan version which is now in force.

        Until the first batch of a sink is stored, each reader finds it by plan version, for which the
        manifest of that batch must still exist.
        """
        with self._database.read() as connection:
            if not any(row.first is not None for row in connection.execute(_UNRESOLVED)):
                return
        with self._database.write() as connection:
            for row in connection.execute(_UNRESOLVED).all():
                if row.first is not None:
                    found = {"from_batch": row.first, "next_batch": row.first}
                    connection.execute(update(tables.sinks).where(_s.id == row.id).values(found))

    def all(self) -> tuple[SinkRecord, ...]:
        """Return all sinks that are kept, by id."""
        with self._database.read() as connection:
            return tuple(self._record(connection, row) for row in connection.execute(_ALL).all())

    def of_series(self, series: int) -> tuple[SinkRecord, ...]:
        """Return the sinks of a series, in the order in which they were requested."""
        with self._database.read() as connection:
            rows = connection.execute(_OF_SERIES, {"series": series}).all()
            return tuple(self._record(connection, row) for row in rows)

    def live(self) -> tuple[tuple[int, str, Sink], ...]:
        """Return (series, name of the query, newest sink) of the running and paused queries with a sink."""
        with self._database.read() as connection:
            rows = connection.execute(_LIVE)
            return tuple((row.series, row.name, _adapter().validate_json(row.document)) for row in rows)

    def pending(self) -> tuple[SinkRecord, ...]:
        """Return the sinks that have undelivered batches with results, by id."""
        with self._database.read() as connection:
            records = [self._record(connection, row) for row in connection.execute(_WANTED).all()]
        return tuple(record for record in records if record.pending)

    def oldest_needed_batch(self) -> int | None:
        """Return the oldest batch whose results a sink still needs, or None if no sink needs a batch.

        The results of this batch and of all later ones must not be dropped.
        """
        with self._database.read() as connection:
            # If the first batch of a sink is not known yet, it may be any batch from ``next_batch`` on.
            needed = [connection.execute(_NEXT_OF_UNRESOLVED).scalar()]
            for row in connection.execute(_WANTED.where(_s.from_batch.is_not(None))).all():
                needed += [batch for batch, _ in self._waiting(connection, row)[:1]]
        return min((batch for batch in needed if batch is not None), default=None)

    def begin_file(self, record: SinkRecord, last: int) -> None:
        """Record the batches of a sink's next file, so that the same file is written again after a crash.

        Args:
            record: The sink as it was read before.
            last: Last batch of the file, which is already committed.

        Raises:
            InvariantBroken: Another process has advanced the sink.
        """
        with self._database.write() as connection:
            self._move(connection, record, {"file_end": last})

    def delivered(self, record: SinkRecord, batch: int, rows: int, *, whole: bool, batches: int = 1) -> None:
        """Record that a sink has got rows of a batch, or all rows of some batches, in order.

        Args:
            record: The sink as it was read before.
            batch: The batch, or the last of several batches.
            rows: Number of rows that the sink got in this delivery.
            whole: Whether the sink now has all rows of ``batch``.
            batches: Number of batches with results that this delivery completes, if ``whole``.

        Raises:
            InvariantBroken: Another process has advanced the sink.
        """
        done = record.next_row if record.next_batch == batch else 0
        moved = {
            "next_batch": batch + 1,
            "next_row": 0,
            "batches": _s.batches + batches,
            "last_batch": batch,
            "file_end": None,
        }
        progress = moved if whole else {"next_batch": batch, "next_row": done + rows}
        with self._database.write() as connection:
            got = {"rows": _s.rows + rows, "delivered_at_us": self._now_us()}
            self._move(connection, record, progress | got)

    def failed(self, sink_id: int, error: str) -> None:
        """Record that an attempt to deliver results to a sink failed."""
        with self._database.write() as connection:
            connection.execute(
                update(tables.sinks)
                .where(_s.id == sink_id)
                .values(failures=_s.failures + 1, error=error, error_at_us=self._now_us())
            )

    def lose(self, record: SinkRecord, before: int) -> Lost:
        """Let a sink skip batches that wait for it, and count the skipped batches and results.

        A file that has been begun may already be complete, so its batches are skipped only together.

        Args:
            record: The sink as it was read before.
            before: First batch that is not skipped.

        Returns:
            Counts of the skipped results, which are 0 if the sink has advanced since it was read.
        """
        if record.file_end is not None and record.file_end >= before:
            return Lost()
        with self._database.write() as connection:
            row = connection.execute(_ALL.where(_as_found(record))).first()
            waiting = [] if row is None else self._waiting(connection, row)
            gone = [(batch, rows) for batch, rows in waiting if batch < before]
            if not gone:
                return Lost()
            last = gone[-1][0]
            lost = Lost(len(gone), sum(rows for _, rows in gone) - record.next_row, last)
            facts = {
                "next_batch": before,
                "next_row": 0,
                "file_end": None,
                "lost": _s.lost + lost.batches,
                "lost_rows": _s.lost_rows + lost.rows,
                "lost_batch": last,
                "lost_at_us": self._now_us(),
            }
            self._move(connection, record, facts)
        return lost

    def drop_spent(self) -> int:
        """Delete rows that neither a delivery nor a request needs any more; return their number."""
        with self._database.read() as connection:
            unwanted = select(_s.id).where(or_(_NONE_FOR_GOOD, _OF_GONE_SERIES)).limit(1)
            if connection.execute(unwanted).first() is None and not self._spent(connection):
                return 0
        dropped = 0
        with self._database.write() as connection:
            # Rows without a sink come last, because they can be deleted only after the former sinks of their
            # series.
            for find in (_of(_OF_GONE_SERIES), self._spent, _of(_NONE_FOR_GOOD)):
                ids = find(connection)
                connection.execute(delete(tables.sinks).where(_s.id.in_(ids)))
                dropped += len(ids)
        return dropped

    def _spent(self, connection: Connection) -> list[int]:
        """Return ids of the sinks that a later row has replaced and that have got all their batches."""
        rows = connection.execute(_FOLLOWED).all()
        return [row.id for row in rows if not self._waiting(connection, row)]

    def _waiting(self, connection: Connection, row: Row[*tuple[Any, ...]]) -> list[tuple[int, int]]:
        """Return (batch, number of results) for the batches that wait for the sink of a row."""
        if row.document is None or row.from_batch is None:
            return []
        ids = tuple(connection.scalars(_SERIES_IDS, {"series": row.series}))
        first = max(row.next_batch, row.from_batch)
        return [(batch, rows) for batch, _, rows in self._counts.of_queries(ids, first, end=row.until_batch)]

    def _record(self, connection: Connection, row: Row[*tuple[Any, ...]]) -> SinkRecord:
        """Return the record of a row of ``_ALL``."""
        facts = dict(row._mapping)
        document = facts.pop("document")
        waiting = self._waiting(connection, row)
        first = waiting[0][0] if waiting else None
        since_us = connection.execute(_COMMITTED_AT, {"batch": first}).scalar() if waiting else None
        sink = None if document is None else _adapter().validate_json(document)
        return SinkRecord(
            sink=sink, pending=len(waiting), waiting_from=first, waiting_since_us=since_us, **facts
        )

    def _move(self, connection: Connection, record: SinkRecord, facts: Mapping[str, Any]) -> None:
        changed = connection.execute(update(tables.sinks).where(_as_found(record)).values(**facts))
        if changed.rowcount != 1:
            raise InvariantBroken(f"sink {record.id} is not at batch {record.next_batch} any more")


@cache
def _adapter() -> TypeAdapter[Sink]:
    return TypeAdapter(Sink)


def _of(condition: ColumnElement[bool]) -> Callable[[Connection], list[int]]:
    """Return a function that finds the ids of the sinks that meet a condition."""
    return lambda connection: list(connection.scalars(select(_s.id).where(condition)))


def _as_found(record: SinkRecord) -> ColumnElement[bool]:
    """Return the SQL condition that a sink has not advanced since it was read."""
    return and_(_s.id == record.id, _s.next_batch == record.next_batch, _s.next_row == record.next_row)
