"""Which routes the pairs of a batch take, and how many pairs each: as arrays, since there may be 20,000."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from catalog.errors import InvariantBroken
from operators.kernels.keys import Int64s
from operators.lineage.query_sets import QuerySets


@dataclass(frozen=True, slots=True, eq=False)
class RouteCounts:
    """Routes of pairs of one family.

    Attributes:
        numbers: int64[n], route numbers.
        sets: The set of queries of each.
        pairs: int64[n], pairs of each, at least one.
    """

    numbers: Int64s
    sets: QuerySets
    pairs: Int64s

    def __len__(self) -> int:
        return len(self.numbers)

    def query_rows(self) -> dict[int, int]:
        """Return pairs by query id; queries without any are missing."""
        rows = self.sets.rows_per_query(self.pairs).tolist()
        return {query_id: count for query_id, count in zip(self.sets.queries, rows, strict=True) if count}

    def ids(self) -> dict[int, tuple[int, ...]]:
        """Return the query ids of each route, ascending, by its number."""
        return dict(zip(self.numbers.tolist(), self.sets.ids(), strict=True))

    def totals(self) -> dict[int, int]:
        """Return the pairs of each route by its number."""
        return dict(zip(self.numbers.tolist(), self.pairs.tolist(), strict=True))


def add_up(queries: tuple[int, ...], parts: Sequence[RouteCounts]) -> RouteCounts:
    """Return the routes of several lots of pairs of the same queries, each once, by number.

    Raises:
        InvariantBroken: Two sets of queries have the same number.
    """
    if not parts:
        return RouteCounts(np.zeros(0, np.int64), QuerySets.of(queries, []), np.zeros(0, np.int64))
    numbers = np.concatenate([part.numbers for part in parts])
    words = np.concatenate([part.sets.words for part in parts])
    pairs = np.concatenate([part.pairs for part in parts])
    distinct, first, place = np.unique(numbers, return_index=True, return_inverse=True)
    sums = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(sums, place, pairs)
    differ = np.flatnonzero((words[first][place] != words).any(axis=1))
    if len(differ):
        raise InvariantBroken(f"route {numbers[differ[0]]} stands for two sets of queries")
    return RouteCounts(distinct, QuerySets(queries, words[first]), sums)
