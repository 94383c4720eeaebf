"""Routes of pairs as a table: numbers and their sets of queries.

    number   queries 3 7 9 12        columns: a batch of 1,000 queries may have 20,000 routes
    2417             x . . .
    8801             x . x .

    CHAIN ── encode ──> report ──> RouteDictionary ── encode ──> batch_routes ── numbers_having ──> reader

A route's number is derived from its set only (``operators.lineage.routes``), so a number never means two
different sets. A reader gets the numbers of its query's routes from ``numbers_having``, the only function
that translates bits to numbers.

``QuerySets`` are encoded as columns of words, which compress well. ``Intersections`` are encoded as two
Arrow dictionary columns: the dictionaries are the left and right sets, and the indices refer to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from catalog.errors import InvariantBroken
from catalog.values.routes.arrow_stream import decode_batch, encode_batch
from catalog.values.routes.intersections import Intersections, first_difference, joined
from catalog.values.routes.query_sets import WORD_BITS, Bools, Int64s, QuerySets, UInt64s

# Names of the two columns of intersections.
_LEFT, _RIGHT = "left", "right"


@dataclass(frozen=True, slots=True, eq=False)
class RouteTable:
    """A table of routes.

    Attributes:
        numbers: int64[n], route numbers.
        sets: The set of queries of each route.
    """

    numbers: Int64s
    sets: QuerySets | Intersections

    @classmethod
    def of(cls, routes: Mapping[int, Sequence[int]]) -> RouteTable:
        """Return a table of routes, given the query ids of each route number.

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
        """Return the routes with the given indexes in the table."""
        return RouteTable(self.numbers[places], self.sets.take(places))

    def among(self, numbers: Int64s) -> RouteTable:
        """Return the routes with the given numbers."""
        return self.take(np.isin(self.numbers, numbers))

    def ids(self) -> dict[int, tuple[int, ...]]:
        """Return the query ids of each route, ascending, by route number."""
        return dict(zip(self.numbers.tolist(), self.sets.listed().ids(), strict=True))

    def encode(self) -> bytes:
        """Return the table as an Arrow IPC stream."""
        columns = {"number": pa.array(self.numbers), **_columns(self.sets)}
        queries = np.array(self.sets.queries, dtype=np.int64).tobytes()
        batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        return encode_batch(batch.replace_schema_metadata({"queries": queries}))

    @classmethod
    def decode(cls, data: bytes) -> RouteTable:
        """Return the table that ``encode`` encoded."""
        queries, batch = _read(data)
        numbers: Int64s = batch.column(0).to_numpy()
        ids = tuple(queries.tolist())
        if batch.schema.names[1] == _LEFT:
            return cls(numbers, _intersections(ids, batch))
        words = [column.to_numpy() for column in batch.columns[1:]]
        return cls(numbers, QuerySets(ids, np.stack(words, axis=1)))


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
    numbers: Int64s = batch.column(0).to_numpy()
    if batch.schema.names[1] == _LEFT:
        member = _intersections(tuple(queries.tolist()), batch).having(query_id)
    else:
        word, bit = divmod(int(places[0]), WORD_BITS)
        words: UInt64s = batch.column(1 + word).to_numpy()
        member = words & np.uint64(1 << bit) != 0
    found: Int64s = numbers[member]
    return found


def _columns(sets: QuerySets | Intersections) -> dict[str, pa.Array]:
    """Return sets as columns."""
    if isinstance(sets, QuerySets):
        words = sets.words
        return {f"w{n}": pa.array(np.ascontiguousarray(words[:, n])) for n in range(words.shape[1])}
    return {_LEFT: _places(sets.left, sets.of_left), _RIGHT: _places(sets.right, sets.of_right)}


def _places(sets: QuerySets, of_set: Int64s) -> pa.DictionaryArray:
    kind = pa.binary(sets.words.shape[1] * WORD_BITS // 8)
    words = pa.py_buffer(np.ascontiguousarray(sets.words, dtype="<u8"))
    values = pa.Array.from_buffers(kind, len(sets), [None, words])
    return pa.DictionaryArray.from_arrays(pa.array(of_set.astype(np.int32)), values)


def _intersections(queries: tuple[int, ...], batch: pa.RecordBatch) -> Intersections:
    (left, of_left), (right, of_right) = (
        _read_places(queries, batch.column(name)) for name in (_LEFT, _RIGHT)
    )
    return Intersections(left, right, of_left, of_right)


def _read_places(queries: tuple[int, ...], column: pa.DictionaryArray) -> tuple[QuerySets, Int64s]:
    values = column.dictionary
    width = values.type.byte_width * 8 // WORD_BITS
    words = np.frombuffer(values.buffers()[1], dtype="<u8", count=len(values) * width)
    return QuerySets(queries, words.reshape(-1, width)), column.indices.to_numpy().astype(np.int64)


def _read(encoded: bytes) -> tuple[Int64s, pa.RecordBatch]:
    """Return the query ids of an encoded table, and its columns: numbers, then words."""
    batch = decode_batch(encoded)
    return np.frombuffer(batch.schema.metadata[b"queries"], dtype=np.int64), batch


def merged(tables: Sequence[RouteTable]) -> RouteTable:
    """Return the routes of several tables of the same queries as one table, each route once, by number.

    Args:
        tables: The tables, at least one.

    Raises:
        InvariantBroken: Two sets of queries have the same number.
    """
    if len(tables) == 1 and (np.diff(tables[0].numbers) > 0).all():
        return tables[0]
    numbers = np.concatenate([table.numbers for table in tables])
    distinct, first, place = np.unique(numbers, return_index=True, return_inverse=True)
    sets = joined([table.sets for table in tables])
    again = np.flatnonzero(first[place] != np.arange(len(numbers)))
    _check_equal(numbers[again], sets.take(first[place[again]]), sets.take(again))
    return RouteTable(distinct, sets.take(first))


def _check_equal(numbers: Int64s, known: QuerySets | Intersections, now: QuerySets | Intersections) -> None:
    if (place := first_difference(known, now)) is not None:
        first = np.array([place])
        ((before,), (after,)) = known.take(first).listed().ids(), now.take(first).listed().ids()
        raise InvariantBroken(
            f"route {numbers[place]} already has a different set of queries",
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
    return merged([RouteTable(table.numbers, table.sets.among(queries)) for table in tables])
