"""Expired results, as a reader is told of them.

    dropped                          kept
    ... 6.1 6.2 | 9.1 9.2 9.3 ...           a series whose last dropped result is the second one of batch 6

A reader that is behind 6.2 has lost nothing and goes on; one before it has lost what it did not read, and is
told so instead of being given the rest. A reader without a cursor begins with the first kept result, and
learns how many were dropped.
"""

from __future__ import annotations

from catalog.store.retention import DroppedOfSeries


def has_lost(dropped: DroppedOfSeries | None, batch: int, returned: int) -> bool:
    """Return whether a result that follows a cursor was dropped.

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
