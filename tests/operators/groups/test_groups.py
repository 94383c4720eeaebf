"""Groups that come out of the chain against DuckDB's GROUP BY over the pairs of nested loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import cycle
from typing import Any, get_args

import duckdb
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.groups.grouping import Aggregate, Grouping
from catalog.values.plan import Plan
from catalog.values.query import Query
from operators.bucket.batch_output import BatchOutput
from planner.families.families import SideName
from tests.builders import a_query, a_stream, grouped_by
from tests.examples import examples
from tests.operators.cases import FAMILIES, SETTINGS, Case, Step, cases, plan_versions
from tests.operators.durable import Crash, DurableRunner
from tests.operators.harness import Runner
from tests.operators.oracle import NestedLoops
from tests.operators.queries import Row, a_table
from tests.operators.rehash.test_rehash import NUMBERS, moving

COUNT = Aggregate("count", 'a."w"', "int")
TOTAL = Aggregate("sum", 'b."v"', "int")
MEAN = Aggregate("avg", 'b."v"', "int")
LEAST = Aggregate("min", 'a."v"', "int")
LAST = Aggregate("max", 'b."m"', "string")
THIRDS = Aggregate("sum", 'CAST(a."v" AS DOUBLE) / 3', "double")
COSTS = Aggregate("sum", 'CAST(b."v" AS DECIMAL(9,2)) / 1', "decimal(12,2)")
ALL = (COUNT, TOTAL, MEAN, LEAST, LAST, THIRDS, COSTS)
#: Families with a key: without one there are no groups.
KEYED = [number for number, (_, key, _) in enumerate(FAMILIES) if key]

#: Query, key, end of the interval.
Place = tuple[int, tuple[object, ...], int]


def grouped(query: Query) -> Query:
    """Return a query that groups its pairs: which way depends on its number."""
    of = [each for number, each in enumerate(ALL) if (query.id + number) % 3 or query.id % 2]
    columns: set[tuple[SideName, str]] = {("a", a) for a, _ in query.key}
    columns |= {("a", "v"), ("a", "w"), ("b", "v"), ("b", "m")}
    grouping = Grouping(
        tumble_us=(10, 25, 400)[query.id % 3],
        aggregates=tuple(sorted(of, key=lambda each: each.name)),
        having='g."count_all" > 1' if query.id % 4 == 3 else None,
        columns=tuple(sorted(columns)),
    )
    return grouped_by(query, grouping)


def with_groups(case: Case) -> Case:
    """Return a case whose queries group their pairs; those without a key are left out."""

    def of(queries: Sequence[Query] | None) -> tuple[Query, ...] | None:
        return None if queries is None else tuple(grouped(query) for query in queries if query.key)

    steps = [Step(of(s.queries), s.rows, s.heartbeats, of(s.between), s.strategy) for s in case.steps]
    return replace(case, steps=tuple(steps))


@dataclass
class Groups:
    """What the pairs of nested loops come to, and when each group is to come out."""

    oracle: NestedLoops
    rows: dict[tuple[int, int], Row] = field(default_factory=dict)
    pairs: dict[Place, list[tuple[Row, Row]]] = field(default_factory=dict)
    due: dict[Place, tuple[int, str]] = field(default_factory=dict)

    def step(self, step: Step, flowing: Sequence[int]) -> None:
        before = {query.id: query for query in self.oracle.queries}
        rows = step.by_stream(flowing)
        for stream_id, arrived in rows.items():
            self.rows |= {(stream_id, row.pos): row for row in arrived}
        beats = [beat for beat in step.heartbeats if beat.stream_id in flowing]
        pairs = self.oracle.step(step.queries, rows, beats)
        batch = self.oracle.batch - 1
        queries = {query.id: query for query in self.oracle.queries}
        for place in self.pairs:
            if place not in self.due and place[0] in before and place[0] not in queries:
                self.due[place] = (batch, "leave")
        for (query_id, a, b), times in pairs.items():
            assert times == 1
            assert a is not None
            assert b is not None
            query = queries[query_id]
            assert query.grouping is not None
            one, other = self.rows[query.a.stream_id, a], self.rows[query.b.stream_id, b]
            width = query.grouping.tumble_us
            end = max(one.ts, other.ts) // width * width + width
            key = tuple(one.values[name] for name, _ in query.key)
            place = (query_id, key, end)
            assert place not in self.due, "a group gets a pair after it came out"
            self.pairs.setdefault(place, []).append((one, other))
        for place in self.pairs:
            if place not in self.due and place[0] in queries:
                query = queries[place[0]]
                marks = [self.oracle.watermark(side.stream_id) for side in (query.a, query.b)]
                if None not in marks and min(mark for mark in marks if mark is not None) >= place[2]:
                    self.due[place] = (batch, "watermark")


def outputs_of(output: BatchOutput) -> list[dict[str, Any]]:
    """Return the groups of a bucket's output, each with the id of its query."""
    found = []
    for family, table in output.results.items():
        ids = output.routes[family].table().ids()
        for row in table.to_pylist():
            (query_id,) = ids[row["_route"]]
            found.append({**row, "query": query_id})
    return found


