"""Random filters over stream F, and rows that lie on, beside and between their constants.

The filters are CQL and plain SQL alike, so that DuckDB reads them as they are written.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from catalog.values.stream import Column, HttpSource, Stream
from tests.planner.cql_streams import arrow_type

_TYPES = {
    "ts": "timestamp",
    "i": "int",
    "j": "int",
    "n": "bigint",
    "v": "double",
    "w": "double",
    "m": "decimal(10,2)",
    "q": "decimal(38,10)",
    "s": "string",
    "d": "date",
    "f": "boolean",
    "g": "boolean",
}
F = Stream(1, "F", tuple(Column(n, t) for n, t in _TYPES.items()), "ts", 0, HttpSource())

_NUMBERS = ("0", "1", "2.0", "1.5", "2e0", "-1", "15e-1", "1e3")
_LARGE = ("9007199254740992", "9007199254740993", "9007199254740992e0", "9007199254740994e0")
_TIMES = ("TIMESTAMP '2013-01-31 00:00:00'", "TIMESTAMP '2013-01-31 06:00:00.000001'", "DATE '2013-02-01'")

#: Constants that each column is compared with.
CONSTANTS: dict[str, tuple[str, ...]] = {
    "ts": _TIMES,
    "i": (*_NUMBERS, "2147483647", "-2147483648", "3000000000"),
    "j": _NUMBERS,
    "n": (*_NUMBERS, *_LARGE, "9223372036854775807", "-9223372036854775808"),
    "v": (
        *_NUMBERS,
        *_LARGE,
        "0.1",
        "1e-1",
        "-0.0",
        "1e300",
        "0.1000000000000000055",
        "0.10000000000000001e0",
    ),
    "w": (*_NUMBERS, "0.1"),
    "m": (*_NUMBERS, "1.25", "125e-2", "1.255", "99999999.99"),
    "q": (*_NUMBERS, "1.5000000001", "15000000001e-10", "9999999999999999999999999999"),
    "s": ("''", "'a'", "'b'", "'B'", "'é'", "'it''s'"),
    "d": ("DATE '2013-01-31'", "DATE '2013-02-01'", "TIMESTAMP '2013-02-01 00:00:00'"),
    "f": ("TRUE", "FALSE"),
    "g": ("TRUE", "FALSE"),
}

_NAN, _INF = float("nan"), float("inf")
_MOMENTS = [
    datetime(2013, 1, 30),
    datetime(2013, 1, 31),
    datetime(2013, 1, 31, 6, 0, 0, 1),
    datetime(2013, 2, 1),
]
_BIG = 2**53

#: Values of the rows.
VALUES: dict[str, list[Any]] = {
    "ts": _MOMENTS,
    "i": [None, -(2**31), -1, 0, 1, 2, 3, 1000, 2**31 - 1],
    "j": [None, 0, 1, 2],
    "n": [None, -(2**63), -1, 0, 1, 2, 1000, _BIG, _BIG + 1, _BIG + 2, 2**63 - 1],
    "v": [None, -_INF, -1.0, -0.0, 0.0, 0.1, np.nextafter(0.1, 1), 1.0, 1.5, 2.0, _BIG, 1e300, _INF, _NAN],
    "w": [None, 0.0, 0.1, 1.0, 1.5, _NAN],
    "m": [None, *map(Decimal, ("-1.00", "0.00", "1.25", "1.26", "1.50", "2.00", "99999999.99"))],
    "q": [None, *map(Decimal, ("1.5000000000", "1.5000000001", "1.5000000002", f"{'9' * 28}.0000000000"))],
    "s": [None, "", "a", "ab", "b", "B", "é", "it's"],
    "d": [None, date(2013, 1, 30), date(2013, 1, 31), date(2013, 2, 1), date(9999, 12, 31)],
    "f": [None, True, False],
    "g": [None, True, False],
}


def rows(count: int = 3_000, seed: int = 1) -> pa.Table:
    """Return rows whose values are drawn independently."""
    random = np.random.default_rng(seed)
    arrays = [
        pa.array([values[k] for k in random.integers(0, len(values), count)], arrow_type(_TYPES[name]))
        for name, values in VALUES.items()
    ]
    return pa.table(arrays, names=list(VALUES))


_COLUMN = st.sampled_from(sorted(set(CONSTANTS) - {"ts"}))
_OPERATOR = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"])


@st.composite
def _comparison(draw: st.DrawFn) -> str:
    column = draw(_COLUMN)
    constant = st.sampled_from(CONSTANTS[column])
    form = draw(st.integers(0, 8))
    if form <= 2:
        return f"F.{column} {draw(_OPERATOR)} {draw(constant)}"
    if form == 3:
        return f"{draw(constant)} {draw(_OPERATOR)} F.{column}"
    if form == 4:  # DuckDB compares all three in one type, which CQL does not: no doubles among integers.
        constant = constant if column == "v" else constant.filter(lambda text: not text.endswith("e0"))
        negated = draw(st.sampled_from(["", "NOT "]))
        return f"F.{column} {negated}BETWEEN {draw(constant)} AND {draw(constant)}"
    if form == 5:
        items = draw(st.lists(st.one_of(constant, constant, st.just("NULL")), min_size=1, max_size=3))
        return f"F.{column} {draw(st.sampled_from(['', 'NOT ']))}IN ({', '.join(items)})"
    return f"F.{column} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"


LEAF = st.one_of(
    _comparison(),
    _comparison(),
    _comparison(),
    st.sampled_from(["F.f", "F.g", "TRUE", "FALSE", "NULL", "1 = 1", "1 > 2", "'a' < 'b'"]),
    st.sampled_from(["F.f IS TRUE", "F.g IS NOT TRUE", "F.f IS FALSE", "F.g IS NOT FALSE", "F.f = F.g"]),
    st.builds("{} {} {}".format, st.just("F.v"), _OPERATOR, st.sampled_from(["F.w", "F.v", "F.i"])),
    st.builds("F.i {} F.j".format, _OPERATOR),
    st.builds("F.j + 1 {} {}".format, _OPERATOR, st.sampled_from(["F.i", "2", "NULL"])),
    st.sampled_from(["F.s LIKE 'a%'", "F.s NOT LIKE 'a%'", "F.s ILIKE 'B'", "starts_with(F.s, 'a')"]),
    st.sampled_from(
        ["F.i IN (F.j, 1)", "F.i NOT IN (F.j, 1)", "CASE WHEN F.f AND F.g THEN F.i ELSE 2 END > 1"]
    ),
)


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    parts = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(
        parts.map(lambda texts: "(" + " AND ".join(texts) + ")"),
        parts.map(lambda texts: "(" + " OR ".join(texts) + ")"),
        st.builds("NOT ({})".format, inner),
        st.builds(
            "({}) IS {}".format, inner, st.sampled_from(["TRUE", "NOT TRUE", "FALSE", "NULL", "NOT NULL"])
        ),
    )


#: A filter of F, reading at least one column.
FILTER = st.recursive(LEAF, _grown, max_leaves=8).map(lambda text: f"({text}) AND F.ts > '1970-01-01'")
