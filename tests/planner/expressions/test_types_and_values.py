"""Every operator and function over every type has the type and the values that DuckDB gives it.

An expected text that differs from the CQL stands for a rule of docs/semantics.md: arithmetic on int is that
of bigint, a date is moved by 32 bits of days, a divisor of zero gives NULL, whole numbers are their own
ceiling, and a product of decimals has room for every value. Decimals that no decimal of 38 digits holds
together are added as doubles, but compared exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import islice, product
from random import Random

import duckdb
import pyarrow as pa
import pytest
from sqlglot import exp

from catalog.values.stream import Column
from planner.errors import TypeMismatch, UnsupportedCql
from planner.expressions.calls import known_functions
from planner.expressions.expressions import bare, compile_expression
from planner.expressions.functions import FUNCTIONS
from planner.expressions.types.column_types import as_decimal, common_type, duckdb_type, is_integer
from planner.sql.scopes.scope import ResolvedColumn
from planner.sql.statement import parse_condition
from tests.planner.cql_streams import VALUES, arrow_type

TYPES = {
    "f": "boolean",
    "i": "int",
    "n": "bigint",
    "v": "double",
    "s": "string",
    "d": "date",
    "ts": "timestamp",
    "m": "decimal(10,2)",
    "q": "decimal(38,10)",
    "h": "decimal(38,0)",
    "r": "decimal(38,38)",
}
MORE: dict[str, list[object]] = {
    "bigint": [2**53 + 1, -(2**53) - 1],
    "double": [2.0**53, 2.5, -0.5, 2.0],
    "decimal(10,2)": [Decimal("2.00"), Decimal("-0.50"), Decimal("0.01")],
    "decimal(38,10)": [
        Decimal(x) for x in (2**53 + 1, "2", "12345678901234567890.55", "-0.5", "0.0000000001")
    ],
    "decimal(38,0)": [None, *map(Decimal, ("0", "2", "-1", "9007199254740993", "9" * 38, "-" + "9" * 38))],
    "decimal(38,38)": [None, *map(Decimal, ("0", "0.5", "-0.5", "0." + "9" * 38, "-0." + "9" * 38))],
}
#: Names that DuckDB does not have.
ALIASES = {"iif": "if", "nvl": "ifnull", "startswith": "starts_with", "endswith": "ends_with"}
ALIASES |= {"regexp_like": "regexp_matches"}
COMPARISONS = {"=": "__eq__", "<": "__lt__", ">=": "__ge__"}
CHOICES = {"coalesce", "ifnull", "greatest", "least", "if"}
LITERALS = {"unit": ["'hour'"], "pattern": ["'a'"], "group": ["0"], "count": ["3"]}
OWN = {
    "REPLACE": [["s"], list(TYPES), ["s"]],
    "IF": [["f"], list(TYPES), list(TYPES)],
    "IIF": [["f"], *[["i", "m"]] * 2],
}


class Names:
    """Columns of the one stream."""

    def column(self, node: exp.Column) -> ResolvedColumn:
        return ResolvedColumn("a", Column(node.name, TYPES[node.name]))


def too_wide(*columns: str) -> bool:
    """Return whether no decimal of 38 digits holds the values of all of these exact columns."""
    types = [TYPES[column] for column in columns if TYPES.get(column, "boolean") != "boolean"]
    return all(map(as_decimal, types)) and any(common_type(x, y) == "double" for x in types for y in types)


def doubles(columns: tuple[str, ...]) -> list[str]:
    too = too_wide(*columns)
    return [f"CAST({x} AS DOUBLE)" if too and as_decimal(TYPES[x]) else x for x in columns]


def wide(column: str) -> str:
    """Return a column as text; arithmetic on int is that of bigint."""
    return f"CAST({column} AS BIGINT)" if TYPES[column] == "int" else column


def operators() -> Iterator[tuple[str, str]]:
    """Yield CQL texts, and the text whose values DuckDB gives them."""
    for x, y in product(TYPES, TYPES):
        a, b = doubles((x, y))
        for symbol in ("+", "-", "*", "/", "//", "%"):
            first = wide(x) if x == y and symbol != "/" else a
            expected = f"{first} {symbol} " + (f"NULLIF({b}, 0)" if symbol in ("/", "//", "%") else b)
            left, right = as_decimal(TYPES[x]), as_decimal(TYPES[y])
            if symbol == "*" and left and right and not (is_integer(TYPES[x]) and is_integer(TYPES[y])):
                precision, scale = min(left[0] + right[0], 38), left[1] + right[1]
                expected = (
                    f"CAST(CAST({x} AS DECIMAL({precision},{left[1]})) * {y} AS DECIMAL({precision},{scale}))"
                )
            if {"d", "n"} == {x, y}:
                expected = expected.replace("n", "TRY_CAST(n AS INTEGER)")
            yield f"{x} {symbol} {y}", expected
        if not too_wide(x, y):
            for symbol in (*COMPARISONS, "IS DISTINCT FROM"):
                yield f"{x} {symbol} {y}", f"{x} {symbol} {y}"
            yield f"{x} IN ({y}, {y})", f"{x} IN ({y}, {y})"
        yield f"CASE WHEN f THEN {x} ELSE {y} END", f"CASE WHEN f THEN {a} ELSE {b} END"
        yield f"{x} || {y}", f"{x} || {y}"
    for x in TYPES:
        yield f"-{x}", f"-{wide(x)}"
        for text in (
            *(f"CAST({x} AS {duckdb_type(type_)})" for type_ in TYPES.values()),
            *(f"EXTRACT({unit} FROM {x})" for unit in ("hour", "epoch", "dow", "millisecond")),
            f"{x} IS NULL",
        ):
            yield text, text
        if TYPES[x] in ("date", "timestamp"):
            for text in (
                f"{x} + INTERVAL '3' MONTH",
                f"{x} - INTERVAL '9000' YEAR",
                f"{x} + i * INTERVAL '1' DAY",
            ):
                yield text, text


def calls() -> Iterator[tuple[str, str]]:
    for name in known_functions():
        function = FUNCTIONS.get(name)
        called = ALIASES.get(name.lower(), name.lower())
        if function is None:
            pools = OWN.get(name, [list(TYPES)] * (2 if name in ("MOD", "NULLIF") else 1))
            sizes = [len(pools)]
        else:
            kinds = [*function.takes, *function.takes[-1:]]
            pools = [
                LITERALS.get(kind, ["s"] if kind == "string" and at else list(TYPES))
                for at, kind in enumerate(kinds)
            ]
            most = len(function.takes) + function.repeats
            sizes = [
                n
                for n in range(len(function.takes) - function.optional, most + 1)
                if (called, n) != ("ifnull", 1)
            ]
        for size in sizes:
            for arguments in product(*pools[:size]):
                text = f"{name.lower()}({', '.join(arguments)})"
                values = doubles(arguments) if called in CHOICES else arguments
                expected = f"{called}({', '.join(values)})"
                if called == "mod":
                    first = wide(arguments[0]) if arguments[0] == arguments[1] else arguments[0]
                    expected = f"mod({first}, NULLIF({arguments[1]}, 0))"
                if called == "abs":
                    expected = f"abs({wide(arguments[0])})"
                if called in ("ceil", "ceiling", "floor") and is_integer(TYPES[arguments[0]]):
                    expected = arguments[0]
                if called == "sign":
                    expected = f"CAST(sign({arguments[0]}) AS INTEGER)"
                if called != "nullif" or not too_wide(*arguments):
                    yield text, expected
    for x, digits in product(TYPES, "013"):
        yield f"round({x}, {digits})", f"round({x}, {digits})"


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    random = Random(1)
    columns = {}
    for name, type_ in TYPES.items():
        values = VALUES.get(type_, []) + MORE.get(type_, [])
        columns[name] = pa.array([random.choice(values) for _ in range(150)], arrow_type(type_))
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        connection.register("source", pa.table(columns))
        connection.execute("CREATE TABLE t AS SELECT * FROM source")
        yield connection


def compiled(pairs: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str, str, str]]:
    """Yield each text that is accepted with its SQL, its type and its expected text."""
    for text, expected in pairs:
        try:
            found = compile_expression(parse_condition(text), Names(), bare)
        except (TypeMismatch, UnsupportedCql):
            continue
        yield text, found.sql, found.type, expected


@pytest.mark.parametrize("pairs", [operators, calls])
def test_types_and_values_are_those_of_duckdb(
    duck: duckdb.DuckDBPyConnection, pairs: type[Iterator[tuple[str, str]]]
) -> None:
    differ, tried = [], 0
    accepted = compiled(pairs())
    while some := list(islice(accepted, 40)):
        # In one statement DuckDB would compute what both texts have in common once, outside of TRY.
        for table, column in (("own", "{1}"), ("others", "TRY({3})")):
            columns = ", ".join(f"{column.format(*each)} AS x{n}" for n, each in enumerate(some))
            duck.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT {columns} FROM t")
        facts = ", ".join(
            f"any_value(typeof(own.x{n})), any_value(typeof(others.x{n})), "
            f"count_if(own.x{n} IS DISTINCT FROM others.x{n})"
            for n in range(len(some))
        )
        row = duck.execute(f"SELECT {facts} FROM own POSITIONAL JOIN others").fetchone() or ()
        tried += len(some)
        for (text, _, type_, _), own, others, wrong in zip(some, row[::3], row[1::3], row[2::3], strict=True):
            if own != others or own != duckdb_type(type_).upper() or wrong:
                differ.append((text, type_, own, others, wrong))
    assert differ == []
    assert tried > 500


@pytest.mark.parametrize("symbol", COMPARISONS)
def test_decimals_of_any_scale_are_compared_exactly(duck: duckdb.DuckDBPyConnection, symbol: str) -> None:
    for x, y in product(TYPES, TYPES):
        if too_wide(x, y):
            sql = compile_expression(parse_condition(f"{x} {symbol} {y}"), Names(), bare).sql
            for one, other, found in duck.execute(f"SELECT {x}, {y}, {sql} FROM t").fetchall():
                known = None not in (one, other)
                assert found == (
                    getattr(Decimal(one), COMPARISONS[symbol])(Decimal(other)) if known else None
                )
