"""Conditions as the compiler makes them against their stored texts read back, and both against DuckDB."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from sqlglot import exp

import operators.filters
import operators.lineage
import operators.pack
import planner.families
import planner.predicates
from planner.errors import TypeMismatch
from planner.expressions.expressions import bare, compile_condition
from planner.families.threshold import threshold
from planner.predicates.conditions import columns_read
from planner.predicates.logic.condition_text import render, written
from planner.predicates.read_condition import column_name, read_condition, with_columns
from planner.sql.scopes.scope import ResolvedColumn
from planner.sql.statement import parse_condition
from tests.examples import examples
from tests.planner.bind.test_canonical import passing
from tests.planner.cql_filters import FILTER, F, rows


class Names:
    """Names of the one stream."""

    def column(self, node: exp.Column) -> ResolvedColumn:
        column = F.column(node.name)
        assert column is not None
        return ResolvedColumn("a", column)


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        connection.register("source", rows())
        connection.execute("CREATE TABLE F AS SELECT * FROM source")
        yield connection


@settings(
    max_examples=examples(250), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=FILTER)
def test_a_compiled_condition_is_what_its_text_reads_back_as(
    duck: duckdb.DuckDBPyConnection, text: str
) -> None:
    try:
        compiled = compile_condition(parse_condition(text), Names(), bare)
    except TypeMismatch:  # NULL compared with a condition, and the like
        return
    sql = render(compiled.meaning)
    assert render(read_condition(sql)) == sql
    assert np.array_equal(passing(duck, sql), passing(duck, text)), sql
    assert written(read_condition(sql)) == written(compiled.meaning)
    found: set[str] = set()
    with_columns(sql, lambda side, column: found.add(column) or column)
    assert {column for _, column in columns_read(written(compiled.meaning))} == found


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ('"v" < 0.2', "v < 0.2"),
        ('"s" = \'say "v", it\'\'s\' AND "odd ""name" = 1', "s = 'say \"v\", it''s' AND odd \"name = 1"),
        ('"left"("s", 1) = a."t"', '"left"(s, 1) = a:t'),
        ("TIMESTAMP '2013-01-01 00:00:00' > \"ts\"", "TIMESTAMP '2013-01-01 00:00:00' > ts"),
    ],
)
def test_only_columns_are_written_in_another_way(sql: str, shown: str) -> None:
    assert with_columns(sql, lambda side, column: f"{side}:{column}" if side else column) == shown


@pytest.mark.parametrize(
    ("sql", "column"), [('"odd ""name"', 'odd "name'), ('a."v"', None), ('"f"("v")', None), ("'v'", None)]
)
def test_a_column_is_told_from_other_expressions(sql: str, column: str | None) -> None:
    assert column_name(sql) == column


@pytest.mark.parametrize(
    ("sql", "number"),
    [
        ('"v" < 5', 5),
        ('"v" >= -1.5', -1.5),
        ('"v" < 999999999999999', 999999999999999),
        ('"v" > 1e300', None),
    ],
)
def test_a_threshold_has_the_number_itself(sql: str, number: float | None) -> None:
    found = threshold(read_condition(sql))
    assert (found and found.number) == number
    assert found is None or type(found.number) is type(number)


def test_no_condition_is_read_by_a_regular_expression() -> None:
    for package in (
        planner.predicates,
        planner.families,
        operators.filters,
        operators.lineage,
        operators.pack,
    ):
        for path in Path(package.__path__[0]).rglob("*.py"):
            imported = {
                alias.name
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                if isinstance(node, ast.Import)
                for alias in node.names
            }
            assert "re" not in imported or path.name == "family_names.py", path
