"""Sorting rows by key, stably: a radix sort, compiled.

Least significant byte first, and no pass for a byte in which all keys agree: keys below five million take
three passes, hashes eight.
"""

from __future__ import annotations

import numba
import numpy as np

from operators.kernel_types import BOOLS_READ, INT64, INT64S, INT64S_READ, TWO_INT64S
from operators.keys import Bools, Int64s

_BYTES = 8
_DIGITS = 256
#: Turns the order of signed numbers into that of unsigned ones.
_SIGN = np.uint64(1 << 63)


@numba.njit(nogil=True, cache=True)
def _sorted_by(key: Int64s, order: Int64s) -> Int64s:
    """Sort the rows of ``order`` by key; those of equal key stay in its order."""
    counts = np.zeros((_BYTES, _DIGITS), dtype=np.int64)
    for row in order:
        rest = np.uint64(key[row]) ^ _SIGN
        for byte in range(_BYTES):
            counts[byte, rest & np.uint64(_DIGITS - 1)] += 1
            rest >>= np.uint64(8)
    sorted_rows, other = order.copy(), np.empty_like(order)
    for byte in range(_BYTES):
        if counts[byte].max() == len(order):
            continue
        shift = np.uint64(8 * byte)
        ends = np.cumsum(counts[byte]) - counts[byte]
        for row in sorted_rows:
            digit = ((np.uint64(key[row]) ^ _SIGN) >> shift) & np.uint64(_DIGITS - 1)
            other[ends[digit]] = row
            ends[digit] += 1
        sorted_rows, other = other, sorted_rows
    return sorted_rows


@numba.njit(TWO_INT64S(INT64S_READ, INT64S_READ, BOOLS_READ, INT64), nogil=True, cache=True)
def sort_into_buckets(key: Int64s, bucket: Int64s, valid: Bools, buckets: int) -> tuple[Int64s, Int64s]:
    """Order rows by (bucket, key, row number).

    Args:
        key: int64[n].
        bucket: int64[n], each in [0, buckets).
        valid: bool[n]; other rows are left out.
        buckets: Number of buckets.

    Returns:
        order: int64[m], numbers of the valid rows in order.
        starts: int64[buckets + 1]; rows of bucket b are ``order[starts[b]:starts[b + 1]]``.
    """
    order = _sorted_by(key, np.flatnonzero(valid))
    starts = np.zeros(buckets + 1, dtype=np.int64)
    for row in order:
        starts[bucket[row] + 1] += 1
    for b in range(buckets):
        starts[b + 1] += starts[b]
    if buckets == 1:
        return order, starts
    ends = starts[:-1].copy()
    parted = np.empty_like(order)
    for row in order:
        parted[ends[bucket[row]]] = row
        ends[bucket[row]] += 1
    return parted, starts


@numba.njit(INT64S(INT64S_READ), nogil=True, cache=True)
def sort_by_key(key: Int64s) -> Int64s:
    """Return int64[n], the numbers of the rows in the order of (key, row number).

    >>> sort_by_key(np.array([7, -1, 7, 0])).tolist()
    [1, 3, 0, 2]
    """
    return _sorted_by(key, np.arange(len(key)))


@numba.njit(INT64S(INT64S_READ, INT64S_READ), nogil=True, cache=True)
def sort_by_key_and_position(key: Int64s, pos: Int64s) -> Int64s:
    """Return int64[n], the numbers of the rows in the order of (key, position)."""
    return _sorted_by(key, _sorted_by(pos, np.arange(len(key))))
