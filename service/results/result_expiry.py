"""Expired results, as a reader is told of them.

    dropped                          kept
    ... 6.1 6.2 | 9.1 9.2 9.3 ...           a series whose last dropped result is the second one of batch 6

A reader that is behind 6.2 has lost nothing and goes on; one before it has lost what it did not read, and is
told so instead of being given the rest. One without a cursor begins with what is kept, and is told how much
is not.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from catalog.errors import NotFound
from catalog.store.retention import DroppedOfSeries

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ResultsExpired(NotFound):
    """Results that follow the cursor are not kept any more.

    Attributes:
        dropped: How many results of the query are not kept any more.
        kept_since_us: Wall clock from which results are kept, µs UTC.
    """

    code = "results-expired"

    def __init__(self, cursor: str, dropped: int, kept_since_us: int) -> None:
        since = (_EPOCH + timedelta(microseconds=kept_since_us)).strftime("%Y-%m-%d %H:%M:%S UTC")
        super().__init__(
            f'results after cursor "{cursor}" are not kept any more',
            detail=f"Of this query {dropped} results were dropped; those of batches since {since} are kept.",
            hint="Read without a cursor to start at the first result that is kept. The setting "
            "SLUICE_RESULT_RETENTION says how long results are kept.",
        )
        self.dropped = dropped
        self.kept_since_us = kept_since_us


def has_lost(dropped: DroppedOfSeries | None, batch: int, returned: int) -> bool:
    """Tell whether a result that follows a cursor was dropped.

    >>> has_lost(DroppedOfSeries(results=5, batch=6, of_batch=2), 6, 1)
    True
    >>> has_lost(DroppedOfSeries(results=5, batch=6, of_batch=2), 6, 2)
    False

    Args:
        dropped: What the series lost; None if nothing.
        batch: Batch of the cursor.
        returned: Results of that batch before the cursor.
    """
    return dropped is not None and (batch, returned) < (dropped.batch, dropped.of_batch)
