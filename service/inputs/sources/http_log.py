"""The event log: posted events, durable before they are acknowledged, in one SQLite file.

A request becomes one blob, an Arrow IPC stream of its rows, under the offset of its first event:

    stream 7:  [0 .. 2]  [3]  [4 .. 9]   head 10

Invariant: the blobs of a stream cover 0 up to its head without gaps or overlaps, for blob and head are
written in one transaction, synced to disk before ``append`` returns. So is the receipt of a request that may
be sent again: it is appended once, also where a crash lost its answer.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from catalog.arrow_types import POSITION_COLUMN, arrow_schema
from catalog.clock import wall_clock_us
from catalog.errors import IdempotencyKeyReused
from catalog.values.stream import Stream
from service.errors import EventLogDown
from service.inputs.partitions import Piece
from service.inputs.sources.events import events_to_table

#: How long an append waits for another process's write.
_BUSY_TIMEOUT_S: Final = 30.0

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS heads (stream_id INTEGER PRIMARY KEY, next_offset INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS blobs (
    stream_id INTEGER NOT NULL, first_offset INTEGER NOT NULL, rows INTEGER NOT NULL,
    t_min_us INTEGER NOT NULL, t_max_us INTEGER NOT NULL, data BLOB NOT NULL,
    UNIQUE (stream_id, first_offset));
CREATE TABLE IF NOT EXISTS receipts (
    key TEXT PRIMARY KEY, fingerprint TEXT NOT NULL,
    first_offset INTEGER NOT NULL, rows INTEGER NOT NULL, at_s INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS identity (id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS quarantine (
    id INTEGER PRIMARY KEY, stream_id INTEGER NOT NULL, rows INTEGER NOT NULL, at_us INTEGER NOT NULL,
    data BLOB);
"""

#: Requests whose quarantined rows are kept of a stream; older ones are only counted.
_QUARANTINE_KEPT: Final = 100

#: How long a request can be sent again: as long as its answer is kept (``store.repositories.idempotency``).
_RECEIPTS_KEPT_S: Final = 24 * 3600


@dataclass(frozen=True, slots=True)
class Sending:
    """A request that may be sent again.

    Attributes:
        key: Its idempotency key.
        fingerprint: Hash of the request.
    """

    key: str
    fingerprint: str


