"""The calibrated model: work counted once, priced by constants."""

from __future__ import annotations

from dataclasses import astuple, fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.values.calibration import Calibration
from planner.costs.calibration.calibrated import (
    CONSTANTS,
    CalibratedModel,
    Work,
    batch_overlap,
    input_work,
    slice_work,
)
from planner.costs.calibration.shipped import SHIPPED
from planner.costs.cost import JoinInput, SliceLoad

LOAD = SliceLoad(
    side="a",
    w_start_s=0.0,
    w_end_s=10.0,
    first=True,
    last=False,
    judged_per_s=0.0,
    entering_per_s=1000.0,
    held_rows=10_000.0,
    held_bytes=640_000.0,
    chain_males_per_s=800.0,
    males_per_s=800.0,
    candidates_per_s=8e6,
    matches_per_s=8e3,
    results_per_s=5e3,
    boundaries=0,
    judged_results_per_s=0.0,
    unions=0,
    batch_s=2.0,
    buckets=2,
    segments=5.0,
    stored_segments_per_s=1.0,
    stored_bytes_per_s=64_000.0,
    result_columns=4,
)
INPUT = JoinInput(2000.0, 3000.0, 0.0, 0.0, 0.0, batch_s=2.0, buckets=2, filters=3, filtered_sides=1)

positive = st.floats(0.0, 1e6)
loads = st.builds(
    replace,
    st.just(LOAD),
    first=st.booleans(),
    last=st.booleans(),
    w_end_s=st.floats(0.1, 1e4),
    entering_per_s=positive,
    males_per_s=positive,
    matches_per_s=positive,
    results_per_s=positive,
    batch_s=st.floats(0.1, 1e3),
    buckets=st.integers(1, 64),
    segments=st.floats(0.0, 1e4),
    stored_segments_per_s=positive,
    stored_bytes_per_s=positive,
    result_columns=st.integers(0, 50),
)
constants = st.builds(
    Calibration, **{name: st.floats(0.0, 1.0) for name in CONSTANTS}, fitted_at_us=st.just(0)
)


def test_every_constant_has_its_unit_of_work() -> None:
    # ``planner.probes`` prices these.
    timed = ("per_ring_look", "per_scanned_row", "per_ring_row", "per_searched_row")
    assert tuple(f.name for f in fields(Calibration) if f.name.startswith("per_")) == CONSTANTS + timed
    units = [f.name for f in fields(Work)]
    for unit, name in zip(units, CONSTANTS, strict=True):
        singular = {"per_batch": "batches", "per_match": "matches"}.get(name, f"{name.removeprefix('per_')}s")
        assert unit == singular


@given(load=loads, prices=constants)
def test_the_terms_of_a_slice_are_its_work_at_the_constants(load: SliceLoad, prices: Calibration) -> None:
    terms = CalibratedModel(prices).slice_terms(load)
    expected = slice_work(load).vector() @ np.array(astuple(prices)[: len(CONSTANTS)])
    assert terms.total == pytest.approx(expected)
    assert min(astuple(terms)) >= 0.0
    assert terms.union == 0.0


@given(prices=constants)
def test_the_terms_of_an_input_are_its_work_at_the_constants(prices: Calibration) -> None:
    terms = CalibratedModel(prices).input_terms(INPUT)
    expected = input_work(INPUT).vector() @ np.array(astuple(prices)[: len(CONSTANTS)])
    assert terms.total == pytest.approx(expected)


@given(load=loads)
def test_a_slice_builds_at_most_once_per_segment_and_at_most_once_per_match(load: SliceLoad) -> None:
    work = slice_work(load)
    assert work.builds <= work.segments * (1 + 1e-9)
    assert work.builds <= work.matches * (1 + 1e-9)


def test_slices_given_as_arrays_cost_what_they_cost_one_by_one() -> None:
    model = CalibratedModel(SHIPPED)
    ends, segments, matches = (
        np.array([3.0, 7.0, 20.0]),
        np.array([2.0, 0.0, 9.5]),
        np.array([10.0, 0.0, 1e5]),
    )
    many = replace(LOAD, w_end_s=ends, segments=segments, matches_per_s=matches)  # type: ignore[arg-type]
    alone = [
        model.slice_terms(replace(LOAD, w_end_s=e, segments=s, matches_per_s=m)).total
        for e, s, m in zip(ends.tolist(), segments.tolist(), matches.tolist(), strict=True)
    ]
    np.testing.assert_allclose(model.slice_terms(many).total, alone)


def test_a_batch_meets_its_own_rows_too() -> None:
    # Males of 2 s meet rows of 10 s: on average half a batch more than the window.
    assert batch_overlap(LOAD) == pytest.approx(0.1)
    assert batch_overlap(replace(LOAD, first=False)) == 0.0


def test_the_shipped_constants_are_whole() -> None:
    assert all(np.isfinite(value) and value >= 0.0 for value in astuple(SHIPPED))
    assert SHIPPED.per_batch > 0.0
    assert SHIPPED.fitted_at_us == 0
