"""Runs of random joins of several streams: rows, queries that come and go, moves and crashes, as drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import get_args

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from catalog.values.control import Heartbeat
from catalog.values.plan import Partitioning, Plan
from catalog.values.query import Query
from catalog.values.statistics import Profile
from catalog.values.stream import Stream
from planner.bind.bind import bind
from planner.bind.keys.step_keys import ChooseOrder, Joining, JoinShape
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.costs.calibration.shipped import SHIPPED
from planner.errors import InvalidWindow
from planner.strategies.strategies import STRATEGIES
from planner.trees.order_costs import OrderCosts
from planner.trees.order_rates import OrderRates
from tests.operators.durable import Crash
from tests.operators.rehash.test_rehash import NUMBERS, moving
from tests.operators.steps.combinations import DurableRecorder, Recorder, Written, rows, stream

#: Later than all rows.
END_US = 1_000_000_000_000
PARTITIONINGS: tuple[Partitioning, ...] = ("hash", "replicate")


@dataclass(frozen=True, slots=True)
class Ran:
    """A run that is over.

    Attributes:
        batches: Batches with rows.
        queries: The queries as written.
        bound: The same, bound; None where the bounds of a query exclude each other.
        tables: Rows by number of the stream.
        placed: Batch of each row.
        runner: What ran them.
        plans: Plan of each batch.
        watermarks: Watermarks at the end of each batch, by stream id.
    """

    batches: int
    queries: Sequence[Written]
    bound: Sequence[Query | None]
    tables: Mapping[int, pa.Table]
    placed: Mapping[int, Sequence[int]]
    runner: Recorder
    plans: Sequence[Plan]
    watermarks: Sequence[Mapping[int, int | None]]


def run_drawn(
    data: st.DataObject,
    written: Callable[[int, int], st.SearchStrategy[Written]],
    *,
    batches: int,
    rows_of_stream: tuple[int, int],
    buckets: int,
    ending: int = 0,
    known: tuple[int, int] = (2, 4),
    any_order: Callable[[np.random.Generator, JoinShape], Joining] | None = None,
    partitionings: Sequence[Partitioning] = PARTITIONINGS,
) -> Ran:
    """Draw a run and carry it out.

    Args:
        data: Draws it.
        written: Strategy of a query, given the number of streams and of batches.
        batches: Batches at most.
        rows_of_stream: Rows of each stream, at least and at most.
        buckets: Buckets at most.
        ending: Further batches, after all streams have ended.
        known: Streams, at least and at most.
        any_order: Draws how a query joins its streams; None: in any order, one stream after the other.
        partitionings: Ways to spread keys over buckets.
    """
    most = data.draw(st.integers(*known), "streams")
    batches = data.draw(st.integers(1, batches), "batches")
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), "seed"))
    key = data.draw(st.sampled_from(("bigint", "string")), "key")
    disorder = data.draw(st.integers(0, 3), "disorder")
    streams = {n: stream(n, key, data.draw(st.integers(0, disorder)) * 1_000_000) for n in range(1, most + 1)}
    counts = {n: int(rng.integers(rows_of_stream[0], rows_of_stream[1] + 1)) for n in streams}
    tables = {n: rows(rng, streams[n], counts[n], 20, disorder, 3) for n in streams}
    placed = {n: np.sort(rng.integers(0, batches, t.num_rows)) for n, t in tables.items()}
    queries = data.draw(st.lists(written(most, batches), min_size=1, max_size=4), "queries")
    by_name = {s.name: s for s in streams.values()}
    order = partial(any_order or _any_order, rng)
    bound = [_bound(query, by_name, number, order) for number, query in enumerate(queries, 1)]
    strategy = data.draw(st.sampled_from(sorted(STRATEGIES)), "strategy")
    # A family of two streams alone spreads its keys; then they stay spread.
    partitioning = data.draw(st.sampled_from(partitionings), "partitioning")
    crash = data.draw(st.sampled_from(get_args(Crash)), "crash")
    buckets = data.draw(st.integers(1, buckets), "buckets")
    slack_us = data.draw(st.sampled_from((0, None)), "slack")
    runner = (
        Recorder(streams, buckets, slack_us=slack_us, stored=data.draw(st.booleans(), "stored"))
        if crash == "never"
        else DurableRecorder(streams, buckets, slack_us=slack_us, crash=crash)
    )
    move = moving(data.draw(NUMBERS, "buckets after each batch") if crash == "never" else [0])
    plan: Plan | None = None
    in_force, watermarks = [], []
    for batch in range(batches + ending):
        running = [
            b for w, b in zip(queries, bound, strict=True) if b is not None and w.since <= batch < w.until
        ]
        plans = []
        if plan is None or {q.id for f in plan.families for q in f.queries} != {q.id for q in running}:
            objective = Objective(strategy, partitioning=partitioning)
            plan = build_plan(running, streams, plan, objective=objective)
            plans.append(plan)
        flowing = {s.id for s in plan.streams}
        came = {n: t.filter(placed[n] == batch) for n, t in tables.items() if n in flowing}
        ended = [Heartbeat(n, END_US) for n in flowing] if batch == batches else []
        runner.step(came, plans, ended)
        move(runner, None)
        in_force.append(plan)
        watermarks.append(runner.state[0].watermarks())
    return Ran(batches, queries, bound, tables, placed, runner, in_force, watermarks)


def _bound(query: Written, streams: Mapping[str, Stream], number: int, order: ChooseOrder) -> Query | None:
    try:
        return bind(query.cql, streams, name=f"q{number}", query_id=number, choose=order)
    except InvalidWindow:
        return None


def _any_order(rng: np.random.Generator, shape: JoinShape) -> Joining:
    """Return any order in which each stream has an equal column with those before it.

    Any pairs that need not rest do not rest in one of two cases.
    """
    costs = OrderCosts(OrderRates.of(shape, Profile()), SHIPPED)
    possible = [p for p in permutations(range(len(shape.streams))) if costs.of(p) is not None]
    order = possible[int(rng.integers(len(possible)))]
    again: set[int] = set()
    for step in range(2, len(order)):
        if rng.random() < 0.5 and costs.of(order, again | {step}) is not None:
            again.add(step)
    found = costs.of(order, again)
    assert found is not None, "each step was possible"
    return found.joining
