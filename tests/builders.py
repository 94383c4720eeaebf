"""Streams and bound queries built by hand, for tests that need no CQL.

Names of columns in predicates are quoted, as in a plan (``"v" < 0.2``): which columns a predicate reads is
taken from its text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypedDict, Unpack

from catalog.values.batch import BatchManifest
from catalog.values.groups.grouping import Grouping
from catalog.values.query import Backfill, JoinKind, Output, Query, Side
from catalog.values.stream import Column, HttpSource, Source, Stream
from planner.families.families import SideName

SECOND_US = 1_000_000

Key = tuple[tuple[str, str], ...]

#: Columns of a stream, beside its event time ``ts``: two keys and two values.
COLUMNS = {"k": "bigint", "m": "string", "v": "int", "w": "int"}

#: Manifest of batch 0, in which nothing happened; a test replaces what it needs.
EMPTY_BATCH = BatchManifest(
    batch=0,
    epoch=1,
    plan_version=1,
    files=(),
    late_files=(),
    streams=(),
    slices=(),
    query_rows=(),
    started_at_us=0,
    committed_at_us=0,
)

_NAMES = "ABCDEFGHIJ"


def a_stream(
    stream_id: int = 1,
    lateness_us: int = 0,
    columns: Sequence[tuple[str, str]] = tuple(COLUMNS.items()),
    *,
    name: str | None = None,
    source: Source | None = None,
) -> Stream:
    """Return a stream with event time ``ts``, of events over HTTP; stream 1 is named ``A``."""
    typed = (Column("ts", "timestamp"), *(Column(column, kind) for column, kind in columns))
    named = _NAMES[stream_id - 1] if name is None else name
    return Stream(stream_id, named, typed, "ts", lateness_us, HttpSource() if source is None else source)


_TS_K = MappingProxyType({"ts": "timestamp", "k": "bigint"})


def stream_document(name: str, columns: Mapping[str, str] = _TS_K, **source: object) -> dict[str, Any]:
    """Return the body that registers a stream with event time ``ts``, by default of events over HTTP."""
    return {"name": name, "columns": dict(columns), "event_time": "ts", "source": source or {"type": "http"}}


class QueryFacts(TypedDict, total=False):
    """Facts of a query that few tests ask for.

    Attributes:
        filter_a: Predicate over rows of side a.
        filter_b: Predicate over rows of side b.
        residual: Predicate over pairs; its columns are stored.
        streams: Both sides, by id or as they are.
        key: Columns of both sides that must be equal.
        key_types: Their types; by default as ``COLUMNS`` has them.
        columns_a: Columns of side a that results need.
        columns_b: Columns of side b that results need.
        outputs: Columns of a result.
        backfill: How the query begins.
        kind: Kind of join.
        preserved: Sides whose rows come out without a partner.
        spreads: Whether the rows of that side are spread over the buckets of their key.
        beside_inner: Whether it is of the family of inner joins.
        name: Its name, if it is not ``q<id>``.
    """

    filter_a: str | None
    filter_b: str | None
    residual: str | None
    streams: tuple[int | Stream, int | Stream]
    key: Key
    key_types: tuple[str, ...]
    columns_a: Sequence[str]
    columns_b: Sequence[str]
    outputs: tuple[Output, ...]
    backfill: Backfill
    kind: JoinKind
    preserved: tuple[SideName, ...]
    spreads: bool
    beside_inner: bool
    name: str


def a_query(
    query_id: int, w_a_us: int = 10 * SECOND_US, w_b_us: int | None = None, **facts: Unpack[QueryFacts]
) -> Query:
    """Return query ``q<id>`` over the streams 1 and 2, joined on ``k``; one window serves both sides."""
    streams = facts.get("streams", (1, 2))
    key = facts.get("key", (("k", "k"),))
    residual = facts.get("residual")
    windows = w_a_us, w_a_us if w_b_us is None else w_b_us
    filters = facts.get("filter_a"), facts.get("filter_b")
    columns = facts.get("columns_a", ()), facts.get("columns_b", ())
    a, b = (
        _side(*side, residual) for side in zip(("a", "b"), streams, windows, filters, columns, strict=True)
    )
    return Query(
        id=query_id,
        name=facts.get("name", f"q{query_id}"),
        cql="",
        a=a,
        b=b,
        key=key,
        key_types=facts.get("key_types", tuple(COLUMNS.get(column, "bigint") for column, _ in key)),
        residual=residual,
        outputs=facts.get("outputs", (Output("k", 'a."k"', "bigint"),)),
        backfill=facts.get("backfill", "none"),
        kind=facts.get("kind", "inner"),
        preserved=facts.get("preserved", ()),
        spreads=facts.get("spreads", False),
        beside_inner=facts.get("beside_inner", False),
    )


def a_query_s(
    query_id: int, w_a_s: float = 10, w_b_s: float | None = None, **facts: Unpack[QueryFacts]
) -> Query:
    """Return ``a_query`` with windows in seconds."""
    w_b_us = None if w_b_s is None else round(w_b_s * SECOND_US)
    return a_query(query_id, round(w_a_s * SECOND_US), w_b_us, **facts)


def grouped_by(query: Query, grouping: Grouping) -> Query:
    """Return a query that groups its pairs, and stores what the groups read."""
    reads = grouping.columns or ()
    a, b = (
        replace(side, columns=tuple(sorted({*side.columns, *(name for of, name in reads if of == letter)})))
        for letter, side in (("a", query.a), ("b", query.b))
    )
    return replace(query, a=a, b=b, grouping=grouping)


def _side(
    side: str,
    of: int | Stream,
    window_us: int,
    predicate: str | None,
    columns: Sequence[str],
    residual: str | None,
) -> Side:
    stream = of if isinstance(of, Stream) else a_stream(of)
    reads = tuple(sorted(set(re.findall(r'"(\w+)"', predicate or ""))))
    of_pairs = re.findall(rf'\b{side}\."(\w+)"', residual or "")
    stored = tuple(sorted({*columns, *reads, *of_pairs}))
    return Side(stream.id, stream.name, stream.name, window_us, predicate, reads, stored)
