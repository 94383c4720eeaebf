"""The compiled inner loop of a probe: pairs of equal key, near enough in time, of two sorted arrays.

Measured on 80,000 rows probed by 250,000 males, one core: 0.9 ms here, 8 ms by two ``searchsorted`` calls of
numpy, whose binary searches start anew for every male. Galloping instead of stepping keeps small batches
cheap against large segments, and the few rows of a segment that have a partner (``slices.key_filter``) cheap
against large batches.

If there are few keys, most rows of a batch have the same key and are far apart in time: 100 keys and 100,000
rows per batch make 10^8 pairs of equal key, one in a hundred of them inside the largest window. So time is
checked here, before a pair costs anything else. And a long run of females in the order of their event times,
which is typical of an ordered source, is entered where the male's window begins.
"""

from __future__ import annotations

import numba
import numpy as np

from operators.kernels.keys import BOOL, INT64, INT64S, INT64S_READ, Int64s

#: Runs of equal key up to this length are scanned: a binary search would take as long.
_SHORT = 16


@numba.njit(INT64(INT64S_READ, INT64, INT64), nogil=True, cache=True)
def _first_not_below(values: Int64s, bound: int, start: int) -> int:
    """Return the first place from ``start`` whose value is at least ``bound``; ``values`` ascend."""
    n = len(values)
    low, step, high = start - 1, 1, start
    while high < n and values[high] < bound:
        low = high
        step += step
        high = low + step
    high = min(high, n)
    while high - low > 1:
        middle = (low + high) >> 1
        if values[middle] < bound:
            low = middle
        else:
            high = middle
    return high


@numba.njit(BOOL(INT64S_READ, INT64, INT64), nogil=True, cache=True)
def _in_order(times: Int64s, start: int, end: int) -> bool:
    row = start + 1
    while row < end and times[row - 1] <= times[row]:
        row += 1
    return row >= end


@numba.njit(
    INT64(INT64S_READ, INT64S_READ, INT64S_READ, INT64S_READ, INT64, INT64, INT64S, INT64S, INT64S),
    nogil=True,
    cache=True,
)
def merge_pairs(
    female: Int64s,
    female_ts: Int64s,
    male: Int64s,
    male_ts: Int64s,
    behind_us: int,
    ahead_us: int,
    state: Int64s,
    female_rows: Int64s,
    male_rows: Int64s,
) -> int:
    """Write pairs (i, j) of equal key that are near enough, until the buffers are full or the males end.

    A pair is near enough if ``-ahead_us < male_ts[j] - female_ts[i] < behind_us``.

    Args:
        female: int64[n], keys, ascending.
        female_ts: int64[n], event times, µs.
        male: int64[m], keys, ascending.
        male_ts: int64[m], event times, µs.
        behind_us: How far a female may be behind a male: the largest window on her side.
        ahead_us: How far a female may be ahead of a male: the largest window on his side.
        state: int64[4], all 0 at first; updated. Where to continue (first female row not below the male's
            key, male row, 1 + his next female row if he has begun), and the number of pairs of equal key so
            far, near or far.
        female_rows: int64[size], filled with i.
        male_rows: int64[size], filled with j.

    Returns:
        Number of pairs written; less than ``size`` only if there are no more.
    """
    i, j, begun = state[0], state[1], state[2]
    count, size, n = 0, len(female_rows), len(female)
    end = i
    ordered = False
    while j < len(male):
        key = male[j]
        if i < n and female[i] < key:
            i = _first_not_below(female, key, i)
        if i == n:
            j = len(male)
            break
        if female[i] != key:
            j = _first_not_below(male, female[i], j + 1)
            continue
        if end <= i:
            end = i + 1
            while end < n and end - i < _SHORT and female[end] == key:
                end += 1
            if end - i == _SHORT:
                end = n if key == np.iinfo(np.int64).max else _first_not_below(female, key + 1, end)
                ordered = _in_order(female_ts, i, end)
            else:
                ordered = False
        time = male_ts[j]
        row = begun - 1
        if not begun:
            state[3] += end - i
            row = i
            if ordered:
                # To the first row for which time - female_ts < behind.
                low = i - 1
                row = end
                while row - low > 1:
                    middle = (low + row) >> 1
                    if time - female_ts[middle] >= behind_us:
                        low = middle
                    else:
                        row = middle
        while row < end:
            distance = time - female_ts[row]
            if distance <= -ahead_us and ordered:
                break
            if -ahead_us < distance and distance < behind_us:
                if count == size:
                    state[0], state[1], state[2] = i, j, row + 1
                    return count
                female_rows[count] = row
                male_rows[count] = j
                count += 1
            row += 1
        begun = 0
        j += 1
    state[0], state[1], state[2] = i, j, 0
    return count
