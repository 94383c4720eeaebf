"""Timestamps in the form of the API: ISO 8601, UTC, microseconds, with a Z."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp(us: int) -> str:
    """Return µs since 1970 as text.

    >>> timestamp(1_500_000)
    '1970-01-01T00:00:01.500000Z'
    """
    return (_EPOCH + timedelta(microseconds=us)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def timestamp_or_none(us: int | None) -> str | None:
    """Return µs since 1970 as text, None for None."""
    return None if us is None else timestamp(us)
