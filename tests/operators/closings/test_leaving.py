"""Rows of closed keys leave whenever their segment moves, is cut or is merged, although no search comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from catalog.values.policies.punctuation_policy import PunctuationPolicy
from catalog.values.query import UNBOUNDED_US, Query
from operators.bucket.counters import punctuation_counters, slice_table
from tests.builders import a_query
from tests.operators.closings.scenes import Scene


def without_searches(*queries: Query, stored: bool = False) -> Scene:
    """Return a scene in which stored rows are never searched for closed keys."""
    scene = Scene(query=queries[0])
    scene.runner.stored = stored
    scene.replan(*queries)
    (plan,) = scene._plans
    policy = PunctuationPolicy(purge_after=10**9)
    scene._plans = [replace(plan, families=tuple(replace(f, punctuations=policy) for f in plan.families))]
    return scene


def purged(scene: Scene) -> tuple[int, list[int]]:
    """Return the rows of a that the last batch purged because their key is closed, in all and per slice."""
    (bucket,) = scene.runner.state
    (counted,) = punctuation_counters(bucket.families)
    slices = [c.closed for c in slice_table(bucket.families, bucket.clocks).counters() if c.side == "a"]
    return counted.purged, slices


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(("closed", "leaves"), [((0, 1), {0, 1}), ((0,), set())])
def test_dead_rows_leave_a_segment_that_moves_if_that_pays(
    closed: Sequence[int], leaves: set[int], *, stored: bool
) -> None:
    scene = without_searches(a_query(1, 10), a_query(2, 100), stored=stored)
    scene.batch(a=[(5, key) for key in range(8)])
    scene.batch(b=[[key] for key in closed])
    assert scene.held("a") == set(range(8))
    assert scene.batch(b=[(16, 99)]) == set()
    assert scene.held("a") == set(range(8)) - leaves
    if not stored:
        assert purged(scene) == (len(leaves), [len(leaves), 0])
    assert scene.batch(b=[(17, key) for key in range(8)]) == {
        (key, key + 1 + len(closed)) for key in range(8) if key not in closed
    }
    assert scene.violating == {key + 1 + len(closed) for key in closed}


def test_a_segment_that_is_filtered_on_its_way_loses_all_dead_rows() -> None:
    scene = without_searches(a_query(1, 10), a_query(2, 100, filter_a='"v" + "k" < 8'), stored=True)
    scene.batch(a=[(5, key) for key in range(8)])
    scene.batch(b=[[0]])
    scene.batch(b=[(16, 99)])
    assert scene.held("a") == set(range(1, 7))


def test_dead_rows_leave_a_segment_that_is_cut() -> None:
    scene = without_searches(a_query(1, 10))
    scene.batch(a=[*((5, key) for key in range(4)), *((9, key) for key in range(8))])
    scene.batch(b=[[0]])
    scene.batch(b=[(16, 99)])
    assert scene.held("a") == set(range(5, 12))
    assert purged(scene) == (1, [1])


@pytest.mark.parametrize("stored", [False, True])
def test_dead_rows_leave_segments_that_are_merged(*, stored: bool) -> None:
    scene = without_searches(a_query(1, UNBOUNDED_US), stored=stored)
    for key in range(3):
        scene.batch(a=[(5, key), (5, key + 10)])
    scene.batch(b=[[0], [1], [11]])
    assert scene.held("a") == set(range(6))
    scene.batch(a=[(6, 20), (6, 21)])
    assert scene.held("a") == {1, 4, 5, 6, 7}
    (bucket,) = scene.runner.state
    (joins,) = bucket.families.values()
    assert [len(segment) for segment in joins.segments()] == [5]


def test_segments_that_are_merged_may_have_no_other_rows() -> None:
    scene = without_searches(a_query(1, UNBOUNDED_US))
    for key in range(3):
        scene.batch(a=[(5, key)])
    scene.batch(b=[[key] for key in range(3)])
    scene.batch(a=[(6, 3)], b=[[3]])
    # The last one's key is closed by the batch itself, after the merge.
    assert scene.held("a") == {3}
