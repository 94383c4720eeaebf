"""Base class of the repositories, which share a database and a clock; ids are never reused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from sqlalchemy import Connection, bindparam, insert, select, update

from catalog.store.database import Database
from catalog.store.tables import counters

T = TypeVar("T")

#: Most names or ids in one statement, because databases limit the parameters of a statement.
ASKED_AT_ONCE = 500

_COUNTER = select(counters.c.value).where(counters.c.name == bindparam("counter"))


class Repository:
    """Records of one kind in the catalog.

    Repositories share a database, which is their unit of work: everything that a thread writes inside
    ``database.write()``, through any repository, is one transaction.

    Args:
        database: Database of the catalog.
        now_us: Wall clock, µs UTC.
    """

    def __init__(self, database: Database, now_us: Callable[[], int]) -> None:
        self._database = database
        self._now_us = now_us


def parts(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the values in parts that fit into one statement."""
    for start in range(0, len(values), ASKED_AT_ONCE):
        yield values[start : start + ASKED_AT_ONCE]


def next_id(connection: Connection, counter: str) -> int:
    """Increment a counter inside a write transaction and return it: 1, 2, ... never reused."""
    return next_ids(connection, counter, 1)[0]


def next_ids(connection: Connection, counter: str, count: int) -> range:
    """Take the next ids of a counter inside a write transaction."""
    value = connection.execute(_COUNTER, {"counter": counter}).scalar()
    if value is None:
        connection.execute(insert(counters).values(name=counter, value=count))
        return range(1, count + 1)
    connection.execute(update(counters).where(counters.c.name == counter).values(value=value + count))
    return range(int(value) + 1, int(value) + count + 1)