def check(
    case: Case,
    inspect: Callable[[Runner, NestedLoops], None] | None = None,
    runner: Runner | None = None,
) -> dict[Place, dict[str, Any]]:
    """Run a case beside nested loops and compare which groups come out when, and their values.

    Args:
        case: What to run.
        inspect: Called after every batch.
        runner: Runs the batches; by default one that is stored if the case says so.
    """
    runner = runner or Runner(case.streams, case.buckets, case.slack_us, case.stored)
    expected = Groups(NestedLoops(case.streams))
    plans: list[Plan] = []
    found: dict[Place, dict[str, Any]] = {}
    queries: dict[int, Query] = {}
    for step in case.steps:
        changes = plan_versions(step, case, plans[-1] if plans else None)
        plans += changes
        queries |= {q.id: q for q in (*(step.between or ()), *(step.queries or ()))}
        flowing = [s.id for s in plans[-1].streams]
        tables = {i: a_table(runner.streams[i], rows) for i, rows in step.by_stream(flowing).items()}
        beats = [beat for beat in step.heartbeats if beat.stream_id in flowing]
        expected.step(step, flowing)
        for output in runner.step(tables, changes, beats):
            for row in outputs_of(output):
                place = place_of(queries[row["query"]], row)
                assert place not in found, "a group came out twice"
                assert (row["_batch"], row["g_closed_by"]) == expected.due[place]
                found[place] = row
        if inspect is not None:
            inspect(runner, expected.oracle)
    _compare(found, expected, queries)
    return found


def place_of(query: Query, row: Mapping[str, Any]) -> Place:
    end = pa.scalar(row["_event_time"], pa.timestamp("us")).cast(pa.int64()).as_py()
    start = pa.scalar(row["g_tumble"], pa.timestamp("us")).cast(pa.int64()).as_py()
    assert query.grouping is not None
    assert end - start == query.grouping.tumble_us
    return query.id, tuple(row[f"g_key_{n}"] for n in range(len(query.key))), end


def _compare(found: Mapping[Place, dict[str, Any]], expected: Groups, queries: Mapping[int, Query]) -> None:
    """Compare values with DuckDB's, which groups the pairs of all groups by their number."""
    places = list(expected.due)
    pairs = [(n, one, other) for n, place in enumerate(places) for one, other in expected.pairs[place]]
    numbers = pa.array([n for n, _, _ in pairs], pa.int64())
    streams = pa.schema([("k", pa.int64()), ("m", pa.string()), ("v", pa.int32()), ("w", pa.int32())])
    sides = [pa.array([row.values for row in rows], pa.struct(streams)) for rows in _sides(pairs)]
    table = pa.table([numbers, *sides], names=["n", "a", "b"])
    values = ", ".join(f'{each.function}({each.argument}) AS "{each.name}"' for each in ALL)
    with duckdb.connect() as duck:
        duck.register("pairs", table)
        values = f"count(*) AS count_all, list({THIRDS.argument}) AS thirds, {values}"
        text = f"SELECT n, {values} FROM pairs GROUP BY n"
        answers = {row["n"]: row for row in duck.sql(text).to_arrow_table().to_pylist()}
    there = set()
    for n, place in enumerate(places):
        grouping, answer = queries[place[0]].grouping, answers[n]
        assert grouping is not None
        if grouping.having is not None and answer["count_all"] < 2:
            continue
        there.add(place)
        row = found[place]
        assert row["g_count_all"] == answer["count_all"]
        for each in grouping.aggregates:
            value = answer[each.name]
            if each == THIRDS:
                thirds = [Fraction(x) for x in answer["thirds"] if x is not None]
                value = float(sum(thirds, Fraction(0))) if thirds else None
            assert row[f"g_{each.name}"] == value, (each, place)
    assert there == set(found)


def _sides(pairs: Sequence[tuple[int, Row, Row]]) -> tuple[list[Row], list[Row]]:
    return [one for _, one, _ in pairs], [other for _, _, other in pairs]


@settings(SETTINGS, max_examples=examples(25, short=5))
@given(cases())
def test_groups_are_those_of_duckdb_over_the_pairs_of_nested_loops(case: Case) -> None:
    check(with_groups(case))


@settings(SETTINGS, max_examples=examples(15, short=5))
@given(cases(family=0))
def test_queries_of_one_family_add_up_their_own_pairs(case: Case) -> None:
    check(with_groups(case))


@settings(SETTINGS, max_examples=examples(25, short=5))
@given(cases(activations=True))
def test_queries_that_leave_give_their_open_groups_once(case: Case) -> None:
    check(with_groups(case))


@settings(SETTINGS, max_examples=examples(15, short=5))
@given(cases(activations=True), NUMBERS)
def test_open_groups_go_on_in_another_number_of_buckets(case: Case, numbers: list[int]) -> None:
    check(with_groups(case), moving(numbers))


@settings(SETTINGS, max_examples=examples(15, short=5))
@given(cases(activations=True), st.lists(st.sampled_from(get_args(Crash)), min_size=1, max_size=4))
def test_a_batch_that_is_repeated_gives_and_stores_the_same(case: Case, crashes: list[Crash]) -> None:
    following = cycle(crashes)
    runner = DurableRunner(case.streams, case.buckets, case.slack_us, crash=next(following))

    def die_in_the_next(_runner: Runner, _oracle: NestedLoops) -> None:
        runner.crash = next(following)

    check(with_groups(case), die_in_the_next, runner)


def test_a_repeated_batch_of_many_groups_gives_and_stores_the_same() -> None:
    streams = {i: a_stream(i) for i in (1, 2)}
    rows = [(1 + n % 2, Row(n // 2, n, {"k": n % 3, "m": "x", "v": n, "w": n})) for n in range(40)]
    queries = tuple(grouped(a_query(number, 9)) for number in (5, 6, 7))
    steps = [Step(queries if n == 0 else None, tuple(rows[n : n + 5])) for n in range(0, 40, 5)]
    case = Case(streams, tuple(steps), 2, None, stored=True)
    repeated = check(case, runner=DurableRunner(streams, 2, None, crash="before-commit"))
    assert repeated == check(case)
    assert len(repeated) > 10
