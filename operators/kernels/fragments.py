"""Fragment-and-replicate: several buckets share the rows of a few heavy keys.

    a key of 3 fragments, 5 buckets                     bucket 0     1     2     3     4
      its hash names bucket 3, its home                                        home
      row 1, whose position names the fragment at 4     male                   male  female and male
      row 2, whose position names the fragment at 0     female and male        male  male

A row is sent as a male to every bucket of its key and probes there. It is stored as a female in only one of
them. Males of a batch probe the stored females. Males of b also probe the females of a of the same batch. So
each pair is made once, in the bucket that stores one of its rows as a female.

Invariant: the buckets of a key with f fragments are its home and the f - 1 buckets after it. So the buckets
for f fragments are also among the buckets for more fragments. The bucket of a row's female follows from the
key, the position, and the replication in force when the row arrived. The number of fragments can grow without
moving rows; it must not fall while rows are stored (``catalog.values.plan.Replication``).

If rows of one side are checked for matches (outer, semi and anti joins), each takes part in one bucket of its
key. Rows of the other side are stored in all buckets of the key. So a row meets all its partners in one
bucket, and this bucket can tell that there are none. A bucket added later would lack the other side's rows.
So such keys have all buckets from the first row on.

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
    """A family's replication, as arrays.

    Attributes:
        every: Number of fragments of each key that is not heavy.
        heavy: int64[m], ascending: heavy keys.
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
            buckets: Number of buckets; a key cannot have more fragments.

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
            valid: bool[n]; other rows are excluded.
            buckets: Number of buckets.

        Returns:
            order: int64[m], row numbers sorted by (bucket, key, row).
            starts: int64[buckets + 1]; rows of bucket b are ``order[starts[b]:starts[b + 1]]``.
        """
        rows, _ = sort_into_buckets(key, np.zeros(len(key), dtype=np.int64), valid, 1)
        key = key[rows]
        counts = self.of_rows(key, buckets)
        copies = np.repeat(np.arange(len(rows)), counts)
        fragment = np.arange(len(copies)) - np.repeat(np.cumsum(counts) - counts, counts)
        bucket = (bucket_of(key, buckets)[copies] + fragment) % buckets
        # numpy uses a radix sort for 16-bit numbers.
        narrow = bucket.astype(np.uint16) if buckets <= 1 << 16 else bucket
        order = rows[copies[np.argsort(narrow, kind="stable")]]
        starts = np.concatenate(([0], np.cumsum(np.bincount(bucket, minlength=buckets))))
        return order, starts.astype(np.int64)

    def place(self, key: Int64s, pos: Int64s, bucket: int, buckets: int) -> Placed:
        """Return which rows sent to a bucket are stored in it.

        Args:
            key: int64[n], ascending, key of each row.
            pos: int64[n], positions in the source.
            bucket: Number of the bucket.
            buckets: Number of buckets.
        """
        counts = self.of_rows(key, buckets) if self.replicates else _ONE
        if counts.max(initial=1) == 1:
            return Placed(None, None)
        home = bucket_of(key, buckets)
        return Placed(female=_rest(home, counts, pos, buckets) == bucket, home=home == bucket)

    def comes_to(self, key: Int64s, bucket: int, buckets: int) -> Bools:
        """Return which keys have rows that are sent to a bucket, bool[n].

        Args:
            key: int64[n], ascending, key of each row.
            bucket: Number of the bucket.
            buckets: Number of buckets.
        """
        found: Bools = (bucket - bucket_of(key, buckets)) % buckets < self.of_rows(key, buckets)
        return found

    def rest(self, key: Int64s, pos: Int64s, buckets: int) -> Int64s:
        """Return the bucket that stores each row.

        Args:
            key: int64[n], ascending, key of each row.
            pos: int64[n], positions in the source.
            buckets: Number of buckets.

        Returns:
            int64[n].
        """
        home = bucket_of(key, buckets)
        return _rest(home, self.of_rows(key, buckets), pos, buckets) if self.replicates else home


def _rest(home: Int64s, counts: Int64s, pos: Int64s, buckets: int) -> Int64s:
    """Return the bucket that stores each row, given the home and number of fragments of its key."""
    # A hash of the position chooses the fragment. Positions in turn would send all rows of a heavy key to one
    # bucket if the source is periodic.
    fragment = (mix(np.ascontiguousarray(pos).view(np.uint64)) % counts.view(np.uint64)).view(np.int64)
    found: Int64s = (home + fragment) % buckets
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """Role of the rows that were sent to a bucket.

    Attributes:
        female: bool[n], whether the row is stored in the bucket; other rows only probe. None: all rows are
            stored.
        home: bool[n], whether the bucket is the home of the row's key; every row is sent to the home of its
            key. None: the bucket is the home of all keys.
    """

    female: Bools | None
    home: Bools | None
