"""Places of rows in a sorted stream, and the lag between two ordered streams.

    S_i   1 3 2 | 5 4 7      three rows have arrived
    S_j   2     | 1 4        one row has arrived
    the newest row of S_j is at place 0. The value at place 0 of the sorted S_j is 1. Its next of kin in S_i,
    also 1, is at place 0 of the sorted S_i. The newest row of S_i is at place 2, so S_i leads by a lag of 2.

Places count from 0. The definitions concern whole streams. While rows arrive, sorted places are final only
for values that a stream has passed (``operators.orders.order_progress``), so a lag is known k rows later.

Source: Window-Oblivious Join (Wu, Tan, Zhou), Definitions 2.3 to 2.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Int64s = np.ndarray[tuple[int], np.dtype[np.int64]]


def multiplicity(values: Int64s) -> int:
    """Return the greatest number of rows with the same value, or 0 without rows."""
    return int(np.unique(values, return_counts=True)[1].max()) if len(values) else 0


def lag(values_i: Int64s, arrived_i: int, values_j: Int64s, arrived_j: int) -> int:
    """Return the lag from S_i to S_j after some rows of both streams have arrived (Def. 2.6).

    The lag is 0 or 1 if the streams are synchronised, greater if S_i leads, negative if S_i lags.

    >>> lag(np.array([1, 3, 2, 5, 4, 7]), 3, np.array([2, 1, 4]), 1)
    2

    Args:
        values_i: int64[n], all values of S_i in order of arrival.
        arrived_i: Rows of S_i that have arrived.
        values_j: int64[m], all values of S_j.
        arrived_j: Rows of S_j that have arrived, at least one.
    """
    counterpart = np.sort(values_j)[arrived_j - 1]
    return arrived_i - int(np.count_nonzero(values_i <= counterpart))


@dataclass(frozen=True, slots=True)
class Sighting:
    """Progress of a stream at one moment.

    Attributes:
        rows: Rows that have arrived so far.
        passed: Value (the paper's kwm) that all later rows exceed, or None while no such value is known.
        scramble: Scrambling factor k.
    """

    rows: int
    passed: int | None
    scramble: int


def estimated_lag(seen_i: Sequence[Sighting], seen_j: Sequence[Sighting]) -> float | None:
    """Return an estimate of the lag from S_i to S_j at the last moment at which the lag is known.

    The value that a stream has passed after n rows is at place n - k, or up to k places later. Places are
    interpolated between the observed moments.

    Args:
        seen_i: S_i at some moments, in order of time.
        seen_j: S_j at the same moments.

    Returns:
        The lag in rows of S_i, or None while there is no value that both streams have passed.
    """
    at_i, at_j = _passed(seen_i), _passed(seen_j)
    if at_i is None or at_j is None:
        return None
    for now_i, now_j in zip(reversed(seen_i), reversed(seen_j), strict=True):
        place = now_j.rows - 1
        # S_j must have passed the value at this place, and S_i the next of kin of the value.
        if not at_j[0][0] <= place <= at_j[0][-1]:
            continue
        value = np.interp(place, *at_j)
        if at_i[1][0] <= value <= at_i[1][-1]:
            return float(now_i.rows - 1 - np.interp(value, at_i[1], at_i[0]))
    return None


_Doubles = np.ndarray[tuple[int], np.dtype[np.float64]]


def _passed(seen: Sequence[Sighting]) -> tuple[_Doubles, _Doubles] | None:
    """Return places and the values passed there, both ascending, or None before any value was passed."""
    known = {s.passed: max(s.rows - s.scramble - 1, 0) for s in reversed(seen) if s.passed is not None}
    if not known:
        return None
    values = np.array(sorted(known), dtype=np.float64)
    places = np.maximum.accumulate(np.array([known[value] for value in sorted(known)], dtype=np.float64))
    return places, values
