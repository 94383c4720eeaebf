"""Results of a bound query over whole tables: by one DuckDB join, and by nested loops over pairs of rows.

Both read the ``Query`` alone (key, windows, filters, residual, kind, preserved sides): nothing knows slices,
batches or the CQL text. Every row counts, as if no input were late and both streams had ended; with
UNBOUNDED on a preserved side no row of it is absent, since no watermark passes its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import duckdb
import pyarrow as pa

from catalog.values.query import OLDEST, UNBOUNDED_US, Query, Side

SideName = Literal["a", "b"]


@dataclass(frozen=True, slots=True)
class Tables:
    """Tables of both sides in one database, each with a number of the row in a column ``row_number``.

    Attributes:
        duck: The database.
        a: Table of side a.
        b: Table of side b.
        time_a: Event-time column of side a.
        time_b: That of side b.
        row: Name of the column that numbers rows.
    """

    duck: duckdb.DuckDBPyConnection
    a: str
    b: str
    time_a: str = "ts"
    time_b: str = "ts"
    row: str = "r"


#: One result: row of a or None, row of b or None (of a semi or anti join both are None but the kept one).
Result = tuple[int | None, int | None]


def _until(side: Side, name: str, later: str) -> list[str]:
    """Return the conditions that a row of the other side is not too late for the rows of a side."""
    columns = [(f'{name}."{column}"', us) for column, us in side.expires]
    oldest = [column if column == f'{name}."{OLDEST}"' else f"epoch_us({column})" for column, _ in columns]
    return [f"{later} - {time} <= {us}" for time, (_, us) in zip(oldest, columns, strict=True)]


def match_sql(query: Query, tables: Tables) -> str:
    """Return the condition under which rows ``a`` and ``b``, which passed their filters, are a match."""
    d = f'(epoch_us(b."{tables.time_b}") - epoch_us(a."{tables.time_a}"))'
    in_a, in_b = _in_window(query, tables, "a", d), _in_window(query, tables, "b", f"(-{d})")
    near = f"(({d} >= 0 AND {in_a}) OR ({d} <= 0 AND {in_b}))"
    keys = [f'a."{left}" = b."{right}"' for left, right in query.key]
    until = [
        *_until(query.a, "a", f'epoch_us(b."{tables.time_b}")'),
        *_until(query.b, "b", f'epoch_us(a."{tables.time_a}")'),
    ]
    return " AND ".join([*keys, near, *until, f"({query.residual or 'TRUE'})"])


def _in_window(query: Query, tables: Tables, side: str, distance: str) -> str:
    """Condition under which the older row, of a side, is still in its window: by time, or by row_number()."""
    mine = _side(query, side)
    if mine.clock == "time":
        return f"{distance} < {mine.window_us}"
    table, time, other_time = (
        (tables.a, tables.time_a, f'b."{tables.time_b}"')
        if side == "a"
        else (tables.b, tables.time_b, f'a."{tables.time_a}"')
    )
    alike = _key_columns(query, side) if mine.clock == "key rows" else []
    same = "".join(f' AND x."{column}" = {side}."{column}"' for column in alike)
    passed = f'(SELECT count(*) FROM {table} x WHERE x."{time}" <= {other_time}{same})'
    return f"{passed} - {side}._rank < {mine.window_us}"


def _key_columns(query: Query, side: str) -> list[str]:
    return [pair[0 if side == "a" else 1] for pair in query.key]


def _ranked(query: Query, tables: Tables, side: str) -> str:
    """Rows of a side before its filter, with their ranks where its window counts them."""
    table, time = (tables.a, tables.time_a) if side == "a" else (tables.b, tables.time_b)
    clock = _side(query, side).clock
    if clock == "time":
        return table
    by = ", ".join(f'"{column}"' for column in _key_columns(query, side)) if clock == "key rows" else ""
    over = f'{f"PARTITION BY {by} " if by else ""}ORDER BY "{time}", {tables.row}'
    return f"(SELECT *, row_number() OVER ({over}) AS _rank FROM {table})"


def results_sql(query: Query, tables: Tables) -> str:
    """Return the query as SQL: the rows' numbers ``row_a`` and ``row_b``, the outputs, ``_event_time``."""
    a, b = (
        f"(SELECT * FROM {_ranked(query, tables, name)} WHERE {side.filter or 'TRUE'}) {name}"
        for name, side in (("a", query.a), ("b", query.b))
    )
    match = match_sql(query, tables)
    outputs = "".join(f', {output.sql} AS "{output.name}"' for output in query.outputs)
    if query.counts_rows:
        return (
            f"SELECT a.{tables.row} AS row_a, b.{tables.row} AS row_b{outputs}, "
            f'greatest(a."{tables.time_a}", b."{tables.time_b}") AS _event_time FROM {a}, {b} WHERE {match}'
        )
    if query.kind in ("inner", "outer") or len(query.preserved) == 2:
        word = {(): "JOIN", ("a",): "LEFT JOIN", ("b",): "RIGHT JOIN", ("a", "b"): "FULL JOIN"}[
            query.preserved
        ]
        end_a, end_b = (_absent_at(query, tables, side) for side in ("a", "b"))
        pair = f'greatest(a."{tables.time_a}", b."{tables.time_b}")'
        a_alone, b_alone = f"b.{tables.row} IS NULL", f"a.{tables.row} IS NULL"
        time = f"CASE WHEN {a_alone} THEN {end_a} WHEN {b_alone} THEN {end_b} ELSE {pair} END"
        never = [
            f"{'b' if side == 'a' else 'a'}.{tables.row} IS NOT NULL"
            for side in query.preserved
            if _side(query, side).window_us >= UNBOUNDED_US
        ]
        never += [f"({a_alone} OR {b_alone})"] if query.kind == "anti" else []
        return (
            f"SELECT a.{tables.row} AS row_a, b.{tables.row} AS row_b{outputs}, {time} AS _event_time "
            f"FROM {a} {word} {b} ON {match} WHERE {' AND '.join(never) or 'TRUE'}"
        )
    (kept,) = query.preserved
    (own, others), other = ((a, b), "b") if kept == "a" else ((b, a), "a")
    numbers = [f"{kept}.{tables.row}" if side == kept else "NULL::BIGINT" for side in ("a", "b")]
    partners = f"FROM {others} WHERE {match}"
    time = _absent_at(query, tables, kept)
    if query.kind == "semi":
        time = f'(SELECT min(greatest(a."{tables.time_a}", b."{tables.time_b}")) {partners})'
    where = f"{'NOT ' if query.kind == 'anti' else ''}EXISTS (SELECT {other}.{tables.row} {partners})"
    if query.kind == "anti" and _side(query, kept).window_us >= UNBOUNDED_US:
        where = "FALSE"
    return (
        f"SELECT {numbers[0]} AS row_a, {numbers[1]} AS row_b{outputs}, {time} AS _event_time "
        f"FROM {own} WHERE {where}"
    )


