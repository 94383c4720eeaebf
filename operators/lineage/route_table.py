"""Routes of pairs as a table: a route's number, its set of queries, and how many pairs take it.

number     pairs    queries 3 7 9 12        columns: a batch of 1,000 queries may have 20,000 routes
8801       17               x . x .
2417        2               . x . .
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from catalog.errors import InvariantBroken
from operators.kernels.keys import Int64s
from operators.lineage.query_sets import QuerySets

_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True, eq=False)
class RouteTable:
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

    def encode(self) -> bytes:
        """Return the table as an Arrow IPC stream; words of query sets are columns, which compress well."""
        words = self.sets.words
        columns = [
            self.numbers,
            self.pairs,
            *(np.ascontiguousarray(words[:, n]) for n in range(words.shape[1])),
        ]
        names = ["number", "pairs", *(f"w{n}" for n in range(words.shape[1]))]
        queries = np.array(self.sets.queries, dtype=np.int64).tobytes()
        batch = pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=names)
        batch = batch.replace_schema_metadata({"queries": queries})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=_COMPRESSED) as stream:
            stream.write_batch(batch)
        data: bytes = sink.getvalue().to_pybytes()
        return data

    @classmethod
    def decode(cls, data: bytes) -> RouteTable:
        """Return the table that was encoded."""
        with pa.ipc.open_stream(data) as stream:
            batch = stream.read_next_batch()
        queries = tuple(np.frombuffer(batch.schema.metadata[b"queries"], dtype=np.int64).tolist())
        number, pairs, *words = (column.to_numpy() for column in batch.columns)
        return cls(number, QuerySets(queries, np.stack(words, axis=1)), pairs)

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


def add_up(queries: tuple[int, ...], parts: Sequence[RouteTable]) -> RouteTable:
    """Return the routes of several lots of pairs of the same queries, each once, by number.

    Raises:
        InvariantBroken: Two sets of queries have the same number.
    """
    if not parts:
        return RouteTable(np.zeros(0, np.int64), QuerySets.of(queries, []), np.zeros(0, np.int64))
    numbers = np.concatenate([part.numbers for part in parts])
    words = np.concatenate([part.sets.words for part in parts])
    pairs = np.concatenate([part.pairs for part in parts])
    distinct, first, place = np.unique(numbers, return_index=True, return_inverse=True)
    sums = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(sums, place, pairs)
    differ = np.flatnonzero((words[first][place] != words).any(axis=1))
    if len(differ):
        raise InvariantBroken(f"route {numbers[differ[0]]} stands for two sets of queries")
    return RouteTable(distinct, QuerySets(queries, words[first]), sums)
