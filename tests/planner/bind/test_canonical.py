"""Filters by meaning: the rows are those of the text as DuckDB reads it, and one meaning has one text."""

from __future__ import annotations

import random
from collections.abc import Iterator

import duckdb
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from catalog.errors import InvalidInput
from operators.filters.expressions import Bools
from planner.bind.bind import bind
from planner.bind.canonical import ALWAYS, NEVER, canonical_filter
from planner.bind.canonical import canonical as canonical_condition
from planner.errors import (
    AmbiguousColumn,
    CqlSyntaxError,
    TypeMismatch,
    UnknownColumn,
    UnknownStream,
    UnsupportedCql,
)
from planner.expressions.types.typed import Typed
from planner.predicates.read_condition import read_condition
from tests.examples import examples
from tests.planner.cql_filters import FILTER, F, rows
from tests.planner.cql_rewrites import TREE, Tree, rewritten, written
from tests.planner.cql_streams import STREAMS

_SETTINGS = settings(
    max_examples=examples(250), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        connection.register("source", rows())
        connection.execute("CREATE TABLE F AS SELECT * FROM source")
        yield connection


def passing(duck: duckdb.DuckDBPyConnection, condition: str) -> Bools:
    """Which rows pass: NULL does not."""
    passed: Bools = duck.execute(f"SELECT coalesce(({condition}), false) AS p FROM F").fetchnumpy()["p"]
    return passed


def canonical(text: str) -> str:
    return canonical_filter(text, {"F": F})[1]


def canonical_text(sql: str) -> str:
    """Return the canonical text of a condition in stored form."""
    return canonical_condition([Typed(sql, "boolean", predicate=read_condition(sql))]).sql


# Rows


@_SETTINGS
@given(text=FILTER)
def test_a_canonical_filter_passes_the_rows_of_the_text_as_written(
    duck: duckdb.DuckDBPyConnection, text: str
) -> None:
    try:
        sql = canonical(text)
    except TypeMismatch:  # NULL compared with a condition, and the like
        return
    assert np.array_equal(passing(duck, sql), passing(duck, text)), sql


@_SETTINGS
@given(text=FILTER)
def test_a_canonical_text_is_its_own_canonical_text(text: str) -> None:
    try:
        sql = canonical(text)
    except TypeMismatch:
        return
    assert canonical_text(sql) == sql


# Texts


@_SETTINGS
@given(tree=TREE, seed=st.integers(0, 2**32))
@example(tree=["OR", ["AND", ("i", "<", "1"), ("i", "<>", "0")], ["AND", "F.f", ("i", "<>", "0")]], seed=0)
@example(tree=["AND", ["OR", "F.f", ("i", "<>", "0")], ["OR", ("i", "=", "0"), ("v", "<=", "1")]], seed=1)
def test_a_filter_has_one_text_however_it_is_written(tree: Tree, seed: int) -> None:
    assert canonical(rewritten(tree, random.Random(seed))) == canonical(written(tree))


@pytest.mark.parametrize(
    ("sql", "texts"),
    [
        (
            '"v" > 10',
            [
                "A.v > 10",
                "10 < A.v",
                "A.v > 10 AND TRUE",
                "NOT (A.v <= 10)",
                "A.v > 10 AND A.v > 5",
                "A.v > 10 OR FALSE",
                "A.v > 10 OR A.v > 20",
                "A.v > 10.0 AND A.v IS NOT NULL",
                "A.v > 1e1 AND (A.v > 10 OR A.f)",
                "(A.v > 10 AND A.f) OR (A.v > 10 AND (NOT A.f OR A.f IS NULL))",
                "CAST('2013-01-01' AS DATE) = DATE '2013-01-01' AND A.v > 10",
            ],
        ),
        (
            '"v" = 1',
            ["A.v IN (1)", "A.v IN (1, 1.0, NULL)", "A.v BETWEEN 1 AND 1", "A.v IS NOT DISTINCT FROM 1"],
        ),
        (
            '"v" <= 2 AND "v" >= 1',
            ["A.v BETWEEN 1 AND 2", "A.v >= 1 AND NOT A.v > 2", "2 >= A.v AND A.v >= 1e0"],
        ),
        ('"i" IN (1, 2)', ["A.i = 2 OR A.i = 1", "A.i IN (2, 1)", "A.i IN (1, 2, 3) AND A.i <> 3"]),
        ('"i" NOT IN (1, 2)', ["A.i <> 1 AND A.i <> 2", "NOT (A.i = 2 OR A.i = 1)", "A.i NOT IN (2, 1, 2)"]),
        ('"f"', ["A.f", "A.f = TRUE", "A.f IS TRUE", "A.f <> FALSE", "NOT NOT A.f", "A.f > FALSE"]),
        ('"f" IS NOT TRUE', ["A.f IS NOT TRUE", "NOT A.f OR A.f IS NULL", "A.f IS DISTINCT FROM TRUE"]),
        ('"v" <= "w"', ["A.v <= A.w", "A.w >= A.v", "A.v = A.w OR A.w > A.v", "NOT (A.w < A.v)"]),
        ('"v" IS NOT NULL', ["A.v IS NOT NULL", "A.v = A.v", "A.v > 1 OR A.v <= 1", "NOT A.v IS NULL"]),
        (
            '"i" <> 0 AND ("f" OR "i" < 1)',
            ["(A.i < 1 AND A.i <> 0) OR (A.f AND A.i <> 0)", "A.i <> 0 AND (A.f OR (A.i < 1 AND A.i <> 0))"],
        ),
        (
            '("f" OR "i" <> 0) AND ("i" = 0 OR "v" <= 1)',
            [
                "(A.f OR A.i <> 0) AND (A.i = 0 OR A.v <= 1) AND (A.f OR A.v <= 1)",
                "(A.f AND A.i = 0) OR (A.f AND A.v <= 1) OR (A.i <> 0 AND A.v <= 1)",
            ],
        ),
        ("\"s\" NOT LIKE 'x%'", ["A.s NOT LIKE 'x%'", "NOT (A.s LIKE 'x%')"]),
        ("\"s\" >= 'a' AND \"s\" < 'b'", ["A.s >= 'a' AND A.s < 'b' AND A.s < 'c'"]),
        ("\"ts\" >= TIMESTAMP '2013-01-31 00:00:00'", ["A.ts >= '2013-01-31'", "A.ts >= DATE '2013-01-31'"]),
        (ALWAYS, ["A.v > 1 OR TRUE", "A.v IS NULL OR A.v IS NOT NULL", "A.f OR A.f IS NOT TRUE"]),
        (
            NEVER,
            ["A.v > 2 AND A.v < 1", "A.v = NULL", "A.f AND NOT A.f", "A.v <> A.v", "A.v NOT IN (1, NULL)"],
        ),
    ],
)
def test_what_means_one_thing_is_one_text(sql: str, texts: list[str]) -> None:
    assert {text: canonical_filter(text, STREAMS)[1] for text in texts} == dict.fromkeys(
        texts, canonical_text(sql)
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("A.v > 10", "A.v >= 10"),
        ("A.v < 0.1", "A.v < 0.10000000000000002e0"),
        ("A.n = 9007199254740992", "A.n = 9007199254740992e0"),  # The latter for 2^53 + 1, too.
        ("A.n = 9007199254740992", "A.n = 9007199254740993"),
        ("A.i + 1 > 3", "A.i > 2"),  # NULL where i + 1 overflows
        ("A.v <> 1", "A.v IS DISTINCT FROM 1"),
        ("NOT A.f", "A.f IS NOT TRUE"),
        ("A.s = 'a'", "A.s = 'A'"),
        ("A.s LIKE 'a%'", "A.s ILIKE 'a%'"),
        ("(A.v > 1) IS NULL", "A.v IS NULL AND A.v > 1"),
    ],
)
def test_what_differs_stays_apart(one: str, other: str) -> None:
    assert canonical_filter(one, STREAMS) != canonical_filter(other, STREAMS)


