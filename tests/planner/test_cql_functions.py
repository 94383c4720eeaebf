"""Every operator and function over rows that provoke failures: never raises, typed as said, as in DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from planner.bind.bind import bind
from planner.expressions.calls import known_functions
from tests.planner.cql_streams import STREAMS, A, arrow_type, rows

_LINES = (Path(__file__).parent / "expressions.txt").read_text(encoding="utf-8").splitlines()
_SPLIT = _LINES.index("----")
LIKE_DUCKDB = [line for line in _LINES[:_SPLIT] if not line.startswith("#")]
OWN = _LINES[_SPLIT + 1 :]


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        connection.register("source", rows(A))
        connection.execute("CREATE TABLE rows AS SELECT *, row_number() OVER () AS r FROM source")
        fields = ", ".join(f"'{c.name}': \"{c.name}\"" for c in A.columns)
        connection.execute(f"CREATE TABLE pairs AS SELECT r, {{{fields}}} AS a FROM rows")
        yield connection


def column(duck: duckdb.DuckDBPyConnection, text: str, table: str) -> pa.ChunkedArray:
    return duck.sql(f"SELECT {text} AS x FROM {table} ORDER BY r").to_arrow_table().column("x")


def values(found: pa.ChunkedArray) -> list[str]:
    """Values as text: NaN equals itself, and times may be out of Python's range."""
    if pa.types.is_timestamp(found.type):
        found = found.cast(pa.int64())
    if pa.types.is_date(found.type):
        found = found.cast(pa.int32())
    return [str(value) for value in found.to_pylist()]


def bound(text: str) -> tuple[str, str]:
    query = bind(f"SELECT {text} AS x FROM A [NOW] a JOIN C [NOW] c ON a.s = c.c", STREAMS)
    return query.outputs[0].sql, query.outputs[0].type


@pytest.mark.parametrize("text", LIKE_DUCKDB)
def test_an_expression_has_the_values_that_try_gives_in_duckdb(
    duck: duckdb.DuckDBPyConnection, text: str
) -> None:
    sql, type_ = bound(text)
    found = column(duck, sql, "pairs")
    assert found.type == arrow_type(type_)
    assert values(found) == values(column(duck, f"TRY({text})", "rows"))


@pytest.mark.parametrize("text", OWN)
def test_an_expression_never_raises(duck: duckdb.DuckDBPyConnection, text: str) -> None:
    sql, type_ = bound(text)
    assert column(duck, sql, "pairs").type == arrow_type(type_)


@pytest.mark.parametrize("text", ["v / w", "i / j", "n / i", "m / i", "v % w", "mod(v,w)", "i % j", "i // j"])
def test_a_divisor_of_zero_gives_null(duck: duckdb.DuckDBPyConnection, text: str) -> None:
    divisor = text.rstrip(")")[-1]
    kept = f"CASE WHEN a.{divisor} = 0 THEN ({bound(text)[0]}) IS NULL ELSE TRUE END"
    assert set(values(column(duck, kept, "pairs"))) == {"True"}


def test_decimals_multiply_exactly(duck: duckdb.DuckDBPyConnection) -> None:
    sql, type_ = bound("m * m")
    product = column(duck, sql, "pairs").drop_null().to_pylist()
    assert type_ == "decimal(20,4)"
    assert str(max(product)) == "9999999998000000.0001"


def test_every_function_is_tried() -> None:
    tried = "\n".join([*LIKE_DUCKDB, *OWN]).upper()
    assert [name for name in known_functions() if f"{name}(" not in tried] == []
