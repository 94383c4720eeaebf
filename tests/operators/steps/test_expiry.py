"""Rows of intermediates leave when no query can use them any more, each at a time of its own."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from catalog.steps import is_intermediate
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from tests.operators.steps.combinations import NAMES, SECOND_US, Recorder, Written, expected, stream

BATCHES = 8
ROWS = 40
SPAN_S = 5
KEYS = 30

ALIKE = [Written((1, 2, 3), (w, w, w), ("s0.k = s1.k", "s1.k = s2.k")) for w in (4, 9, 13)]
DIFFERENT = [
    Written((1, 2, 3), (16, 7, 9), ("s0.k = s1.k", "s1.k = s2.k")),
    Written((1, 2, 3), (3, 12, 5), ("s0.k = s1.k", "s1.k = s2.k", "s0.v < 0.5")),
]


def tables_of(rng: np.random.Generator) -> Mapping[int, pa.Table]:
    """Return rows in the order of their times, as many in each batch."""
    found = {}
    for number in (1, 2, 3):
        count = ROWS * BATCHES
        times = np.arange(count) * SPAN_S * SECOND_US // ROWS + rng.integers(0, 3, count)
        columns = {
            "ts": pa.array(np.sort(times), pa.timestamp("us")),
            "k": rng.integers(0, KEYS, count),
            "g": pa.array(np.zeros(count), pa.int32()),
            "v": rng.random(count),
            "r": np.arange(count),
            "j": np.zeros(count, dtype=np.int64),
            "_pos": np.arange(count),
        }
        found[number] = pa.table(columns)
    return found


def usable(queries: list[Written], tables: Mapping[int, pa.Table], batch: int) -> int:
    """Count the pairs of the first two streams that some query can still use after a batch."""
    conditions = []
    for query in queries:
        a, b, _ = query.windows_s
        until = f"least(epoch_us(s0.ts) + {a * SECOND_US}, epoch_us(s1.ts) + {b * SECOND_US})"
        inside = (
            f"s1.ts - s0.ts BETWEEN INTERVAL 0 SECOND AND INTERVAL {a * SECOND_US - 1} MICROSECOND "
            f"OR s0.ts - s1.ts BETWEEN INTERVAL 0 SECOND AND INTERVAL {b * SECOND_US - 1} MICROSECOND"
        )
        own = " AND ".join(c for c in query.conditions if "s2" not in c)
        conditions.append(f"(epoch_us(c.ts) < {until} AND ({inside}) AND {own})")
    with duckdb.connect() as duck:
        for number, table in tables.items():
            duck.register(NAMES[number - 1], table.slice(0, ROWS * (batch + 1)))
        rows = "A s0, B s1, (SELECT max(ts) AS ts FROM C) c"
        ((count,),) = duck.sql(f"SELECT count(*) FROM {rows} WHERE {' OR '.join(conditions)}").fetchall()
        return int(count)


@pytest.mark.parametrize("queries", [ALIKE, DIFFERENT, ALIKE + DIFFERENT], ids=["alike", "different", "both"])
def test_a_later_step_holds_what_some_query_can_use(queries: list[Written]) -> None:
    tables = tables_of(np.random.default_rng(3))
    streams = {n: stream(n) for n in tables}
    by_name = {s.name: s for s in streams.values()}
    bound = [bind(q.cql, by_name, name=f"q{n}", query_id=n) for n, q in enumerate(queries, 1)]
    plan = build_plan(bound, streams)
    (step,) = (f for f in plan.families if is_intermediate(f.stream_a))
    runner = Recorder(streams, 2, slack_us=None, stored=True)
    for batch in range(BATCHES):
        given = {n: t.slice(ROWS * batch, ROWS) for n, t in tables.items()}
        runner.step(given, [plan] if not batch else [])
        held = sum(map(len, runner.state_rows(step.id, "a")))
        needed = usable(queries, tables, batch)
        assert needed <= held <= 1.05 * needed
    assert held > 100
    placed = {n: np.arange(t.num_rows) // ROWS for n, t in tables.items()}
    for query, each in zip(queries, bound, strict=True):
        wanted = expected(query, tables, placed, {})
        assert len(wanted) > 50
        assert runner.rows_of(each) == wanted
