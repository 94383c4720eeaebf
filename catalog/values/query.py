"""Queries: one bound window join each.

The two sides of a bound query are called ``a`` and ``b`` in the order of its family: the stream with the
smaller id is ``a``; a self-join keeps the order in which it was written. SQL texts are in DuckDB's
dialect, the engine's expression evaluator: filters over bare quoted columns of their stream, residual
and outputs over ``a."column"`` and ``b."column"``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

#: Window of ``[RANGE UNBOUNDED]``: beyond every event time, and a sum with one still fits int64.
UNBOUNDED_US = 2**61

Backfill = Literal["none", "state"]


@dataclass(frozen=True, slots=True)
class Output:
    """One column of a query's result.

    Attributes:
        name: Result column name, unique in the query.
        sql: Expression over ``a."column"`` and ``b."column"``; fails to NULL, never raises.
        type: Canonical column type of the result (see ``catalog.values.stream``).
        columns: Columns that ``sql`` reads as (side, column), sorted; None where it was stored by a version
            that did not say. No part of what it is, so two that differ in it alone are equal.
    """

    name: str
    sql: str
    type: str
    columns: tuple[tuple[Literal["a", "b"], str], ...] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Side:
    """One stream's part in a query.

    Attributes:
        stream_id: The stream.
        stream: Its name.
        alias: Name under which the query refers to it.
        window_us: W of this side, µs: a pair whose row of this side is older by d belongs to the
            query iff 0 <= d < window_us. At least 1 (``[NOW]``).
        filter: Canonical predicate over this side's columns, or None.
        filter_columns: Columns the filter reads.
        columns: Columns that the query needs of a stored row: outputs, residual and filter.
    """

    stream_id: int
    stream: str
    alias: str
    window_us: int
    filter: str | None
    filter_columns: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """A bound continuous query.

    Attributes:
        id: Immutable, never reused; results name it.
        name: Unique among running queries.
        cql: The text as it was given.
        a: Side of the family's first stream.
        b: Side of the family's second stream.
        key: Equi-join columns as (column of a, column of b), in canonical order.
        key_types: Common type of each key pair.
        residual: Predicate on both rows, or None.
        outputs: Result columns in select-list order.
        backfill: Whether held rows from before the activation take part.
    """

    id: int
    name: str
    cql: str
    a: Side
    b: Side
    key: tuple[tuple[str, str], ...]
    key_types: tuple[str, ...]
    residual: str | None
    outputs: tuple[Output, ...]
    backfill: Backfill = "none"
