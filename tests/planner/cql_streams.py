"""Streams for the CQL tests, with a column of every type, and rows that provoke every failure."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from catalog.values.stream import Column, HttpSource, Stream

_ARROW = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
}

_TYPES = {
    "ts": "timestamp",
    "k": "bigint",
    "i": "int",
    "j": "int",
    "n": "bigint",
    "v": "double",
    "w": "double",
    "s": "string",
    "t": "string",
    "f": "boolean",
    "g": "boolean",
    "d": "date",
    "e": "date",
    "u": "timestamp",
    "m": "decimal(10,2)",
    "p": "decimal(18,6)",
    "q": "decimal(38,10)",
}

A = Stream(1, "A", tuple(Column(n, t) for n, t in _TYPES.items()), "ts", 0, HttpSource())
B = Stream(
    2,
    "B",
    (
        Column("ts", "timestamp"),
        Column("k", "int"),
        Column("v", "double"),
        Column("name", "string"),
        Column("m", "decimal(12,4)"),
        Column("Loud", "boolean"),
        Column("x", "int"),
    ),
    "ts",
    0,
    HttpSource(),
)
C = Stream(
    3,
    "C",
    (Column("event", "timestamp"), Column("c", "string"), Column("date", "date")),
    "event",
    0,
    HttpSource(),
)
#: Results of another query.
R = Stream(
    4, "R", (Column("k", "bigint"), Column("_event_time", "timestamp")), "_event_time", 0, HttpSource()
)
STREAMS = {stream.name: stream for stream in (A, B, C, R)}

_FAR = datetime(1970, 1, 1)
VALUES: dict[str, list[Any]] = {
    "boolean": [None, True, False],
    "int": [None, 0, 1, -1, 7, 2**31 - 1, -(2**31)],
    "bigint": [None, 0, 1, -1, 10**10, 2**63 - 1, -(2**63)],
    "double": [None, 0.0, -0.0, 1.5, -2.25, 1e308, -1e308, 5e-324, float("nan"), float("inf"), float("-inf")],
    "string": [
        None,
        "",
        "a",
        "Ab%c_",
        "12",
        "-3.5",
        "x" * 300,
        "日本 é😀",
        "2013-01-31",
        "TRUE",
        "nan",
        "'\"\\",
    ],
    "date": [None, date(1970, 1, 1), date(2013, 1, 31), date(1, 1, 1), date(9999, 12, 31)],
    "timestamp": [
        None,
        _FAR,
        datetime(2013, 1, 31, 6, 0, 0, 1),
        datetime(1, 1, 1),
        datetime(9999, 12, 31, 23, 59, 59, 999999),
        _FAR + timedelta(days=200),
    ],
    "decimal(10,2)": [None, *map(Decimal, ("0.00", "1.25", "-99999999.99", "99999999.99"))],
    "decimal(18,6)": [None, *map(Decimal, ("0.000000", "-1.500001", "999999999999.999999"))],
    "decimal(38,10)": [
        None,
        *map(Decimal, ("0E-10", "3.1415926535", f"{'9' * 28}.{'9' * 10}", f"-{'9' * 28}.0000000000")),
    ],
}


def arrow_type(type_: str) -> pa.DataType:
    """Return the Arrow type of a canonical type."""
    if type_.startswith("decimal"):
        precision, scale = type_[8:-1].split(",")
        return pa.decimal128(int(precision), int(scale))
    return _ARROW[type_]


def rows(stream: Stream, count: int = 400) -> pa.Table:
    """Return rows in which the values of different columns meet in many combinations."""
    arrays = []
    for index, column in enumerate(stream.columns):
        values = VALUES[column.type]
        step = (1, 3, 5, 7, 11, 13)[index % 6]
        picked = [values[(row * step + row // len(values) + index) % len(values)] for row in range(count)]
        arrays.append(pa.array(picked, arrow_type(column.type)))
    return pa.table(arrays, names=[column.name for column in stream.columns])
