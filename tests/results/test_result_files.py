"""Every result fixture gives its rows under every strategy, cut and number of buckets, and in DuckDB."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from catalog.arrow_types import arrow_type
from catalog.steps import TIME, stream_sides
from catalog.values.control import Heartbeat
from catalog.values.plan import Strategy
from catalog.values.query import OLDEST, Output, Query
from planner.bind.bind import bind
from planner.build.build_plan import STRATEGIES, build_plan
from planner.build.objective import Objective
from tests.bound_query import Tables, group_outputs, groups_sql, outputs_of, results_sql
from tests.operators.steps.combinations import Recorder
from tests.results.result_file import LATENESS_US, ResultFile, read, written

FILES = sorted(Path(__file__).parent.glob("*.slt"))
#: Rows of a stream in a batch, and buckets. Each cut is on one number of buckets; long tests take the other.
RUNS = ((1, 1), (2, 3), (7, 1), (None, 3))
OTHER_RUNS = ((1, 3), (2, 1), (7, 3), (None, 1))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_duckdb_gives_the_rows_of_the_fixture(path: Path) -> None:
    fixture = read(path)
    with duckdb.connect() as duck:
        for query, case in zip(_bound(fixture), fixture.cases, strict=True):
            tables = _tables(duck, fixture, query)
            if query.grouping is not None:
                rows = duck.sql(groups_sql(query, tables)).fetchall()
            else:
                rows = [row[2:-1] for row in duck.sql(results_sql(query, tables)).fetchall()]
            assert written(rows) == case.rows, f"{path}:{case.line}"


@pytest.mark.parametrize(
    "runs", [RUNS, pytest.param(OTHER_RUNS, marks=pytest.mark.slow)], ids=["some", "others"]
)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_shared_chain_gives_the_rows_of_the_fixture(
    path: Path, strategy: Strategy, runs: Sequence[tuple[int | None, int]]
) -> None:
    fixture = read(path)
    queries = _bound(fixture)
    for cut, buckets in runs:
        runner = _run(fixture, queries, strategy, cut, buckets)
        with duckdb.connect() as duck:
            for query, case in zip(queries, fixture.cases, strict=True):
                tables = _tables(duck, fixture, query)
                if query.left is not None:
                    rows = list(runner.rows_of(query).elements())
                elif query.grouping is not None:
                    rows = group_outputs(query, runner.groups.get(query.id, ()), tables)
                else:
                    found = runner.results.items()
                    pairs = [(a, b) for (i, a, b), n in found for _ in range(n) if i == query.id]
                    rows = outputs_of(query, tables, pairs)
                where = f"{path}:{case.line}, {cut or 'all'} rows a batch, {buckets} buckets"
                assert written(rows) == case.rows, where


def _bound(fixture: ResultFile) -> list[Query]:
    return [
        bind(case.cql, fixture.streams, name=f"q{number}", query_id=number)
        for number, case in enumerate(fixture.cases, 1)
    ]


def _tables(duck: duckdb.DuckDBPyConnection, fixture: ResultFile, query: Query) -> Tables:
    if query.left is not None:
        # The results of the step before are a table, whose event time is the newer one of each pair.
        left, of_left = query.left, _tables(duck, fixture, query.left)
        oldest = f'epoch_us(a."{of_left.time_a}")' if left.left is None else f"a.{OLDEST}"
        oldest = f'least({oldest}, epoch_us(b."{of_left.time_b}"))'
        with_oldest = (*left.outputs, Output(OLDEST, oldest, "bigint"))
        step = results_sql(replace(left, outputs=with_oldest), of_left)
        renamed = f"* EXCLUDE (row_a, row_b) RENAME (_event_time AS {TIME})"
        before = f"pairs_{query.id}_{len(stream_sides(query))}"
        duck.execute(
            f"CREATE OR REPLACE TABLE {before} AS SELECT {renamed}, row_number() OVER () AS r FROM ({step})"
        )
        right = _tables(duck, fixture, replace(query, a=query.b, left=None))
        return Tables(duck, before, right.b, TIME, right.time_b)
    names = {stream.id: name for name, stream in fixture.streams.items()}
    for side in (query.a, query.b):
        name = names[side.stream_id]
        table = fixture.tables[name]
        duck.register(f"rows_{name}", table.rename_columns([*table.column_names[:-1], "r"]))
    a, b = (names[side.stream_id] for side in (query.a, query.b))
    times = (fixture.streams[name].event_time for name in (a, b))
    return Tables(duck, f"rows_{a}", f"rows_{b}", *times)


def _run(
    fixture: ResultFile, queries: list[Query], strategy: Strategy, cut: int | None, buckets: int
) -> Recorder:
    """Run all queries of a fixture together, so many rows of each stream a batch, and end the streams."""
    streams = {stream.id: stream for stream in fixture.streams.values()}
    plan = build_plan(queries, streams, objective=Objective(strategy))
    tables = {fixture.streams[name].id: _typed(fixture, name) for name in fixture.streams}
    flowing = [stream.id for stream in plan.streams]
    rows = max(tables[i].num_rows for i in flowing)
    runner = Recorder(streams, buckets, slack_us=None)
    step = cut or rows
    for begin in range(0, rows, step):
        batch = {i: tables[i].slice(begin, step) for i in flowing}
        runner.step(batch, [plan] if begin == 0 else ())
    newest = max(
        table.column(streams[i].event_time).cast(pa.int64()).to_pylist()[n]
        for i, table in tables.items()
        for n in range(table.num_rows)
    )
    runner.step({}, heartbeats=[Heartbeat(i, newest + 2 * LATENESS_US) for i in flowing])
    assert not any(runner.late.values())
    return runner


def _typed(fixture: ResultFile, name: str) -> pa.Table:
    table = fixture.tables[name]
    types = [(c.name, arrow_type(c.type)) for c in fixture.streams[name].columns]
    return table.cast(pa.schema([*types, ("_pos", pa.int64())]))
