"""Predicates and rows for operator tests that need no CQL.

Every predicate stands here twice, as the SQL text that the operators evaluate and as a Python function for
the oracle, so that neither is derived from the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from catalog.columns.arrow_types import POSITION_COLUMN, arrow_type
from catalog.values.plan import PlannedFilter
from catalog.values.stream import Stream
from planner.families.threshold import threshold
from planner.predicates.read_condition import read_condition

Values = Mapping[str, object]


@dataclass(frozen=True)
class Filter:
    """A predicate over one row: as DuckDB text, the columns it reads, and as a function."""

    sql: str
    columns: tuple[str, ...]
    passes: Callable[[Values], bool]


def planned(texts: Sequence[str]) -> list[PlannedFilter]:
    """Return filters as a plan has them."""
    return [PlannedFilter(bit, text, (), threshold(read_condition(text))) for bit, text in enumerate(texts)]


@dataclass(frozen=True)
class Residual:
    """A predicate over a pair of rows."""

    sql: str
    columns_a: tuple[str, ...]
    columns_b: tuple[str, ...]
    passes: Callable[[Values, Values], bool]


@dataclass(frozen=True)
class Row:
    """One row of a stream: its source position, event time in µs, and its other columns."""

    pos: int
    ts: int
    values: Values


def _number(value: object) -> int | None:
    assert value is None or isinstance(value, int)
    return value


def _compared(test: Callable[[int, int], bool], x: object, y: object) -> bool:
    """SQL's comparison: NULL on either side is not true."""
    left, right = _number(x), _number(y)
    return left is not None and right is not None and test(left, right)


def _beyond_one(value: object) -> bool:
    """NaN is greater than any number."""
    assert value is None or isinstance(value, float)
    return value is not None and (math.isnan(value) or value > 1)


FILTERS = {
    f.sql: f
    for f in (
        Filter('"v" < 5', ("v",), lambda r: _compared(lambda x, y: x < y, r["v"], 5)),
        Filter('"v" > 2', ("v",), lambda r: _compared(lambda x, y: x > y, r["v"], 2)),
        Filter('"v" IS NULL', ("v",), lambda r: r["v"] is None),
        Filter('"w" = 1', ("w",), lambda r: r["w"] == 1),
        Filter('"v" + "w" > 4', ("v", "w"), lambda r: _compared(lambda x, y: x + y > 4, r["v"], r["w"])),
        Filter('TRY(1 // NULLIF("w", 0)) = 1', ("w",), lambda r: r["w"] == 1),
        Filter("1 = 0", (), lambda r: False),
        Filter('"x" > 1', ("x",), lambda r: _beyond_one(r["x"])),
    )
}

#: Filters over columns that every stream has.
FILTERS_OF_ALL = sorted(sql for sql, f in FILTERS.items() if "x" not in f.columns)
#: Any number of filters, each another one; ``FILTERS`` has them, too.
UPPER_BOUNDS = tuple(f'"v" < {90 - n}' for n in range(60))
FILTERS |= {
    sql: Filter(sql, ("v",), lambda r, bound=90 - n: _compared(lambda x, y: x < y, r["v"], bound))  # type: ignore[misc]  # a lambda's default
    for n, sql in enumerate(UPPER_BOUNDS)
}

RESIDUALS = {
    r.sql: r
    for r in (
        Residual('a."v" < b."v"', ("v",), ("v",), lambda a, b: _compared(lambda x, y: x < y, a["v"], b["v"])),
        Residual(
            'a."w" = b."w"', ("w",), ("w",), lambda a, b: _compared(lambda x, y: x == y, a["w"], b["w"])
        ),
        Residual('b."w" = 1', (), ("w",), lambda a, b: b["w"] == 1),
    )
}


def a_table(stream: Stream, rows: Sequence[Row]) -> pa.Table:
    """Return rows in the stream's Arrow types, with their positions, as a reader gives them to PACK."""
    arrays = {}
    for column in stream.columns:
        if column.name == stream.event_time:
            arrays[column.name] = pa.array([r.ts for r in rows], pa.int64()).cast(pa.timestamp("us"))
        else:
            arrays[column.name] = pa.array([r.values[column.name] for r in rows], arrow_type(column.type))
    arrays[POSITION_COLUMN] = pa.array([r.pos for r in rows], pa.int64())
    return pa.table(arrays)
