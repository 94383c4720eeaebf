"""Binary search in rows that are sorted by two columns, compiled."""

from __future__ import annotations

import numba
import numpy as np

from operators.kernels.keys import Int64s
from operators.kernels.types import INT64S, INT64S_READ


@numba.njit(
    INT64S(INT64S_READ, INT64S_READ, INT64S_READ, INT64S_READ, INT64S_READ),
    nogil=True,
    cache=True,
)
def counts_up_to(key: Int64s, ts: Int64s, rank: Int64s, keys: Int64s, times: Int64s) -> Int64s:
    """Return the rank of the last row of each key up to a time, int64[m]; 0 where there is none.

    Args:
        key: int64[n], keys of the rows; rows ascend by key, then by event time.
        ts: int64[n], event times of the rows, µs.
        rank: int64[n], their ranks in their key.
        keys: int64[m], the keys asked about, in any order.
        times: int64[m], the times asked about, inclusive.
    """
    found = np.zeros(len(keys), dtype=np.int64)
    for number in range(len(keys)):
        low, high = 0, len(key)
        while low < high:
            middle = (low + high) >> 1
            before = key[middle] < keys[number]
            if before or (key[middle] == keys[number] and ts[middle] <= times[number]):
                low = middle + 1
            else:
                high = middle
        if low and key[low - 1] == keys[number]:
            found[number] = rank[low - 1]
    return found
