"""Expired results, and how a reader learns of them.

    dropped                          kept
    ... 6.1 6.2 | 9.1 9.2 9.3 ...           a series whose last dropped result is the second one of batch 6

A reader at 6.2 or later has lost nothing and continues. A reader before 6.2 has lost results that it did not
read, and gets an error instead of later results. A reader without a cursor begins with the first kept result,
and gets the number of dropped results.
"""

from __future__ import annotations

from catalog.store.results.retention import DroppedOfSeries


def has_lost(dropped: DroppedOfSeries | None, batch: int, returned: int) -> bool:
    """Return whether a result that follows a cursor was dropped.

    >>> has_lost(DroppedOfSeries(results=5, batch=6, of_batch=2), 6, 1)
    True
    >>> has_lost(DroppedOfSeries(results=5, batch=6, of_batch=2), 6, 2)
    False

    Args:
        dropped: Dropped results of the series, or None if no result was dropped.
        batch: Batch of the cursor.
        returned: Number of that batch's results before the cursor.
    """
    return dropped is not None and (batch, returned) < (dropped.batch, dropped.of_batch)
