"""Joins whose every segment is lazy: results as by nested loops, counters as with decoded segments.

Random queries over keys of several types, with NULLs; rows out of order; plans that change; horizons.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.query import UNBOUNDED_US
from catalog.values.stream import FilesSource
from operators.join import family_joins
from operators.lazy import lazy_segment
from planner.build.build_plan import build_plan
from tests.builders import a_query, a_stream
from tests.examples import examples
from tests.operators.cases import SETTINGS, Case, cases, check, run
from tests.operators.test_horizons import cases_with_horizons
from tests.operators.test_key_types import keyed_cases
from tests.pipeline import Pipeline, Ran, Rows

#: No segment is opened for its males, or those are of which many rows may match.
_OPENED_FROM = st.sampled_from((0, 8))


@contextmanager
def all_lazy(opened_from: int) -> Iterator[None]:
    """Make all segments lazy that may be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lazy_segment, "LEAST_ROWS", 1)
        patch.setattr(lazy_segment, "_OPENED_FROM", opened_from)
        patch.setattr(family_joins, "LONG_US", 0)
        yield


def check_lazy(case: Case, opened_from: int) -> None:
    """Compare a case with nested loops, and its counters with those of segments that are not lazy."""
    case = replace(case, stored=True)
    plain = run(case).runner.done
    with all_lazy(opened_from):
        assert check(case).runner.done == plain


@settings(SETTINGS, max_examples=examples(60, 10))
@given(cases(activations=True), _OPENED_FROM)
def test_lazy_segments_change_no_result_and_no_counter(case: Case, opened_from: int) -> None:
    check_lazy(case, opened_from)


@settings(SETTINGS, max_examples=examples(40, 8))
@given(cases_with_horizons(), _OPENED_FROM)
def test_rows_leave_lazy_segments_at_a_horizon(case: Case, opened_from: int) -> None:
    check_lazy(case, opened_from)


@settings(SETTINGS, max_examples=examples(40, 8))
@given(keyed_cases(), _OPENED_FROM)
def test_keys_of_every_type_are_found_in_lazy_segments(case: Case, opened_from: int) -> None:
    check_lazy(case, opened_from)


def test_old_segments_of_an_unbounded_window_stay_closed(tmp_path: Path) -> None:
    streams = {i: a_stream(i, 0, (("k", "bigint"),), source=FilesSource("parquet", "")) for i in (1, 2)}
    facts = {"key_types": ("bigint",), "columns_a": ("k",), "columns_b": ("k",)}
    plan = build_plan([a_query(1, UNBOUNDED_US, UNBOUNDED_US, **facts)], streams)
    rng = np.random.default_rng(3)

    def batch(number: int) -> list[Rows]:
        """Return rows whose keys rise with time; those of the second stream have a key of a recent one."""
        positions = np.arange(300 * number, 300 * (number + 1))
        keys = {1: positions, 2: np.maximum(positions - rng.integers(0, 400, 300), 0)}
        times = pa.array(positions * 1000, pa.timestamp("us"))
        return [Rows(i, pa.table({"ts": times, "k": k, "_pos": positions})) for i, k in keys.items()]

    batches = [batch(number) for number in range(40)]
    ran: dict[int, list[Ran]] = {}
    for least in (1 << 9, 1 << 30):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lazy_segment, "LEAST_ROWS", least)
            pipeline = Pipeline(plan, 2, tmp_path)
            ran[least] = [pipeline.step(pieces) for pieces in batches]
            files = pipeline.segments.sizes()
            pipeline.close()
        blooms = {name for name in files if name.endswith(".bloom")}
        assert {name.removesuffix(".bloom") for name in blooms} <= files.keys()
        assert bool(blooms) == (least == 1 << 9)
    lazy, plain = ran.values()
    assert [each.results for each in lazy] == [each.results for each in plain]
    for counter in ("touched", "results", "made", "males", "product", "segments", "lying"):
        totals = [
            [sum(getattr(c, counter) for c in each.slices) for each in found] for found in (lazy, plain)
        ]
        assert totals[0] == totals[1], counter
    last = [counters for each in lazy[-5:] for counters in each.slices]
    assert sum(counters.lazy_segments for counters in last) >= 40
    assert sum(counters.read_segments for counters in last) < sum(c.lazy_segments for c in last) / 4
    assert sum(counters.read_rows for counters in last) < sum(counters.lying for counters in last) / 20
