"""Fragment-and-replicate: several buckets share the rows of a few heavy keys.

    a key of 3 fragments, 5 buckets                     bucket 0     1     2     3     4
      its hash selects bucket 3, its home                                      home
      row 1: its position selects bucket 4              male                   male  female and male
      row 2: its position selects bucket 0              female and male        male  male

A row is sent as a male to every bucket of its key and probes there. It is stored as a female in only one of
these buckets. Males of a batch probe the stored females. Males of b also probe the females of a of the same
batch. So each pair is made once, in the bucket that stores one of its rows as a female.

Invariant: the buckets of a key with f fragments are its home and the f - 1 buckets after it. So the buckets
for f fragments are also among the buckets for more fragments. The bucket that stores a row depends on its
key, its position, and the replication in force when the row arrived. The number of fragments can grow without
moving rows. It must not fall while rows are stored (``catalog.values.plan.Replication``).

Outer, semi and anti joins check rows of one side for matches. Such a row probes and is stored in only one
bucket of its key. Rows of the other side are stored in all buckets of the key. So one bucket has all partners
of a checked row, and can find that there are none. A bucket added later would lack the other side's earlier
rows. So keys of such families are spread over all their buckets from the first row on.

Source: the distributed join "fragment-and-replicate" (see Stamos, Young, IEEE TPDS 1993). Male and female
copies of a row are from State-Slice (VLDB 2006, §4.2), where both stay in one chain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from catalog.values.plan import Replication
from operators.kernels.keys import Bools, Int64s, bucket_of, mix
from operators.kernels.sort import sort_into_buckets

_ONE: Int64s = np.ones(1, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Fragments:
    """Rule that assigns the rows of a family's keys to buckets: the family's replication, as arrays.

    Attributes:
        every: Number of fragments of each key that is not heavy.
        heavy: int64[m], ascending, heavy keys.
        counts: int64[m], number of fragments of each heavy key.
    """

    every: int
    heavy: Int64s
    counts: Int64s

    @classmethod
    def of(cls, replication: Replication) -> Fragments:
        """Return the replication of a plan as arrays."""
        pairs = np.array(replication.heavy, dtype=np.int64).reshape(-1, 2)
        return cls(replication.every, pairs[:, 0].copy(), pairs[:, 1].copy())

    @property
    def replicates(self) -> bool:
        """Return whether any key has more than one fragment."""
        return self.every > 1 or len(self.heavy) > 0

    def of_rows(self, key: Int64s, buckets: int) -> Int64s:
        """Return the number of fragments of each row's key.

        Args:
            key: int64[n], ascending, key of each row.
            buckets: Number of buckets. A key cannot have more fragments than this.

        Returns:
            int64[n].
        """
        counts = np.full(len(key), min(self.every, buckets), dtype=np.int64)
        starts, ends = np.searchsorted(key, self.heavy), np.searchsorted(key, self.heavy, side="right")
        for found in np.flatnonzero(ends > starts):
            counts[starts[found] : ends[found]] = min(int(self.counts[found]), buckets)
        return counts

    def sort_into_buckets(self, key: Int64s, valid: Bools, buckets: int) -> tuple[Int64s, Int64s]:
        """Sort copies of rows, one for each bucket in which the row's key has a fragment.

        Args:
            key: int64[n], key of each row.
            valid: bool[n], rows to sort. All other rows are excluded.
            buckets: Number of buckets.

        Returns:
            order: int64[m], row numbers sorted by (bucket, key, row number).
            starts: int64[buckets + 1]; rows of bucket b are ``order[starts[b]:starts[b + 1]]``.
        """
        rows, _ = sort_into_buckets(key, np.zeros(len(key), dtype=np.int64), valid, 1)
        key = key[rows]
        counts = self.of_rows(key, buckets)
        copies = np.repeat(np.arange(len(rows)), counts)
        fragment = np.arange(len(copies)) - np.repeat(np.cumsum(counts) - counts, counts)
        bucket = (bucket_of(key, buckets)[copies] + fragment) % buckets
        # Use 16-bit numbers if possible, because numpy sorts them with a fast radix sort.
        narrow = bucket.astype(np.uint16) if buckets <= 1 << 16 else bucket
        order = rows[copies[np.argsort(narrow, kind="stable")]]
        starts = np.concatenate(([0], np.cumsum(np.bincount(bucket, minlength=buckets))))
        return order, starts.astype(np.int64)

    def place(self, key: Int64s, pos: Int64s, bucket: int, buckets: int) -> Placed:
        """Return which of the rows that were sent to a bucket are stored in the bucket.

        Args:
            key: int64[n], ascending, key of each row.
            pos: int64[n], positions of the rows in the source.
            bucket: Number of the bucket.
            buckets: Number of buckets.
        """
        counts = self.of_rows(key, buckets) if self.replicates else _ONE
        if counts.max(initial=1) == 1:
            return Placed(None, None)
        home = bucket_of(key, buckets)
        return Placed(female=_rest(home, counts, pos, buckets) == bucket, home=home == bucket)

    def comes_to(self, key: Int64s, bucket: int, buckets: int) -> Bools:
        """Return for each key whether its rows are sent to a bucket, bool[n].

        Args:
            key: int64[n], ascending, keys.
            bucket: Number of the bucket.
            buckets: Number of buckets.
        """
        found: Bools = (bucket - bucket_of(key, buckets)) % buckets < self.of_rows(key, buckets)
        return found

    def rest(self, key: Int64s, pos: Int64s, buckets: int) -> Int64s:
        """Return the bucket that stores each row.

        Args:
            key: int64[n], ascending, key of each row.
            pos: int64[n], positions of the rows in the source.
            buckets: Number of buckets.

        Returns:
            int64[n].
        """
        home = bucket_of(key, buckets)
        return _rest(home, self.of_rows(key, buckets), pos, buckets) if self.replicates else home


def _rest(home: Int64s, counts: Int64s, pos: Int64s, buckets: int) -> Int64s:
    """Return the bucket that stores each row, given the home and number of fragments of the row's key."""
    # A hash of the position chooses the fragment. If the position itself, modulo the number of fragments,
    # chose it, a periodic source could send all rows of a heavy key to one bucket.
    fragment = (mix(np.ascontiguousarray(pos).view(np.uint64)) % counts.view(np.uint64)).view(np.int64)
    found: Int64s = (home + fragment) % buckets
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """Roles of the rows that were sent to a bucket.

    Attributes:
        female: bool[n], whether the row is stored in the bucket. All other rows only probe. None: all rows
            are stored.
        home: bool[n], whether the bucket is the home of the row's key. Every row is sent to the home of its
            key, so the key is counted there. None: the bucket is the home of all keys.
    """

    female: Bools | None
    home: Bools | None
