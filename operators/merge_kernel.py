"""The inner loop of a probe: pairs of equal key of two sorted arrays, compiled.

Measured on 80,000 rows probed by 250,000 males, one core: 0.9 ms here, 8 ms by two ``searchsorted`` calls of
numpy, whose binary searches start from nothing for every male. A gallop instead of a step keeps small batches
cheap against large segments.
"""

from __future__ import annotations

import numba

from operators.kernel_types import INT64, INT64S, INT64S_READ
from operators.keys import Int64s


@numba.njit(INT64(INT64S_READ, INT64S_READ, INT64S, INT64S, INT64S), nogil=True, cache=True)
def merge_pairs(female: Int64s, males: Int64s, start: Int64s, female_rows: Int64s, male_rows: Int64s) -> int:
    """Write pairs (i, j) with ``female[i] == males[j]`` until the buffers are full or the males end.

    Args:
        female: int64[n], ascending.
        males: int64[m], ascending.
        start: int64[3], where to go on: first female row not below the male's key, male row, pairs of it
            male written already. All 0 at first; updated.
        female_rows: int64[size], filled with i.
        male_rows: int64[size], filled with j.

    Returns:
        Number of pairs written; less than ``size`` only when there are no more.
    """
    i, j, skip = start[0], start[1], start[2]
    count, size, n = 0, len(female_rows), len(female)
    while j < len(males):
        key = males[j]
        if i < n and female[i] < key:
            low, step = i, 1
            high = i + 1
            while high < n and female[high] < key:
                low = high
                step += step
                high = low + step
            high = min(high, n)
            while high - low > 1:
                middle = (low + high) >> 1
                if female[middle] < key:
                    low = middle
                else:
                    high = middle
            i = high
        if i == n:
            j = len(males)
            break
        end = i + skip
        while end < n and female[end] == key:
            if count == size:
                start[0], start[1], start[2] = i, j, end - i
                return count
            female_rows[count] = end
            male_rows[count] = j
            count += 1
            end += 1
        skip = 0
        j += 1
    start[0], start[1], start[2] = i, j, 0
    return count
