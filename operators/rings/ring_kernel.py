"""Compiled inner loops of rings: find the first live row of each ring, and the matches of males.

A segment has a part of every ring, called a cell, whose rows are sorted by time. In each segment, the head of
a ring is the ring's first row that has not been removed.
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
        times: int64[n], times of the segment's rows, ascending in each cell.
        offsets: int64[cells + 1], start and end of each cell.
        gone: int64[cells], time up to which the rows of each ring have been removed.
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
    """Move the heads of rings in a segment past the rows that have expired when each of m rows arrives.

    Call this for the segments in the order of their oldest rows. Once a ring's head has been found in a
    segment, later segments whose oldest row has not expired are skipped for this ring.

    Args:
        times: int64[n], times of the segment's rows, ascending in each cell.
        oldest: Least of these times.
        offsets: int64[cells + 1], start and end of each cell.
        heads: int64[cells], head of each ring in the segment; updated.
        cells: int64[m], ring of each arriving row.
        limits: int64[m], time up to which stored rows have expired when each of the m rows arrives.
        every: Whether each arriving row removes expired rows from all rings, not only from its own.
        looked: bool[m], or bool[m * cells] if ``every``: whether the ring's head has been found; updated.
        first: int64[m], filled with the head of each arriving row's ring at its arrival.
        counts: int64[2], increased by the number of heads examined and kept, and by the number of rows
            removed.
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
    """Write pairs of a female i and a male j with equal keys and near times, until the buffers are full.

    Args:
        keys: int64[n], keys of the segment's rows (females), sorted by cell and time.
        times: int64[n], times of these rows.
        offsets: int64[cells + 1], start and end of each cell.
        male_keys: int64[m], keys of the males.
        male_times: int64[m], times of the males.
        cells: int64[m], rings that the males scan.
        first: int64[m], row at which each male's scan begins.
        behind_us: Distance below which a female may be behind a male.
        ahead_us: Distance below which a female may be ahead of a male.
        state: int64[4], initially all 0; updated. Index of the next male; 1 + the next row of this male's
            scan, if it has begun; number of rows scanned so far; number of pairs of equal key so far.
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
