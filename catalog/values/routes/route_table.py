"""Routes of pairs as a table: numbers and their sets of queries.

    number   queries 3 7 9 12        columns: a batch of 1,000 queries may have 20,000 routes
    2417             x . . .
    8801             x . x .

    CHAIN ── encode ──> report ──> RouteDictionary ── encode ──> batch_routes ── numbers_having ──> reader

A route's number is derived from its set only (``operators.lineage.routes``), so it never means another set.
One function translates bits to numbers: ``numbers_having`` gives a reader the routes of its query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from catalog.errors import InvariantBroken
from catalog.values.routes.arrow_stream import decode_batch, encode_batch
from catalog.values.routes.query_sets import WORD_BITS, Bools, Int64s, QuerySets, UInt64s

# Without Arrow's threads, whose use costs more than the work: a small table is read in 10 instead of 50 µs,
# 20,000 routes of 300 queries in 38 instead of 92 µs (CPU time).


@dataclass(frozen=True, slots=True, eq=False)
class RouteTable:
    """A table of routes.

    Attributes:
        numbers: int64[n], route numbers.
        sets: The set of queries of each route.
    """

    numbers: Int64s
    sets: QuerySets

    @classmethod
    def of(cls, routes: Mapping[int, Sequence[int]]) -> RouteTable:
        """Return the table of routes from the query ids of each number.

        >>> RouteTable.of({2417: (3,), 8801: (3, 9)}).numbers
        array([2417, 8801])
        """
        queries = tuple(sorted({query_id for ids in routes.values() for query_id in ids}))
        places = {query_id: 1 << place for place, query_id in enumerate(queries)}
        sets = [sum(places[query_id] for query_id in ids) for ids in routes.values()]
        return cls(np.array(list(routes), dtype=np.int64), QuerySets.of(queries, sets))

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, places: Int64s | Bools) -> RouteTable:
        """Return the routes at some places."""
        return RouteTable(self.numbers[places], self.sets.take(places))

    def among(self, numbers: Int64s) -> RouteTable:
        """Return the routes that have some numbers."""
        return self.take(np.isin(self.numbers, numbers))

    def ids(self) -> dict[int, tuple[int, ...]]:
        """Return the query ids of each route, ascending, by its number."""
        return dict(zip(self.numbers.tolist(), self.sets.ids(), strict=True))

    def encode(self) -> bytes:
        """Return the table as an Arrow IPC stream; words of query sets are columns, which compress well."""
        words = self.sets.words
        columns = [self.numbers, *(np.ascontiguousarray(words[:, n]) for n in range(words.shape[1]))]
        names = ["number", *(f"w{n}" for n in range(words.shape[1]))]
        queries = np.array(self.sets.queries, dtype=np.int64).tobytes()
        batch = pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=names)
        return encode_batch(batch.replace_schema_metadata({"queries": queries}))

    @classmethod
    def decode(cls, data: bytes) -> RouteTable:
        """Return the table that ``encode`` encoded."""
        queries, batch = _read(data)
        numbers, *words = (column.to_numpy() for column in batch.columns)
        return cls(numbers, QuerySets(tuple(queries.tolist()), np.stack(words, axis=1)))


@dataclass(frozen=True, slots=True, eq=False)
class BatchRoutes:
    """Routes that a batch adds.

    Attributes:
        table: Routes in its files that no earlier batch of their generation had
            (``catalog.store.repositories.routes``).
        since: First batch of the generation.
    """

    table: RouteTable
    since: int


def numbers_having(encoded: bytes, query_id: int) -> Int64s:
    """Return the numbers of the routes of an encoded table that include a query.

    >>> numbers_having(RouteTable.of({2417: (3,), 8801: (3, 9)}).encode(), 9)
    array([8801])
    """
    queries, batch = _read(encoded)
    places = np.flatnonzero(queries == query_id)
    if not len(places):
        return np.empty(0, dtype=np.int64)
    word, bit = divmod(int(places[0]), WORD_BITS)
    numbers: Int64s = batch.column(0).to_numpy()
    words: UInt64s = batch.column(1 + word).to_numpy()
    member: Bools = words & np.uint64(1 << bit) != 0
    found: Int64s = numbers[member]
    return found


def _read(encoded: bytes) -> tuple[Int64s, pa.RecordBatch]:
    """Return the query ids of an encoded table, and its columns: numbers, then words."""
    batch = decode_batch(encoded)
    return np.frombuffer(batch.schema.metadata[b"queries"], dtype=np.int64), batch


def merged(tables: Sequence[RouteTable]) -> RouteTable:
    """Return the routes of several tables of the same queries as one: each once, ascending by number.

    Args:
        tables: At least one.

    Raises:
        InvariantBroken: Two sets of queries have the same number.
    """
    if len(tables) == 1 and (np.diff(tables[0].numbers) > 0).all():
        return tables[0]
    numbers = np.concatenate([table.numbers for table in tables])
    words = np.concatenate([table.sets.words for table in tables])
    distinct, first, place = np.unique(numbers, return_index=True, return_inverse=True)
    sets = QuerySets(tables[0].sets.queries, words)
    again = np.flatnonzero(first[place] != np.arange(len(numbers)))
    check_equal(numbers[again], sets.take(first[place[again]]), sets.take(again))
    return RouteTable(distinct, sets.take(first))


def check_equal(numbers: Int64s, known: QuerySets, now: QuerySets) -> None:
    """Refuse routes whose sets have changed; both sets are over the same queries in the same order.

    Raises:
        InvariantBroken: The set of a number differs from before.
    """
    differ = np.flatnonzero((known.words != now.words).any(axis=1))
    if len(differ):
        first = differ[:1]
        ((before,), (after,)) = known.take(first).ids(), now.take(first).ids()
        raise InvariantBroken(
            f"route {numbers[first[0]]} stands for other queries already",
            detail=f"Known: {list(before)}; now: {list(after)}.",
        )


def combined(tables: Sequence[RouteTable]) -> RouteTable:
    """Return the routes of several tables as one table over all their queries, each route once.

    Args:
        tables: At least one; their queries may differ.
    """
    if len({table.sets.queries for table in tables}) == 1:
        return merged(tables)
    queries = tuple(dict.fromkeys(query_id for table in tables for query_id in table.sets.queries))
    return merged([RouteTable(table.numbers, table.sets.among(queries)[0]) for table in tables])
