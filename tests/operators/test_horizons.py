"""Horizons: rows of earlier batches below them leave the state, under every strategy."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from catalog.values.control import Horizon
from tests.operators.cases import SETTINGS, Case, cases, check
from tests.operators.harness import Runner
from tests.operators.oracle import NestedLoops


@st.composite
def cases_with_horizons(draw: st.DrawFn) -> Case:
    """Draw a case with some horizons, near the event times of the batch that they come with."""
    case = draw(cases(activations=True))
    steps = []
    for step in case.steps:
        horizons = ()
        if step.rows and draw(st.integers(0, 2)) == 2:
            newest = max(row.ts for _, row in step.rows)
            horizons = (Horizon(draw(st.integers(1, 3)), newest - draw(st.integers(-3, 60))),)
        steps.append(replace(step, horizons=horizons))
    return replace(case, steps=tuple(steps))


def held_below(runner: Runner, horizon: Horizon) -> set[int]:
    """Return the positions of the rows that slices hold below a horizon."""
    held = set()
    for joins in (joins for bucket in runner.state for joins in bucket.families.values()):
        streams = {"a": joins.family.plan.stream_a, "b": joins.family.plan.stream_b}
        for _, side, _, state in joins.slices():
            if streams[side] == horizon.stream_id:
                for segment in state.segments:
                    held.update(segment.pos[segment.ts < horizon.time_us].tolist())
    return held


@SETTINGS
@given(cases_with_horizons())
def test_rows_below_a_horizon_are_in_no_later_pair_and_hold_no_state(case: Case) -> None:
    def none_is_held(runner: Runner, oracle: NestedLoops) -> None:
        step = case.steps[oracle.batch - 1]
        for horizon in step.horizons:
            # A horizon may be ahead of the watermark here, so new rows may be below it.
            arrived = {row.pos for stream_id, row in step.rows if stream_id == horizon.stream_id}
            assert held_below(runner, horizon) <= arrived

    check(case, none_is_held)
