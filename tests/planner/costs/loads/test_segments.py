"""Segments as the planner expects them, against the operators that make them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from operators.join import compiled_family
from operators.segments.encoding.row_codec import KEY, POS, TS
from operators.segments.segment import Segment
from operators.slices import sliced_join
from operators.slices.sliced_join import SliceState, compact, purge
from planner.costs.loads import segments
from planner.costs.loads.segments import SegmentRule, chain_storage, merging

SECOND_US = 1_000_000


def test_the_rules_are_the_operators_rules() -> None:
    assert segments.SLACK_DIVISOR == compiled_family.SLACK_DIVISOR
    assert segments.COMPACTION_FANIN == sliced_join.COMPACTION_FANIN


def _batch(times: np.ndarray) -> Segment:
    rows = {KEY: np.zeros(len(times), dtype=np.int64), TS: times, POS: np.arange(len(times))}
    return Segment(pa.RecordBatch.from_pydict({name: pa.array(v) for name, v in rows.items()}), 1, ())


def _counted(ends_s: Sequence[float], batch_s: float, slack_s: float, *, filters: bool = True) -> list[float]:
    """Run the operators over batches and return the mean number of segments per slice, windows full."""
    bounds = [round(end * SECOND_US) for end in (0, *ends_s)]
    batch_us, slack_us = round(batch_s * SECOND_US), round(slack_s * SECOND_US)
    chain = [SliceState(start, end, 1) for start, end in itertools.pairwise(bounds)]
    rng = np.random.default_rng(1)
    full = int(ends_s[-1] / batch_s * 1.05) + 2
    counts = []
    for number in range(full + 40):
        rows, opposite = rng.integers(number * batch_us, (number + 1) * batch_us, (2, 50))
        chain[0].segments.append(_batch(rows))
        for state, following in itertools.zip_longest(chain, chain[1:]):
            end_of = None if filters else lambda _: bounds[-1]
            leaving = purge(state, int(opposite.max()), slack_us, end_of)
            if following is not None:
                following.segments.extend(leaving)
        for state in chain:
            compact(state, slack_us)
        if number >= full:
            counts.append([len(state.segments) for state in chain])
    return [float(mean) for mean in np.mean(counts, axis=0)]


def _expected(ends_s: Sequence[float], batch_s: float, slack_s: float) -> list[float]:
    rule = SegmentRule(batch_s, slack_s)
    bounds = [0.0, *ends_s]
    cuts = rule.cuts(np.array(bounds)).tolist()
    return [
        float(rule.held(start, end, cut))
        for (start, end), cut in zip(itertools.pairwise(bounds), cuts, strict=False)
    ]


@pytest.mark.parametrize("batches_per_slack", [0.3, 0.6, 1.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0])
@pytest.mark.parametrize(
    "ends_s", [[40.0], [13.0, 40.0], [7.3, 17.9, 40.0], [10.0, 20.0, 30.0, 40.0]], ids=["1", "2", "3", "4"]
)
def test_a_chain_holds_as_many_segments_as_expected(ends_s: list[float], batches_per_slack: float) -> None:
    batch_s = 1.0 / batches_per_slack
    counted, expected = _counted(ends_s, batch_s, 1.0), _expected(ends_s, batch_s, 1.0)
    assert sum(expected) == pytest.approx(sum(counted), rel=0.25)


@pytest.mark.parametrize("batches_per_slack", [0.05, 0.2, 0.6])
def test_boundaries_that_take_no_rows_cut_nothing(batches_per_slack: float) -> None:
    ends_s, batch_s = [7.3, 17.9, 40.0], 1.0 / batches_per_slack
    counted = _counted(ends_s, batch_s, 1.0, filters=False)
    rule = SegmentRule(batch_s, 1.0)
    bounds = np.array([0.0, *ends_s])
    cuts = rule.cuts(bounds, [False] * 4)
    expected = sum(
        float(rule.held(start, end, 0, end == ends_s[-1]))
        for start, end in itertools.pairwise(bounds.tolist())
    )
    assert cuts.tolist() == [0] * 4
    assert expected == pytest.approx(sum(counted), rel=0.25)
    assert sum(counted) < sum(_counted(ends_s, batch_s, 1.0))


def test_boundaries_that_differ_by_whole_batches_cut_at_one_place() -> None:
    rule = SegmentRule(2.0, 1.0)
    assert rule.cuts(np.array([0.0, 4.0, 12.0, 13.0, 15.0, 40.0])).tolist() == [0, 1, 1, 2, 2, 2]
    assert rule.cuts(np.array([0.0, 3.999, 12.001])).tolist() == [0, 1, 1]
    aligned = [4.0, 12.0, 20.0, 40.0]
    assert sum(_expected(aligned, 2.0, 1.0)) == pytest.approx(sum(_counted(aligned, 2.0, 1.0)), rel=0.15)


def test_batches_within_the_slack_are_not_cut() -> None:
    assert SegmentRule(1.0, 1.0).cuts(np.array([0.0, 1.5, 2.25])).tolist() == [0, 0, 0]


def test_a_row_is_rewritten_more_often_the_more_batches_fit_into_the_slack() -> None:
    assert [merging(n)[1] for n in (4, 16, 64)] == pytest.approx([1.0, 2.0, 3.0], abs=0.35)
    assert merging(10**9) == merging(10**9 >> 24)


def test_an_unbounded_slice_merges_without_end() -> None:
    rule = SegmentRule(1.0, np.inf)
    assert rule.held(0.0, 86_400.0, 0) < 20
    assert rule.rewritten > 0


def test_what_a_filter_leaves_is_stored_anew_and_what_moves_whole_is_not() -> None:
    storage = chain_storage(
        np.array([0.0, 10.0, 20.0, 40.0]),
        np.array([100.0, 100.0, 30.0, 0.0]),
        np.array([0, 0, 1, 1]),
        np.array([0, 1, 1, 1]),
        longest_s=40.0,
        batch_s=2.0,
        row_bytes=50.0,
        buckets=2,
    )
    first, first_bytes = storage.stored(0, 1, last=False)
    assert first == pytest.approx(1.0)  # a segment per batch and bucket
    assert first_bytes == pytest.approx(100.0 * 50.0)
    # Both boundaries cut at one place, so about two pieces per batch and bucket.
    assert storage.stored(1, 2, last=False) == pytest.approx((1.85, 30.0 * 50.0))
    assert storage.stored(2, 3, last=True) == (0.0, 0.0)
