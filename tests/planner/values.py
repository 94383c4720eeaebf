"""Streams, families and rates for planner tests that need no CQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from catalog.values.query import Query
from catalog.values.statistics import Measure
from planner.build.build_plan import build_plan
from planner.costs.paper_model import PaperModel
from planner.costs.rates import FamilyRates, SideRates
from planner.families.families import SIDES, Family, side_filters
from planner.families.filters import weaker_filters
from tests.builders import SECOND_US, a_stream

PAPER = PaperModel()


_COLUMNS = (("k", "bigint"), ("m", "string"), ("v", "double"))
#: Streams with event time ``ts``, keys ``k``, ``m`` and a value ``v``.
STREAMS = {n: a_stream(n, 5 * SECOND_US, _COLUMNS) for n in (1, 2, 3)}


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
    open_s: float | None = None,
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
            open_s=None if open_s is None else Measure(open_s),
        )
        for side, rate in zip(SIDES, (rate_a, rate_a if rate_b is None else rate_b), strict=True)
    )
    return FamilyRates(a, b, Measure(join_selectivity))
