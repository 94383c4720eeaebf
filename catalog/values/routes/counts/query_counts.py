"""Numbers of results per query and batch as columns, so that a batch stores one value for all its queries.

query   3   3   7   9          query 3 has 5 results in batch 17 and 2 in batch 18; 7 and 9 have results in 18
batch  17  18  18  18
rows    5   2   1   4          ascending by query, then by batch
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from catalog.values.routes.arrow_stream import decode_batch, encode_batch
from catalog.values.routes.query_sets import Bools, Int64s

_NAMES = ("query", "batch", "rows")
#: Bytes that an empty ``QueryCounts`` with its arrays takes in memory.
_OBJECT_BYTES = 600


@dataclass(frozen=True, slots=True, eq=False)
class QueryCounts:
    """Numbers of results per query and batch, ascending by query, then by batch.

    Attributes:
        queries: int64[n], query ids.
        batches: int64[n], batch numbers.
        rows: int64[n], numbers of results, at least 1.
    """

    queries: Int64s
    batches: Int64s
    rows: Int64s

    @classmethod
    def of_batch(cls, batch: int, counts: Iterable[tuple[int, int]]) -> QueryCounts:
        """Return the counts of a batch, given as (query id, number of results).

        >>> QueryCounts.of_batch(17, [(7, 1), (3, 5), (9, 0)]).of((3,))
        [(17, 3, 5)]
        """
        pairs = sorted(pair for pair in counts if pair[1])
        queries = np.array([query_id for query_id, _ in pairs], dtype=np.int64)
        rows = np.array([count for _, count in pairs], dtype=np.int64)
        return cls(queries, np.full(len(pairs), batch, dtype=np.int64), rows)

    @classmethod
    def merged(cls, some: Sequence[QueryCounts]) -> QueryCounts:
        """Merge several objects; each combination of a query and a batch may be in only one of them."""
        queries, batches, rows = (
            np.concatenate([np.empty(0, dtype=np.int64), *columns])
            for columns in ([c.queries for c in some], [c.batches for c in some], [c.rows for c in some])
        )
        order = np.lexsort((batches, queries))
        return cls(queries[order], batches[order], rows[order])

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return _OBJECT_BYTES + self.queries.nbytes + self.batches.nbytes + self.rows.nbytes

    def between(self, first: int, end: int) -> QueryCounts:
        """Return the counts of the batches ``first`` (inclusive) to ``end`` (exclusive)."""
        kept: Bools = (self.batches >= first) & (self.batches < end)
        return self if kept.all() else QueryCounts(self.queries[kept], self.batches[kept], self.rows[kept])

    def of(self, query_ids: Collection[int]) -> list[tuple[int, int, int]]:
        """Return the counts of some queries as (batch, query id, number of results), in order."""
        found: list[tuple[int, int, int]] = []
        for query_id in query_ids:
            start, end = np.searchsorted(self.queries, [query_id, query_id + 1]).tolist()
            batches, rows = self.batches[start:end].tolist(), self.rows[start:end].tolist()
            found += [(batch, query_id, count) for batch, count in zip(batches, rows, strict=True)]
        return sorted(found)

    def totals(self) -> dict[int, int]:
        """Return the number of results of each query, by query id."""
        return summed((self,))

    def encode(self) -> bytes:
        """Return the counts as an Arrow IPC stream."""
        columns = [pa.array(column) for column in (self.queries, self.batches, self.rows)]
        return encode_batch(pa.RecordBatch.from_arrays(columns, names=list(_NAMES)))

    @classmethod
    def decode(cls, data: bytes) -> QueryCounts:
        """Return the counts that ``encode`` encoded."""
        batch = decode_batch(data)
        # Columns are copied, because an Arrow array keeps the whole message in memory and itself takes 3 kB.
        return cls(*(np.array(batch.column(name), dtype=np.int64) for name in _NAMES))


def summed(some: Sequence[QueryCounts]) -> dict[int, int]:
    """Return the number of results of each query, summed over several counts."""
    queries = np.concatenate([np.empty(0, dtype=np.int64), *(counts.queries for counts in some)])
    rows = np.concatenate([np.empty(0, dtype=np.int64), *(counts.rows for counts in some)])
    if not len(queries):
        return {}
    # Ids are dense, so counting by id replaces sorting, which takes ten times as long. ``bincount`` adds
    # doubles, so sums are exact up to 2^53.
    least = int(queries.min())
    sums = np.bincount(queries - least, weights=rows).astype(np.int64)
    found = np.flatnonzero(sums)
    return dict(zip((found + least).tolist(), sums[found].tolist(), strict=True))
