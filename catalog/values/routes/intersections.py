"""Many sets of queries, stored as intersections of few sets.

A pair belongs to the queries that both of its rows may serve (left) and whose windows contain the pair
(right).

    left   {3, 7, 9}  {9, 12}          a set        left  right
    right  {7, 9, 12}  {9}             {7, 9}          0      0
                                       {9, 12}         1      0

With 10,000 queries over 2,000 windows, a batch has 50,000 sets. They would take 60 MB with a bit for each
query, but all are intersections of a few hundred left sets with 4,000 right sets.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from catalog.values.routes.query_sets import WORD_BITS, Bools, Int64s, QuerySets, UInt64s

#: Number of sets that are expanded to bits at a time to compare them; with 10,000 queries, that takes a few
#: MB.
_AT_ONCE = 1 << 12


@dataclass(frozen=True, slots=True, eq=False)
class Intersections:
    """Sets of queries, each the intersection of a set on the left and a set on the right.

    Attributes:
        left: Sets of queries.
        right: Sets over the same queries in the same order.
        of_left: int64[n], index in ``left`` of each set's left set.
        of_right: int64[n], index in ``right`` of each set's right set.
    """

    left: QuerySets
    right: QuerySets
    of_left: Int64s
    of_right: Int64s

    @classmethod
    def of(cls, sets: QuerySets | Intersections) -> Intersections:
        """Return sets as intersections; a set of ``QuerySets`` is intersected with the set of all queries."""
        if isinstance(sets, Intersections):
            return sets
        everyone = QuerySets.of(sets.queries, [(1 << len(sets.queries)) - 1])
        return cls(sets, everyone, np.arange(len(sets)), np.zeros(len(sets), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.of_left)

    @property
    def queries(self) -> tuple[int, ...]:
        """Query ids, each once."""
        return self.left.queries

    def take(self, places: Int64s | Bools) -> Intersections:
        """Return the sets at the given places."""
        return Intersections(self.left, self.right, self.of_left[places], self.of_right[places])

    def compact(self) -> QuerySets | Intersections:
        """Drop unused left and right sets, or list the sets if that is not longer.

        The sets are listed if there are at most as many of them as used left and right sets together.
        """
        lefts, of_left = np.unique(self.of_left, return_inverse=True)
        rights, of_right = np.unique(self.of_right, return_inverse=True)
        if len(self) <= len(lefts) + len(rights):
            return self.listed()
        return Intersections(self.left.take(lefts), self.right.take(rights), of_left, of_right)

    def listed(self) -> QuerySets:
        """List the sets: return them with a bit for each query."""
        return QuerySets(self.queries, self.left.words[self.of_left] & self.right.words[self.of_right])

    def having(self, query_id: int) -> Bools:
        """Return for each set whether it contains a query, bool[n]."""
        return self.left.having(query_id)[self.of_left] & self.right.having(query_id)[self.of_right]

    def subsets_of(self, query_ids: Collection[int]) -> Bools:
        """Return for each set whether all its queries are in ``query_ids``, bool[n]."""
        others = sum(1 << place for place, q in enumerate(self.queries) if q not in query_ids)
        outside = QuerySets.of(self.queries, [others]).words[0]
        # All other queries have left the plan, so only few words contain a bit of such a query.
        words = np.flatnonzero(outside)
        left, right = self.left.words[:, words] & outside[words], self.right.words[:, words]
        found = np.ones(len(self), dtype=np.bool_)
        for start in range(0, len(self), _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            found[some] = ~(left[self.of_left[some]] & right[self.of_right[some]]).any(axis=1)
        return found

    def among(self, queries: tuple[int, ...]) -> Intersections:
        """Return the sets restricted to ``queries``, with bits in the order of ``queries``."""
        return Intersections(self.left.among(queries), self.right.among(queries), self.of_left, self.of_right)


def joined(parts: Sequence[QuerySets | Intersections]) -> QuerySets | Intersections:
    """Concatenate sequences of sets over the same queries in the same order.

    Args:
        parts: The sequences, at least one.
    """
    if len(parts) == 1:
        return parts[0]
    listed = [part for part in parts if isinstance(part, QuerySets)]
    if len(listed) == len(parts):
        return QuerySets(listed[0].queries, np.concatenate([part.words for part in listed]))
    every = [Intersections.of(part) for part in parts]
    left, of_left = _joined([(part.left, part.of_left) for part in every])
    right, of_right = _joined([(part.right, part.of_right) for part in every])
    return Intersections(left, right, of_left, of_right)


def _joined(parts: Sequence[tuple[QuerySets, Int64s]]) -> tuple[QuerySets, Int64s]:
    """Return the distinct sets of several parts, and the indexes of all parts, translated to these sets."""
    words = np.concatenate([sets.words for sets, _ in parts])
    numbering: dict[bytes, int] = {}
    rows = words.view(f"V{words.shape[1] * WORD_BITS // 8}").ravel().tolist()
    number = np.array([numbering.setdefault(row, len(numbering)) for row in rows], dtype=np.int64)
    distinct: UInt64s = np.frombuffer(b"".join(numbering), dtype=np.uint64).reshape(-1, words.shape[1])
    starts = np.cumsum([0, *(len(sets) for sets, _ in parts)]).tolist()
    places = [number[start + of_set] for start, (_, of_set) in zip(starts, parts, strict=False)]
    return QuerySets(parts[0][0].queries, distinct), np.concatenate(places)


def first_difference(one: QuerySets | Intersections, other: QuerySets | Intersections) -> int | None:
    """Return the first place at which two sequences of sets over the same queries differ; None if equal."""
    suspects = np.arange(len(one))
    of_one, of_other = Intersections.of(one), Intersections.of(other)
    if of_one.left is of_other.left and of_one.right is of_other.right:
        unlike = (of_one.of_left != of_other.of_left) | (of_one.of_right != of_other.of_right)
        suspects = np.flatnonzero(unlike)
    for start in range(0, len(suspects), _AT_ONCE):
        some = suspects[start : start + _AT_ONCE]
        differ = (one.take(some).listed().words != other.take(some).listed().words).any(axis=1)
        if differ.any():
            return int(some[np.argmax(differ)])
    return None
