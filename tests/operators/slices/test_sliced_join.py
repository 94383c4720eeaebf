from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.values.query import UNBOUNDED_US
from operators.segments.segment import Segment
from operators.slices import sliced_join
from operators.slices.sliced_join import COMPACTION_FANIN, SliceState, compact, count_per_slice, purge
from tests.operators.segment_builders import a_segment


def a_slice(*segments: Segment, start: int = 0, end: int = 10) -> SliceState:
    return SliceState(start, end, 1, list(segments))


def times(segments: Sequence[Segment]) -> list[list[int]]:
    return sorted(sorted(segment.ts.tolist()) for segment in segments)


def test_purge_takes_out_what_the_watermark_has_passed_by_the_end() -> None:
    state = a_slice(a_segment([(1, 0)]), a_segment([(1, 1)]), a_segment([(1, 9)]))
    # A row at a distance of exactly the window is outside: windows are half-open.
    assert times(purge(state, 10, 0)) == [[0]]
    assert times(state.segments) == [[1], [9]]
    assert times(purge(state, 11, 0)) == [[1]]


def test_purge_splits_a_segment_that_spans_more_than_the_slack() -> None:
    state = a_slice(a_segment([(1, 5), (2, 0), (3, 4)], bits={0: [True, False, True]}, epochs=[1, 2, 3]))
    (leaving,) = purge(state, 14, 4)
    (staying,) = state.segments
    assert leaving.ts.tolist() == [0, 4]
    assert leaving.epochs().tolist() == [2, 3]
    assert leaving.has_bit(0).tolist() == [False, True]
    assert staying.ts.tolist() == [5]


def test_what_is_dropped_is_not_copied() -> None:
    state = a_slice(a_segment([(1, 5), (2, 0), (3, 4)]), a_segment([(1, 1)]), a_segment([(1, 9)]))
    assert purge(state, 14, 4, drop=True) == []
    assert times(state.segments) == [[5], [9]]


def test_purge_keeps_a_segment_within_the_slack_whole_until_its_newest_row_is_passed() -> None:
    state = a_slice(a_segment([(1, 0), (2, 4)]))
    assert purge(state, 13, 4) == []
    assert times(purge(state, 14, 4)) == [[0, 4]]
    assert state.segments == []


def test_a_wide_segment_is_split_where_its_rows_are_of_no_more_use() -> None:
    """No row of it is lost before a window of 30; it passes the slice's own end as a whole."""
    state = a_slice(a_segment([(1, t) for t in (0, 5, 20, 40)]))

    def end_of(segment: Segment) -> int:
        return 30

    assert purge(state, 29, 4, end_of) == []
    assert times(purge(state, 35, 4, end_of)) == [[0, 5]]
    assert times(purge(state, 49, 4, end_of)) == []
    assert times(purge(state, 50, 4, end_of)) == [[20, 40]]


def test_compaction_merges_small_neighbours_only_within_the_slack() -> None:
    near = [a_segment([(1, n)], first_pos=n) for n in range(4)]
    far = [a_segment([(1, 100 + n)], first_pos=100 + n) for n in range(4)]
    state = a_slice(*near, *far)
    compact(state, 3)
    assert times(state.segments) == [[0, 1, 2, 3], [100, 101, 102, 103]]
    state = a_slice(*near, *far)
    compact(state, 2)
    assert all(s.t_max - s.t_min <= 2 for s in state.segments)


def test_compaction_does_not_rewrite_a_segment_that_holds_most_rows() -> None:
    large = a_segment([(n, 0) for n in range(50)])
    small = [a_segment([(1, 1)], first_pos=100 + n) for n in range(4)]
    state = a_slice(large, *small)
    compact(state, 10)
    assert large in state.segments
    assert [len(s) for s in state.segments if s is not large] == [4]


def test_compaction_leaves_segments_of_other_columns_or_filters_apart() -> None:
    plain = [a_segment([(1, n)], first_pos=n) for n in range(4)]
    wider = [a_segment([(1, n)], first_pos=10 + n, columns={"v": pa.array([n])}) for n in range(4)]
    state = a_slice(*plain, *wider)
    compact(state, 100)
    assert sum(len(s) for s in state.segments) == 8
    assert {frozenset(s.columns) for s in state.segments} == {frozenset(), frozenset({"v"})}


def test_compaction_bounds_segments_and_rewrites_on_a_long_run() -> None:
    """1,000 batches of one row, slack 100: a few segments per 100 µs, each row rewritten a few times."""
    slack, batches = 100, 1_000
    state = a_slice(end=10_000)
    rewritten = 0
    for n in range(batches):
        state.segments.append(a_segment([(n % 3, n)], first_pos=n))
        before = {id(s) for s in state.segments}
        compact(state, slack)
        rewritten += sum(len(s) for s in state.segments if id(s) not in before)
        assert all(s.t_max - s.t_min <= slack for s in state.segments)
        # Per run of the slack: under the fan-in of each size class, of which there are log_4(100) < 4.
        assert len(state.segments) <= (n // slack + 1) * 2 * COMPACTION_FANIN + COMPACTION_FANIN
    assert state.rows == batches
    assert rewritten <= 4 * batches


def test_compaction_of_an_unbounded_slice_has_no_slack_to_keep() -> None:
    state = a_slice(end=UNBOUNDED_US)
    for n in range(500):
        state.segments.append(a_segment([(n % 3, 1_000 * n)], first_pos=n))
        compact(state, 0)
        assert len(state.segments) <= 3 * COMPACTION_FANIN
    assert state.rows == 500


def test_compaction_leaves_full_segments_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced_join, "MAX_MERGED_ROWS", 3)
    full = [a_segment([(1, 0), (2, 0), (3, 0)], first_pos=10 * n) for n in range(4)]
    small = [a_segment([(1, 1)], first_pos=100 + n) for n in range(4)]
    state = a_slice(*full, *small)
    compact(state, 10)
    assert [len(s) for s in sorted(state.segments, key=len)] == [3, 3, 3, 3, 4]


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=30),
    st.integers(0, 90),
    st.sets(st.integers(1, 70), min_size=1, max_size=40),
)
def test_rows_are_counted_by_the_slices_of_their_distance(
    rows: list[int], watermark: int, ends: set[int]
) -> None:
    segment, ascending = a_segment([(key, t) for key, t in enumerate(rows)]), sorted(ends)
    expected = [0] * len(ascending)
    for t in rows:
        beyond = sum(watermark - t >= end for end in ascending)
        expected[min(beyond, len(ascending) - 1)] += 1
    assert count_per_slice(ascending, segment, watermark) == expected
