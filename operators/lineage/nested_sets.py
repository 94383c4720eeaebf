"""Sets of queries of pairs, derived from each pair's distance and the classes of its rows.

    queries           q0  q1  q2  q3        a set: queries of a mask that cover a distance class
    classes covered    1   3   2   2        q0 covers class 0; q1 covers classes 0, 1 and 2
    mask 0b1011        x   x       x
    cover class 1          x   x   x        ->  q1 and q3

A mask is the set of queries that the classes of a pair's rows allow. A query covers a distance class if
its window contains the pairs of that class. Windows nest: a query that covers a distance class also covers
all smaller classes of the same direction. So two passes, one over the queries and one over the distance
classes, give the route numbers of all sets of a mask. Counting the rows of each query takes two such passes,
too. With 10,000 queries over 2,000 windows, a batch has 50,000 sets, which would take 60 MB with a bit for
each query. So only the sets that the engine asks for are built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
from numba import types

from catalog.values.routes.intersections import Intersections
from catalog.values.routes.query_sets import QuerySets, UInt64s
from operators.kernels.keys import INT64, INT64S, INT64S_READ, SETS_READ, Int64s

_REACHES = types.Array(types.int64, 2, "C", readonly=True)
_Reaches = np.ndarray[tuple[int, int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Windows of a join's queries, expressed in distance classes.

    Attributes:
        within: Queries that cover each distance class: first the classes for d >= 0, ascending, then those
            for d < 0.
        behind: Index of the first class for d < 0.
        reaches: int64[2, bits], number of classes that a query covers, for each direction and each query's
            bit; 0 for queries that are not in the join.
    """

    within: tuple[int, ...]
    behind: int
    reaches: _Reaches


@dataclass(frozen=True, slots=True, eq=False)
class NestedSets:
    """Sets of queries, each the intersection of a mask and the queries that cover a distance class.

    Attributes:
        masks: The masks.
        windows: The windows.
        places: int64[n], ascending. The place of a set is the number of its mask times the number of distance
            classes, plus its distance class.
    """

    masks: QuerySets
    windows: Windows
    places: Int64s

    def __len__(self) -> int:
        return len(self.places)

    @property
    def queries(self) -> tuple[int, ...]:
        """Distinct ids of the queries."""
        return self.masks.queries

    def take(self, places: Int64s) -> NestedSets:
        """Return the sets at the given places, which must ascend."""
        return NestedSets(self.masks, self.windows, self.places[places])

    def numbers(self, keys: Int64s) -> Int64s:
        """Return the route number of each set, int64[n] (``operators.lineage.routes.route_numbers``)."""
        own = self.windows
        numbers: Int64s = _xor_of_nested(
            self.masks.words, own.reaches, own.behind, len(own.within), self.places, keys
        )
        return numbers

    def rows_per_query(self, rows: Int64s) -> Int64s:
        """Add up the rows of each query, int64[queries], from the rows of each set, int64[n]."""
        own = self.windows
        sums: Int64s = _sums_of_nested(
            self.masks.words, own.reaches, own.behind, len(own.within), self.places, rows
        )
        return sums[: len(self.queries)]

    def intersections(self) -> Intersections:
        """Return the sets as intersections of masks and the queries that cover a distance class."""
        of_mask, of_class = np.divmod(self.places, len(self.windows.within))
        classes, of_class = np.unique(of_class, return_inverse=True)
        within = QuerySets.of(self.queries, [self.windows.within[number] for number in classes.tolist()])
        return Intersections(self.masks, within, of_mask, of_class)


def reaches_of(windows_us: Sequence[tuple[int, int]], bounds_us: Int64s, bits: int) -> Int64s:
    """Return how many distance classes each query covers, int64[bits].

    Args:
        windows_us: Number and window of each query.
        bounds_us: Upper ends of the distance classes from class 0 on, ascending; they include all windows.
        bits: Number of bits in a set.

    >>> reaches_of([(0, 10), (1, 30), (3, 10)], np.array([10, 30]), 4)
    array([1, 2, 0, 1])
    """
    reaches = np.zeros(bits, dtype=np.int64)
    numbers, windows = (np.array(column, dtype=np.int64) for column in zip(*windows_us, strict=True))
    reaches[numbers] = np.searchsorted(bounds_us, windows) + 1
    return reaches


@numba.njit(INT64S(SETS_READ, _REACHES, INT64, INT64, INT64S_READ, INT64S_READ), nogil=True, cache=True)
def _xor_of_nested(
    masks: UInt64s, reaches: _Reaches, behind: int, classes: int, places: Int64s, keys: Int64s
) -> Int64s:
    numbers = np.empty(len(places), dtype=np.int64)
    xors = np.empty(classes + 1, dtype=np.int64)
    place = 0
    while place < len(places):
        mask = places[place] // classes
        xors[:] = 0
        for word in range(masks.shape[1]):
            bits, bit = masks[mask, word], word * 64
            while bits:
                if bits & np.uint64(1):
                    # In each direction, only the last class that the query covers gets the query's key; the
                    # loops below pass the key on to the smaller classes. A query that covers no class has a
                    # reach of 0.
                    if reaches[0, bit]:
                        xors[reaches[0, bit] - 1] ^= keys[bit]
                    if reaches[1, bit]:
                        xors[behind + reaches[1, bit] - 1] ^= keys[bit]
                bits >>= np.uint64(1)
                bit += 1
        for number in range(behind - 2, -1, -1):
            xors[number] ^= xors[number + 1]
        for number in range(classes - 2, behind - 1, -1):
            xors[number] ^= xors[number + 1]
        while place < len(places) and places[place] // classes == mask:
            numbers[place] = xors[places[place] - mask * classes]
            place += 1
    return numbers


@numba.njit(INT64S(SETS_READ, _REACHES, INT64, INT64, INT64S_READ, INT64S_READ), nogil=True, cache=True)
def _sums_of_nested(
    masks: UInt64s, reaches: _Reaches, behind: int, classes: int, places: Int64s, rows: Int64s
) -> Int64s:
    sums = np.zeros(masks.shape[1] * 64, dtype=np.int64)
    # Running totals of rows by class, one array for each direction. Each array begins with 0, the total for a
    # query that covers no class.
    upto = np.empty(classes + 2, dtype=np.int64)
    place = 0
    while place < len(places):
        mask = places[place] // classes
        upto[:] = 0
        while place < len(places) and places[place] // classes == mask:
            number = places[place] - mask * classes
            upto[number + 1 if number < behind else number + 2] = rows[place]
            place += 1
        for number in range(1, behind + 1):
            upto[number] += upto[number - 1]
        for number in range(behind + 2, classes + 2):
            upto[number] += upto[number - 1]
        for word in range(masks.shape[1]):
            bits, bit = masks[mask, word], word * 64
            while bits:
                if bits & np.uint64(1):
                    sums[bit] += upto[reaches[0, bit]] + upto[behind + 1 + reaches[1, bit]]
                bits >>= np.uint64(1)
                bit += 1
    return sums
