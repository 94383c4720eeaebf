"""Bound queries and streams built by hand, for planner tests that need no CQL."""

from __future__ import annotations

from collections.abc import Sequence

from catalog.values.query import Backfill, Output, Query, Side
from catalog.values.stream import Column, HttpSource, Stream

SECOND_US = 1_000_000


def a_stream(stream_id: int, name: str) -> Stream:
    """Return a stream with event time ``ts``, keys ``k``, ``m`` and a value ``v``."""
    columns = (Column("ts", "timestamp"), Column("k", "bigint"), Column("m", "string"), Column("v", "double"))
    return Stream(stream_id, name, columns, "ts", 5 * SECOND_US, HttpSource())


STREAMS = {1: a_stream(1, "A"), 2: a_stream(2, "B"), 3: a_stream(3, "C")}


def a_query(
    query_id: int,
    w_a_s: float = 10,
    w_b_s: float | None = None,
    *,
    filter_a: str | None = None,
    filter_b: str | None = None,
    streams: tuple[int, int] = (1, 2),
    key: Sequence[tuple[str, str]] = (("k", "k"),),
    columns_a: tuple[str, ...] = ("k",),
    name: str = "",
    backfill: Backfill = "none",
) -> Query:
    """Return query ``q<id>`` over two streams; filters read ``v``."""
    return Query(
        id=query_id,
        name=name or f"q{query_id}",
        cql="",
        a=_side(streams[0], w_a_s, filter_a, columns_a),
        b=_side(streams[1], w_a_s if w_b_s is None else w_b_s, filter_b, ()),
        key=tuple(key),
        key_types=tuple("bigint" for _ in key),
        residual=None,
        outputs=(Output("k", 'a."k"', "bigint"),),
        backfill=backfill,
    )


def _side(stream_id: int, window_s: float, predicate: str | None, columns: tuple[str, ...]) -> Side:
    name = STREAMS[stream_id].name
    reads = () if predicate is None else ("v",)
    stored = tuple(sorted({*columns, *reads}))
    return Side(stream_id, name, name, int(window_s * SECOND_US), predicate, reads, stored)
