"""Rows that are handed on many times: as many reasons as ways from query to query, or a bit of their own.

Two queries that are updated in turn, each time with another filter: the rows of generation n came to it by
way of generation n-1 or n-2, so the ways are as many as a Fibonacci number.
"""

from __future__ import annotations

import itertools

import pytest

from catalog.values.plan import Strategy
from catalog.values.query import Query
from operators.lineage.entitlement import MOST_TERMS, SETTLED_BITS, Term
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from tests.builders import a_query, a_stream
from tests.operators.cases import ALL_STRATEGIES
from tests.operators.durable import Crash
from tests.operators.queries import UPPER_BOUNDS, Row
from tests.operators.world import World

STREAMS = {1: a_stream(1), 2: a_stream(2)}
LONG_US = 100_000


def generations(world: World, count: int, strategy: Strategy, crash: Crash = "never") -> int:
    """Replace one of two queries before each batch; return the most terms that a query ever had."""
    running: list[Query] = []
    positions = itertools.count()
    most = 0
    for n in range(count):
        # Every filter is another one; rows pass most of them.
        new = a_query(
            n + 1, LONG_US - n, filter_a=UPPER_BOUNDS[n], filter_b=None, columns_a=("v",), backfill="state"
        )
        running = [*running[-1:], new]
        plan = build_plan(running, STREAMS, world.plan, objective=Objective(strategy, cost_model="paper"))
        rows = {i: [_row(next(positions), 10 * n + i, n + 3 * i)] for i in (1, 2)}
        world.batch(rows, [plan], running, crash=crash)
        most = max([most, *(len(t) for t in terms_of_a(world).values())])
    return most


def terms_of_a(world: World) -> dict[int, tuple[Term, ...]]:
    return {
        query_id: terms
        for sides in world.runner.state[0].terms.values()
        for query_id, terms in sides["a"].items()
    }


def _row(pos: int, ts: int, v: int) -> Row:
    return Row(pos, ts, {"k": 1, "m": None, "v": v, "w": None})


@pytest.mark.parametrize("strategy", ALL_STRATEGIES)
def test_reasons_stay_few_and_right_over_twenty_generations(strategy: Strategy) -> None:
    world = World(STREAMS)
    most = generations(world, 20, strategy)
    assert MOST_TERMS // 2 < most <= MOST_TERMS
    assert any(bit >= SETTLED_BITS for terms in terms_of_a(world).values() for t in terms for bit in t.bits)


def test_settled_rows_survive_crashes() -> None:
    generations(World(STREAMS, buckets=2, slack_us=None), 16, "mem-opt", "before-commit")


def test_terms_end_with_the_last_row_that_they_can_hold() -> None:
    world = World(STREAMS)
    generations(world, 8, "mem-opt")
    assert any(terms_of_a(world).values())
    far = 10 * LONG_US
    world.batch({1: [_row(1_000, far, 0)], 2: [_row(1_001, far, 0)]})
    world.batch({}, [build_plan(world.queries, STREAMS, world.plan)], world.queries)
    assert not any(terms_of_a(world).values())
