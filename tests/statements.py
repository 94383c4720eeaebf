"""Statements that databases are given, for tests of how many there are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, event


@contextmanager
def statements() -> Iterator[list[str]]:
    """Note the statements that databases are given."""
    found: list[str] = []

    def note(connection: object, cursor: object, statement: str, *_: object) -> None:
        found.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)
