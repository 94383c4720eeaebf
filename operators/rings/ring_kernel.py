"""Compiled inner loops of rings: the first live row of each ring, and the rows that males match.

A segment has a part of every ring, in the order of time. In each segment, the head of a ring is its first row
that has not been removed.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import types

from operators.kernels.keys import BOOL, INT64, INT64S, INT64S_READ, Bools, Int64s

_BOOLS = types.Array(types.boolean, 1, "C")


@numba.njit(INT64S(INT64S_READ, INT64S_READ, INT64S_READ), nogil=True, cache=True)
def heads_behind(times: Int64s, offsets: Int64s, gone: Int64s) -> Int64s:
    """Return the head of each ring in a segment, int64[cells].

    Args:
        times: int64[n], ascending in each cell.
        offsets: int64[cells + 1], begin and end of each cell.
        gone: int64[cells], time up to which the rows of a ring have been removed.
    """
    heads = np.empty(len(gone), dtype=np.int64)
    for cell in range(len(gone)):
        low, high = offsets[cell], offsets[cell + 1]
        while low < high:
            middle = (low + high) >> 1
            if times[middle] <= gone[cell]:
                low = middle + 1
            else:
                high = middle
        heads[cell] = low
    return heads


@numba.njit(
    types.void(
        INT64S_READ, INT64, INT64S_READ, INT64S, INT64S_READ, INT64S_READ, BOOL, _BOOLS, INT64S, INT64S
    ),
    nogil=True,
    cache=True,
)
def remove_expired(
    times: Int64s,
    oldest: int,
    offsets: Int64s,
    heads: Int64s,
    cells: Int64s,
    limits: Int64s,
    every: bool,
    looked: Bools,
    first: Int64s,
    counts: Int64s,
) -> None:
    """Move the heads of rings in one segment past the rows that have expired when each of m rows arrives.

    Call it for the segments in the order of their oldest rows. Once the head of a ring was found in a
    segment, later segments whose oldest row has not expired are not searched.

    Args:
        times: int64[n], times of the segment's rows, ascending in each cell.
        oldest: Least of them.
        offsets: int64[cells + 1], begin and end of each cell.
        heads: int64[cells], updated.
        cells: int64[m], ring of each arriving row.
        limits: int64[m], time up to which rows have expired when each of the m rows arrives.
        every: Whether each row empties all rings; otherwise it empties its own.
        looked: bool[m], or bool[m * cells] if ``every``: whether the head of the ring was found; updated.
        first: int64[m], filled with the head of the row's ring when the row arrives.
        counts: int64[2], increased by the heads that were examined and stayed, and by the removed rows.
    """
    rings = len(heads)
    for row in range(len(cells)):
        limit = limits[row]
        begin, end = (0, rings) if every else (cells[row], cells[row] + 1)
        for ring in range(begin, end):
            head, stop = heads[ring], offsets[ring + 1]
            if head == stop:
                continue
            place = row * rings + ring if every else row
            if oldest > limit:
                if not looked[place]:
                    looked[place] = True
                    counts[0] += 1
                continue
            while head < stop and times[head] <= limit:
                head += 1
            counts[1] += head - heads[ring]
            heads[ring] = head
            if head < stop:
                looked[place] = True
                counts[0] += 1
        first[row] = heads[cells[row]]


@numba.njit(
    INT64(
        *(INT64S_READ, INT64S_READ, INT64S_READ),
        *(INT64S_READ, INT64S_READ, INT64S_READ, INT64S_READ),
        *(INT64, INT64, INT64S, INT64S, INT64S),
    ),
    nogil=True,
    cache=True,
)
def scan_rings(
    keys: Int64s,
    times: Int64s,
    offsets: Int64s,
    male_keys: Int64s,
    male_times: Int64s,
    cells: Int64s,
    first: Int64s,
    behind_us: int,
    ahead_us: int,
    state: Int64s,
    female_rows: Int64s,
    male_rows: Int64s,
) -> int:
    """Write pairs (i, j) of equal key that are near enough in time, until the buffers are full.

    Args:
        keys: int64[n], keys of a segment's rows by cell and time.
        times: int64[n], their times.
        offsets: int64[cells + 1], begin and end of each cell.
        male_keys: int64[m], keys of the males.
        male_times: int64[m], their times.
        cells: int64[m], rings that they scan.
        first: int64[m], row at which each scan begins.
        behind_us: How far a female may be behind a male, exclusive.
        ahead_us: How far a female may be ahead of a male, exclusive.
        state: int64[4], all 0 at first; updated. Next male, 1 + his next row if he has begun, rows scanned,
            and pairs of equal key so far.
        female_rows: int64[size], filled with i.
        male_rows: int64[size], filled with j.

    Returns:
        Number of pairs written; less than ``size`` only if no pairs are left.
    """
    count, size = 0, len(female_rows)
    male, begun = state[0], state[1]
    while male < len(cells):
        key, time, stop = male_keys[male], male_times[male], offsets[cells[male] + 1]
        row = begun - 1 if begun else first[male]
        while row < stop:
            if keys[row] == key:
                distance = time - times[row]
                if -ahead_us < distance and distance < behind_us:
                    if count == size:
                        state[0], state[1] = male, row + 1
                        return count
                    female_rows[count] = row
                    male_rows[count] = male
                    count += 1
                state[3] += 1
            row += 1
        state[2] += stop - first[male]
        begun = 0
        male += 1
    state[0], state[1] = male, 0
    return count