def groups_sql(query: Query, tables: Tables) -> str:
    """Return a query with groups as SQL: its outputs over all groups of its pairs."""
    assert query.grouping is not None
    inner = replace(query, outputs=(), grouping=None)
    pairs = results_sql(inner, tables).replace("SELECT ", "SELECT a, b, ", 1)
    width = query.grouping.tumble_us
    start = f"make_timestamp(epoch_us(_event_time) // {width} * {width})"
    key = [f'a."{name}" AS key_{number}' for number, (name, _) in enumerate(query.key)]
    values = [f"{each.function}({each.argument}) AS {each.name}" for each in query.grouping.aggregates]
    values += ["count(*) AS count_all", "'watermark' AS closed_by"]
    groups = f"SELECT {', '.join([*key, f'{start} AS tumble', *values])} FROM ({pairs}) GROUP BY ALL"
    outputs = ", ".join(f'CAST({output.sql} AS {output.type}) AS "{output.name}"' for output in query.outputs)
    return f"SELECT {outputs} FROM ({groups}) AS g WHERE {query.grouping.having or 'TRUE'}"


def group_outputs(
    query: Query, groups: Sequence[Mapping[str, object]], tables: Tables
) -> list[tuple[object, ...]]:
    """Return the outputs of a query of groups that came out, given as rows of a result file."""
    table = pa.Table.from_pylist(list(groups))
    if not len(groups):
        return []
    table = table.rename_columns([name.removeprefix("g_") for name in table.column_names])
    tables.duck.register("closed_groups", table)
    outputs = ", ".join(f'CAST({output.sql} AS {output.type}) AS "{output.name}"' for output in query.outputs)
    return tables.duck.sql(f"SELECT {outputs} FROM closed_groups AS g").fetchall()


