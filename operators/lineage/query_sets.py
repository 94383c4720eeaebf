"""Many sets of queries at once: a row of bits each, for what arrays do faster than integers of Python.

    queries   [3, 7, 9, 12]                 bit n of a set is the n-th query
    words     [[0b0110], [0b1001]]          {7, 9} and {3, 12}

A set's number is made as Zobrist hashes positions ("A new hashing method", 1970): each query id has a key, 63
bits of its hash, and the number is the xor of the members' keys. So it depends on the ids alone, in whatever
order a plan version has them, and two sets have the same number with a chance of 2^-63. Measured on 22,000
sets of 450 queries of 1,000: 2 ms, and 7 ms for the integers to become arrays; to hash the ids of each as
text takes a second.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

from operators.kernels.keys import Bools, Int64s
from operators.kernels.types import INT64S, INT64S_READ, SETS_READ

UInt64s: TypeAlias = NDArray[np.uint64]

_WORD_BITS = 64
_WORD_BYTES = 8
#: Sets that are spread out at once, a byte for each query: some MB with 1,000 queries.
_SPREAD_AT_ONCE = 1 << 12


# Every plan version asks again, for almost the same queries.
@lru_cache(maxsize=1 << 14)
def query_key(query_id: int) -> int:
    """Return the 63-bit key of a query id.

    >>> 0 < query_key(7) < 2**63
    True
    """
    return int.from_bytes(hashlib.blake2b(b"%d" % query_id, digest_size=8).digest(), "big") >> 1


def query_keys(query_ids: Sequence[int]) -> Int64s:
    """Return the keys of queries, int64: one for each bit of the words that a set of them takes."""
    keys = np.zeros(_words(len(query_ids)) * _WORD_BITS, dtype=np.int64)
    keys[: len(query_ids)] = [query_key(query_id) for query_id in query_ids]
    return keys


@dataclass(frozen=True, slots=True, eq=False)
class QuerySets:
    """Sets of queries.

    Attributes:
        queries: Query ids, each once.
        words: uint64[n, w], bit b of word a of a set is query ``queries[64 * a + b]``.
    """

    queries: tuple[int, ...]
    words: UInt64s

    @classmethod
    def of(cls, queries: tuple[int, ...], sets: Sequence[int]) -> QuerySets:
        """Return sets that are given as integers; bit n is ``queries[n]``."""
        width = _words(len(queries)) * _WORD_BYTES
        return cls.of_bytes(queries, [s.to_bytes(width, "little") for s in sets])

    @classmethod
    def of_bytes(cls, queries: tuple[int, ...], sets: Sequence[bytes]) -> QuerySets:
        """Return the sets that ``bytes_of_each`` gave for the same queries."""
        words = np.frombuffer(b"".join(sets), dtype="<u8")
        return cls(queries, words.reshape(len(sets), _words(len(queries))))

    def __len__(self) -> int:
        return len(self.words)

    def bytes_of_each(self) -> list[bytes]:
        """Return the sets as values that can be compared, of the same queries in the same order."""
        # Of "void" values numpy makes bytes in half the time of slices; of "S" ones it would drop zeros.
        words = np.ascontiguousarray(self.words)
        found: list[bytes] = words.view(f"V{words.shape[1] * _WORD_BYTES}").ravel().tolist()
        return found

    def take(self, places: Int64s) -> QuerySets:
        """Return the sets at some places."""
        return QuerySets(self.queries, self.words[places])

    def numbers(self, keys: Int64s) -> Int64s:
        """Return the number of each set, int64[n]; 0 for the empty one.

        Args:
            keys: What ``query_keys`` gives for the queries.
        """
        numbers: Int64s = _xor_of_members(self.words, keys)
        return numbers

    def rows_per_query(self, rows: Int64s) -> Int64s:
        """Return the rows of each query, int64[queries].

        Args:
            rows: int64[n], rows of each set.
        """
        sums: Int64s = _sums_of_members(self.words, rows)
        return sums[: len(self.queries)]

    def ids(self) -> list[tuple[int, ...]]:
        """Return the query ids of each set, ascending."""
        ascending = np.argsort(np.array(self.queries, dtype=np.int64))
        sorted_ids = np.array(self.queries, dtype=np.int64)[ascending]
        found: list[tuple[int, ...]] = []
        for bits in self._spread():
            of_set, place = np.nonzero(bits[:, ascending])
            members = sorted_ids[place].tolist()
            ends = np.cumsum(np.bincount(of_set, minlength=len(bits))).tolist()
            found += [tuple(members[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
        return found

    def subsets_of(self, query_ids: frozenset[int]) -> Bools:
        """Tell which sets have none but these queries, bool[n]."""
        allowed = sum(1 << place for place, q in enumerate(self.queries) if q in query_ids)
        return np.asarray(~(self.words & ~QuerySets.of(self.queries, [allowed]).words).any(axis=1))

    def among(self, queries: tuple[int, ...]) -> tuple[QuerySets, Bools]:
        """Return the sets as those of other queries, or of these in another order.

        Args:
            queries: The queries.

        Returns:
            The sets without whom they do not name, and which of the sets lack nobody, bool[n].
        """
        places = {query_id: place for place, query_id in enumerate(self.queries)}
        # One column more, that is empty, for queries that no set here can have.
        columns = np.array([places.get(query_id, len(places)) for query_id in queries], dtype=np.int64)
        words = np.zeros((len(self), _words(len(queries))), dtype=np.uint64)
        start = 0
        for bits in self._spread():
            wider = np.concatenate([bits, np.zeros((len(bits), 1), dtype=np.uint8)], axis=1)
            packed = np.packbits(wider[:, columns], axis=1, bitorder="little")
            words.view(np.uint8)[start : start + len(bits), : packed.shape[1]] = packed
            start += len(bits)
        return QuerySets(queries, words), self.subsets_of(frozenset(queries))

    def _spread(self) -> Iterator[NDArray[np.uint8]]:
        """Yield the sets, some at a time, with a byte for each query."""
        for start in range(0, len(self), _SPREAD_AT_ONCE):
            some = np.ascontiguousarray(self.words[start : start + _SPREAD_AT_ONCE]).view(np.uint8)
            yield np.unpackbits(some, axis=1, count=len(self.queries), bitorder="little")


def _words(queries: int) -> int:
    """Words that a set of so many queries takes; one at least."""
    return max(1, -(-queries // _WORD_BITS))


# Both loops look at every bit, member or not: they have no branch, so the compiler takes four bits at a time.
@numba.njit(INT64S(SETS_READ, INT64S_READ), nogil=True, cache=True)
def _xor_of_members(sets: UInt64s, keys: Int64s) -> Int64s:
    numbers = np.zeros(len(sets), dtype=np.int64)
    for row in range(len(sets)):
        number = np.int64(0)
        for word in range(sets.shape[1]):
            bits = sets[row, word]
            if bits:
                for bit in range(64):
                    member = np.int64((bits >> np.uint64(bit)) & np.uint64(1))
                    number ^= keys[word * 64 + bit] & -member
        numbers[row] = number
    return numbers


@numba.njit(INT64S(SETS_READ, INT64S_READ), nogil=True, cache=True)
def _sums_of_members(sets: UInt64s, rows: Int64s) -> Int64s:
    sums = np.zeros(sets.shape[1] * 64, dtype=np.int64)
    for row in range(len(sets)):
        count = rows[row]
        for word in range(sets.shape[1]):
            bits = sets[row, word]
            if bits:
                for bit in range(64):
                    member = np.int64((bits >> np.uint64(bit)) & np.uint64(1))
                    sums[word * 64 + bit] += count & -member
    return sums
