"""Windows of rows in joins of three and more streams give what one DuckDB join over all rows gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import duckdb
import numpy as np
import pyarrow as pa
from hypothesis import event, given, settings
from hypothesis import strategies as st

from catalog.steps import is_exchanged, is_intermediate, steps
from catalog.values.control import Heartbeat
from catalog.values.plan import Plan
from catalog.values.query import Query, is_rank
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.families.families import family_of
from tests.examples import examples
from tests.operators.cases import SETTINGS
from tests.operators.steps.combinations import NAMES, SECOND_US, Combination, Recorder, Written, stream
from tests.operators.steps.drawn import Ran, run_drawn

#: Batches after the streams have ended: each change of key takes one.
ENDING = 4
#: Conditions that join two streams without an equal key, with a band and without.
THETA = ("s{0}.v BETWEEN s{1}.v - 0.2 AND s{1}.v", "s{0}.v + s{1}.v < 0.4", "s{0}.v < s{1}.v - 0.6")


@dataclass(frozen=True, slots=True)
class WrittenRows(Written):
    """A query with windows of rows.

    Attributes:
        rows: By the place in FROM, the columns of PARTITION BY and the number of rows, instead of a time.
        tree: How its streams are joined, as TREE says it.
    """

    rows: tuple[tuple[tuple[str, ...], int] | None, ...] = ()
    tree: str = ""

    @property
    def cql(self) -> str:
        """The text."""
        sources = ", ".join(
            f"{NAMES[number - 1]} [{self._window(n)}] s{n}" for n, number in enumerate(self.streams)
        )
        selected = ", ".join(f"s{n}.r AS r{n}" for n in range(len(self.streams)))
        return f"SELECT {selected} FROM {sources} WHERE {' AND '.join(self.conditions)} {self.tree}"

    def _window(self, place: int) -> str:
        rows = self.rows[place]
        if rows is None:
            return f"RANGE {self.windows_s[place]} SECONDS"
        return f"PARTITION BY {', '.join(rows[0])} ROWS {rows[1]}" if rows[0] else f"ROWS {rows[1]}"

    def _holds(self, place: int, other: int) -> str:
        """Return the condition that a row is in its window when another one comes that is not older."""
        rows = self.rows[place]
        earlier = f"s{place}.ts <= s{other}.ts"
        if rows is None:
            distance = f"epoch_us(s{other}.ts) - epoch_us(s{place}.ts)"
            return f"({earlier} AND {distance} < {self.windows_s[place] * SECOND_US})"
        alike = "".join(f" AND x.{column} = s{place}.{column}" for column in rows[0])
        came = f"x.ts <= s{other}.ts AND (x.ts, x._pos) > (s{place}.ts, s{place}._pos)"
        after = f"(SELECT count(*) FROM {{{place}}} x WHERE {came}{alike})"
        return f"({earlier} AND {after} < {rows[1]})"

    def sql_of(self, began: list[int]) -> str:
        """Return the text over tables of the streams' names, with the rule of each pair of streams.

        Args:
            began: By the place in FROM, the first batch whose rows count.
        """
        places = range(len(self.streams))
        conditions = [f"({self._holds(i, j)} OR {self._holds(j, i)})" for j in places for i in range(j)]
        conditions += [f"s{n}.batch >= {self.since} AND s{n}.batch < {self.until}" for n in places]
        counted = [
            f"(SELECT * FROM {NAMES[number - 1]} WHERE batch >= {began[n]})"
            for n, number in enumerate(self.streams)
        ]
        where = " AND ".join([*self.conditions, *(each.format(*counted) for each in conditions)])
        sources = ", ".join(f"{NAMES[number - 1]} s{n}" for n, number in enumerate(self.streams))
        selected = ", ".join(f"s{n}.r" for n in places)
        return f"SELECT {selected} FROM {sources} WHERE {where}"


@st.composite
def written(draw: st.DrawFn, known: int, batches: int) -> WrittenRows:
    places = draw(st.integers(2, 4))
    streams = tuple(draw(st.integers(1, known)) for _ in range(places))
    order = draw(st.permutations(range(places)))
    keys = draw(st.sampled_from((("k",), ("k",), ("k", "g"), ("k", "j"))))
    # Some streams are joined by a condition alone.
    keyless = draw(st.sampled_from(((), (), (1,), (places - 1,), tuple(range(1, places)))))
    conditions = []
    for place, (i, j) in enumerate(pairwise(order), 1):
        if place in keyless:
            conditions.append(draw(st.sampled_from(THETA)).format(i, j))
        else:
            of_pair = (draw(st.sampled_from(keys)),) if keys == ("k", "j") else keys
            conditions += [f"s{i}.{c} = s{j}.{c}" for c in of_pair]
    some = [f"s{n}.v < {limit}" for n in range(places) for limit in (0.3, 0.7)]
    some += [f"s{i}.v <= s{j}.v" for i in range(places) for j in range(places) if i != j]
    if places > 2:
        some.append("s1.ts BETWEEN s0.ts - INTERVAL '2' SECOND AND s0.ts + INTERVAL '4' SECOND")
        some.append(f"s{places - 1}.ts - INTERVAL '1' SECOND < s0.ts")
    conditions += draw(st.lists(st.sampled_from(some), max_size=2, unique=True))
    by_key = ((), keys) if keys != ("k", "j") and not keyless else ((),)
    size = st.sampled_from((1, 2, 3, 7, 20))
    rows = tuple(draw(st.none() | st.tuples(st.sampled_from(by_key), size)) for _ in range(places))
    since = draw(st.integers(0, batches - 1))
    until = draw(st.integers(since + 1, batches + ENDING))
    windows = tuple(draw(st.sampled_from((1, 2, 5, 13))) for _ in range(places))
    return WrittenRows(streams, windows, tuple(conditions), since, until, rows)


def expected(ran: Ran, query: WrittenRows, bound: Query) -> Counter[Combination]:
    """Return the results of a query: those of DuckDB that are decided before the query leaves."""
    streams = {s.alias: step for step in steps(bound) for s in (step.a, step.b)}
    began = [_began(ran, query, family_of(streams[f"s{n}"])) for n in range(len(query.streams))]
    with duckdb.connect() as duck:
        for number, table in ran.tables.items():
            punctual = [r not in ran.runner.late.get(number, ()) for r in table.column("r").to_pylist()]
            batches = pa.array(ran.placed[number], pa.int64())
            duck.register(
                NAMES[number - 1],
                table.append_column("batch", batches).filter(pa.array(punctual, pa.bool_())),
            )
        found = duck.sql(query.sql_of(began)).fetchall()
    return Counter(each for each in found if _is_decided(ran, query, bound, each))


def _began(ran: Ran, query: WrittenRows, family: str) -> int:
    """Return the batch in which a family began that a query finds when it comes."""
    batch = query.since
    while batch and any(f.id == family for f in ran.plans[batch - 1].families):
        batch -= 1
    return batch


def _is_decided(ran: Ran, query: WrittenRows, bound: Query, rows: Combination) -> bool:
    """Return whether the last step of a combination runs before its query is gone."""
    times, batches = {}, {}
    for place, (number, row) in enumerate(zip(query.streams, rows, strict=True)):
        times[f"s{place}"] = ran.tables[number].column("ts").cast(pa.int64())[row].as_py()
        batches[f"s{place}"] = int(ran.placed[number][row])
    last = min(query.until, len(ran.watermarks))

    def decided(step: Query) -> tuple[int | None, int]:
        """Return the batch in which a step gives the combination, and its newest event time."""
        at, newest = 0, 0
        waits = []
        for side, before in ((step.a, step.left), (step.b, step.right)):
            came, time = (batches[side.alias], times[side.alias]) if before is None else decided(before)
            if came is None:
                return None, 0
            at, newest = max(at, came + is_exchanged(side.stream_id)), max(newest, time)
            if side.clock != "time" or any(is_rank(name) for name, _ in side.expires):
                waits.append(side.stream_id)
        passed = (n for n in range(at, last) if _is_past(ran.watermarks[n], waits, newest))
        return next(passed, None), newest

    return decided(bound)[0] is not None


def _is_past(watermarks: Mapping[int, int | None], waits: list[int], newest: int) -> bool:
    """Return whether the watermarks of streams are past a time."""
    reached = [watermarks.get(stream) for stream in waits]
    return all(time is not None and time > newest for time in reached)


@settings(SETTINGS, max_examples=examples(80, short=10))
@given(data=st.data())
def test_combinations_in_windows_of_rows_are_those_of_duckdb(data: st.DataObject) -> None:
    ran = run_drawn(data, written, batches=5, rows_of_stream=(0, 25), buckets=5, ending=ENDING)
    for query, each in zip(ran.queries, ran.bound, strict=True):
        assert isinstance(query, WrittenRows)
        found = {} if each is None else ran.runner.rows_of(each)
        wanted = {} if each is None else expected(ran, query, each)
        assert found == wanted, query.cql


@st.composite
def written_trees(draw: st.DrawFn, known: int, batches: int) -> WrittenRows:
    """Return a query over four or five streams, joined by a tree that has pairs on both sides of a step."""
    places = draw(st.integers(4, known))
    streams = tuple(draw(st.permutations(range(1, known + 1)))[:places])
    keys = draw(st.sampled_from((("k",), ("k", "g"))))
    conditions = [f"s{i}.{c} = s{i + 1}.{c}" for i in range(places - 1) for c in keys]
    some = [*(f"s{n}.v < 0.7" for n in range(places)), "s0.v <= s3.v", "s2.ts >= s1.ts"]
    conditions += draw(st.lists(st.sampled_from(some), max_size=2, unique=True))
    by_key, size = st.sampled_from(((), keys)), st.sampled_from((1, 2, 3, 7, 20))
    rows = tuple(draw(st.none() | st.tuples(by_key, size)) for _ in range(places))
    since = draw(st.integers(0, batches - 1))
    until = draw(st.integers(since + 1, batches + ENDING))
    windows = tuple(draw(st.sampled_from((1, 2, 5, 13))) for _ in range(places))
    names = draw(st.permutations([f"s{n}" for n in range(places)]))
    trees = ["(({0}, {1}), ({2}, {3}))"]
    if places == 5:
        trees = ["(({0}, {1}), (({2}, {3}), {4}))", "((({0}, {1}), ({2}, {3})), {4})"]
    tree = draw(st.sampled_from(trees)).format(*names)
    return WrittenRows(streams, windows, tuple(conditions), since, until, rows, f"TREE {tree}")


@settings(SETTINGS, max_examples=examples(80, short=10))
@given(data=st.data())
def test_windows_of_rows_in_bushy_trees_are_those_of_duckdb(data: st.DataObject) -> None:
    ran = run_drawn(
        data,
        written_trees,
        batches=4,
        rows_of_stream=(5, 22),
        buckets=4,
        ending=ENDING,
        known=(4, 5),
        partitionings=("hash",),
    )
    for query, each in zip(ran.queries, ran.bound, strict=True):
        assert isinstance(query, WrittenRows)
        wanted = {} if each is None else expected(ran, query, each)
        event(f"counted {sum(map(bool, query.rows))}, results {bool(wanted)}")
        assert (ran.runner.rows_of(each) if each is not None else {}) == wanted, query.cql


def planned(query: WrittenRows) -> tuple[Recorder, Query, Plan]:
    streams = {n: stream(n) for n in sorted(set(query.streams))}
    bound = bind(query.cql, {s.name: s for s in streams.values()}, name="q", query_id=1)
    return Recorder(streams, 2, slack_us=None, stored=True), bound, build_plan([bound], streams)


def rows_at(times_s: list[int], first: int = 0) -> pa.Table:
    """Return rows of one key."""
    count = len(times_s)
    return pa.table(
        {
            "ts": pa.array(np.array(times_s) * SECOND_US, pa.timestamp("us")),
            "k": pa.array(np.ones(count), pa.int64()),
            "g": pa.array(np.ones(count), pa.int32()),
            "v": np.zeros(count),
            "r": np.arange(first, first + count),
            "j": pa.array(np.ones(count), pa.int64()),
            "_pos": np.arange(first, first + count),
        }
    )


def test_a_later_step_holds_the_pairs_that_are_in_a_window_of_rows() -> None:
    keys = ("s0.k = s1.k", "s1.k = s2.k")
    runner, bound, plan = planned(WrittenRows((1, 2, 3), (1, 1, 1), keys, rows=(((), 5), ((), 8), None)))
    (step,) = (f for f in plan.families if is_intermediate(f.stream_a))
    for batch in range(60):
        came = {n: rows_at([2 * batch, 2 * batch + 1], 2 * batch) for n in (1, 2, 3)}
        runner.step(came, [plan] if not batch else [])
    # Of each of the last 5 rows of A there is a pair with each of the last 8 rows of B; the rows of the last
    # time wait for their ranks.
    held = sum(map(len, runner.state_rows(step.id, "a")))
    assert 20 <= held <= 1.05 * 5 * 8
    assert runner.rows_of(bound)


def test_rows_of_before_a_reset_combine_no_more() -> None:
    """Also rows of streams that have not gone back, because ranks begin again."""
    keys = ("s0.k = s1.k", "s1.k = s2.k")
    runner, bound, plan = planned(WrittenRows((1, 2, 3), (9, 9, 9), keys, rows=(((), 5), None, None)))
    runner.step({n: rows_at([100, 101]) for n in (1, 2, 3)}, [plan])
    runner.step({}, heartbeats=[Heartbeat(3, None)])
    runner.step({n: rows_at([102], first=2) for n in (1, 2, 3)})
    runner.step({}, heartbeats=[Heartbeat(n, 200 * SECOND_US) for n in (1, 2, 3)])
    found = runner.rows_of(bound)
    assert {row for row in found if 2 in row} == {(2, 2, 2)}
