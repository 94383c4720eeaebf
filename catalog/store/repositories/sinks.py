"""Sinks in the catalog: which sink gets which batches of a series, and how far each of them is.

A row is a sink that was set, or none for a while. It gets the batches from its own first one up to the first
one of any later row of its series:

    id   series   sink              from_batch   gets
    3    17       files "alerts"    0            0..3
    5    17       (none)            4            nothing
    8    17       webhook           7            7..

A change that makes a plan version names it in place of the batch; ``resolve`` puts the batch in once
the version is in force. Invariant: a new row begins behind every committed batch, so what a reader of the
last batch number finds afterwards about the batches up to it stays true.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import (
    ColumnElement,
    Row,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)

from catalog.errors import InvariantBroken
from catalog.store import tables
from catalog.store.codec import encode
from catalog.store.repository import Repository, next_id
from catalog.values.sink import Sink, SinkRecord

_s = tables.sinks.c
_later = tables.sinks.alias("later").c
_other = tables.sinks.alias("other").c
_q = tables.queries.c
_other_q = tables.queries.alias("other_query").c
_bq = tables.batch_queries.c
_b = tables.batches.c


def _first_of_version(version: Any) -> Any:  # Any: columns of any alias
    """Return a subquery: the first batch under a plan version or a later one, none before there is one."""
    return select(func.min(_b.batch)).where(_b.plan_version >= version).scalar_subquery()


_FROM = func.coalesce(_s.from_batch, _first_of_version(_s.from_version))
_UNTIL = (
    select(func.min(func.coalesce(_later.from_batch, _first_of_version(_later.from_version))))
    .where(_later.series == _s.series, _later.id > _s.id)
    .correlate(tables.sinks)
    .scalar_subquery()
)
_WAITS = and_(
    _s.document.is_not(None),
    _q.series == _s.series,
    _bq.batch >= _s.next_batch,
    _bq.batch >= _FROM,
    or_(_UNTIL.is_(None), _bq.batch < _UNTIL),
)


def _of_waiting(what: Any) -> Any:  # Any: a column expression of any type
    """Return a subquery over the batches with results that wait for the sink of the row."""
    return (
        select(what)
        .select_from(tables.batch_queries.join(tables.queries, _q.id == _bq.query_id))
        .where(_WAITS)
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
    _of_waiting(func.count()).label("pending"),
    _s.rows,
    _s.batches,
    _s.failures,
    _s.lost,
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
# The subquery instead of its column's name: SQLite would take either, PostgreSQL only this.
_PENDING = _ALL.where(_of_waiting(func.count()) > 0)
_LAST_BATCH = select(func.max(_b.batch))
_NEEDED = select(
    func.min(case((_s.from_batch.is_(None), _s.next_batch), else_=_of_waiting(func.min(_bq.batch))))
).where(_s.document.is_not(None))
_UNRESOLVED = select(_s.id, _FROM.label("first")).where(_s.from_batch.is_(None))
# A sink that has been followed by another and has delivered all that is its own.
_SPENT = select(_s.id).where(_s.from_batch.is_not(None), _UNTIL.is_not(None), _of_waiting(func.count()) == 0)
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


class SinkRepository(Repository):
    """Sinks of series. A sink is deleted once another has followed it and it has delivered everything."""

    def set(self, series: int, sink: Sink | None, from_version: int | None = None) -> int:
        """Give a series a sink, or none, from the next batch on.

        Args:
            series: The series.
            sink: The sink; None takes the present one away.
            from_version: Plan version whose first batch is the first one it gets; None is the next batch to
                be committed.

        Returns:
            Its id.
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
        """Write down the first batches of sinks that came with a plan version, where it is in force.

        Until then it is looked up each time, which needs that batch.
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
            return tuple(_record(row) for row in connection.execute(_ALL))

    def of_series(self, series: int) -> tuple[SinkRecord, ...]:
        """Return the sinks of a series, the one that was asked for last at the end."""
        with self._database.read() as connection:
            return tuple(_record(row) for row in connection.execute(_OF_SERIES, {"series": series}))

    def live(self) -> tuple[tuple[int, str, Sink], ...]:
        """Return (series, name of the query, sink wanted) of running and paused queries that have one."""
        with self._database.read() as connection:
            rows = connection.execute(_LIVE)
            return tuple((row.series, row.name, _adapter().validate_json(row.document)) for row in rows)

    def pending(self) -> tuple[SinkRecord, ...]:
        """Return the sinks for which batches with results wait, by id."""
        with self._database.read() as connection:
            return tuple(_record(row) for row in connection.execute(_PENDING))

    def oldest_needed_batch(self) -> int | None:
        """Return the oldest batch whose results a sink still needs; None if none needs any that is there.

        Whoever drops results must keep those of this batch and of all later ones.
        """
        with self._database.read() as connection:
            found = connection.execute(_NEEDED).scalar()
        return None if found is None else int(found)

    def delivered(self, record: SinkRecord, batch: int, rows: int, *, whole: bool) -> None:
        """Record that a sink has got rows of a batch, in order.

        Args:
            record: The sink as it was before.
            batch: The batch.
            rows: Rows that it got now.
            whole: Whether these are the last rows of the batch.

        Raises:
            InvariantBroken: Somebody else has moved the sink.
        """
        done = record.next_row if record.next_batch == batch else 0
        moved = {"next_batch": batch + 1, "next_row": 0, "batches": _s.batches + 1, "last_batch": batch}
        with self._database.write() as connection:
            changed = connection.execute(
                update(tables.sinks)
                .where(_as_found(record))
                .values(
                    rows=_s.rows + rows,
                    delivered_at_us=self._now_us(),
                    **(moved if whole else {"next_batch": batch, "next_row": done + rows}),
                )
            )
            if changed.rowcount != 1:
                raise InvariantBroken(f"sink {record.id} is not at batch {record.next_batch} any more")

    def failed(self, sink_id: int, error: str) -> None:
        """Record that an attempt to deliver failed."""
        with self._database.write() as connection:
            connection.execute(
                update(tables.sinks)
                .where(_s.id == sink_id)
                .values(failures=_s.failures + 1, error=error, error_at_us=self._now_us())
            )

    def give_up(self, record: SinkRecord, last: int) -> bool:
        """Let a sink go without the batches that wait for it.

        Args:
            record: The sink, as it was found after ``last`` was the last committed batch.
            last: Last batch that it goes without.

        Returns:
            Whether it did; not if it has moved since.
        """
        with self._database.write() as connection:
            changed = connection.execute(
                update(tables.sinks)
                .where(_as_found(record))
                .values(next_batch=last + 1, next_row=0, lost=_s.lost + record.pending)
            )
        return bool(changed.rowcount)

    def drop_spent(self) -> int:
        """Delete sinks that nothing is left to do for and that nobody can ask about; return how many."""
        unwanted = or_(_s.id.in_(_SPENT), _NONE_FOR_GOOD, _OF_GONE_SERIES)
        with self._database.read() as connection:
            if connection.execute(select(_s.id).where(unwanted).limit(1)).first() is None:
                return 0
        dropped = 0
        with self._database.write() as connection:
            # One after the other: that a series has none is not worth a row once its former sinks have gone.
            for condition in (_OF_GONE_SERIES, _s.id.in_(_SPENT), _NONE_FOR_GOOD):
                ids = list(connection.scalars(select(_s.id).where(condition)))
                connection.execute(delete(tables.sinks).where(_s.id.in_(ids)))
                dropped += len(ids)
        return dropped


@cache
def _adapter() -> TypeAdapter[Sink]:
    return TypeAdapter(Sink)


def _record(row: Row[*tuple[Any, ...]]) -> SinkRecord:
    """Record of a row of ``_ALL``."""
    facts = dict(row._mapping)
    document = facts.pop("document")
    sink = None if document is None else _adapter().validate_json(document)
    return SinkRecord(sink=sink, **facts)


def _as_found(record: SinkRecord) -> ColumnElement[bool]:
    """Condition that a sink has not moved since."""
    return and_(_s.id == record.id, _s.next_batch == record.next_batch, _s.next_row == record.next_row)