class EventLog:
    """The event log of one data directory; threads may share it, processes open one each.

    Args:
        path: The SQLite file, created if it is not there.

    Raises:
        EventLogDown: The file cannot be opened or is no event log.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._lock = Lock()
        with _translated(self.path):
            self._connection = sqlite3.connect(
                self.path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA synchronous = FULL")  # a commit is on disk when it returns
                self._connection.executescript(_TABLES)
            except sqlite3.Error:
                self._connection.close()
                raise

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def identity(self) -> str | None:
        """Return the identity of the catalog whose streams these are, None if nobody has set it."""
        with self._lock, _translated(self.path):
            row = self._connection.execute("SELECT id FROM identity").fetchone()
        return None if row is None else str(row[0])

    def set_identity(self, identity: str) -> None:
        """Say which catalog's streams these are."""
        with self._lock, _translated(self.path):
            self._connection.execute("INSERT INTO identity VALUES (?)", (identity,))

    def append(
        self, stream: Stream, events: Sequence[object], sending: Sending | None = None
    ) -> tuple[int, int]:
        """Store events, all or none, and return once they are durable.

        Args:
            stream: Stream with an ``http`` source.
            events: Objects as they come out of JSON.
            sending: The request, if it may be sent again: its events are stored once.

        Returns:
            Offsets of the first and the last event; (head, head - 1) for no events. Events further ahead of
            the clock than the stream allows are kept apart and have none.

        Raises:
            EventRejected: An event does not fit the stream; nothing is stored.
            IdempotencyKeyReused: The key is that of another request; nothing is stored.
            EventLogDown: The log cannot be written; nothing is stored.
        """
        table, ahead = _parted(stream, events_to_table(stream, events), wall_clock_us())
        if not table.num_rows:
            if ahead is not None:
                with self._lock, _translated(self.path):
                    self._quarantine(stream, ahead)
            head = self.end(stream.id)
            return head, head - 1
        extremes = pc.min_max(table.column(stream.event_time))
        data = _encode(table)
        with self._lock, _translated(self.path):
            execute = self._connection.execute
            execute("BEGIN IMMEDIATE")
            try:
                if sending is not None and (known := self._receipt(sending)) is not None:
                    execute("ROLLBACK")
                    return known
                first = self._head(stream.id)
                if sending is not None:
                    self._keep_receipt(sending, first, table.num_rows)
                execute(
                    "INSERT INTO blobs VALUES (?, ?, ?, ?, ?, ?)",
                    (
                        stream.id,
                        first,
                        table.num_rows,
                        extremes["min"].value,
                        extremes["max"].value,
                        data,
                    ),
                )
                execute("INSERT OR REPLACE INTO heads VALUES (?, ?)", (stream.id, first + table.num_rows))
                if ahead is not None:
                    self._quarantine(stream, ahead)
                execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    execute("ROLLBACK")
                raise
        return first, first + table.num_rows - 1

    def quarantined(self, stream: Stream, limit: int) -> tuple[int, pa.Table]:
        """Return how many rows of a stream were kept out, and the newest of them."""
        with self._lock, _translated(self.path):
            execute = self._connection.execute
            (count,) = execute(
                "SELECT coalesce(sum(rows), 0) FROM quarantine WHERE stream_id = ?", (stream.id,)
            ).fetchone()
            blobs = execute(
                "SELECT data FROM quarantine WHERE stream_id = ? AND data IS NOT NULL"
                " ORDER BY id DESC LIMIT ?",
                (stream.id, limit),
            ).fetchall()
        tables = [arrow_schema(stream).empty_table(), *(_decode(data) for (data,) in blobs)]
        return int(count), pa.concat_tables(tables).slice(0, limit)

    def _quarantine(self, stream: Stream, rows: pa.Table) -> None:
        """Keep rows apart; of old ones the number alone stays."""
        execute = self._connection.execute
        execute(
            "INSERT INTO quarantine (stream_id, rows, at_us, data) VALUES (?, ?, ?, ?)",
            (stream.id, rows.num_rows, wall_clock_us(), _encode(rows)),
        )
        execute(
            "UPDATE quarantine SET data = NULL WHERE stream_id = ? AND id NOT IN"
            " (SELECT id FROM quarantine WHERE stream_id = ? ORDER BY id DESC LIMIT ?) AND data IS NOT NULL",
            (stream.id, stream.id, _QUARANTINE_KEPT),
        )

    def end(self, stream_id: int) -> int:
        """Return the offset after the last durable event."""
        with self._lock, _translated(self.path):
            return self._head(stream_id)

    def pieces(self, stream_id: int, position: int, limit: int) -> tuple[Piece, ...]:
        """Return up to ``limit`` requests' events from an offset on, in order."""
        with self._lock, _translated(self.path):
            rows = self._connection.execute(
                "SELECT first_offset, rows, t_min_us, t_max_us FROM blobs"
                " WHERE stream_id = ? AND first_offset >= ? ORDER BY first_offset LIMIT ?",
                (stream_id, _covering(self._connection, stream_id, position), limit),
            ).fetchall()
        pieces = []
        for first, count, t_min_us, t_max_us in rows:
            begin = max(first, position)  # an offset inside a blob: the rest of it
            if begin < first + count:
                left = first + count - begin
                pieces.append(Piece(stream_id, begin, left, t_min_us, t_max_us, count=left))
        return tuple(pieces)

    def read(self, stream: Stream, start: int, end: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the events of offsets [start, end) with ``_pos``, their offset; see `read_events`."""
        return read_events(self.path, stream, start, end, columns)

    def _receipt(self, sending: Sending) -> tuple[int, int] | None:
        """Return the offsets that a request got before."""
        row = self._connection.execute(
            "SELECT fingerprint, first_offset, rows FROM receipts WHERE key = ?", (sending.key,)
        ).fetchone()
        if row is None:
            return None
        fingerprint, first, rows = row
        if fingerprint != sending.fingerprint:
            raise IdempotencyKeyReused(
                f'idempotency key "{sending.key}" was used for another request',
                hint="Use a new key for every new request.",
            )
        return int(first), int(first + rows - 1)

    def _keep_receipt(self, sending: Sending, first: int, rows: int) -> None:
        now_s = wall_clock_us() // 1_000_000
        execute = self._connection.execute
        execute("DELETE FROM receipts WHERE at_s < ?", (now_s - _RECEIPTS_KEPT_S,))
        execute(
            "INSERT INTO receipts VALUES (?, ?, ?, ?, ?)",
            (sending.key, sending.fingerprint, first, rows, now_s),
        )

    def _head(self, stream_id: int) -> int:
        row = self._connection.execute(
            "SELECT next_offset FROM heads WHERE stream_id = ?", (stream_id,)
        ).fetchone()
        return 0 if row is None else int(row[0])


def read_events(
    path: str, stream: Stream, start: int, end: int, columns: Sequence[str] | None = None
) -> pa.Table:
    """Return the events of offsets [start, end) of an event log, for readers in other processes.

    Args:
        path: The log's file.
        stream: Stream with an ``http`` source.
        start: First offset.
        end: Offset after the last.
        columns: Columns to return, None for all.

    Returns:
        The columns in declared order, and ``_pos`` (int64, the offset).

    Raises:
        EventLogDown: The log cannot be read, or does not hold all of the offsets.
    """
    schema = arrow_schema(stream)
    names = schema.names if columns is None else list(columns)
    schema = pa.schema([schema.field(name) for name in names])
    tables = [schema.empty_table()]
    if start < end:
        uri = f"file:{quote(path)}?mode=ro"
        with (
            _translated(path),
            closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT_S)) as connection,
        ):
            blobs = connection.execute(
                "SELECT first_offset, rows, data FROM blobs"
                " WHERE stream_id = ? AND first_offset >= ? AND first_offset < ? ORDER BY first_offset",
                (stream.id, _covering(connection, stream.id, start), end),
            )
            for first, rows, data in blobs:
                begin, stop = max(start - first, 0), min(end - first, rows)
                tables.append(_decode(data).select(names).slice(begin, stop - begin))
    table = pa.concat_tables(tables).combine_chunks()
    if table.num_rows != max(end - start, 0):
        raise EventLogDown(
            f'event log "{path}" lacks events of stream "{stream.name}"',
            detail=f"Offsets {start} to {end} hold {table.num_rows} events.",
            hint="Restore the data directory as a whole: its parts belong together.",
        )
    return table.append_column(POSITION_COLUMN, pa.array(range(start, max(start, end)), pa.int64()))


def _covering(connection: sqlite3.Connection, stream_id: int, offset: int) -> int:
    """First offset of the blob that holds an offset."""
    row = connection.execute(
        "SELECT max(first_offset) FROM blobs WHERE stream_id = ? AND first_offset <= ?", (stream_id, offset)
    ).fetchone()
    return offset if row[0] is None else int(row[0])


def _parted(stream: Stream, table: pa.Table, now_us: int) -> tuple[pa.Table, pa.Table | None]:
    """Part rows from those further ahead of the clock than their stream allows; None where there are none."""
    if stream.max_ahead_us is None or not table.num_rows:
        return table, None
    limit = pa.scalar(now_us + stream.max_ahead_us, pa.timestamp("us"))
    fits = pc.less_equal(table.column(stream.event_time), limit)
    if pc.all(fits).as_py():
        return table, None
    return table.filter(fits), table.filter(pc.invert(fits))


def _encode(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _decode(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


@contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise EventLogDown(
            f'event log "{path}" cannot be used',
            detail=f"SQLite says: {error}.",
            hint="Check the data directory, its owner and the space left on its disk.",
        ) from error
