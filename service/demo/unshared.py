"""What the demo's queries would cost without sharing, by Equation 1 of the State-Slice paper.

Rates, selectivities and the share of equal keys are measured on the demo's tables, so that the only
assumption left is the paper's: rows come evenly. Filters are taken before the join, which favours the
unshared side.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import pyarrow as pa

from catalog.values.plan import Plan, PlannedFilter
from planner.costs.paper import loads_of_family, unshared_cost
from service.demo.data import DemoTables

_US_PER_S = 1_000_000


@dataclass(frozen=True, slots=True)
class Unshared:
    """One join per query.

    Attributes:
        state_rows: Rows that all the joins would hold together.
        pairs_per_s: Pairs of equal key compared per second of event time: Equation 1's probes times the
            share of pairs whose keys are equal. (An index finds these without looking at the others; the
            paper's nested loops would look at all.)
    """

    state_rows: float
    pairs_per_s: float


def unshared(plan: Plan, tables: DemoTables) -> Unshared:
    """Return what a plan's queries would hold and compare if each had a join of its own."""
    by_name = {"flights": tables.flights, "weather": tables.weather}
    stream_tables = {stream.id: by_name[stream.name] for stream in plan.streams}
    seconds = (tables.last_us - tables.first_us) / _US_PER_S
    rates = {stream: table.num_rows / seconds for stream, table in stream_tables.items()}
    state_rows = pairs_per_s = 0.0
    for family in plan.families:
        a, b = stream_tables[family.stream_a], stream_tables[family.stream_b]
        cost = unshared_cost(
            loads_of_family(
                family, rates, _selectivity(a, family.filters_a), _selectivity(b, family.filters_b)
            )
        )
        state_rows += cost.memory_rows
        pairs_per_s += cost.probe_per_s * _equal_share(a, b, family.key)
    return Unshared(state_rows, pairs_per_s)


def _selectivity(table: pa.Table, filters: tuple[PlannedFilter, ...]) -> dict[int, float]:
    """Return the fraction of rows that pass, by lineage bit."""
    if not filters:
        return {}
    terms = ", ".join(f"count(*) FILTER (WHERE {planned.sql}) / count(*)" for planned in filters)
    with duckdb.connect() as connection:
        row = connection.register("t", table).execute(f"SELECT {terms} FROM t").fetchone()
    assert row is not None  # an aggregate without GROUP BY has one row
    return {planned.bit: float(share) for planned, share in zip(filters, row, strict=True)}


def _equal_share(a: pa.Table, b: pa.Table, key: tuple[tuple[str, str], ...]) -> float:
    """Return the fraction of all pairs whose keys are equal."""
    columns_a = ", ".join(f'"{column}"' for column, _ in key)
    columns_b = ", ".join(f'"{column}"' for _, column in key)
    on = " AND ".join(f'a."{x}" = b."{y}"' for x, y in key)
    with duckdb.connect() as connection:
        row = (
            connection.register("ta", a)
            .register("tb", b)
            .execute(
                f"SELECT sum(a.n * b.n) / {a.num_rows * b.num_rows} "
                f"FROM (SELECT {columns_a}, count(*)::DOUBLE AS n FROM ta GROUP BY ALL) a "
                f"JOIN (SELECT {columns_b}, count(*)::DOUBLE AS n FROM tb GROUP BY ALL) b ON {on}"
            )
            .fetchone()
        )
    return float(row[0] or 0.0) if row is not None else 0.0
