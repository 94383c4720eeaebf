"""One meaning of a migration: where operators put rows is where its primitives say that slices go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.plan import Boundaries, Plan, Strategy
from catalog.values.primitive import Merge, Primitive, Split
from catalog.values.query import Query
from operators.segments.layout import SIDES
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.build.transitions.diff import MovedPiece, Shape, diff, shapes
from tests.builders import a_query, a_stream
from tests.examples import examples
from tests.operators.harness import Runner
from tests.operators.queries import Row, a_table
from tests.planner.applied import apply_primitives

STREAMS = {1: a_stream(1), 2: a_stream(2)}
#: Event time of the newest row, and how far apart rows are: one row in each unit of time, for 120 units.
NEWEST, ROWS = 1_000, 120
FAMILY = build_plan([a_query(1, 10)], STREAMS).families[0].id

windows = st.sampled_from([5, 10, 20, 30, 60, 90])
some_queries = st.lists(st.tuples(windows, windows), min_size=1, max_size=4).map(
    lambda found: [a_query(n, a, b) for n, (a, b) in enumerate(found, start=1)]
)
ends = st.lists(st.sampled_from([3, 7, 15, 25, 45, 80]), unique=True, max_size=4).map(
    lambda found: tuple(sorted(found))
)
pins = st.one_of(st.just(Boundaries()), st.builds(Boundaries, ends, ends))


def planned(queries: list[Query], pinned: Boundaries, previous: Plan | None = None) -> Plan:
    return build_plan(
        queries, STREAMS, previous, objective=Objective(pinned={FAMILY: pinned} if pinned else {})
    )


def filled(plan: Plan) -> Runner:
    """Rows at every unit of time on both sides, cross-purged to where they belong."""
    runner = Runner(STREAMS)
    rows = {
        stream: a_table(
            STREAMS[stream],
            [Row(n, NEWEST - ROWS + 1 + n, {"k": 1, "m": None, "v": n, "w": None}) for n in range(ROWS)],
        )
        for stream in STREAMS
    }
    runner.step(rows, [plan])
    return runner


def rows_per_slice(runner: Runner, side: str) -> list[int]:
    return [len(found) for found in runner.state_rows(FAMILY, side)]


def with_rows(shape: Shape, runner: Runner) -> Shape:
    """Give the slices of a shape the rows that operators hold in them."""
    for side in ("a", "b"):
        counts = rows_per_slice(runner, side)
        pieces = tuple(replace(p, rows=float(n)) for p, n in zip(shape.side(side), counts, strict=True))
        shape = shape.with_side(side, pieces)
    return shape


def landed(pieces: tuple[MovedPiece, ...], steps: Sequence[Primitive]) -> list[float]:
    """Follow the rows of a side from slice to slice, before any cross-purge.

    What a split finds in a slice stays in its first part, but for rows that a slice behind the boundary held.
    """
    held = [(p.w_start_us, p.w_end_us, [(p.w_start_us, p.rows)]) for p in pieces]
    for step in steps:
        at = getattr(step, "at_us", 0)
        for i, (start, end, rows) in enumerate(held):
            if isinstance(step, Split) and start < at < end:
                stay, go = [r for r in rows if r[0] < at], [r for r in rows if r[0] >= at]
                held[i : i + 1] = [(start, at, stay), (at, end, go)]
                break
            if isinstance(step, Merge) and end == at:
                held[i : i + 2] = [(start, held[i + 1][1], rows + held[i + 1][2])]
                break
    return [sum(n for _, n in rows) for _, _, rows in held]


@settings(deadline=None, max_examples=examples(150))
@given(some_queries, pins, pins)
def test_operators_migrate_as_the_primitives_say(
    before: list[Query], first: Boundaries, second: Boundaries
) -> None:
    old = planned(before, first)
    runner = filled(old)
    new = planned(before, second, old)
    steps = diff(old, new)
    shape = with_rows(shapes(old)[FAMILY, "shared"], runner)
    expected = apply_primitives({(FAMILY, "shared"): shape}, steps)[FAMILY, "shared"]
    runner.state[0].activate(new)
    for side in SIDES:
        own = [s for s in steps if getattr(s, "side", None) == side]
        assert rows_per_slice(runner, side) == landed(shape.side(side), own)
        slices = runner.state[0].families[FAMILY].chains["shared"].slices[side]
        assert [(s.w_start_us, s.w_end_us) for s in slices] == [
            (p.w_start_us, p.w_end_us) for p in expected.side(side)
        ]
    # The next batch cross-purges: rows lie evenly, so they come to where the shape shares them out.
    runner.plan = new
    runner.step({}, [])
    for side in SIDES:
        assert rows_per_slice(runner, side) == [p.rows for p in expected.side(side)]


@pytest.mark.parametrize("strategy", ["pullup", "mem-opt"])
def test_a_chain_that_is_cut_shorter_drops_the_rows_beyond(strategy: Strategy) -> None:
    short, long = a_query(1, 10), a_query(2, 60)
    old = build_plan([short, long], STREAMS, objective=Objective(strategy, cost_model="paper"))
    runner = filled(old)
    new = build_plan([short], STREAMS, old, objective=Objective(strategy, cost_model="paper"))
    runner.step({}, [new])
    assert rows_per_slice(runner, "a") == [10]
    left = build_plan([short], STREAMS, old, left={FAMILY: Boundaries((60,), (60,))})
    runner = filled(old)
    runner.step({}, [left])
    assert rows_per_slice(runner, "a") == [10, 0]
