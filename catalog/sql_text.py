"""Quoting of names and texts for DuckDB and CQL."""

from __future__ import annotations


def quoted(name: str) -> str:
    """Return a name as a quoted identifier; quotes inside the name are doubled."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(value: str) -> str:
    """Return a string as an SQL literal.

    >>> print(text_literal("it's"))
    'it''s'
    """
    return "'" + value.replace("'", "''") + "'"
