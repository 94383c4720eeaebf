"""Compiled inner loop of a probe: finds pairs with equal keys, near enough in time, in two sorted arrays.

The loop gallops through both arrays (exponential search) and does not step row by row. So it takes little
time if one of the arrays is much shorter than the other: a small batch against a large segment, or the few
rows that passed ``slices.key_filter`` against a large batch. To probe 80,000 rows with 250,000 males, the
loop takes 0.9 ms on one core. Two calls of numpy's ``searchsorted`` take 8 ms, because a call searches the
whole array again for each value.

If there are few keys, most rows of a batch have the same key but are far apart in time. For example, 100 keys
and 100,000 rows per batch make 10^8 pairs of equal key, of which one in a hundred is inside the largest
window. So this loop checks the distance in time before any other work on a pair. If a long run of females
with equal keys is in the order of event time, which is typical of an ordered source, a binary search finds
the first female in the male's window.
"""

from __future__ import annotations

import numba
import numpy as np

from operators.kernels.keys import BOOL, INT64, INT64S, INT64S_READ, Int64s

#: Runs of rows with equal keys up to this length are scanned, because a binary search would take as long.
_SHORT = 16


@numba.njit(INT64(INT64S_READ, INT64, INT64), nogil=True, cache=True)
def _first_not_below(values: Int64s, bound: int, start: int) -> int:
    """Return the first index from ``start`` with a value >= ``bound``; ``values`` are ascending."""
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
    """Write pairs (i, j) with equal keys, near enough in time, until the buffers are full or no male is left.

    A pair is near enough if ``-ahead_us < male_ts[j] - female_ts[i] < behind_us``.

    Args:
        female: int64[n], keys, ascending.
        female_ts: int64[n], event times, µs.
        male: int64[m], keys, ascending.
        male_ts: int64[m], event times, µs.
        behind_us: Distance below which a female may be behind a male: the females' side's largest window, µs.
        ahead_us: Distance below which a female may be ahead of a male: the males' side's largest window, µs.
        state: int64[4], all 0 before the first call, updated. Three numbers state where the next call
            continues: the first female row whose key is not below the current male's key, the male row, and
            1 + the next female row for this male (0 if the male has not begun). The last is the number of
            pairs with equal keys so far, regardless of their distance in time.
        female_rows: int64[size], filled with i.
        male_rows: int64[size], filled with j.

    Returns:
        Number of pairs written. It is less than ``size`` only if no pairs are left.
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
                # Find the first row for which time - female_ts < behind.
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
