"""Tables of the event log, the same on SQLite and PostgreSQL except for their names.

An SQLite file contains only these tables; on PostgreSQL they are in the catalog's database, with a prefix.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from sqlalchemy import BigInteger, Column, Integer, LargeBinary, MetaData, Table, Text, UniqueConstraint

from service.inputs.sources.posted.event_reader import BESIDE_CATALOG

#: Type of numbers that both databases auto-increment; SQLite does so only for INTEGER.
_NUMBER = BigInteger().with_variant(Integer, "sqlite")


@dataclass(frozen=True, slots=True)
class EventTables:
    """Tables of one database.

    Attributes:
        metadata: Metadata of all tables.
        heads: Offset after the last event of each stream.
        blobs: One row per request: stream, first offset, number of events, their time range, and the events
            as an Arrow stream.
        receipts: Requests that may be sent again.
        identity: Identity of the catalog that the streams belong to.
        quarantine: Events that are too far ahead of the clock.
    """

    metadata: MetaData
    heads: Table
    blobs: Table
    receipts: Table
    identity: Table
    quarantine: Table


@cache
def event_tables(beside_catalog: bool) -> EventTables:
    """Return the tables.

    Args:
        beside_catalog: Whether the tables are in the catalog's database.
    """
    metadata, prefix = MetaData(), BESIDE_CATALOG if beside_catalog else ""

    def table(name: str, *columns: Column[object] | UniqueConstraint) -> Table:
        return Table(f"{prefix}{name}", metadata, *columns)

    return EventTables(
        metadata,
        heads=table(
            "heads",
            Column("stream_id", _NUMBER, primary_key=True, autoincrement=False),
            Column("next_offset", BigInteger, nullable=False),
        ),
        blobs=table(
            "blobs",
            Column("stream_id", BigInteger, nullable=False),
            Column("first_offset", BigInteger, nullable=False),
            Column("rows", BigInteger, nullable=False),
            Column("t_min_us", BigInteger, nullable=False),
            Column("t_max_us", BigInteger, nullable=False),
            Column("data", LargeBinary, nullable=False),
            UniqueConstraint("stream_id", "first_offset"),
        ),
        receipts=table(
            "receipts",
            Column("key", Text, primary_key=True),
            Column("fingerprint", Text, nullable=False),
            Column("first_offset", BigInteger, nullable=False),
            Column("rows", BigInteger, nullable=False),
            Column("at_s", BigInteger, nullable=False),
        ),
        identity=table("identity", Column("id", Text, nullable=False)),
        quarantine=table(
            "quarantine",
            Column("id", _NUMBER, primary_key=True),
            Column("stream_id", BigInteger, nullable=False),
            Column("rows", BigInteger, nullable=False),
            Column("at_us", BigInteger, nullable=False),
            Column("data", LargeBinary),
        ),
    )
