"""Compiled binary search in rows sorted by key, event time and position."""

from __future__ import annotations

import numba
import numpy as np

from operators.kernels.keys import INT64S, INT64S_READ, Int64s

#: Returned instead of a rank if no row has the key.
NO_SUCH_KEY = -1


@numba.njit(
    INT64S(INT64S_READ, INT64S_READ, INT64S_READ, INT64S_READ, INT64S_READ, INT64S_READ, INT64S_READ),
    nogil=True,
    cache=True,
)
def ranks_up_to(
    key: Int64s, ts: Int64s, pos: Int64s, rank: Int64s, keys: Int64s, times: Int64s, positions: Int64s
) -> Int64s:
    """Return the rank of each key's last row up to a time and position, int64[m].

    Args:
        key: int64[n], keys of the rows; rows are sorted by key, event time and position.
        ts: int64[n], event times of the rows, µs.
        pos: int64[n], positions of the rows.
        rank: int64[n], ranks of the rows among the rows of their key.
        keys: int64[m], keys to look up, in any order.
        times: int64[m], times to look up, inclusive.
        positions: int64[m], positions at these times, inclusive.

    Returns:
        0 if all rows of a key are later; ``NO_SUCH_KEY`` if there is no row with the key.
    """
    found = np.empty(len(keys), dtype=np.int64)
    for number in range(len(keys)):
        wanted, time, position = keys[number], times[number], positions[number]
        low, high = 0, len(key)
        while low < high:
            middle = (low + high) >> 1
            if key[middle] != wanted:
                before = key[middle] < wanted
            elif ts[middle] != time:
                before = ts[middle] < time
            else:
                before = pos[middle] <= position
            if before:
                low = middle + 1
            else:
                high = middle
        if low and key[low - 1] == wanted:
            found[number] = rank[low - 1]
        else:
            found[number] = 0 if low < len(key) and key[low] == wanted else NO_SUCH_KEY
    return found
