"""Compiled inner loop of a probe without a key: finds rows with overlapping ranges, near enough in time.

The ranges of one side are points, and the ranges of the other side are the bands of its rows. Either side may
be the stored side:

    females      [----]        *        a point is a range of length 0
    males         |--*------------|     sorted by the starts of their ranges, none longer than ``longest``
                  from                  a female is compared with the males that start at most ``longest``
                  to                    before the female's start, and not after the female's end

A batch has few males compared with the stored females, so only the males are sorted, in each batch.
"""

from __future__ import annotations

import numba
import numpy as np

from operators.kernels.keys import FLOAT64, FLOAT64S_READ, INT64, INT64S, INT64S_READ, Int64s

Doubles = np.ndarray[tuple[int], np.dtype[np.float64]]


@numba.njit(
    INT64(
        *(FLOAT64S_READ, FLOAT64S_READ, INT64S_READ),
        *(FLOAT64S_READ, FLOAT64S_READ, INT64S_READ, INT64S_READ),
        *(FLOAT64, INT64, INT64, INT64S, INT64S, INT64S),
    ),
    nogil=True,
    cache=True,
)
def overlapping_pairs(
    female_low: Doubles,
    female_high: Doubles,
    female_ts: Int64s,
    male_low: Doubles,
    male_high: Doubles,
    male_ts: Int64s,
    male: Int64s,
    longest: float,
    behind_us: int,
    ahead_us: int,
    state: Int64s,
    female_rows: Int64s,
    male_rows: Int64s,
) -> int:
    """Write pairs (i, male[j]) with overlapping ranges, near enough in time, until the buffers are full.

    A pair is near enough if ``-ahead_us < male_ts[j] - female_ts[i] < behind_us``.

    Args:
        female_low: float64[n], starts of the females' ranges.
        female_high: float64[n], ends of the females' ranges, inclusive.
        female_ts: int64[n], event times of the females, µs.
        male_low: float64[m], ascending, starts of the males' ranges.
        male_high: float64[m], ends of the males' ranges, inclusive.
        male_ts: int64[m], event times of the males, µs.
        male: int64[m], row number of each male.
        longest: Upper bound of the length of the males' ranges.
        behind_us: Distance below which a female may be behind a male, µs.
        ahead_us: Distance below which a female may be ahead of a male, µs.
        state: int64[4], all 0 before the first call, updated. The first two numbers state where the next call
            continues: the female row, and 1 + the next male for this female (0 if the female has not begun).
            The third is unused. The last is the number of overlapping pairs so far, regardless of time.
        female_rows: int64[size], filled with i.
        male_rows: int64[size], filled with ``male[j]``.

    Returns:
        Number of pairs written. It is less than ``size`` only if no pairs are left.
    """
    count, size, males = 0, len(female_rows), len(male)
    i, begun = state[0], state[1]
    while i < len(female_ts):
        low, high = female_low[i], female_high[i]
        j = begun - 1
        if not begun:
            # Find the first male that starts at or after this point. All earlier males end too early.
            start = np.nextafter(low - longest, -np.inf)
            first, end = -1, males
            while end - first > 1:
                middle = (first + end) >> 1
                if male_low[middle] < start:
                    first = middle
                else:
                    end = middle
            j = end
        while j < males and male_low[j] <= high:
            if male_high[j] >= low:
                distance = male_ts[j] - female_ts[i]
                if -ahead_us < distance and distance < behind_us:
                    if count == size:
                        state[0], state[1] = i, j + 1
                        return count
                    female_rows[count] = i
                    male_rows[count] = male[j]
                    count += 1
                state[3] += 1
            j += 1
        begun = 0
        i += 1
    state[0], state[1] = i, 0
    return count
