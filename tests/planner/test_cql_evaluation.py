"""What the binder emits, run in DuckDB: it never raises, and it means what the CQL says."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings

from catalog.values.query import Query
from planner.bind.bind import bind
from planner.errors import InvalidOutput, TypeMismatch, UnsupportedCql
from tests.examples import examples
from tests.planner.cql_expressions import ANY, CONDITION
from tests.planner.cql_streams import STREAMS, A, arrow_type, rows

_FROM = "FROM A [NOW] a JOIN C [NOW] c ON a.s = c.c"


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with the rows of A as ``rows``, and as a struct ``a`` in ``pairs``."""
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        connection.register("rows", rows(A))
        fields = ", ".join(f"'{c.name}': \"{c.name}\"" for c in A.columns)
        connection.execute(
            f"CREATE TABLE pairs AS SELECT {{{fields}}} AS a, row_number() OVER () AS r FROM rows"
        )
        yield connection


def output_of(duck: duckdb.DuckDBPyConnection, query: Query) -> pa.Array:
    """Evaluate the first result column over every row."""
    text = f"SELECT {query.outputs[0].sql} AS x FROM pairs ORDER BY r"
    return duck.sql(text).to_arrow_table().column("x")


def integers(column: pa.ChunkedArray) -> list[object]:
    """Times as integers: they may be out of Python's range."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    return [str(value) for value in column.to_pylist()]


def bound(cql: str) -> Query | None:
    """Return a query, None if it is refused for its types, or for texts that multiply."""
    try:
        return bind(cql, STREAMS)
    except (TypeMismatch, InvalidOutput):  # InvalidOutput: NULL alone
        return None
    except UnsupportedCql as error:
        if "replace to a text of more than" not in error.primary:
            raise
        return None


@settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=CONDITION)
@example(text="s = ('' || '')")
@example(text="s = ('a' || 'b') OR d < DATE '2020-01-01' + INTERVAL '1 day' OR 'a' || 'b' = s")
def test_a_filter_never_raises_and_equals_the_same_condition_as_an_output(
    duck: duckdb.DuckDBPyConnection, text: str
) -> None:
    query = bound(f"SELECT ({text}) AS x {_FROM} WHERE ({text}) AND n = n")
    if query is None:
        return
    passing = duck.sql(f"SELECT count(*) FROM rows WHERE {query.a.filter}").fetchall()
    ((expected,),) = duck.sql(
        f"SELECT count(*) FROM pairs WHERE ({query.outputs[0].sql}) AND a.n IS NOT NULL"
    ).fetchall()
    if query.residual is None:  # A condition without columns is a residual.
        assert passing == [(expected,)]


@settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=ANY)
def test_an_output_never_raises_and_has_the_type_that_the_query_says(
    duck: duckdb.DuckDBPyConnection, text: str
) -> None:
    query = bound(f"SELECT {text} AS x {_FROM}")
    if query is None:
        return
    assert output_of(duck, query).type == arrow_type(query.outputs[0].type)
