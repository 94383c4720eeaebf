"""Results in a table of PostgreSQL, exactly once: one transaction writes rows and the number of their batch.

    BEGIN
      sluice_delivered    (catalog, series, target) -> batch     locked; this batch or a later one: stop
      alerts              COPY, or COPY into a temporary table and INSERT .. ON CONFLICT
      sluice_delivered    the batch
    COMMIT

A table with a key gets no result punctuations, because their only values are those of the join key.

The catalog records the batch after the transaction. If a crash or a broken connection prevents that, the
batch is sent again, and its number is found in ``sluice_delivered``. The table of results and
``sluice_delivered`` are created if they are missing. The table of results may have more columns, and other
types that PostgreSQL reads from the same text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from catalog.values.query import PUNCTUATION_OUTPUT
from catalog.values.sink import SinkRecord, TableSink
from service.errors import SinkFailed
from service.kafka.kafka_client import secret_value
from service.results.result_formats import rows_for_json

#: Rows in memory at a time.
ROWS_AT_A_TIME: Final = 10_000
#: Maximum seconds per statement: a lock held by another client must not block a thread forever.
TIMEOUT_S: Final = 60
CONNECT_TIMEOUT_S: Final = 5

_NOTES: Final = """
CREATE TABLE IF NOT EXISTS sluice_delivered (
    catalog text NOT NULL, series bigint NOT NULL, target text NOT NULL, batch bigint NOT NULL,
    rows bigint NOT NULL, delivered_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (catalog, series, target))
"""
_NOTE_OF: Final = """
INSERT INTO sluice_delivered VALUES (%(catalog)s, %(series)s, %(target)s, -1, 0)
ON CONFLICT (catalog, series, target) DO UPDATE SET batch = sluice_delivered.batch
RETURNING batch
"""
_NOTED: Final = """
UPDATE sluice_delivered SET batch = %(batch)s, rows = rows + %(rows)s, delivered_at = now()
WHERE catalog = %(catalog)s AND series = %(series)s AND target = %(target)s
"""


def write_batch(
    catalog_id: str, record: SinkRecord, sink: TableSink, batch: int, parts: Iterator[pa.RecordBatch]
) -> None:
    """Write the results of a batch to a table, unless the table already has them.

    Args:
        catalog_id: Identity of the batch's catalog.
        record: The sink, and its query.
        sink: The sink.
        batch: Number of the batch.
        parts: Results of the batch, at least one part.

    Raises:
        SinkFailed: The server did not accept the results; the table has none of them.
    """
    note = {"catalog": catalog_id, "series": record.series, "target": sink.table, "batch": batch}
    try:
        with _connected(sink) as connection:
            connection.execute(_NOTES)
            connection.commit()  # own transaction: concurrent transactions that create the table conflict
            noted = connection.execute(_NOTE_OF, note).fetchone()
            if noted is not None and noted[0] >= batch:
                return
            rows = _write(connection, sink, parts)
            connection.execute(_NOTED, note | {"rows": rows})
    except (psycopg.Error, UnicodeError) as error:
        raise SinkFailed(f"PostgreSQL: {str(error).strip().splitlines()[0]}") from error


def _connected(sink: TableSink) -> psycopg.Connection:
    host, _, port = sink.server.rpartition(":")
    return psycopg.connect(
        host=host.strip("[]"),
        port=port,
        dbname=sink.database,
        user=sink.user,
        password=None if sink.password is None else secret_value(sink.password),
        sslmode=sink.tls,
        connect_timeout=CONNECT_TIMEOUT_S,
        application_name="sluice",
        options=f"-c statement_timeout={TIMEOUT_S}s",
    )


def _write(connection: psycopg.Connection, sink: TableSink, parts: Iterator[pa.RecordBatch]) -> int:
    """Write rows in the open transaction; return their number."""
    if sink.key:
        parts = map(_without_punctuations, parts)
    first = next(parts)
    columns = first.schema.names
    table = sql.Identifier(*sink.table.split("."))
    connection.execute(_table(table, first.schema, sink.key))
    if not sink.key:
        return _copy(connection, table, columns, first, parts)
    arrived = sql.Identifier("sluice_arrived")
    connection.execute(
        sql.SQL("CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT {}, 0::bigint AS _row FROM {} LIMIT 0").format(
            arrived, _names(columns), table
        )
    )
    rows = _copy(connection, arrived, columns, first, parts, numbered=True)
    updated = [name for name in columns if name not in sink.key]
    assignments = sql.SQL(", ").join(
        sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in updated
    )
    connection.execute(
        sql.SQL(
            "INSERT INTO {table} ({columns}) SELECT DISTINCT ON ({key}) {columns} FROM {arrived}"
            " ORDER BY {key}, _row DESC ON CONFLICT ({key}) DO {action}"
        ).format(
            table=table,
            columns=_names(columns),
            key=_names(sink.key),
            arrived=arrived,
            action=sql.SQL("UPDATE SET {}").format(assignments) if updated else sql.SQL("NOTHING"),
        )
    )
    return rows


def _without_punctuations(part: pa.RecordBatch) -> pa.RecordBatch:
    if PUNCTUATION_OUTPUT not in part.schema.names:
        return part
    return part.filter(pc.is_null(part.column(PUNCTUATION_OUTPUT)))


def _copy(
    connection: psycopg.Connection,
    table: sql.Identifier,
    columns: Sequence[str],
    first: pa.RecordBatch,
    parts: Iterator[pa.RecordBatch],
    *,
    numbered: bool = False,
) -> int:
    names = [*columns, "_row"] if numbered else columns
    count = 0
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(table, _names(names))
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        part: pa.RecordBatch | None = first
        while part is not None:
            for row in rows_for_json(pa.Table.from_batches([part])):
                copy.write_row([*row.values(), count] if numbered else list(row.values()))
                count += 1
            part = next(parts, None)
    return count


def _table(table: sql.Identifier, schema: pa.Schema, key: Sequence[str]) -> sql.Composed:
    columns = [
        sql.SQL("{} {}").format(sql.Identifier(field.name), sql.SQL(_type(field.type))) for field in schema
    ]
    if key:
        columns.append(sql.SQL("PRIMARY KEY ({})").format(_names(key)))
    return sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(table, sql.SQL(", ").join(columns))


def _names(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def _type(arrow: pa.DataType) -> Any:  # Any: psycopg requires literal strings; these are built here
    """Return the type of a column."""
    if pa.types.is_decimal(arrow):
        return f"numeric({arrow.precision}, {arrow.scale})"
    if pa.types.is_timestamp(arrow):
        return "timestamptz"
    names = {"bool": "boolean", "int32": "integer", "int64": "bigint", "double": "double precision"}
    return names.get(str(arrow), "date" if pa.types.is_date(arrow) else "text")
