"""Rows per query as two columns, which buckets report to the engine for up to ten thousand queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from catalog.values.routes.query_sets import Int64s


@dataclass(frozen=True, slots=True)
class QueryRows:
    """Numbers of rows per query, in any order; a query may occur more than once.

    Attributes:
        queries: Query ids, int64[n] as bytes, little endian.
        rows: Number of rows of each query, int64[n] as bytes, little endian.
    """

    queries: bytes = b""
    rows: bytes = b""

    @classmethod
    def of(cls, queries: Int64s, rows: Int64s) -> QueryRows:
        """Encode query ids, int64[n], and the number of rows of each query, int64[n]."""
        return cls(queries.astype("<i8").tobytes(), rows.astype("<i8").tobytes())


def summed_rows(some: Sequence[QueryRows]) -> tuple[tuple[int, int], ...]:
    """Add up the rows of each query; return (query id, rows), ascending by id.

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
