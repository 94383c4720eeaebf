"""Rows per query as two columns, from the buckets to the engine: ten thousand queries may have rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from catalog.values.routes.query_sets import Int64s


@dataclass(frozen=True, slots=True)
class QueryRows:
    """Rows per query, in no order; a query may occur more than once.

    Attributes:
        queries: Query ids, int64[n] as bytes, little endian.
        rows: Rows of each, int64[n] as bytes, little endian.
    """

    queries: bytes = b""
    rows: bytes = b""

    @classmethod
    def of(cls, queries: Int64s, rows: Int64s) -> QueryRows:
        """Return the rows of queries, int64[n] each."""
        return cls(queries.astype("<i8").tobytes(), rows.astype("<i8").tobytes())


def summed_rows(some: Sequence[QueryRows]) -> tuple[tuple[int, int], ...]:
    """Return (query id, rows) of each query, ascending.

    >>> one = QueryRows.of(np.array([7, 3]), np.array([1, 2]))
    >>> summed_rows([one, QueryRows.of(np.array([7]), np.array([4]))])
    ((3, 2), (7, 5))
    """
    queries = np.frombuffer(b"".join(each.queries for each in some), dtype="<i8")
    rows = np.frombuffer(b"".join(each.rows for each in some), dtype="<i8")
    ids, places = np.unique(queries, return_inverse=True)
    sums = np.zeros(len(ids), dtype=np.int64)
    np.add.at(sums, places, rows)
    return tuple(zip(ids.tolist(), sums.tolist(), strict=True))
