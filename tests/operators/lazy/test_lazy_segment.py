"""Lazy segments: they answer as decoded ones do, and stay closed where they can."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.lazy import lazy_segment
from operators.lazy.lazy_segment import LazySegment, SegmentFacts, decode_facts, encode_facts, with_filter
from operators.segments.segment import Segment
from tests.operators.segment_builders import a_segment, segment_reader


def stored(segment: Segment, values: dict[str, bytes]) -> Segment:
    """Store a segment with the filter of its keys."""
    data = segment.encode()
    values["c.0.0.0"] = data
    return with_filter(
        segment.stored_as("c.0.0.0", len(data)), lambda name, found, _: values.update({name: found})
    )


def lazy(segment: Segment, values: dict[str, bytes]) -> LazySegment:
    """Return a stored segment as the next batch finds it."""
    facts = decode_facts(encode_facts({segment.id: SegmentFacts.of(segment)}))
    assert facts == {segment.id: SegmentFacts.of(segment)}
    return LazySegment(segment.id, facts[segment.id], segment_reader(values.__getitem__))


def pairs(rows: Segment | None, males: list[int]) -> set[tuple[int, int]]:
    """Return the positions of rows with the numbers of the males that have their key."""
    if rows is None:
        return set()
    found = zip(rows.key.tolist(), rows.pos.tolist(), strict=True)
    return {(pos, number) for key, pos in found for number, male in enumerate(males) if male == key}


_SPREAD = {"near": 1, "far": 1 << 55}


@given(
    st.lists(st.tuples(st.integers(-40, 40), st.integers(0, 30)), min_size=1, max_size=80),
    st.lists(st.integers(-60, 60), min_size=1, max_size=6),
    st.sampled_from(sorted(_SPREAD)),
    st.none() | st.tuples(st.integers(0, 15), st.integers(16, 31)),
)
def test_males_meet_the_same_rows(
    rows: list[tuple[int, int]], males: list[int], spread: str, cut: tuple[int, int] | None
) -> None:
    values: dict[str, bytes] = {}
    males = sorted(male * _SPREAD[spread] for male in males)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lazy_segment, "LEAST_ROWS", 1)
        columns = {"s": pa.array([None if n % 3 else str(n) for n in range(len(rows))])}
        given_rows = sorted((key * _SPREAD[spread], ts) for key, ts in rows)
        bits = {4: [n % 2 == 0 for n in range(len(rows))]}
        whole = stored(a_segment(given_rows, bits=bits, columns=columns), values)
        if cut is not None:
            whole = whole.cut(*cut)
            if not len(whole):
                return
        for opened_from in (0, 8):
            patch.setattr(lazy_segment, "_OPENED_FROM", opened_from)
            closed = lazy(whole, values)
            found = closed.probed(np.array(males))
            assert not closed.opened
            assert pairs(found, males) == pairs(whole, males)
            if found is not None and found is not closed:
                assert set(found.key.tolist()) <= set(males)
                assert (found.filters, found.columns, found.epoch) == (
                    whole.filters,
                    whole.columns,
                    whole.epoch,
                )
                kept = np.isin(whole.key, males)
                assert found.encode() == whole.filter(kept).encode()
        assert (len(closed), closed.t_min, closed.t_max) == (len(whole), whole.t_min, whole.t_max)
        assert (closed.values, closed.stored_bytes) == (whole.values, whole.stored_bytes)
        assert closed.encode() == whole.encode()
        assert closed.opened
        assert closed.rows_read == len(whole)


def test_a_segment_without_matches_stays_closed() -> None:
    values: dict[str, bytes] = {}
    rows = [(2 * key, key) for key in range(1 << 16)]
    closed = lazy(stored(a_segment(rows), values), values)
    rows_of = values.pop("c.0.0.0")
    assert closed.probed(np.array([-5, -1])) is None
    assert closed.probed(np.array([1 << 17, 1 << 40])) is None
    bloom = values.pop("c.0.0.0.bloom")
    assert closed.probed(np.array([-1, 1 << 18])) is None  # one below, one above
    values["c.0.0.0.bloom"] = bloom
    assert closed.probed(np.array([1, 1001, 5001])) is None
    assert closed.rows_read == 0
    values["c.0.0.0"] = rows_of
    found = closed.probed(np.array([1, 1001, 5002]))
    assert found is not None
    assert found.key.tolist() == [5002]
    assert (closed.opened, closed.rows_read) == (False, 1)
    assert closed.probed(np.arange(1 << 17)) is closed


def test_a_small_segment_and_a_view_have_no_filter_of_their_own() -> None:
    def put(*_: object) -> None:
        raise AssertionError("a filter is stored")

    small = a_segment([(1, 1)]).stored_as("c.0.0.0", 9)
    assert with_filter(small, put) is small
    large = a_segment([(key, key) for key in range((1 << 16) + 1)]).stored_as("c.0.0.1", 9)
    view = large.cut(0, 1 << 16)
    assert with_filter(view, put) is view
