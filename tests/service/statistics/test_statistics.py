"""Statistics of hand-made batches."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from catalog.store.store import Store
from catalog.values.counters.batch_counters import BucketCounters, CpuCounters, StreamCounters
from catalog.values.counters.family_counters import (
    AbsenceCounters,
    FilterCounters,
    KeyCounters,
    SliceCounters,
)
from catalog.values.plan import PlannedFilter
from service.statistics.profile import RECENT_BATCHES
from service.statistics.statistics import FamilyStatistics, FilterStatistics, read_statistics
from tests.builders import EMPTY_BATCH
from tests.service.pairs import open_store
from tests.service.statistics.test_profile import FAMILY, SECOND_US, a_plan


def commit_batches(store: Store, count: int) -> None:
    """Ten rows of A a second, one a batch of B; a batch takes half a second and 30 ms of CPU."""
    store.control_log.append(plan=a_plan(1, [PlannedFilter(0, '"v" < 0.2', ("v",))]))
    for n in range(count):
        moment_us = n * SECOND_US
        store.batches.commit(
            dataclasses.replace(
                EMPTY_BATCH,
                batch=n,
                epoch=store.lease.epoch(),
                streams=(
                    StreamCounters(1, 10, 0, 0, moment_us, moment_us),
                    StreamCounters(2, 1, 0, 0, moment_us, moment_us),
                ),
                slices=(
                    SliceCounters(
                        FAMILY, "a", 1, rows=5, bytes=240, males=1, touched=2, product=40, results=1
                    ),
                    SliceCounters(FAMILY, "b", 1, rows=0, males=3, product=0),
                ),
                started_at_us=moment_us,
                committed_at_us=moment_us + SECOND_US // 2,
                filters=(FilterCounters(FAMILY, "a", 0, 10, 3),),
                keys=(KeyCounters(FAMILY, "a", 10, 5, 6, 40),),
                absence=(AbsenceCounters(FAMILY, "a", undecided=n + 2, absent=2, matched=3, marks=7),),
                cpu=CpuCounters(20_000, 10_000),
                buckets=BucketCounters(2, work=10 + n, hottest_work=9, hottest_us=6_000),
            )
        )


def test_an_empty_catalog_has_statistics_too(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        found = read_statistics(store)

    assert (found.batches, found.filters, found.families, found.batch_event_seconds) == (0, (), (), None)
    assert (found.hottest_bucket_work, found.hottest_bucket_cpu) == (None, None)
    assert [(s.stream, s.rate_per_s, s.rate_age_s) for s in found.streams] == [
        ("A", None, None),
        ("B", None, None),
    ]


@pytest.mark.parametrize("batches", [2, 3 * RECENT_BATCHES])
def test_smoothed_numbers_come_with_their_age(tmp_path: Path, batches: int) -> None:
    with open_store(tmp_path) as store:
        commit_batches(store, batches)
        ended_us = (batches - 1) * SECOND_US + SECOND_US // 2
        found = read_statistics(store, clock_us=lambda: ended_us + 30 * SECOND_US)

    a, b = found.streams
    assert (a.rate_per_s, a.rate_age_s) == (pytest.approx(10), 30)
    assert (a.row_bytes, a.row_bytes_age_s) == (pytest.approx(48), 30)
    assert (b.rate_per_s, b.row_bytes, b.row_bytes_age_s) == (pytest.approx(1), None, None)
    assert found.filters == (FilterStatistics("A", '"v" < 0.2', pytest.approx(0.3), 30),)
    probed = min(batches, 20)
    # Two buckets: of the pairs of different keys one in two meets.
    assert found.families == (
        FamilyStatistics(
            family=FAMILY,
            probes=4 * probed,
            pairs_touched=2 * probed,
            pairs_compared=40 * probed,
            results=probed,
            join_selectivity=pytest.approx(0.05 / 1.95),
            join_selectivity_age_s=30,
            keys_a=pytest.approx(5),
            keys_b=None,
            skew_a=pytest.approx(2),
            skew_b=None,
            keys_age_s=30,
            undecided_a=batches + 1,
            undecided_b=None,
            absent_a=2 * probed,
            absent_b=None,
            matched_a=3 * probed,
            matched_b=None,
            marks_a=7,
            marks_b=None,
            left_a=0,
            left_b=None,
            open_groups=None,
            closed_groups=None,
            exchange_rows=None,
            exchange_seconds=None,
        ),
    )
    assert (found.batch_seconds, found.batch_event_seconds) == (pytest.approx(0.5), pytest.approx(1))
    assert (found.pack_cpu_seconds, found.chain_cpu_seconds) == (pytest.approx(0.02), pytest.approx(0.01))
    works = [10 + n for n in range(batches - probed, batches)]
    assert found.hottest_bucket_work == pytest.approx(2 * 9 * probed / sum(works))
    assert found.hottest_bucket_cpu == pytest.approx(1.2)
    assert json.dumps(dataclasses.asdict(found), allow_nan=False)


def test_a_removed_stream_has_no_filters_any_more(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        commit_batches(store, 3)
        store.streams.remove("A")

        assert read_statistics(store).filters == ()
