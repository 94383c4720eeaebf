"""Casts, ``||`` and functions for which SQL has a special syntax: ``EXTRACT(hour FROM ts)``."""

from __future__ import annotations

import re
from dataclasses import replace

from sqlglot import exp

from catalog.sql_text import text_literal
from planner.expressions.calls import argument, call_named, unit
from planner.expressions.literals import time_literal
from planner.expressions.types import column_types as ct
from planner.expressions.types.typed import Compiler, Handlers, Typed, cast_to, columns_of

_TYPES = {
    exp.DType.BOOLEAN: "boolean",
    exp.DType.TINYINT: "int",
    exp.DType.SMALLINT: "int",
    exp.DType.INT: "int",
    exp.DType.BIGINT: "bigint",
    exp.DType.FLOAT: "double",
    exp.DType.DOUBLE: "double",
    exp.DType.TEXT: "string",
    exp.DType.VARCHAR: "string",
    exp.DType.CHAR: "string",
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMP: "timestamp",
    exp.DType.TIMESTAMPTZ: "timestamp",
    exp.DType.TIMESTAMPNTZ: "timestamp",
    exp.DType.DATETIME: "timestamp",
}

#: Pattern of a text with an offset or a zone after its time of day.
_ZONED = ":.*[-+A-Za-z]"


def cast(compiler: Compiler, node: exp.Cast) -> Typed:
    """Compile CAST, TRY_CAST, ``::`` and typed literals such as DATE '2013-01-31'.

    CAST(s AS INT) -> TRY_CAST("s" AS INTEGER)
    DATE '2013-01-31' -> DATE '2013-01-31'
    """
    type_ = _cast_type(compiler, node)
    value = compiler.compile(node.this)
    if value.type == "interval":
        compiler.mismatch("an interval cannot be cast", "Write epoch_us(b.ts) - epoch_us(a.ts).", node)
    is_literal = value.literal is not None and ct.is_time(type_)
    if is_literal and (found := time_literal(value.literal or "", type_)) is not None:
        return found
    if value.literal is not None and not isinstance(node, exp.TryCast):
        _check_literal(compiler, node, value.literal, type_)
    if not _casts(value.type, type_):
        compiler.mismatch(
            f"{value.type} cannot be cast to {type_}",
            "Write epoch_us(ts) to get a time as a number of microseconds.",
            node,
        )
    if value.type == "string" and ct.is_time(type_):
        return _time_of(value, type_)
    return replace(cast_to(value, type_), literal=None)


def _time_of(value: Typed, type_: str) -> Typed:
    """Return a text as a time in UTC; an offset or zone in the text, which DuckDB would ignore, is applied.

    >>> from duckdb import execute
    >>> sql = _time_of(Typed("'2024-01-01T01:00:00+02:00'", "string"), "timestamp").sql
    >>> str(execute(f"SELECT {sql}").fetchone()[0])
    '2023-12-31 23:00:00'
    """
    utc = f"TRY(make_timestamp(epoch_us(TRY_CAST({value.sql} AS TIMESTAMPTZ))))"
    zoned = utc if type_ == "timestamp" else f"TRY_CAST({utc} AS DATE)"
    plain = cast_to(value, type_).sql
    sql = f"CASE WHEN regexp_matches({value.sql}, '{_ZONED}') THEN {zoned} ELSE {plain} END"
    return Typed(sql, type_, value.columns)


def _check_literal(compiler: Compiler, node: exp.Cast, text: str, type_: str) -> None:
    """Refuse a text that is not a value of the type, because its cast would always be NULL."""
    if ct.is_time(type_) or (ct.is_numeric(type_) and not _is_number(text)):
        compiler.mismatch(
            f"{text_literal(text)} is not {'a number' if ct.is_numeric(type_) else f'a {type_}'}",
            "Write '2013-01-31' for a date, '2013-01-31 06:00:00' for a timestamp (UTC)."
            if ct.is_time(type_)
            else "Write digits such as '12', '1.5' or '1e3'. A double may also be 'nan', 'inf' or '-inf'.",
            node,
        )


