"""Sets of queries of pairs, as a window around each pair and the classes of its rows give them.

    queries           q0  q1  q2  q3        a set is the intersection of a mask and a distance class
    window, classes    1   3   1   2        q0 is within class 0; q1 is within classes 0, 1 and 2
    mask 0b1011        x   x       x
    within class 1         x   x   x        ->  q1 and q3

Windows nest: a query within a distance class is also within all smaller ones of the same direction. So the
route numbers of all sets of a mask need one pass over the queries and one over the distance classes, and so
do the rows per query. 10,000 queries over 2,000 windows have 50,000 sets in a batch, which take 60 MB with a
bit for each query: only sets that the engine asks for are listed.
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
    """Windows of the queries of a join, as distance classes.

    Attributes:
        within: Queries within each distance class: first those for d >= 0, ascending, then those for d < 0.
        behind: Number of the first class for d < 0.
        reaches: int64[2, bits], for each bit of a set how many classes of either direction are within the
            window of the query; 0 for queries that are not in the join.
    """

    within: tuple[int, ...]
    behind: int
    reaches: _Reaches


@dataclass(frozen=True, slots=True, eq=False)
class NestedSets:
    """Sets of queries, each the intersection of a mask and the queries within a distance class.

    Attributes:
        masks: Masks.
        windows: The windows.
        places: int64[n], ascending: number of the mask times the number of distance classes, plus the
            distance class of each set.
    """

    masks: QuerySets
    windows: Windows
    places: Int64s

    def __len__(self) -> int:
        return len(self.places)

    @property
    def queries(self) -> tuple[int, ...]:
        """Query ids, each once."""
        return self.masks.queries

    def take(self, places: Int64s) -> NestedSets:
        """Return the sets at some places, which ascend."""
        return NestedSets(self.masks, self.windows, self.places[places])

    def numbers(self, keys: Int64s) -> Int64s:
        """Return the route number of each set, int64[n] (``operators.lineage.routes.route_numbers``)."""
        own = self.windows
        numbers: Int64s = _xor_of_nested(
            self.masks.words, own.reaches, own.behind, len(own.within), self.places, keys
        )
        return numbers

    def rows_per_query(self, rows: Int64s) -> Int64s:
        """Return the rows of each query, int64[queries]; ``rows`` are those of each set, int64[n]."""
        own = self.windows
        sums: Int64s = _sums_of_nested(
            self.masks.words, own.reaches, own.behind, len(own.within), self.places, rows
        )
        return sums[: len(self.queries)]

    def intersections(self) -> Intersections:
        """Return the sets without their windows."""
        of_mask, of_class = np.divmod(self.places, len(self.windows.within))
        classes, of_class = np.unique(of_class, return_inverse=True)
        within = QuerySets.of(self.queries, [self.windows.within[number] for number in classes.tolist()])
        return Intersections(self.masks, within, of_mask, of_class)


def reaches_of(windows_us: Sequence[tuple[int, int]], bounds_us: Int64s, bits: int) -> Int64s:
    """Return how many distance classes are within the window of each query, int64[bits].

    Args:
        windows_us: Number of each query, and its window.
        bounds_us: All windows, ascending; class 0 ends at the first one.
        bits: Number of bits of a set.

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
                    # The last class of each direction that is within the window; the class before is none.
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
    # Rows up to each class of its direction, and 0 before the first one.
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
