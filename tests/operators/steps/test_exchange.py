"""Joins of several streams on different keys give what one DuckDB join over all rows gives."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.operators.cases import SETTINGS
from tests.operators.steps.combinations import Written, expected
from tests.operators.steps.drawn import run_drawn

WINDOWS_S = st.sampled_from((2, 5, 8, 13, 21))


@st.composite
def written(draw: st.DrawFn, known: int, batches: int) -> Written:
    """Return a query whose streams form a tree of equal columns, any of two of each stream.

    Up to two streams are joined by another condition instead.
    """
    count = draw(st.integers(2, 5))
    streams = tuple(draw(st.integers(1, known)) for _ in range(count))
    order = draw(st.permutations(range(count)))
    column = st.sampled_from(("k", "j"))
    conditions = []
    theta = ("s{0}.v BETWEEN s{1}.v - 0.2 AND s{1}.v", "s{0}.v + s{1}.v < 0.4", "s{0}.v < s{1}.v - 0.6")
    keyless = draw(st.lists(st.integers(1, 6), max_size=2, unique=True))
    for place, joined in enumerate(order[1:], 1):
        other = draw(st.sampled_from(order[:place]))
        if place in keyless:
            conditions.append(draw(st.sampled_from(theta)).format(other, joined))
        else:
            conditions.append(f"s{other}.{draw(column)} = s{joined}.{draw(column)}")
        if draw(st.integers(0, 4)) == 0:
            conditions.append(f"s{other}.g = s{joined}.g")
    some = st.sampled_from(
        [
            *(f"s{n}.v < 0.7" for n in range(count)),
            f"s0.v + s{count - 1}.v < 1.2",
            "s1.ts BETWEEN s0.ts - INTERVAL '2' SECOND AND s0.ts + INTERVAL '13' SECOND",
        ]
    )
    conditions += draw(st.lists(some, max_size=2, unique=True))
    since = draw(st.integers(0, batches - 1))
    until = draw(st.integers(since + 1, batches + 3))
    windows = tuple(draw(WINDOWS_S) for _ in range(count))
    return Written(streams, windows, tuple(conditions), since, until)


@settings(SETTINGS, max_examples=examples(80, short=10))
@given(data=st.data())
def test_combinations_of_different_keys_are_those_of_duckdb(data: st.DataObject) -> None:
    ran = run_drawn(data, written, batches=6, rows_of_stream=(5, 30), buckets=5)
    runner, batches = ran.runner, ran.batches
    while runner.sent:
        runner.step({})
        assert runner.batch <= batches + 4, "each exchange takes one batch"
    for query, each in zip(ran.queries, ran.bound, strict=True):
        assert each is not None
        # Nobody leaves after the last batch with rows.
        lasting = replace(query, until=1 << 30) if query.until >= batches else query
        assert runner.rows_of(each) == expected(lasting, ran.tables, ran.placed, runner.late, each), query.cql
