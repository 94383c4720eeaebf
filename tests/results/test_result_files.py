"""Every result fixture gives its rows under every strategy, cut and number of buckets, and in DuckDB."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from catalog.columns.arrow_types import arrow_type
from catalog.steps import TIME, stream_sides
from catalog.values.control import Heartbeat
from catalog.values.plan import Partitioning, Strategy
from catalog.values.query import OLDEST, Output, Query
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.build.placement.place_query import QueryPlaces
from planner.strategies.strategies import STRATEGIES
from tests.bound_query import Tables, group_outputs, groups_sql, outputs_of, results_sql
from tests.operators.steps.combinations import Recorder
from tests.results.result_file import LATENESS_US, ResultFile, read, written

#: Rows of a stream in a batch, or None for all; number of buckets; how many of them the rows of a key have.
Run = tuple[int | None, int, Partitioning]

FILES = sorted(Path(__file__).parent.glob("*.slt"))
#: Each cut is on one number of buckets; long tests take the other.
RUNS: Sequence[Run] = ((1, 1, "auto"), (2, 3, "replicate"), (7, 1, "auto"), (None, 3, "auto"))
OTHER_RUNS: Sequence[Run] = ((1, 3, "auto"), (2, 1, "auto"), (7, 3, "replicate"), (None, 1, "auto"))


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
    path: Path, strategy: Strategy, runs: Sequence[Run]
) -> None:
    fixture = read(path)
    bound = _bound(fixture)
    for cut, buckets, partitioning in runs:
        places = QueryPlaces(partitioning, fixture.streams)
        queries = [places.placed(query) for query in bound]
        runner = _run(fixture, queries, Objective(strategy, partitioning=partitioning), cut, buckets)
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
        before = _pairs(duck, fixture, query.left)
        if query.right is not None:
            return Tables(duck, before, _pairs(duck, fixture, query.right), TIME, TIME)
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


def _pairs(duck: duckdb.DuckDBPyConnection, fixture: ResultFile, joined: Query) -> str:
    """Make the results of a step a table, whose event time is the newer one of each pair; return its name."""
    of = _tables(duck, fixture, joined)
    times = (("a", of.time_a, joined.left), ("b", of.time_b, joined.right))
    oldest = ", ".join(
        f'epoch_us({side}."{time}")' if before is None else f"{side}.{OLDEST}" for side, time, before in times
    )
    with_oldest = (*joined.outputs, Output(OLDEST, f"least({oldest})", "bigint"))
    step = results_sql(replace(joined, outputs=with_oldest), of)
    renamed = f"* EXCLUDE (row_a, row_b) RENAME (_event_time AS {TIME})"
    name = f"pairs_{'_'.join(side.alias for side in stream_sides(joined))}"
    duck.execute(
        f"CREATE OR REPLACE TABLE {name} AS SELECT {renamed}, row_number() OVER () AS r FROM ({step})"
    )
    return name


def _run(
    fixture: ResultFile, queries: list[Query], objective: Objective, cut: int | None, buckets: int
) -> Recorder:
    """Run all queries of a fixture together, so many rows of each stream a batch, and end the streams."""
    streams = {stream.id: stream for stream in fixture.streams.values()}
    plan = build_plan(queries, streams, objective=objective)
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
