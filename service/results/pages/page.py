"""Pages and exports of results: a query's rows in order, with their positions.

A cursor is the position of a reader in a query's results:

    "7.250"     everything before batch 7, and the first 250 of the query's results in batch 7
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from catalog.values.query import Output
from service.errors import InvalidCursor

_CURSOR = re.compile(r"(\d{1,18})\.(\d{1,18})")


def format_cursor(batch: int, returned: int) -> str:
    """Return the cursor after ``returned`` results of ``batch``."""
    return f"{batch}.{returned}"


def parse_cursor(text: str) -> tuple[int, int]:
    """Parse a cursor into its batch and the number of that batch's results already returned.

    >>> parse_cursor("7.250")
    (7, 250)

    Raises:
        InvalidCursor: The text is not a cursor.
    """
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise InvalidCursor(
            f'"{text}" is not a cursor',
            hint='Send "next_cursor" of an earlier page, or nothing to start at the first result.',
        )
    return int(match[1]), int(match[2])


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive results of one query in one batch.

    Attributes:
        batch: Batch number.
        query_id: Query, within the series, that produced the results.
        first: Number of the query's results that precede the span in its batch.
        rows: Number of results in the span.
    """

    batch: int
    query_id: int
    first: int
    rows: int


@dataclass(frozen=True, slots=True, eq=False)
class ResultPage:
    """Some results of a query, in order.

    Attributes:
        columns: Result columns as declared; ``table`` also has ``_event_time``.
        table: The rows.
        spans: Spans of the rows, in order; their ``rows`` add up to the number of rows in the table.
        next_cursor: Cursor after the last row, or None if the query has no result yet.
        has_more: Whether further results exist already.
        dropped: Number of results dropped before the first kept result; 0 if the page follows a cursor.
        kept_since_us: Time since which results are kept, µs UTC; None if no results were dropped, or if the
            page follows a cursor.
    """

    columns: tuple[Output, ...]
    table: pa.Table
    spans: tuple[Span, ...]
    next_cursor: str | None
    has_more: bool
    dropped: int = 0
    kept_since_us: int | None = None

    def cursors(self) -> Iterator[str]:
        """Yield the cursor after each row."""
        for span in self.spans:
            for n in range(span.first + 1, span.first + span.rows + 1):
                yield format_cursor(span.batch, n)


@dataclass(frozen=True, slots=True, eq=False)
class ResultExport:
    """All results between two cursors.

    Attributes:
        schema: Schema of the tables.
        rows: Number of results.
        next_cursor: Cursor after the last result, or None if the query has no result yet.
        dropped: Number of results dropped before the first kept result; 0 if the export follows a cursor.
        tables: The results in order, read lazily.
    """

    schema: pa.Schema
    rows: int
    next_cursor: str | None
    dropped: int
    tables: Iterator[pa.Table]