def test_long_conditions_are_done_with_in_time() -> None:
    either = " OR ".join(f"A.i = {n}" for n in range(0, 4_000, 2))
    assert canonical_filter(f"({either}) AND A.i <= 2", STREAMS)[1] == '"i" IN (0, 2)'
    mixed = " OR ".join(f"(A.i = {n} AND A.j = {n})" for n in range(300))
    assert len(canonical_filter(mixed, STREAMS)[1]) > 3_000


# One stream's predicate as text


def test_a_predicate_is_the_filter_of_a_query_with_it() -> None:
    condition = "(a.i > 2 AND a.f OR a.v < 0.20) AND 3 > a.j AND a.u < a.ts"
    query = bind(f"SELECT b.v FROM A [NOW] a, B [NOW] b WHERE a.k = b.k AND {condition}", STREAMS)
    assert canonical_filter(condition.replace("a.", "A."), STREAMS) == (query.a.stream_id, query.a.filter)


@pytest.mark.parametrize(
    ("text", "stream", "sql"),
    [
        ("B.x = 1", 2, '"x" = 1'),
        ("b.X = 1", 2, '"x" = 1'),
        ('"B"."Loud"', 2, '"Loud"'),
        ("loud AND x > 3", 2, '"Loud" AND "x" > 3'),
        ("C.date < '2013-01-31'", 3, "\"date\" < DATE '2013-01-31'"),
    ],
)
def test_a_predicate_names_its_stream_or_its_columns_do(text: str, stream: int, sql: str) -> None:
    assert canonical_filter(text, STREAMS) == (stream, sql)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", CqlSyntaxError, "the condition is empty"),
        ("A.v <", CqlSyntaxError, "the query ends too early"),
        ("A.v < 1 GROUP", CqlSyntaxError, 'unexpected "GROUP"'),
        ("SELECT A.v", CqlSyntaxError, 'unexpected "SELECT"'),
        ("EXISTS (FROM B)", CqlSyntaxError, "expected SELECT, found a subquery that begins with FROM"),
        ("X.v < 1", UnknownStream, 'stream "X" does not exist'),
        ("A.vv < 1", UnknownColumn, 'column "vv" does not exist in stream "A"'),
        ("vv < 1", UnknownColumn, 'no stream has a column "vv"'),
        ("i = x", UnknownColumn, "no stream has all these columns"),
        ("v < 1", AmbiguousColumn, 'column "v" is in 2 streams'),
        ("A.v < B.v", UnsupportedCql, "a condition on two streams is not supported here"),
        ("1 < 2", UnsupportedCql, "a condition without a column is not supported here"),
        ("A.v", TypeMismatch, "WHERE takes a condition, not double"),
        ("A.v < 1 OR (A.v < 1 AND A.s > 5)", TypeMismatch, "string does not compare with int"),
    ],
)
def test_a_predicate_that_is_none_is_refused(text: str, error: type[InvalidInput], message: str) -> None:
    with pytest.raises(error) as caught:
        canonical_filter(text, STREAMS)
    assert caught.value.primary == message


@given(text=st.text(max_size=40) | st.text("AB.vi <>=()'\"015ANDORNOTIS,%", max_size=40))
def test_any_predicate_is_read_or_refused(text: str) -> None:
    for predicate in (text, f"A.v > 1 AND {text}"):
        try:
            canonical_filter(predicate, STREAMS)
        except InvalidInput:
            continue


def test_a_monstrous_predicate_is_refused() -> None:
    with pytest.raises(InvalidInput):
        canonical_filter("NOT " * 5_000 + "A.f = NULL", STREAMS)
    with pytest.raises(InvalidInput):
        canonical_filter("A.i > " + " + ".join(["A.j"] * 3_000), STREAMS)
