"""Bound queries and streams built by hand, for planner tests that need no CQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from catalog.values.query import Backfill, Output, Query, Side
from catalog.values.statistics import Measure
from catalog.values.stream import Column, HttpSource, Stream
from planner.build.build_plan import build_plan
from planner.costs.paper_model import PaperModel
from planner.costs.rates import FamilyRates, SideRates
from planner.families.families import SIDES, Family, side_filters
from planner.families.filters import weaker_filters

SECOND_US = 1_000_000

PAPER = PaperModel()


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
    residual: str | None = None,
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
        residual=residual,
        outputs=(Output("k", 'a."k"', "bigint"),),
        backfill=backfill,
    )


def _side(stream_id: int, window_s: float, predicate: str | None, columns: tuple[str, ...]) -> Side:
    name = STREAMS[stream_id].name
    reads = () if predicate is None else ("v",)
    stored = tuple(sorted({*columns, *reads}))
    return Side(stream_id, name, name, int(window_s * SECOND_US), predicate, reads, stored)


def family_of(queries: Sequence[Query]) -> Family:
    """Return the one family of bound queries, as strategies get to see it."""
    (planned,) = build_plan(queries, STREAMS).families
    return Family(planned.id, planned.queries, planned.filters_a, planned.filters_b)


def rates_of(
    family: Family,
    rate_a: float = 10.0,
    rate_b: float | None = None,
    *,
    selectivity: Mapping[str, float] | float = 0.5,
    join_selectivity: float = 0.1,
    row_bytes: float = 10.0,
) -> FamilyRates:
    """Return rates; ``selectivity`` by the text of a filter, or one of all filters."""

    def of(sql: str) -> Measure:
        return Measure(selectivity if isinstance(selectivity, int | float) else selectivity[sql])

    a, b = (
        SideRates(
            rate=Measure(rate),
            row_bytes=Measure(row_bytes),
            selectivity={bit: of(f.sql) for bit, f in side_filters(family, side).items()},
            weaker=weaker_filters(family, side),
        )
        for side, rate in zip(SIDES, (rate_a, rate_a if rate_b is None else rate_b), strict=True)
    )
    return FamilyRates(a, b, Measure(join_selectivity))
