"""Base of the repositories: one database and clock for all, and ids that are never given twice."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, bindparam, insert, select, update

from catalog.store.database import Database
from catalog.store.tables import counters

_COUNTER = select(counters.c.value).where(counters.c.name == bindparam("counter"))


class Repository:
    """Records of one kind in the catalog.

    Repositories share a database, which is their unit of work: whatever a thread writes inside
    ``database.write()`` is one transaction, whichever repository writes it.

    Args:
        database: Database of the catalog.
        now_us: Wall clock, µs UTC.
    """

    def __init__(self, database: Database, now_us: Callable[[], int]) -> None:
        self._database = database
        self._now_us = now_us


def next_id(connection: Connection, counter: str) -> int:
    """Count a counter up inside a write transaction and return it: 1, 2, ... never given twice."""
    value = connection.execute(_COUNTER, {"counter": counter}).scalar()
    if value is None:
        connection.execute(insert(counters).values(name=counter, value=1))
        return 1
    connection.execute(update(counters).where(counters.c.name == counter).values(value=value + 1))
    return int(value) + 1
