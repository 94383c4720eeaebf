"""Scrambling factors that change while rows come: passed values stay passed, and no pair in order is lost."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.stream import Order
from operators.orders.order_progress import OrderProgress, following, ordered_rows
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from tests.examples import examples
from tests.operators.cases import SETTINGS
from tests.operators.harness import Runner
from tests.operators.test_orders import Row, ordered_stream, rows_in_disorder, table_of

SCRAMBLES = st.sampled_from((0, 1, 3, 9, None))


@settings(SETTINGS, max_examples=examples(160))
@given(st.data(), st.lists(SCRAMBLES, min_size=2, max_size=6), rows_in_disorder(), rows_in_disorder())
def test_pairs_of_rows_in_order_come_out_under_any_factors(
    data: st.DataObject, scrambles: list[int | None], left: list[Row], right: list[Row]
) -> None:
    rows = {1: left, 2: right}
    streams = {n: ordered_stream(n, name, "bigint", Order("e", 3)) for n, name in ((1, "A"), (2, "B"))}
    query = replace(
        bind("SELECT a.v AS v FROM A a JOIN B b ON a.e = b.e", {s.name: s for s in streams.values()}), id=1
    )
    plan = build_plan([query], streams)
    runner = Runner(streams, data.draw(st.integers(1, 2)), stored=data.draw(st.booleans()))
    at = {1: 0, 2: 0}
    passed: dict[int, int] = {}
    for batch, scramble in enumerate(scrambles):
        if batch:
            streams[1] = replace(streams[1], order=Order("e", scramble))
            flowing = tuple(streams[s.id] for s in plan.streams)
            plan = replace(plan, version=plan.version + 1, streams=flowing)
        tables = {}
        for n in (1, 2):
            count = data.draw(st.integers(0, 12))
            tables[n] = table_of(streams[n], rows[n][at[n] : at[n] + count], at[n])
            at[n] += tables[n].num_rows
        runner.step(tables, [plan])
        for n, state in runner.state[0].streams.items():
            if state.order is not None and state.order.passed is not None:
                assert state.order.passed >= passed.get(n, state.order.passed)
                passed[n] = state.order.passed
    broken = {(side, pos) for _, side, pos in runner.violating}
    wanted = Counter(
        (1, x, y)
        for x in range(at[1])
        for y in range(at[2])
        if rows[1][x][0] is not None and rows[1][x][0] == rows[2][y][0] and not {("a", x), ("b", y)} & broken
    )
    assert runner.results == wanted


def test_another_column_or_direction_begins_anew() -> None:
    came = OrderProgress.begun(1).after_rows(ordered_rows(np.arange(5), 1))
    assert came.passed == 3
    old = Order("e", 1)
    assert following(came, old, Order("e", 4)) == replace(came, scramble=4)
    assert following(came, old, Order("e", 1, descending=True)) == OrderProgress.begun(1)
    assert following(came, old, Order("g", None)) == OrderProgress.begun(None)
    assert following(came, old, None) is None
    monitored = following(came, old, Order("e", None))
    assert monitored is not None
    assert (monitored.monitored, monitored.scramble, monitored.passed) == (True, 64, 3)
    assert following(monitored, Order("e", None), Order("e", None)) == monitored
