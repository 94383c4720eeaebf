from __future__ import annotations

import pytest

from catalog.errors import InvalidInput, Location
from planner.bind.bind import bind
from planner.errors import CqlSyntaxError, UnknownColumn
from tests.planner.cql_streams import STREAMS, A, B

_FROM = "FROM A [NOW] a, B [NOW] b WHERE a.k = b.k"


def filter_of(condition: str) -> str | None:
    return bind(f"SELECT a.k {_FROM} AND {condition}", STREAMS).a.filter


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a.v < 0.2", "0.20 > a.v"),
        ("a.v < 0.2 AND a.i = 1", "1 = a.i AND a.v < 0.2 AND a.v < .2"),
        ("a.v BETWEEN 1 AND 2", "a.v <= 2 AND NOT (a.v < 1)"),
        ("a.i IN (1, 2)", "A.I in (2, 1, 01)"),
        ("NOT (a.f OR a.i IS NULL)", "a.i IS NOT NULL AND NOT a.f"),
        ("a.ts >= '2013-01-01'", "TIMESTAMP '2013-01-01 02:00:00+02:00' <= a.ts"),
        ("(a.i = 1 OR (a.j = 2))", "(a.j = 2 OR a.i = 1 OR a.i = 1)"),
        (
            "a.s LIKE 'x' AND a.u < a.ts + INTERVAL '1' MINUTE",
            "a.u < a.ts + INTERVAL 60 SECONDS AND a.s LIKE 'x'",
        ),
    ],
)
def test_equal_conditions_are_one_text(one: str, other: str) -> None:
    assert filter_of(one) == filter_of(other)


def test_the_same_query_is_the_same_value_whichever_stream_is_written_first() -> None:
    one = bind("SELECT a.v FROM A [NOW] a, B [RANGE 5 SECONDS] b WHERE a.k = b.k AND a.v < b.v", STREAMS)
    other = bind("SELECT a.v FROM B [RANGE 5 SECONDS] b, A [NOW] a WHERE b.v > a.v AND b.k = a.k", STREAMS)
    assert (one.a, one.b, one.key, one.residual, one.outputs) == (
        other.a,
        other.b,
        other.key,
        other.residual,
        other.outputs,
    )


def test_name_id_and_backfill_are_kept() -> None:
    query = bind(f"SELECT a.k {_FROM}", STREAMS, name="q1", query_id=7, backfill="state")
    assert (query.name, query.id, query.backfill, query.cql) == ("q1", 7, "state", f"SELECT a.k {_FROM}")


def test_an_error_knows_its_line_and_column() -> None:
    with pytest.raises(UnknownColumn) as caught:
        bind("SELECT a.k,\n       b.nmae\nFROM A [NOW] a, B [NOW] b WHERE a.k = b.k", STREAMS)
    location = caught.value.location
    assert isinstance(location, Location)
    assert (location.line, location.column, location.length) == (2, 10, 4)


def test_an_alias_without_a_position_is_located_at_its_stream() -> None:
    with pytest.raises(CqlSyntaxError, match="both streams have the name") as caught:
        bind("SELECT * FROM A [NOW] AS ?,\n B [NOW] AS ?", STREAMS)
    location = caught.value.location
    assert isinstance(location, Location)
    assert (location.line, location.column, location.length) == (2, 2, 1)


def test_streams_are_found_by_their_own_names() -> None:
    query = bind(f"SELECT a.k {_FROM}", {"x": A, "y": B})
    assert (query.a.stream, query.b.stream) == ("A", "B")


@pytest.mark.parametrize(
    "condition",
    [
        "(" * 100 + "a.f" + ")" * 100,
        "NOT " * 5_000 + "a.f",
        "a.v > " + " + ".join(["1"] * 5_000),
        "a.s = '" + "x" * 200_000 + "'",
        "a.v > " + "1" * 5_000,
    ],
    ids=["parentheses", "not", "sum", "text", "number"],
)
def test_a_monstrous_query_is_refused(condition: str) -> None:
    with pytest.raises(InvalidInput):
        bind(f"SELECT a.k {_FROM} AND {condition}", STREAMS)


def test_long_chains_and_lists_are_bound() -> None:
    either = " OR ".join(f"a.i = {n}" for n in range(2_000))
    listed = ", ".join(str(n) for n in range(2_000))
    query = bind(f"SELECT a.k {_FROM} AND ({either}) AND a.n IN ({listed})", STREAMS)
    assert query.a.filter_columns == ("i", "n")


def test_the_position_of_an_unclosed_quote_is_where_it_opens() -> None:
    with pytest.raises(CqlSyntaxError) as caught:
        bind(f"SELECT a.k {_FROM}\n  AND a.s = 'x", STREAMS)
    assert caught.value.location is not None
    assert (caught.value.location.line, caught.value.location.column) == (2, 13)
