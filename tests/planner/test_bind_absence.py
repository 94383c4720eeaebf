"""Outer, semi and anti joins mean what SQL says: DuckDB answers the text, nested loops the bound query.

The text goes to DuckDB as it is, with windows as predicates on event times where a match is described (ON, or
WHERE inside the subquery). The bound query is read twice: by ``tests.bound_query``'s one SQL join and by its
nested loops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import pytest
from hypothesis import HealthCheck, assume, event, example, given, note, settings
from hypothesis import strategies as st

from catalog.values.stream import Column, HttpSource, Stream
from planner.bind.bind import bind
from planner.errors import InvalidWindow, UnsupportedCql
from tests.bound_query import Tables, looped, outputs_of, results_sql
from tests.examples import examples

_COLUMNS = (
    Column("ts", "timestamp"),
    Column("k", "int"),
    Column("v", "int"),
    Column("u", "timestamp"),
    Column("r", "bigint"),
)
STREAMS = {
    "A": Stream(1, "A", _COLUMNS, "ts", 0, HttpSource()),
    "B": Stream(2, "B", (*_COLUMNS, Column("x", "int")), "ts", 0, HttpSource()),
}

_LENGTHS = {"NOW": 1, "RANGE 2 SECONDS": 2_000_000, "RANGE 5 SECONDS": 5_000_000}
JOINS = ("LEFT JOIN", "LEFT OUTER JOIN", "RIGHT JOIN", "FULL JOIN", "FULL OUTER JOIN")
HALVES = ("SEMI JOIN", "ANTI JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN", "RIGHT SEMI JOIN", "RIGHT ANTI JOIN")
ASKS = ("EXISTS", "NOT EXISTS", "IN")

_ORDER = st.sampled_from(["<", "<=", ">", ">=", "=", "<>"])
_OF_ONE = st.sampled_from(
    [
        "{0}.v {op} {n}",
        "{0}.v IS NULL",
        "{0}.v IS NOT NULL",
        "{0}.v IS DISTINCT FROM {n}",
        "{0}.v IN (1, {n})",
        "{0}.k {op} 1",
        "{0}.k IS NULL",
        "{0}.ts > TIMESTAMP '1970-01-01 00:00:05'",
        "{0}.ts IS NULL",
        "COALESCE({0}.v, {n}) {op} 2",
        "{0}.v + 1 {op} {n}",
        "({0}.v > {n}) IS NULL",
        "({0}.v > {n}) IS TRUE",
        "CASE WHEN {0}.v > {n} THEN {0}.k ELSE 7 END {op} 1",
        "CASE WHEN {0}.k IS NULL THEN {n} ELSE 2 END {op} 1",
        "CASE {0}.v WHEN {n} THEN 'x' WHEN 2 THEN NULL ELSE 'y' END = 'x'",
        "CASE WHEN {0}.ts IS NOT NULL THEN {0}.v > {n} WHEN {0}.k > 1 THEN TRUE END",
        "greatest({0}.v, {n}) {op} 3",
        "nullif({0}.v, {n}) {op} 2",
    ]
)
_OF_BOTH = st.sampled_from(
    [
        "a.v {op} b.v",
        "a.v = b.v",
        "a.u {op} b.ts",
        "a.v IS NOT DISTINCT FROM b.v",
        "a.v IS DISTINCT FROM b.v",
        "a.v + b.v > {n}",
        "COALESCE(a.v, b.v) {op} {n}",
        "COALESCE(a.k, b.k) {op} {n}",
        "(a.v < b.v) IS NULL",
        "b.ts >= a.ts",
        "b.ts - a.ts <= INTERVAL '{n}' SECOND",
        "a.k IN (b.v, b.k)",
        "a.k IS NULL OR b.k IS NULL",
        "CASE WHEN a.ts IS NULL THEN TRUE WHEN b.ts IS NULL THEN TRUE ELSE a.v {op} {n} END",
        "CASE WHEN b.k IS NULL THEN a.v {op} {n} ELSE a.v > 2 END",
        "TRUE",
        "1 > 2",
        "NULL",
    ]
)


def _condition(sides: str) -> st.SearchStrategy[str]:
    one = st.builds(
        lambda form, side, op, n: form.format(side, op=op, n=n),
        _OF_ONE,
        st.sampled_from(sides),
        _ORDER,
        st.integers(0, 4),
    )
    both = st.builds(lambda form, op, n: form.format(op=op, n=n), _OF_BOTH, _ORDER, st.integers(0, 4))
    leaf = st.one_of(one, one, both) if len(sides) == 2 else one
    return st.recursive(
        leaf,
        lambda x: st.one_of(
            st.builds("({} OR {})".format, x, x),
            st.builds("({} AND {})".format, x, x),
            st.builds("NOT ({})".format, x),
        ),
        max_leaves=3,
    )


@dataclass(frozen=True)
class Asked:
    """A query of which text and SQL are made.

    Attributes:
        join: Words of a JOIN, or EXISTS, NOT EXISTS or IN.
        windows: Windows of A and of B.
        spelling: How they are written.
        on: Conditions of ON, or inside.
        where: Conditions of WHERE.
        swapped: Whether B comes first.
    """

    join: str
    windows: tuple[str, str]
    spelling: str
    on: tuple[str, ...]
    where: tuple[str, ...]
    swapped: bool

    @property
    def outputs(self) -> str:
        """The select list."""
        first, second = self._names
        if self.join in JOINS:
            return "a.r AS ar, b.r AS br, a.v AS av, COALESCE(b.v, a.v) AS v, b.k + 1 AS bk, a.v IS NULL AS n"
        kept = second if self.join.startswith("RIGHT") else first
        return f"{kept}.r AS r, {kept}.v + 1 AS v"

    @property
    def _names(self) -> str:
        return "ba" if self.swapped else "ab"

    def text(self, *, cql: bool) -> str:
        """Return the query as CQL, or as SQL with predicates in place of windows."""
        w_a, w_b = (_LENGTHS[window] for window in self.windows)
        on, where = ["a.k = b.k", *self.on], list(self.where)
        d = "(epoch_us(b.ts) - epoch_us(a.ts))"
        behind = dict.fromkeys("ab", "")
        end = ""
        if not cql:
            if self.spelling in ("WINDOW", "WITHIN"):
                w_a = w_b = 5_000_000 + (self.spelling == "WITHIN")
            elif self.spelling == "BETWEEN":
                w_a, w_b = 5_000_001, 2_000_001
            on.append(f"(({d} >= 0 AND {d} < {w_a}) OR ({d} <= 0 AND -{d} < {w_b}))")
        elif self.spelling == "brackets":
            behind = {name: f" [{window}]" for name, window in zip("ab", self.windows, strict=True)}
        elif self.spelling == "WINDOW":
            end = " WINDOW 5 SECONDS"
        elif self.spelling == "WITHIN":
            behind[self._names[1]] = " WITHIN 5 SECONDS"
        else:
            on.append("b.ts BETWEEN a.ts - INTERVAL '2' SECOND AND a.ts + INTERVAL '5' SECOND")
        first, second = (f"{name.upper()} {name}{behind[name]}" for name in self._names)
        matches = " AND ".join(f"({condition})" for condition in on)
        if self.join in ASKS:
            outer, inner = self._names
            asked = f"{self.join} (SELECT 1 FROM {second} WHERE {matches})"
            if self.join == "IN":
                asked = f"{outer}.k IN (SELECT {inner}.k FROM {second} WHERE {matches})"
            return f"SELECT {self.outputs} FROM {first} WHERE {' AND '.join([asked, *self.where])}{end}"
        after = f" WHERE {' AND '.join(f'({condition})' for condition in where)}" if where else ""
        join = self.join
        if not cql and join in HALVES:  # DuckDB has them of the left stream alone, without that word.
            if join.startswith("RIGHT"):
                first, second = second, first
            join = join.removeprefix("LEFT ").removeprefix("RIGHT ")
        return f"SELECT {self.outputs} FROM {first} {join} {second} ON {matches}{after}{end}"


@st.composite
def _asked(draw: st.DrawFn) -> Asked:
    join = draw(st.sampled_from([*JOINS, *HALVES, *ASKS]))
    swapped = draw(st.booleans())
    names = "ba" if swapped else "ab"
    kept = "ab" if join in JOINS else names[1] if join.startswith("RIGHT") else names[0]
    return Asked(
        join=join,
        windows=draw(st.tuples(*(st.sampled_from(sorted(_LENGTHS)),) * 2)),
        spelling=draw(st.sampled_from(["brackets", "brackets", "WINDOW", "WITHIN", "BETWEEN"])),
        on=tuple(draw(st.lists(_condition("ab"), max_size=2))),
        where=tuple(draw(st.lists(_condition(kept), max_size=2))),
        swapped=swapped,
    )


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        for name, seed, more in (("A", 7, ""), ("B", 11, ", (i % 4)::INT AS x")):
            connection.execute(
                f"CREATE TABLE {name} AS SELECT i AS r,"
                f" make_timestamp((i * {seed} % 23) * 1000000 + (i % 2)) AS ts,"
                f" nullif(i * {seed} % 5, 4)::INT AS k,"
                f" nullif(i * {seed} % 6, 5)::INT AS v, make_timestamp((i % 9) * 1000000) AS u{more}"
                " FROM range(30) t(i)"
            )
        yield connection


def judge(duck: duckdb.DuckDBPyConnection, asked: Asked) -> str:
    """Compare all readings of one query; return its kind."""
    cql, sql = asked.text(cql=True), asked.text(cql=False)
    note(cql)
    query = bind(cql, STREAMS)
    expected = Counter(duck.sql(sql).fetchall())
    tables = Tables(duck, "A", "B")
    joined = Counter(row[2:-1] for row in duck.sql(results_sql(query, tables)).fetchall())
    assert joined == expected, f"one join: {query}"
    assert Counter(outputs_of(query, tables, looped(query, tables))) == expected, f"loops: {query}"
    return f"{query.kind} {' '.join(query.preserved)}"


_NOW = ("NOW", "NOW")
_TWO = ("RANGE 2 SECONDS", "RANGE 5 SECONDS")


@example(asked=Asked("LEFT JOIN", _TWO, "brackets", ("a.v > 2",), (), swapped=False))
@example(asked=Asked("LEFT JOIN", _TWO, "brackets", ("b.v > 2",), ("a.v > 1",), swapped=True))
@example(asked=Asked("FULL JOIN", _NOW, "brackets", ("b.v > 2", "a.v < 4"), (), swapped=False))
@example(asked=Asked("FULL JOIN", _TWO, "BETWEEN", (), ("a.v > 2",), swapped=True))
@example(asked=Asked("LEFT JOIN", _TWO, "WITHIN", ("b.v > 2",), ("b.k IS NULL",), swapped=False))
@example(
    asked=Asked("LEFT JOIN", _TWO, "WITHIN", (), ("b.ts IS NULL", "COALESCE(b.v, a.v) > 2"), swapped=False)
)
@example(asked=Asked("LEFT JOIN", _TWO, "WINDOW", (), ("b.v IN (1, 2)",), swapped=False))
@example(asked=Asked("LEFT JOIN", _TWO, "WINDOW", ("1 > 2",), ("a.v > 2",), swapped=False))
@example(asked=Asked("FULL JOIN", _TWO, "WINDOW", ("NULL",), (), swapped=False))
@example(
    asked=Asked("RIGHT ANTI JOIN", _TWO, "WINDOW", ("a.v < b.v", "b.v > 1"), ("b.v < 4",), swapped=False)
)
@example(
    asked=Asked("FULL JOIN", _TWO, "WITHIN", ("b.v > 1",), ("a.k IS NULL OR b.ts IS NULL",), swapped=True)
)
@example(
    asked=Asked(
        "LEFT JOIN", _NOW, "WINDOW", (), ("CASE WHEN b.k IS NULL THEN 1 ELSE 0 END = 1",), swapped=False
    )
)
@example(asked=Asked("LEFT JOIN", _TWO, "WINDOW", (), ("CASE WHEN b.v > 2 THEN a.v < 3 END",), swapped=False))
@example(asked=Asked("NOT EXISTS", _TWO, "BETWEEN", ("a.v < b.v", "a.v > 1"), ("a.v < 4",), swapped=False))
@example(asked=Asked("IN", _TWO, "WITHIN", ("a.v < b.v",), ("a.v < 4",), swapped=False))
@settings(
    max_examples=examples(150),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
@given(asked=_asked())
def test_a_bound_query_gives_what_its_cql_gives_as_sql(duck: duckdb.DuckDBPyConnection, asked: Asked) -> None:
    try:
        event(judge(duck, asked))
    except UnsupportedCql:
        event("refused")
        assume(asked.join in JOINS and bool(asked.where))
    except InvalidWindow:
        event("no pair in the window")
