"""The event log: a database in which posted events are durable before they are acknowledged.

A request becomes one blob, an Arrow IPC stream of its rows, under the offset of its first event:

    stream 7:  [0 .. 2]  [3]  [4 .. 9]   head 10

Invariant: the blobs of a stream cover the offsets from its oldest event up to its head without gaps or
overlaps. Blob and head are written in one transaction, which is synced to disk before ``append`` returns. The
same transaction writes the receipt of a request that may be sent again, so a repeated request is appended
only once, even if a crash lost its answer. The oldest event is the first one posted, until events that no
batch can read again are dropped (``service.workspace.input_retention``).

The database is SQLite's ``events.db`` in the data directory, or the PostgreSQL database of the catalog, which
workers on other machines can read, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, Row, delete, func, insert, select, update

from catalog.columns.arrow_types import PUNCTUATION_COLUMN, arrow_schema
from catalog.errors import CatalogDown, IdempotencyKeyReused, InvariantBroken
from catalog.store.database.database import EVENTS_LOCK, Database, copy_tables
from catalog.times.clock import wall_clock_us
from catalog.times.durations import MIN_TIME_US
from catalog.values.stream import Stream
from service.errors import EventLogDown
from service.inputs.limits.backlog import Backlog, RunningBacklogs
from service.inputs.partitions import Piece
from service.inputs.sources.posted.event_reader import decode, encode, log_down, read_events, shown, url_of
from service.inputs.sources.posted.event_tables import EventTables, event_tables
from service.inputs.sources.posted.events import parted
from service.inputs.sources.posted.promises import posted_table

#: Number of newest requests per stream whose quarantined rows are kept; older rows are only counted.
_QUARANTINE_KEPT: Final = 100

#: Number of requests that one step of a deletion drops. A step takes a few milliseconds, during which no
#: event can be appended.
_DROPPED_AT_ONCE: Final = 256

#: Seconds within which a request can be sent again: as long as its answer is kept
#: (``store.clients.idempotency``).
_RECEIPTS_KEPT_S: Final = 24 * 3600


@dataclass(frozen=True, slots=True)
class Sending:
    """A request that may be sent again.

    Attributes:
        key: Idempotency key of the request.
        fingerprint: Hash of the request.
    """

    key: str
    fingerprint: str


class EventLog:
    """The event log of one service; threads may share the object, but each process must open its own.

    Args:
        place: SQLite file, which is created if it is missing, or SQLAlchemy URL.

    Attributes:
        url: SQLAlchemy URL.

    Raises:
        EventLogDown: The database cannot be opened or is not an event log.
    """

    def __init__(self, place: str | Path) -> None:
        self.url = url_of(place)
        self._lock = Lock()
        with _translated(self.url):
            self._database = Database(self.url, lock=EVENTS_LOCK)
            self._tables = event_tables(self._database.file is None)
            try:
                self._database.use_wal()
                with self._database.write() as connection:
                    self._tables.metadata.create_all(connection)
            except BaseException:
                self._database.close()
                raise
        self._backlogs = RunningBacklogs(self._begin, self._size)

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    @property
    def file(self) -> Path | None:
        """Path of the SQLite file, or None on PostgreSQL."""
        return self._database.file

    def identity(self) -> str | None:
        """Return the identity of the catalog that the streams belong to, or None if it was never set."""
        with self._read() as connection:
            found = connection.execute(select(self._tables.identity.c.id)).scalar()
        return None if found is None else str(found)

    def set_identity(self, identity: str) -> None:
        """Store the identity of the catalog that the streams belong to."""
        with self._write() as connection:
            connection.execute(delete(self._tables.identity))
            connection.execute(insert(self._tables.identity), {"id": identity})

    def copy_to(self, target: EventLog) -> int:
        """Replace the content of another log with this log's content and identity; return the number of rows.

        Raises:
            EventLogDown: One of the logs cannot be used.
        """
        both = zip(self._tables.metadata.sorted_tables, target._tables.metadata.sorted_tables, strict=True)
        with _translated(target.url):
            return copy_tables(self._database, target._database, list(both))

    def append(
        self, stream: Stream, events: Sequence[object], sending: Sending | None = None
    ) -> tuple[int, int]:
        """Store events, all or none, and return once they are durable.

        Args:
            stream: Stream with an ``http`` source.
            events: Objects parsed from JSON; some may be punctuations if the stream has a contract for them.
            sending: Key and hash of a request that the client may send again, so that its events are stored
                only once. None if the client does not repeat the request.

        Returns:
            Offsets of the first and the last event; (head, head - 1) for no events. Events further ahead of
            the clock than the stream allows are quarantined and have no offsets.

        Raises:
            EventRejected: An event does not fit the stream; nothing is stored.
            IdempotencyKeyReused: The key belongs to another request; nothing is stored.
            EventLogDown: The log cannot be written; nothing is stored.
        """
        table, ahead = parted(stream, posted_table(stream, events), wall_clock_us())
        if ahead is not None and PUNCTUATION_COLUMN in ahead.column_names:
            ahead = ahead.drop_columns(PUNCTUATION_COLUMN)
        if not table.num_rows:
            if ahead is not None:
                with self._write() as connection:
                    self._quarantine(connection, stream, ahead)
            head = self.end(stream.id)
            return head, head - 1
        extremes = pc.min_max(table.column(stream.event_time).cast(pa.int64()))
        # Punctuations have no times. A request of punctuations alone gets the earliest time, so it does not
        # wait for other streams.
        oldest_us, newest_us = (extremes[of].as_py() for of in ("min", "max"))
        data = encode(table)
        with self._write() as connection:
            if sending is not None and (known := self._receipt(connection, sending)) is not None:
                return known
            first = self._head(connection, stream.id)
            if sending is not None:
                self._keep_receipt(connection, sending, first, table.num_rows)
            connection.execute(
                insert(self._tables.blobs),
                {
                    "stream_id": stream.id,
                    "first_offset": first,
                    "rows": table.num_rows,
                    "t_min_us": MIN_TIME_US if oldest_us is None else oldest_us,
                    "t_max_us": MIN_TIME_US if newest_us is None else newest_us,
                    "data": data,
                },
            )
            self._move_head(connection, stream.id, first + table.num_rows)
            if ahead is not None:
                self._quarantine(connection, stream, ahead)
        return first, first + table.num_rows - 1

    def quarantined(self, stream: Stream, limit: int) -> tuple[int, pa.Table, list[int]]:
        """Return the number of a stream's quarantined rows, the newest rows, and their arrival times, µs."""
        kept = self._tables.quarantine.c
        with self._read() as connection:
            count = connection.execute(
                select(func.coalesce(func.sum(kept.rows), 0)).where(kept.stream_id == stream.id)
            ).scalar_one()
            blobs = connection.execute(
                select(kept.data, kept.at_us)
                .where(kept.stream_id == stream.id, kept.data.is_not(None))
                .order_by(kept.id.desc())
                .limit(limit)
            ).all()
        tables = [arrow_schema(stream).empty_table()]
        times_us: list[int] = []
        for blob in blobs:
            tables.append(decode(blob.data))
            times_us += [int(blob.at_us)] * tables[-1].num_rows
        return int(count), pa.concat_tables(tables).slice(0, limit), times_us[:limit]

    def _quarantine(self, connection: Connection, stream: Stream, rows: pa.Table) -> None:
        """Quarantine rows; drop the oldest quarantined rows, and keep their number in one record."""
        kept = self._tables.quarantine
        connection.execute(
            insert(kept),
            {
                "stream_id": stream.id,
                "rows": rows.num_rows,
                "at_us": wall_clock_us(),
                "data": encode(rows),
            },
        )
        of_stream = kept.c.stream_id == stream.id
        newest = select(kept.c.id).where(of_stream).order_by(kept.c.id.desc()).limit(_QUARANTINE_KEPT)
        older = of_stream & (kept.c.id < select(func.min(newest.subquery().c.id)).scalar_subquery())
        rows_of = {
            row.id: row.rows for row in connection.execute(select(kept.c.id, kept.c.rows).where(older))
        }
        if rows_of:
            counting = min(rows_of)
            connection.execute(delete(kept).where(older, kept.c.id != counting))
            connection.execute(
                update(kept).where(kept.c.id == counting).values(rows=sum(rows_of.values()), data=None)
            )

    def end(self, stream_id: int) -> int:
        """Return the offset after the last durable event."""
        with self._read() as connection:
            return self._head(connection, stream_id)

    def begin(self, stream_id: int) -> int:
        """Return the offset of the oldest remaining event, or the end if no event remains."""
        head = self.end(stream_id)  # looked up first, since the head only grows
        first = self._begin(stream_id)
        return head if first is None else first

    def backlog(self, stream: Stream, position: int) -> Backlog:
        """Return the backlog after a position, up to which committed batches have read."""
        with self._lock:
            return self._backlogs.at(stream.id, position, self.end(stream.id))

    def receipt(self, sending: Sending) -> tuple[int, int] | None:
        """Return the offsets of a request's events, or None without a receipt; raises as ``append``."""
        with self._read() as connection:
            return self._receipt(connection, sending)

    def stream_ids(self) -> tuple[int, ...]:
        """Return the ids of the streams that have events."""
        heads, blobs = self._tables.heads.c, self._tables.blobs.c
        # This takes one step per stream; a DISTINCT would scan all requests.
        there = select(blobs.stream_id).where(blobs.stream_id == heads.stream_id).exists()
        with self._read() as connection:
            return tuple(connection.execute(select(heads.stream_id).where(there)).scalars())

    def drop_before(self, stream_id: int, offset: int, budget_s: float = 0.25) -> int:
        """Drop the requests whose events are all before an offset; return the number of dropped events.

        The head stays, so new offsets continue from it. Freed pages of the file are reused.

        Args:
            stream_id: The stream.
            offset: First event that stays.
            budget_s: Seconds after which no further step begins; between two steps, events can be appended.
        """
        blobs = self._tables.blobs
        oldest = (
            select(blobs.c.first_offset)
            .where(
                blobs.c.stream_id == stream_id,
                blobs.c.first_offset < offset,
                blobs.c.first_offset + blobs.c.rows <= offset,
            )
            .order_by(blobs.c.first_offset)
            .limit(_DROPPED_AT_ONCE)
        )
        gone = (
            delete(blobs)
            .where(blobs.c.stream_id == stream_id, blobs.c.first_offset.in_(oldest))
            .returning(blobs.c.rows)
        )
        dropped = 0
        until_s = time.monotonic() + budget_s
        while True:
            with self._write() as connection:
                rows = list(connection.execute(gone).scalars())
            dropped += int(sum(rows))
            if len(rows) < _DROPPED_AT_ONCE or time.monotonic() > until_s:
                return dropped

    def known_ids(self) -> tuple[int, ...]:
        """Return the ids of the streams with a head or quarantined rows."""
        heads, kept = self._tables.heads.c, self._tables.quarantine.c
        with self._read() as connection:
            return tuple(connection.execute(select(heads.stream_id).union(select(kept.stream_id))).scalars())

    def forget(self, stream_id: int) -> None:
        """Remove the records of a stream that has no events and is never posted to or read again."""
        with self._write() as connection:
            for table in (self._tables.quarantine, self._tables.heads):
                connection.execute(delete(table).where(table.c.stream_id == stream_id))

    def pieces(self, stream_id: int, position: int, limit: int) -> tuple[Piece, ...]:
        """Return up to ``limit`` requests' events from an offset on, in order.

        Raises:
            EventLogDown: The log cannot be read, or has dropped the event at that offset.
        """
        blobs = self._tables.blobs.c
        with self._read() as connection:
            head = self._head(connection, stream_id)
            rows = connection.execute(
                select(blobs.first_offset, blobs.rows, blobs.t_min_us, blobs.t_max_us)
                .where(
                    blobs.stream_id == stream_id,
                    blobs.first_offset >= _covering(connection, self._tables, stream_id, position),
                )
                .order_by(blobs.first_offset)
                .limit(limit)
            ).all()
        if position < head and (not rows or rows[0].first_offset > position):
            raise EventLogDown(
                f'event log "{shown(self.url)}" lacks event {position} of stream {stream_id}',
                detail=f"The log begins with event {rows[0].first_offset if rows else head}, because older "
                "events were dropped.",
                hint="Restore the data directory as a whole: its parts belong together.",
            )
        return tuple(_pieces(stream_id, position, rows))

    def read(self, stream: Stream, start: int, end: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the events of offsets [start, end) with ``_pos``, their offset; see `read_events`."""
        return read_events(self.url, stream, start, end, columns)

    def _begin(self, stream_id: int) -> int | None:
        blobs = self._tables.blobs.c
        with self._read() as connection:
            found = connection.execute(
                select(func.min(blobs.first_offset)).where(blobs.stream_id == stream_id)
            ).scalar()
        return None if found is None else int(found)

    def _size(self, stream_id: int, start: int, end: int) -> int:
        blobs = self._tables.blobs.c
        with self._read() as connection:
            found = connection.execute(
                select(func.coalesce(func.sum(func.length(blobs.data)), 0)).where(
                    blobs.stream_id == stream_id, blobs.first_offset >= start, blobs.first_offset < end
                )
            ).scalar_one()
        return int(found)

    def _receipt(self, connection: Connection, sending: Sending) -> tuple[int, int] | None:
        """Return the offsets that a request got when it was first stored."""
        receipts = self._tables.receipts.c
        row = connection.execute(
            select(receipts.fingerprint, receipts.first_offset, receipts.rows).where(
                receipts.key == sending.key
            )
        ).first()
        if row is None:
            return None
        if row.fingerprint != sending.fingerprint:
            raise IdempotencyKeyReused(
                f'idempotency key "{sending.key}" was used for another request',
                hint="Use a new key for every new request.",
            )
        return int(row.first_offset), int(row.first_offset + row.rows - 1)

    def _keep_receipt(self, connection: Connection, sending: Sending, first: int, rows: int) -> None:
        now_s = wall_clock_us() // 1_000_000
        receipts = self._tables.receipts
        connection.execute(delete(receipts).where(receipts.c.at_s < now_s - _RECEIPTS_KEPT_S))
        connection.execute(
            insert(receipts),
            {
                "key": sending.key,
                "fingerprint": sending.fingerprint,
                "first_offset": first,
                "rows": rows,
                "at_s": now_s,
            },
        )

    def _head(self, connection: Connection, stream_id: int) -> int:
        heads = self._tables.heads.c
        found = connection.execute(select(heads.next_offset).where(heads.stream_id == stream_id)).scalar()
        return 0 if found is None else int(found)

    def _move_head(self, connection: Connection, stream_id: int, offset: int) -> None:
        heads = self._tables.heads
        moved = update(heads).where(heads.c.stream_id == stream_id).values(next_offset=offset)
        if not connection.execute(moved).rowcount:
            connection.execute(insert(heads), {"stream_id": stream_id, "next_offset": offset})

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        with _translated(self.url), self._database.read() as connection:
            yield connection

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        with _translated(self.url), self._database.write() as connection:
            yield connection


def _covering(connection: Connection, tables: EventTables, stream_id: int, offset: int) -> int:
    """Return the first offset of the blob that contains an offset."""
    blobs = tables.blobs.c
    found = connection.execute(
        select(func.max(blobs.first_offset)).where(blobs.stream_id == stream_id, blobs.first_offset <= offset)
    ).scalar()
    return offset if found is None else int(found)


@contextmanager
def _translated(url: str) -> Iterator[None]:
    try:
        yield
    except (CatalogDown, InvariantBroken) as error:
        raise log_down(url, error.detail, error.hint) from error


def _pieces(stream_id: int, position: int, rows: Sequence[Row[Any, Any, Any, Any]]) -> Iterator[Piece]:
    for first, count, t_min_us, t_max_us in rows:
        begin = max(first, position)  # from an offset inside a blob, take the rest of the blob
        if begin < first + count:
            left = first + count - begin
            yield Piece(stream_id, begin, left, t_min_us, t_max_us, count=left)
