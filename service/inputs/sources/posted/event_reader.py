"""Reads posted events from the event log, whose URL and blobs of rows are defined here.

Workers use this module, so it imports only the driver of the log's database, not SQLAlchemy.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

import pyarrow as pa
import pyarrow.compute as pc

from catalog.columns.arrow_types import POSITION_COLUMN, PUNCTUATION_COLUMN, arrow_schema
from catalog.values.stream import Stream
from service.errors import EventLogDown

_SQLITE: Final = "sqlite:///"
_POSTGRESQL: Final = "postgresql"
#: Prefix of the log's tables in the catalog's database (``event_tables``).
BESIDE_CATALOG: Final = "event_"
#: Seconds that a reader waits for a writer of SQLite, or for a connection to PostgreSQL.
_TIMEOUT_S: Final = 30

#: Query for the blobs of a range, starting with the blob that contains its first offset.
_BLOBS: Final = (
    "SELECT first_offset, rows, data FROM {prefix}blobs WHERE stream_id = {0} AND first_offset < {2}"
    " AND first_offset >= (SELECT coalesce(max(first_offset), {1}) FROM {prefix}blobs"
    " WHERE stream_id = {0} AND first_offset <= {1}) ORDER BY first_offset"
)


def read_events(
    place: str | Path,
    stream: Stream,
    start: int,
    end: int,
    columns: Sequence[str] | None = None,
    *,
    punctuations: bool = False,
) -> pa.Table:
    """Return the events of offsets [start, end) of an event log, for readers in other processes.

    Args:
        place: The log's SQLite file, or SQLAlchemy URL.
        stream: Stream with an ``http`` source.
        start: First offset.
        end: Offset after the last.
        columns: Columns to return, None for all.
        punctuations: Whether to return punctuations as well, marked in ``PUNCTUATION_COLUMN``.

    Returns:
        The columns in declared order, and ``_pos`` (int64, the offset).

    Raises:
        EventLogDown: The log cannot be read, or does not have all of the offsets.
    """
    url = url_of(place)
    schema = arrow_schema(stream)
    names = schema.names if columns is None else list(columns)
    schema = pa.schema([schema.field(name) for name in names])
    tables = [schema.empty_table()]
    # Only requests with a punctuation have the column of patterns.
    patterns: list[pa.ChunkedArray | None] = []
    if start < end:
        with _connection(url) as connection:
            prefix, marks = ("", "?1 ?2 ?3") if url.startswith(_SQLITE) else (BESIDE_CATALOG, "$1 $2 $3")
            text = _BLOBS.format(*marks.split(), prefix=prefix)
            for first, rows, data in connection.execute(text, (stream.id, start, end)):
                begin, stop = max(start - first, 0), min(end - first, rows)
                blob = decode(data)
                tables.append(blob.select(names).slice(begin, stop - begin))
                marked = PUNCTUATION_COLUMN in blob.column_names
                patterns.append(
                    blob.column(PUNCTUATION_COLUMN).slice(begin, stop - begin) if marked else None
                )
    table = pa.concat_tables(tables).combine_chunks()
    if table.num_rows != max(end - start, 0):
        raise EventLogDown(
            f'event log "{shown(url)}" lacks events of stream "{stream.name}"',
            detail=f"The log has only {table.num_rows} events from offset {start} to offset {end}.",
            hint="Restore the data directory as a whole: its parts belong together.",
        )
    table = table.append_column(POSITION_COLUMN, pa.array(range(start, max(start, end)), pa.int64()))
    wanted = punctuations and stream.punctuations is not None
    if not wanted and all(column is None for column in patterns):
        return table
    chunks = [
        chunk
        for column, part in zip(patterns, tables[1:], strict=True)
        for chunk in ([pa.nulls(part.num_rows, pa.string())] if column is None else column.chunks)
    ]
    pattern = pa.chunked_array(chunks, pa.string())
    return table.append_column(PUNCTUATION_COLUMN, pattern) if wanted else table.filter(pc.is_null(pattern))


@contextmanager
def _connection(url: str) -> Iterator[Any]:  # Any: of one of two drivers
    """Connect to an event log for reading only; a missing file is not created.

    Raises:
        EventLogDown: The database reports an error.
    """
    if url.startswith(_SQLITE):
        errors: type[Exception] = sqlite3.Error
        uri = f"file:{quote(url.removeprefix(_SQLITE))}?mode=ro"
    else:
        import psycopg  # an extra

        errors = psycopg.Error
        parts = urlsplit(url)
        uri = urlunsplit(parts._replace(scheme=_POSTGRESQL))
    try:
        if url.startswith(_SQLITE):
            with closing(sqlite3.connect(uri, uri=True, timeout=_TIMEOUT_S)) as file:
                yield file
        else:
            with psycopg.connect(
                uri, cursor_factory=psycopg.RawCursor, connect_timeout=_TIMEOUT_S
            ) as connection:
                yield connection
    except errors as error:
        raise log_down(url, f"{shown(url)}: {' '.join(str(error).split()).rstrip('.')}.") from error


def url_of(place: str | Path) -> str:
    """Return the SQLAlchemy URL of an event log, given as a file or as a URL.

    >>> url_of(Path("/data/events.db"))
    'sqlite:////data/events.db'
    """
    text = str(place)
    return text if "://" in text else f"{_SQLITE}{text}"


def shown(url: str) -> str:
    """Return an event log's name for users: its file, or its URL without secrets.

    >>> shown("postgresql+psycopg://sluice:secret@db:5432/sluice?password=secret")
    'postgresql+psycopg://sluice:***@db:5432/sluice'
    """
    if url.startswith(_SQLITE):
        return url.removeprefix(_SQLITE)
    parts = urlsplit(url)
    who, _, where = parts.netloc.rpartition("@")
    user, secret, _ = who.partition(":")
    netloc = f"{user}:***@{where}" if secret else parts.netloc
    return urlunsplit(parts._replace(netloc=netloc, query=""))


def encode(table: pa.Table) -> bytes:
    """Return the blob of a request's rows: an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def decode(data: bytes) -> pa.Table:
    """Return the rows of a blob."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


def log_down(url: str, detail: str | None, hint: str | None = None) -> EventLogDown:
    """Return the error for an event log whose database cannot be used."""
    disk = "Check the data directory, its owner and the space left on its disk."
    return EventLogDown(
        f'event log "{shown(url)}" cannot be used',
        detail=detail,
        hint=disk if url.startswith(_SQLITE) else hint,
    )