def looped(query: Query, tables: Tables) -> list[Result]:
    """Return the results by nested loops in Python; DuckDB evaluates filters and residual on single rows."""
    rows = {side: _rows(query, tables, side) for side in ("a", "b")}
    residual = dict[tuple[int, int], bool]()
    if query.residual is not None:
        sql = f"SELECT a.{tables.row}, b.{tables.row}, {query.residual} FROM {tables.a} a, {tables.b} b"
        residual = {(x, y): truth is True for x, y, truth in tables.duck.sql(sql).fetchall()}
    partners: dict[SideName, Counter[int]] = {"a": Counter(), "b": Counter()}
    pairs: list[Result] = []
    for x, time_x, *key_x in rows["a"]:
        for y, time_y, *key_y in rows["b"]:
            distance = time_y - time_x
            near = 0 <= distance < query.a.window_us or 0 <= -distance < query.b.window_us
            equal = all(p is not None and p == q for p, q in zip(key_x, key_y, strict=True))
            if near and equal and (query.residual is None or residual[x, y]):
                pairs.append((x, y))
                partners["a"][x] += 1
                partners["b"][y] += 1
    if query.kind == "inner":
        return pairs
    alone: list[Result] = []
    some: list[Result] = []
    for side in query.preserved:
        decided = _side(query, side).window_us < UNBOUNDED_US
        for number, *_ in rows[side]:
            result = (number, None) if side == "a" else (None, number)
            if partners[side][number]:
                some.append(result)
            elif decided:
                alone.append(result)
    return {"outer": pairs + alone, "semi": some, "anti": alone}[query.kind]


def outputs_of(query: Query, tables: Tables, results: Sequence[Result]) -> list[tuple[Any, ...]]:
    """Return the outputs of results, a missing row as NULLs."""
    outputs = ", ".join(output.sql for output in query.outputs)
    if not results:
        return []
    values = ", ".join(f"({_number(x)}, {_number(y)})" for x, y in results)
    return tables.duck.sql(
        f"SELECT {outputs} FROM (VALUES {values}) p(x, y) "
        f"LEFT JOIN {tables.a} a ON a.{tables.row} = p.x LEFT JOIN {tables.b} b ON b.{tables.row} = p.y"
    ).fetchall()


def _number(value: int | None) -> str:
    return "NULL::BIGINT" if value is None else str(value)


def _side(query: Query, side: str) -> Side:
    return query.a if side == "a" else query.b


def _absent_at(query: Query, tables: Tables, side: str) -> str:
    """Event time of a row of a side without a partner: the end of its window."""
    window = _side(query, side).window_us
    if window >= UNBOUNDED_US:
        return "NULL::TIMESTAMP"
    time = tables.time_a if side == "a" else tables.time_b
    return f'{side}."{time}" + to_microseconds({window})'


def _rows(query: Query, tables: Tables, side: str) -> list[tuple[Any, ...]]:
    """Number, time (µs) and keys of the rows that pass the filter of a side."""
    table, time, at = (tables.a, tables.time_a, 0) if side == "a" else (tables.b, tables.time_b, 1)
    keys = ", ".join(f'"{pair[at]}"' for pair in query.key)
    where = _side(query, side).filter or "TRUE"
    return tables.duck.sql(
        f'SELECT {tables.row}, epoch_us("{time}"), {keys} FROM {table} WHERE {where}'
    ).fetchall()
