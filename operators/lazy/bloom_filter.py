"""Bloom filters for the keys of stored segments, in blocks of one cache line.

    key  ->  block of 8 words   |  word 0  |  word 1  | ... |  word 7  |
                                |  bit 17  |  bit 3   |     |  bit 40  |     one bit in each word

A key that is in the filter is always found. A key that is not in the filter is reported as present about once
in 12,000 look-ups. A look-up reads only one cache line. Each filter is stored together with the segment whose
keys it contains. The filter of ``slices.key_filter`` is different: it is built in every batch from the keys
of males, sets one bit per key, and has more false positives.

Source: Bloom, "Space/time trade-offs in hash coding with allowable errors", CACM 13(7), 1970; blocks: Putze,
Sanders, Singler, "Cache-, hash- and space-efficient Bloom filters", JEA 14, 2009. Apache Parquet's
split-block filter is similar, with one bit in each 32-bit word.
"""

from __future__ import annotations

import numba
import numpy as np

from operators.kernels.keys import INT64S, INT64S_READ, UINT64S, UINT64S_READ, Int64s, Words

#: Bits per distinct key.
_BITS_PER_KEY = 24
_WORDS, _WORD_BITS = 8, 64
_BLOCK_BITS = _WORDS * _WORD_BITS
#: Multipliers of the finalizer of MurmurHash3, the hash function of the filter. The hash function of
#: ``kernels.keys`` is unsuitable: it chooses a key's bucket, so the hashes of keys in one bucket share bits.
_FIRST, _SECOND = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ONE, _SIX, _HALF, _MIX, _LAST_BIT = (np.uint64(n) for n in (1, 6, 32, 33, _WORD_BITS - 1))


@numba.njit("uint64(int64)", nogil=True, cache=True)
def _hashed(key: int) -> np.uint64:
    found = np.uint64(key)
    found = (found ^ (found >> _MIX)) * _FIRST
    found = (found ^ (found >> _MIX)) * _SECOND
    return found ^ (found >> _MIX)


@numba.njit(UINT64S(INT64S_READ), nogil=True, cache=True)
def bloom_filter(keys: Int64s) -> Words:
    """Return the Bloom filter of keys: uint64[8 * blocks].

    Args:
        keys: int64[n], ascending, keys of the rows of a segment.
    """
    distinct = 0
    for row in range(len(keys)):
        distinct += int(row == 0 or keys[row] != keys[row - 1])
    blocks = max(1, (distinct * _BITS_PER_KEY + _BLOCK_BITS - 1) // _BLOCK_BITS)
    words = np.zeros(blocks * _WORDS, dtype=np.uint64)
    for row in range(len(keys)):
        if row and keys[row] == keys[row - 1]:
            continue
        hashed = _hashed(keys[row])
        place = int(((hashed >> _HALF) * np.uint64(blocks)) >> _HALF) * _WORDS
        bits = hashed * _GOLDEN
        for word in range(_WORDS):
            words[place + word] |= _ONE << (bits & _LAST_BIT)
            bits >>= _SIX
    return words


@numba.njit(INT64S(INT64S_READ, UINT64S_READ), nogil=True, cache=True)
def rows_in_filter(keys: Int64s, words: Words) -> Int64s:
    """Return the indices of the rows whose key is in a filter, int64[m], ascending.

    A few of them may be false positives, whose key is not in the filter.

    Args:
        keys: int64[n], keys of the rows.
        words: The filter (``bloom_filter``).

    >>> rows_in_filter(np.array([1, 3, 3, 8]), bloom_filter(np.array([3, 8]))).tolist()
    [1, 2, 3]
    """
    blocks = np.uint64(len(words) // _WORDS)
    rows = np.empty(len(keys), dtype=np.int64)
    count = 0
    for row in range(len(keys)):
        hashed = _hashed(keys[row])
        place = int(((hashed >> _HALF) * blocks) >> _HALF) * _WORDS
        bits = hashed * _GOLDEN
        word = 0
        while (
            word < _WORDS and words[place + word] >> ((bits >> (_SIX * np.uint64(word))) & _LAST_BIT) & _ONE
        ):
            word += 1
        rows[count] = row
        count += int(word == _WORDS)
    return rows[:count]
