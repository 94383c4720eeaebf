"""A bound query, read as the contract says (design, section 1), gives the pairs that its CQL gives as SQL."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from catalog.errors import InvalidInput
from catalog.values.query import Query
from catalog.values.stream import Column, HttpSource, Stream
from planner.bind.bind import bind
from planner.errors import InvalidWindow, NoWindow
from tests.examples import examples

_COLUMNS = (Column("ts", "timestamp"), Column("k", "int"), Column("v", "int"), Column("u", "timestamp"))
A = Stream(1, "A", _COLUMNS, "ts", 0, HttpSource())
B = Stream(2, "B", _COLUMNS, "ts", 0, HttpSource())
_LENGTHS = {
    "[NOW]": 1,
    "[RANGE 2 SECONDS]": 2_000_000,
    "[RANGE 5 SECONDS]": 5_000_000,
    "[RANGE UNBOUNDED]": 2**61,
}

_interval = st.sampled_from([f"INTERVAL '{n}' SECOND" for n in (0, 2, -1, 4)])
_order = st.sampled_from(["<", "<=", ">", ">="])
_time = st.one_of(
    st.builds("{1}.ts {0} {2}.ts + {3}".format, _order, st.just("a"), st.just("b"), _interval),
    st.builds("b.ts {} a.ts - {}".format, _order, _interval),
    st.builds("b.ts - a.ts {} {}".format, _order, _interval),
    st.builds("{} {} a.ts - b.ts".format, _interval, _order),
    st.builds("b.ts BETWEEN a.ts - {} AND a.ts + {}".format, _interval, _interval),
    st.just("a.ts = b.ts"),
)
_plain = st.one_of(
    st.builds("{}.v {} {}".format, st.sampled_from("ab"), _order, st.integers(0, 4)),
    st.builds("a.v {} b.v".format, _order),
    st.builds("a.u {} b.ts".format, _order),
    st.builds("{}.v IS NULL".format, st.sampled_from("ab")),
    st.sampled_from(
        ["a.v = b.v", "a.v IN (1, 3)", "TRUE", "1 = 1", "a.v + b.v > 3", "a.ts > '1970-01-01 00:00:05'"]
    ),
)
_condition = st.recursive(
    st.one_of(_time, _plain),
    lambda x: st.one_of(
        st.builds("({} OR {})".format, x, x),
        st.builds("({} AND {})".format, x, x),
        st.builds("NOT ({})".format, x),
    ),
    max_leaves=3,
)


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        for name, seed in (("A", 7), ("B", 11)):
            connection.execute(
                f"CREATE TABLE {name} AS SELECT i AS r,"
                f" make_timestamp((i * {seed} % 13) * 1000000 + (i % 2)) AS ts, (i % 3)::INT AS k,"
                f" nullif(i * {seed} % 6, 5)::INT AS v, make_timestamp((i % 9) * 1000000) AS u"
                " FROM range(40) t(i)"
            )
        yield connection


def as_sql(windows: tuple[str, str], conditions: list[str]) -> str:
    """The query in plain SQL: nested loops over everything."""
    w_a, w_b = (_LENGTHS.get(window, 2**61) for window in windows)
    return f"SELECT a.r, b.r FROM A a, B b WHERE {distance('a.ts', 'b.ts', w_a, w_b)} AND " + " AND ".join(
        f"({condition})" for condition in conditions
    )


def as_bound(query: Query) -> str:
    """The same from the bound query: key, filters, windows, residual."""
    fields = "{'ts': ts, 'k': k, 'v': v, 'u': u}"
    sides = [
        f"(SELECT r, ts, {fields} AS {name} FROM {name.upper()} WHERE {side.filter or 'TRUE'}) {name}_rows"
        for name, side in (("a", query.a), ("b", query.b))
    ]
    keys = " AND ".join(f'a."{left}" = b."{right}"' for left, right in query.key)
    within = distance("a_rows.ts", "b_rows.ts", query.a.window_us, query.b.window_us)
    where = f"{within} AND {keys} AND ({query.residual or 'TRUE'})"
    return f"SELECT a_rows.r, b_rows.r FROM {', '.join(sides)} WHERE {where}"


def distance(a: str, b: str, w_a: int, w_b: int) -> str:
    d = f"(epoch_us({b}) - epoch_us({a}))"
    return f"(({d} >= 0 AND {d} < {w_a}) OR ({d} <= 0 AND -{d} < {w_b}))"


@example(  # Two leaves that differ in their intervals alone.
    windows=("[RANGE 2 SECONDS]", "[RANGE 5 SECONDS]"),
    conditions=["((b.ts >= a.ts - INTERVAL '0' SECOND AND a.v > 1) OR b.ts >= a.ts - INTERVAL '2' SECOND)"],
    swapped=False,
)
@settings(
    max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    windows=st.sampled_from(
        [
            ("", ""),
            ("[RANGE 5 SECONDS]", "[NOW]"),
            ("[RANGE 2 SECONDS]", "[RANGE 5 SECONDS]"),
            ("[RANGE UNBOUNDED]",) * 2,
        ]
    ),
    conditions=st.lists(_condition, max_size=4),
    swapped=st.booleans(),
)
def test_a_bound_query_gives_the_pairs_of_its_cql(
    duck: duckdb.DuckDBPyConnection, windows: tuple[str, str], conditions: list[str], swapped: bool
) -> None:
    conditions = ["a.k = b.k", *conditions]
    sources = [f"A {windows[0]} a", f"B {windows[1]} b"][:: -1 if swapped else 1]
    expected = sorted(duck.sql(as_sql(windows, conditions)).fetchall())
    cql = f"SELECT a.v FROM {', '.join(sources)} WHERE {' AND '.join(conditions)}"
    try:
        query = bind(cql, {"A": A, "B": B})
    except NoWindow:
        assert windows == ("", "")
        return
    except InvalidWindow:
        assert expected == []
        return
    assert sorted(duck.sql(as_bound(query)).fetchall()) == expected


@given(text=st.text(max_size=60) | st.text("SELECTFROMWHR ab.k,=[]()'\"0159NOW", max_size=60))
def test_any_text_is_bound_or_refused(text: str) -> None:
    for cql in (text, f"SELECT a.v FROM A [NOW] a, B [NOW] b WHERE a.k = b.k AND {text}"):
        try:
            bind(cql, {"A": A, "B": B})
        except InvalidInput:
            continue
