"""Splits and merges of slices named by where they meet."""

from __future__ import annotations

from typing import Literal

import pytest

from catalog.values.migration import ExplicitStep
from catalog.values.plan import Boundaries, FamilyPlan, Strategy
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.errors import NoSharedChain, UnknownBoundary
from planner.families.texts.display import family_text
from service.planning.migrating.explicit_steps import stepped_boundaries
from tests.builders import SECOND_US, a_query_s
from tests.planner.values import STREAMS

LOW = '"v" < 0.2'
QUERIES = [a_query_s(1, 10), a_query_s(2, 30, 20, filter_a=LOW)]


def stepped(*steps: ExplicitStep, strategy: Strategy = "mem-opt") -> Boundaries:
    plan = build_plan(QUERIES, STREAMS, objective=Objective(strategy, cost_model="paper"))
    family: FamilyPlan = plan.families[0]
    return stepped_boundaries(family, family_text(family, {s.id: s.name for s in plan.streams}), steps)


def step(kind: Literal["split", "merge"], seconds: float, side: str | None = None) -> ExplicitStep:
    return ExplicitStep(kind, round(seconds * SECOND_US), side, (f"{kind}s", 0))


def seconds(boundaries: Boundaries) -> tuple[list[float], list[float]]:
    return [at / SECOND_US for at in boundaries.a], [at / SECOND_US for at in boundaries.b]


def test_a_step_without_a_side_is_for_both() -> None:
    assert seconds(stepped(step("split", 15))) == ([10, 15, 30], [10, 15, 20])
    assert seconds(stepped(step("merge", 10))) == ([30], [20])


def test_a_side_is_named_by_its_stream_or_letter() -> None:
    assert seconds(stepped(step("split", 15, "A"))) == ([10, 15, 30], [10, 20])
    assert seconds(stepped(step("merge", 10, "b"))) == ([10, 30], [20])


def test_merges_come_before_splits() -> None:
    assert seconds(stepped(step("split", 10, "A"), step("merge", 10, "A"))) == ([10, 30], [10, 20])


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (
            step("merge", 15, "A"),
            "no slices of A meet at 15s\n  detail: Slices of A end at 10s, 30s.\n  hint: Merge at 10s.",
        ),
        (
            step("merge", 30, "A"),
            "slices of A cannot be merged at 30s, the end of the chain\n"
            "  detail: Slices of A end at 10s, 30s.\n  hint: Merge at 10s.",
        ),
        (
            step("split", 10),
            "slices of A meet at 10s already\n  detail: Slices of A end at 10s, 30s.",
        ),
        (
            step("split", 25),
            "the chain of B has no slice around 25s\n"
            "  detail: Slices of B end at 10s, 20s.\n  hint: Split it between 0s and 20s.",
        ),
        (
            step("split", 5, "C"),
            '"C" is not a side of the family\n  hint: Known sides: A, B.',
        ),
    ],
)
def test_a_place_that_is_not_there_is_refused_and_what_is_there_named(
    wanted: ExplicitStep, message: str
) -> None:
    with pytest.raises(UnknownBoundary) as caught:
        stepped(wanted)
    assert str(caught.value) == message
    assert caught.value.path[0] == f"{wanted.kind}s"


@pytest.mark.parametrize("strategy", ["unshared", "pullup"])
def test_joins_that_are_no_chain_cannot_be_split(strategy: Strategy) -> None:
    with pytest.raises(NoSharedChain) as caught:
        stepped(step("split", 5), strategy=strategy)
    assert str(caught.value) == (
        f'family "A.k = B.k" has no chain to split or merge: its strategy is {strategy}\n'
        "  hint: Migrate it to mem-opt or cpu-opt first."
    )