def _is_number(text: str) -> bool:
    """Return whether DuckDB may read a text as a number; it also accepts hexadecimal numbers."""
    if re.fullmatch(r"\s*[+-]?0[xXbB][0-9a-fA-F_]+\s*", text):
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def _casts(from_: str, to: str) -> bool:
    """Return whether DuckDB has a cast between the two types."""
    if from_ in (to, "null", "string") or to == "string":
        return True
    if ct.is_time(from_) or ct.is_time(to):
        return ct.is_time(from_) and ct.is_time(to)
    return True


def _cast_type(compiler: Compiler, node: exp.Cast) -> str:
    to = node.args["to"]
    kind = to.this if isinstance(to, exp.DataType) and not to.args.get("nested") else None
    if kind == exp.DType.DECIMAL:
        sizes = [int(part.name) for part in to.expressions if part.name.isdigit()] or [18, 3]
        precision, scale = sizes[0], sizes[1] if len(sizes) > 1 else 0
        if 1 <= precision <= ct.MAX_PRECISION and scale <= precision:
            return f"decimal({precision},{scale})"
    if kind not in _TYPES:
        compiler.refuse(
            f"the type {to.sql().upper()}",
            "Write BOOLEAN, INT, BIGINT, DOUBLE, VARCHAR, DATE, TIMESTAMP or DECIMAL(p, s).",
            node,
        )
    return _TYPES[kind]


def extract(compiler: Compiler, node: exp.Extract) -> Typed:
    """Compile EXTRACT(unit FROM time).

    EXTRACT(hour FROM ts) -> date_part('hour', "ts")
    """
    part = unit(compiler, node.this, "extract", extract=True)
    value = argument(compiler, node.expression, "extract", "timestamp")
    if part == "epoch":
        return Typed(f"TRY(epoch({value.sql}))", "double", value.columns)
    return Typed(f"date_part('{part}', {value.sql})", "bigint", value.columns)


def substring(compiler: Compiler, node: exp.Substring) -> Typed:
    """Compile SUBSTRING(x, start, length) and SUBSTRING(x FROM start FOR length).

    SUBSTRING(s FROM 2 FOR 3) -> TRY(substr("s", 2, 3))
    """
    parts = [node.this, node.args.get("start") or exp.Literal.number(1), node.args.get("length")]
    return call_named(compiler, node, "SUBSTR", [part for part in parts if part is not None])


def trim(compiler: Compiler, node: exp.Trim) -> Typed:
    """Compile TRIM([LEADING | TRAILING | BOTH] characters FROM x).

    TRIM(LEADING 'x' FROM s) -> ltrim("s", 'x')
    """
    name = {"LEADING": "LTRIM", "TRAILING": "RTRIM"}.get(node.args.get("position") or "", "TRIM")
    parts = [node.this, node.expression]
    return call_named(compiler, node, name, [part for part in parts if part is not None])


def position(compiler: Compiler, node: exp.StrPosition) -> Typed:
    """Compile POSITION(part IN text).

    POSITION('x' IN s) -> strpos("s", 'x')
    """
    return call_named(compiler, node, "STRPOS", [node.this, node.args["substr"]])


def matches(compiler: Compiler, node: exp.RegexpLike) -> Typed:
    """Compile RLIKE.

    s RLIKE 'a.*' -> regexp_matches("s", 'a.*')
    """
    return call_named(compiler, node, "REGEXP_MATCHES", [node.this, node.expression])


def joined(compiler: Compiler, node: exp.DPipe) -> Typed:
    """Compile ``||``.

    (s || 't') -> "s" || 't'
    """
    values = []
    for part in (node.this, node.expression):
        value = compiler.compile(part)
        if value.type not in ("string", "null"):
            compiler.mismatch(
                f"|| takes texts, not {value.type}", "Cast the value: CAST(x AS VARCHAR).", part
            )
        values.append(cast_to(value, "string"))
    text = f"{values[0].operand} || {values[1].operand}"
    return Typed(text, "string", columns_of(values), form="compound")


HANDLERS: Handlers = {
    exp.Cast: cast,
    exp.TryCast: cast,
    exp.Extract: extract,
    exp.Substring: substring,
    exp.Trim: trim,
    exp.StrPosition: position,
    exp.RegexpLike: matches,
    exp.DPipe: joined,
}
