"""Fragment-and-replicate: the rows of a few keys shared by several buckets.

    a key of 3 fragments, 5 buckets                     bucket 0     1     2     3     4
      its hash names bucket 3, its home                                        home
      row 1, whose position names the fragment at 4     male                   male  female and male
      row 2, whose position names the fragment at 0     female and male        male  male

A row is sent to every bucket of its key as a male, which probes there, and is stored in one of them as a
female. Males of a batch probe the stored females, and males of b also the females of a of the same batch. So
each pair is made once, in the bucket where one of its rows is the female.

Invariant: the buckets of a key with f fragments are its home and the f - 1 buckets after it. So the buckets
for fewer fragments are among those for more, and a row's female can be found from the key, the position and
the replication in force when the row arrived. The number of fragments may grow without moving a row; it must
not fall while rows are stored (``catalog.values.plan.Replication``).

If rows of one side are judged for absence, they take part in one bucket of their key, and rows of the other
side are stored in all of its buckets. So a row meets all its partners in one bucket, which can tell that
there are none. A new bucket would lack the other side's rows, so such keys have all buckets from the first
row on.

Source: the distributed join of that name (see Stamos, Young, IEEE TPDS 1993). Male and female copies of a row
are from State-Slice (VLDB 2006, §4.2); there both stay in one chain, and nothing is spread over buckets.
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
        every: Fragments of each key that is not heavy.
        heavy: int64[m], ascending: heavy keys.
        counts: int64[m], fragments of each heavy key.
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
        """Return the fragments of each row's key.

        Args:
            key: int64[n], ascending.
            buckets: Number of buckets, an upper limit of the fragments of a key.

        Returns:
            int64[n].
        """
        counts = np.full(len(key), min(self.every, buckets), dtype=np.int64)
        starts, ends = np.searchsorted(key, self.heavy), np.searchsorted(key, self.heavy, side="right")
        for found in np.flatnonzero(ends > starts):
            counts[starts[found] : ends[found]] = min(int(self.counts[found]), buckets)
        return counts

    def sort_into_buckets(self, key: Int64s, valid: Bools, buckets: int) -> tuple[Int64s, Int64s]:
        """Order copies of rows, one copy for each bucket in which their key has fragments.

        Args:
            key: int64[n].
            valid: bool[n]; other rows are excluded.
            buckets: Number of buckets.

        Returns:
            order: int64[m], numbers of rows in the order of (bucket, key, row).
            starts: int64[buckets + 1]; rows of bucket b are ``order[starts[b]:starts[b + 1]]``.
        """
        rows, _ = sort_into_buckets(key, np.zeros(len(key), dtype=np.int64), valid, 1)
        key = key[rows]
        counts = self.of_rows(key, buckets)
        copies = np.repeat(np.arange(len(rows)), counts)
        fragment = np.arange(len(copies)) - np.repeat(np.cumsum(counts) - counts, counts)
        bucket = (bucket_of(key, buckets)[copies] + fragment) % buckets
        # numpy sorts numbers of 16 bits by radix.
        narrow = bucket.astype(np.uint16) if buckets <= 1 << 16 else bucket
        order = rows[copies[np.argsort(narrow, kind="stable")]]
        starts = np.concatenate(([0], np.cumsum(np.bincount(bucket, minlength=buckets))))
        return order, starts.astype(np.int64)

    def place(self, key: Int64s, pos: Int64s, bucket: int, buckets: int) -> Placed:
        """Tell which rows sent to a bucket are stored in it.

        Args:
            key: int64[n], ascending.
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
        """Return which keys have rows that are sent to a bucket, stored there or not, bool[n].

        Args:
            key: int64[n], ascending.
            bucket: Number of the bucket.
            buckets: Number of buckets.
        """
        found: Bools = (bucket - bucket_of(key, buckets)) % buckets < self.of_rows(key, buckets)
        return found

    def rest(self, key: Int64s, pos: Int64s, buckets: int) -> Int64s:
        """Return the bucket that stores each row.

        Args:
            key: int64[n], ascending.
            pos: int64[n], positions in the source.
            buckets: Number of buckets.

        Returns:
            int64[n].
        """
        home = bucket_of(key, buckets)
        return _rest(home, self.of_rows(key, buckets), pos, buckets) if self.replicates else home


def _rest(home: Int64s, counts: Int64s, pos: Int64s, buckets: int) -> Int64s:
    """Return the bucket of each row's female, given the home and the fragments of its key."""
    # By a hash, not in turn: the heavy keys of a periodic source must not always meet the same bucket.
    fragment = (mix(np.ascontiguousarray(pos).view(np.uint64)) % counts.view(np.uint64)).view(np.int64)
    found: Int64s = (home + fragment) % buckets
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """Role in a bucket of the rows that were sent to it.

    Attributes:
        female: bool[n], whether the row is stored here; otherwise it only probes. None: all rows are stored.
        home: bool[n], whether the bucket is the home of the row's key, to which every row of the key is sent.
            None: it is the home of all.
    """

    female: Bools | None
    home: Bools | None
