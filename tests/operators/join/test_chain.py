from __future__ import annotations

from collections.abc import Sequence

import pytest

from catalog.values.query import UNBOUNDED_US, Query
from operators.join.chain import Chain
from operators.join.compiled_family import SLACK_DIVISOR, compile_family
from operators.join.family_joins import FamilyJoins
from operators.join.migration.migration import migrated
from operators.segments.segment import Segment
from tests.builders import a_query
from tests.operators.route_totals import route_totals
from tests.operators.segment_builders import STREAMS, a_family, a_segment

NO_TERMS: dict[str, dict[int, tuple[()]]] = {"a": {}, "b": {}}


def joins_of(*queries: Query, slack_us: int | None = 0) -> FamilyJoins:
    return FamilyJoins.empty(compile_family(a_family(*queries), 1, STREAMS, NO_TERMS, slack_us))


def the_chain(joins: FamilyJoins) -> Chain:
    (chain,) = joins.chains.values()
    return chain


def held(joins: FamilyJoins, side: str) -> list[list[int]]:
    """Return the event times in each slice."""
    slices = the_chain(joins).slices[side]
    return [sorted(t for s in state.segments for t in s.ts.tolist()) for state in slices]


def rows(times: Sequence[int], first_pos: int = 0) -> Segment:
    return a_segment([(1, t) for t in times], first_pos=first_pos)


def test_rows_move_from_slice_to_slice_as_the_opposite_watermark_passes_them() -> None:
    joins = joins_of(a_query(1, 5), a_query(2, 20))
    joins.process(rows([0, 3, 9]), None, {"a": None, "b": None})
    assert held(joins, "a") == [[0, 3, 9], []]
    joins.process(None, None, {"a": None, "b": 8})
    assert held(joins, "a") == [[9], [0, 3]]
    joins.process(None, None, {"a": None, "b": 22})
    assert held(joins, "a") == [[], [3, 9]]


def test_a_watermark_may_carry_a_row_over_several_slices_at_once() -> None:
    joins = joins_of(a_query(1, 1), a_query(2, 2), a_query(3, 50))
    joins.process(rows([0]), None, {"a": None, "b": 40})
    assert held(joins, "a") == [[], [], [0]]


def test_a_batch_does_not_purge_what_its_own_males_still_reach() -> None:
    """The watermark at the end of the batch is 100, but the batch brings a male of 9."""
    joins = joins_of(a_query(1, 10))
    joins.process(rows([0]), None, {"a": None, "b": None})
    pairs = joins.process(None, rows([9, 100]), {"a": None, "b": 100})
    assert route_totals(pairs.routes()).total() == 1
    assert held(joins, "a") == [[]]


def test_slack_is_a_fortieth_of_the_largest_bounded_window() -> None:
    bounded, unbounded = a_query(1, 80, 400), a_query(2, UNBOUNDED_US)
    assert the_chain(joins_of(bounded, unbounded, slack_us=None)).join.slacks["a"] == 10
    assert the_chain(joins_of(unbounded, slack_us=None)).join.slacks["a"] == 0
    assert SLACK_DIVISOR == 40


@pytest.mark.parametrize("windows", [(5, 20, 60), (60,), (7, 60), (100, 200), (1, 2)])
def test_migration_keeps_rows_no_deeper_than_they_were(windows: tuple[int, ...]) -> None:
    """The slices of the next plan purge on; no row may skip one whose window still reaches it."""
    joins = joins_of(a_query(1, 10), a_query(2, 30), a_query(3, 60))
    joins.process(rows([0, 25, 45]), None, {"a": None, "b": 50})
    assert held(joins, "a") == [[45], [25], [0]]
    queries = [a_query(n, w) for n, w in enumerate(windows, 1)]
    after = migrated(joins, joins_of(*queries).family, frozenset())
    for state in the_chain(after).slices["a"]:
        assert all(50 - t >= state.w_start_us for s in state.segments for t in s.ts.tolist())
    assert sorted(t for times in held(after, "a") for t in times) == [0, 25, 45]
    after.process(None, None, {"a": None, "b": 50})
    expected = [[t for t in (0, 25, 45) if start <= 50 - t < end] for start, end in _ranges(windows)]
    assert held(after, "a") == expected


def _ranges(windows: tuple[int, ...]) -> list[tuple[int, int]]:
    return list(zip((0, *windows[:-1]), windows, strict=True))


def test_segments_that_no_window_reaches_are_not_touched() -> None:
    joins = joins_of(a_query(1, 10, 10))
    joins.process(rows([0]), None, {"a": None, "b": None})
    joins.process(None, rows([10]), {"a": None, "b": None})
    assert the_chain(joins).slices["a"][0].counts.touched == 0
    joins.process(None, rows([9], first_pos=1), {"a": None, "b": None})
    assert the_chain(joins).slices["a"][0].counts.touched == 1
