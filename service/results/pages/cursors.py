"""Cursors: the position of a reader in a query's results.

"7.250"     everything before batch 7, and the first 250 of the query's results in batch 7
"""

from __future__ import annotations

import re

from service.errors import InvalidCursor

_CURSOR = re.compile(r"(\d{1,18})\.(\d{1,18})")


def format_cursor(batch: int, returned: int) -> str:
    """Return the cursor after ``returned`` results of ``batch``."""
    return f"{batch}.{returned}"


def parse_cursor(text: str) -> tuple[int, int]:
    """Return batch and number of results returned of it.

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
