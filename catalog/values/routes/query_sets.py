"""Many sets of queries as rows of bits in an array, which is processed faster than Python integers.

queries   [3, 7, 9, 12]                 bit n is 1 if the set contains the n-th query
words     [[0b0110], [0b1001]]          {7, 9} and {3, 12}
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Bools: TypeAlias = NDArray[np.bool_]
Int64s: TypeAlias = NDArray[np.int64]
UInt64s: TypeAlias = NDArray[np.uint64]

WORD_BITS = 64
_WORD_BYTES = 8
#: Number of sets that are expanded at a time to one byte per query; with 1,000 queries, that takes 4 MB.
_SPREAD_AT_ONCE = 1 << 12
#: Most runs of bits that are copied one by one; with more runs the sets are expanded, which takes as long as
#: some hundred runs.
_MOST_RUNS = 100


@dataclass(frozen=True, slots=True, eq=False)
class QuerySets:
    """Sets of queries.

    Attributes:
        queries: Query ids, each once.
        words: uint64[n, w]; bit b of word a of a set is 1 if the set contains ``queries[64 * a + b]``.
    """

    queries: tuple[int, ...]
    words: UInt64s

    @classmethod
    def of(cls, queries: tuple[int, ...], sets: Sequence[int]) -> QuerySets:
        """Return sets that are given as integers; bit n is 1 if the set contains ``queries[n]``."""
        width = words_of(len(queries)) * _WORD_BYTES
        words = np.frombuffer(b"".join([s.to_bytes(width, "little") for s in sets]), dtype="<u8")
        return cls(queries, words.reshape(len(sets), words_of(len(queries))))

    def __len__(self) -> int:
        return len(self.words)

    def take(self, places: Int64s | Bools) -> QuerySets:
        """Return the sets with the given indexes."""
        return QuerySets(self.queries, self.words[places])

    def listed(self) -> QuerySets:
        """Return the sets unchanged: unlike ``Intersections``, they already have a bit for each query."""
        return self

    def having(self, query_id: int) -> Bools:
        """Return for each set whether it contains a query, bool[n]."""
        if query_id not in self.queries:
            return np.zeros(len(self), dtype=np.bool_)
        word, bit = divmod(self.queries.index(query_id), WORD_BITS)
        return np.asarray(self.words[:, word] & np.uint64(1 << bit) != 0)

    def members(self) -> tuple[Int64s, Int64s]:
        """Return all memberships as two arrays, int64[m]: the index of the set, ascending, and the query id.

        >>> QuerySets((3, 7, 9), np.array([[0b110], [0b001]], dtype=np.uint64)).members()
        (array([0, 0, 1]), array([7, 9, 3]))
        """
        ascending = np.argsort(np.array(self.queries, dtype=np.int64))
        sorted_ids = np.array(self.queries, dtype=np.int64)[ascending]
        places, ids = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        start = 0
        for bits in self._spread():
            of_set, column = np.nonzero(bits[:, ascending])
            places.append(of_set + start)
            ids.append(sorted_ids[column])
            start += len(bits)
        return np.concatenate(places), np.concatenate(ids)

    def ids(self) -> list[tuple[int, ...]]:
        """Return the query ids of each set, ascending."""
        places, ids = self.members()
        ends, members = np.cumsum(np.bincount(places, minlength=len(self))).tolist(), ids.tolist()
        return [tuple(members[start:end]) for start, end in zip([0, *ends], ends, strict=False)]

    def subsets_of(self, query_ids: Collection[int]) -> Bools:
        """Return for each set whether all its queries are in ``query_ids``, bool[n]."""
        allowed = sum(1 << place for place, q in enumerate(self.queries) if q in query_ids)
        return np.asarray(~(self.words & ~QuerySets.of(self.queries, [allowed]).words).any(axis=1))

    def among(self, queries: tuple[int, ...]) -> QuerySets:
        """Return the sets restricted to ``queries``, with bits in the order of ``queries``."""
        places = {query_id: place for place, query_id in enumerate(self.queries)}
        # An additional empty column serves queries that occur in no set.
        columns = np.array([places.get(query_id, len(places)) for query_id in queries], dtype=np.int64)
        words = np.zeros((len(self), words_of(len(queries))), dtype=np.uint64)
        runs = _runs(columns[columns < len(places)], np.flatnonzero(columns < len(places)))
        if len(runs) <= _MOST_RUNS:
            # Of ten thousand queries, few are added or leave at a time, and all others keep their order.
            for start in range(0, len(self), _SPREAD_AT_ONCE):
                some = slice(start, start + _SPREAD_AT_ONCE)
                for source, target, length in runs:
                    _copy_bits(self.words[some], words[some], source, target, length)
            return QuerySets(queries, words)
        start = 0
        for bits in self._spread():
            wider = np.concatenate([bits, np.zeros((len(bits), 1), dtype=np.uint8)], axis=1)
            packed = np.packbits(wider[:, columns], axis=1, bitorder="little")
            words.view(np.uint8)[start : start + len(bits), : packed.shape[1]] = packed
            start += len(bits)
        return QuerySets(queries, words)

    def _spread(self) -> Iterator[NDArray[np.uint8]]:
        """Yield the sets, some at a time, with a byte for each query."""
        for start in range(0, len(self), _SPREAD_AT_ONCE):
            some = np.ascontiguousarray(self.words[start : start + _SPREAD_AT_ONCE]).view(np.uint8)
            yield np.unpackbits(some, axis=1, count=len(self.queries), bitorder="little")


def _runs(sources: Int64s, targets: Int64s) -> list[tuple[int, int, int]]:
    """Return the runs of bits that stay together when copied, as (first source, first target, length).

    >>> _runs(np.array([4, 5, 6, 1]), np.array([0, 1, 2, 3]))
    [(4, 0, 3), (1, 3, 1)]
    """
    apart = (np.diff(sources) != 1) | (np.diff(targets) != 1)
    starts = np.concatenate([np.zeros(min(len(sources), 1), dtype=np.int64), np.flatnonzero(apart) + 1])
    lengths = np.diff(np.append(starts, len(sources)))
    firsts = zip(sources[starts].tolist(), targets[starts].tolist(), lengths.tolist(), strict=True)
    return list(firsts)


def _copy_bits(words: UInt64s, into: UInt64s, source: int, target: int, length: int) -> None:
    """Copy a run of bits of each set, a word at a time; the target bits must be 0."""
    for number in range(target // WORD_BITS, (target + length - 1) // WORD_BITS + 1):
        # Bit of the source for the first bit of this word; it may be before the first bit of the source.
        first = source + number * WORD_BITS - target
        word, shift = divmod(first, WORD_BITS)
        bits = np.zeros(len(words), dtype=np.uint64)
        if 0 <= word < words.shape[1]:
            bits |= words[:, word] >> np.uint64(shift)
        if shift and 0 <= word + 1 < words.shape[1]:
            bits |= words[:, word + 1] << np.uint64(WORD_BITS - shift)
        low = max(target - number * WORD_BITS, 0)
        high = min(target + length - number * WORD_BITS, WORD_BITS)
        into[:, number] |= bits & np.uint64((1 << high) - (1 << low))


def words_of(queries: int) -> int:
    """Return the number of words in a set over a number of queries, at least one."""
    return max(1, -(-queries // WORD_BITS))
