"""The frequent keys of a stream in bounded memory, over any domain of int64.

Misra and Gries keep k counters; when there are more keys, all counters fall by the (k+1)-th largest and those
at zero go. Here that happens once per batch of rows, in a few array operations.

Invariant: a counter is at most its key's rows and at least that less ``error``, which is at most
rows / (k + 1). So every key with more rows than that has a counter.

Source: Misra, Gries, *Finding Repeated Elements* (1982); merging by the (k+1)-th largest counter is Agarwal,
Cormode, Huang, Phillips, Wei, Yi, *Mergeable Summaries* (PODS 2012, §3).
"""

from __future__ import annotations

import numpy as np

from operators.kernels.keys import Int64s


class FrequentKeys:
    """A Misra-Gries summary.

    Attributes:
        capacity: Counters kept (k).
        keys: int64[m], m <= capacity, ascending.
        counts: int64[m], rows per key, too low by at most ``error``.
        error: Sum of what all counters fell by.
        rows: Rows seen.

    >>> frequent = FrequentKeys(2)
    >>> frequent.update(np.array([7, 7, 7, 8, 9]))
    >>> frequent.keys, frequent.counts, frequent.error
    (array([7]), array([2]), 1)
    """

    __slots__ = ("capacity", "counts", "error", "keys", "rows")

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self.capacity = capacity
        self.keys: Int64s = np.zeros(0, dtype=np.int64)
        self.counts: Int64s = np.zeros(0, dtype=np.int64)
        self.error = self.rows = 0

    def update(self, keys: Int64s, counts: Int64s | None = None) -> None:
        """Add rows.

        Args:
            keys: int64[n], in any order, repeated or not.
            counts: int64[n], rows per key, at least 0; None: one each.

        Raises:
            ValueError: A count is negative; this summary, unlike a sketch, cannot take rows back.
        """
        if counts is None:
            keys, counts = np.unique(keys, return_counts=True)
        elif len(counts) and counts.min() < 0:
            raise ValueError("a summary of frequent keys cannot take rows back")
        self.rows += int(counts.sum())
        self._add(keys, counts)

    def merge(self, other: FrequentKeys) -> FrequentKeys:
        """Return the summary of both streams together, of this one's capacity; errors add up."""
        merged = FrequentKeys(self.capacity)
        merged.keys, merged.counts = self.keys, self.counts
        merged.error, merged.rows = self.error + other.error, self.rows + other.rows
        merged._add(other.keys, other.counts)
        return merged

    def _add(self, keys: Int64s, counts: Int64s) -> None:
        distinct, places = np.unique(np.concatenate((self.keys, keys)), return_inverse=True)
        sums = np.zeros(len(distinct), dtype=np.int64)
        np.add.at(sums, places, np.concatenate((self.counts, counts)))
        if len(sums) > self.capacity:
            fall = np.partition(sums, -self.capacity - 1)[-self.capacity - 1]
            sums = sums - fall
            self.error += int(fall)
        kept = sums > 0
        self.keys, self.counts = distinct[kept], sums[kept]
