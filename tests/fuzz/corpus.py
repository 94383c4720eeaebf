"""Parts that the fuzzers put inputs together of."""

from __future__ import annotations

from catalog.values.stream import Column, HttpSource, Stream
from planner.expressions.functions import FUNCTIONS

_TYPES = (
    "boolean",
    "int",
    "bigint",
    "double",
    "string",
    "date",
    "timestamp",
    "decimal(10,2)",
    "decimal(38,38)",
)
EVENT_STREAM = Stream(
    1,
    "E",
    (
        Column("ts", "timestamp"),
        *(Column(name, type_) for name, type_ in zip("bilxsdtmn", _TYPES, strict=True)),
    ),
    "ts",
    0,
    HttpSource(),
)

_WHOLE = (
    "SELECT A.k FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.k AND",
    "SELECT * FROM A JOIN B ON A.k = B.k WINDOW 5 MIN",
    "AS DECIMAL(38,10))",
    "AS BIGINT)",
    "AS TIMESTAMP)",
    "AS VARCHAR)",
    "IS NOT DISTINCT FROM",
    "'5 days'",
)
_WORDS = """
    SELECT ISTREAM DISTINCT FROM JOIN LEFT INNER ON USING WHERE AND OR NOT WITHIN WINDOW AS CASE WHEN THEN
    ELSE END IS NULL IN BETWEEN LIKE ILIKE ESCAPE INTERVAL EXTRACT CAST TRY_CAST DATE TIMESTAMP TRUE FALSE
    GROUP BY ORDER LIMIT UNION WITH HAVING OVER ROWS RANGE NOW UNBOUNDED SLIDE SECONDS DAYS YEARS MICROSECONDS
    A B C A.k B.k A.ts B.ts A.v A.s A.t A.d A.m A.q A.f B.name B.Loud B.* A.* C.date
    ( ) [ ] , . ; + - * / % || = <> != < <= > >= :: : ? @ # $1 ' " ` -- /* */ \\ ~ ^ & | << >> ->
    0 1 -1 1.5 1e308 1e999 .5 5. 9223372036854775808 0x1F 1_000 '' 'a' '%' '2013-01-31' '1e999'
    ROUND( MOD( CEIL( FLOOR( ABS( IF( NULLIF( POSITION( TRIM(
"""


def cql_parts() -> list[str]:
    """Return what texts are put together of."""
    return [*_WHOLE, *_WORDS.split(), *(f"{name}(" for name in sorted(FUNCTIONS))]


#: Values of an event, as they are written.
EVENT_VALUES = (
    *("null", "true", "false", "0", "-0", "1e999", "1e-400", "0.1", "NaN", "[]", "{}", '{"a": [1]}', '""'),
    *(
        "9" * 30,
        "9" * 5000,
        '"' + "9" * 400 + '"',
        '"1e400"',
        '"-1.5"',
        '"NaN"',
        '"Infinity"',
        '" 1"',
        '"1_0"',
    ),
    *('"2013-01-31"', '"0000-01-01"', '"9999-12-31"', '"2013-02-30"', '"2013-01-31T24:00:00Z"', '"20130131"'),
    *(
        '"2013-01-31T05:15:00.123456789Z"',
        '"0001-01-01T00:00:00+14:00"',
        '"2013-01-31 05:15"',
        '"T"',
        '"1-1-1"',
    ),
    *('"\\ud800"', '"\\u0000"', '"\\ud83d\\ude00"', "-62135596800000001", "253402300800000000", "5e-324"),
)
