"""Routes in a bucket's report: arrays in text, since a batch may have 20,000 routes of 1,000 queries.

Their ids in JSON would be 27 MB a batch; these are 0.5 MB. The driver turns into ids only what it does not
know yet (``service.commit.route_dictionary``).
"""

from __future__ import annotations

import base64
from typing import TypedDict

import numpy as np
import pyarrow as pa

from operators.kernels.keys import Int64s
from operators.lineage.query_sets import QuerySets
from operators.lineage.route_counts import RouteCounts


class ReportedRoutes(TypedDict):
    """Routes of one family and bucket.

    Attributes:
        queries: Ids of the family's queries, in plan order.
        rows: Pairs of each.
        numbers: int64[n], route numbers.
        sets: uint64[w, n], the sets of queries: word by word, which is what compresses well.
    """

    queries: list[int]
    rows: list[int]
    numbers: str
    sets: str


def reported(routes: RouteCounts) -> ReportedRoutes:
    """Return what the report says of routes."""
    sets = np.ascontiguousarray(routes.sets.words.T)
    return {
        "queries": list(routes.sets.queries),
        "rows": routes.sets.rows_per_query(routes.pairs).tolist(),
        "numbers": _text(routes.numbers.tobytes()),
        "sets": _text(pa.compress(sets.tobytes(), codec="lz4", asbytes=True)),
    }


def read_routes(facts: ReportedRoutes) -> tuple[Int64s, QuerySets]:
    """Return the numbers of reported routes, int64[n], and their sets of queries."""
    queries = tuple(facts["queries"])
    numbers = np.frombuffer(base64.b64decode(facts["numbers"]), dtype=np.int64)
    none = QuerySets.of(queries, [])
    packed = base64.b64decode(facts["sets"])
    width = none.words.shape[1]
    data = pa.decompress(packed, decompressed_size=8 * width * len(numbers), codec="lz4", asbytes=True)
    words = np.frombuffer(data, dtype=np.uint64).reshape(width, len(numbers))
    return numbers, QuerySets(queries, np.ascontiguousarray(words.T))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
