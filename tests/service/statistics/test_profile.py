"""Profiles measured from hand-made manifests, and merged."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.documents.codec import decode, encode
from catalog.values.batch import BatchManifest
from catalog.values.counters.batch_counters import CpuCounters, StreamCounters
from catalog.values.counters.family_counters import (
    FilterCounters,
    KeyCounters,
    PunctuationCounters,
    SliceCounters,
)
from catalog.values.plan import FamilyPlan, JoinPlan, Plan, PlannedFilter, Slice
from catalog.values.statistics import (
    FamilyProfile,
    FilterProfile,
    Measure,
    Profile,
    StreamProfile,
)
from operators.kernels.keys import bucket_of
from service.checkpoint.buckets import CHECKPOINT_SETTING
from service.statistics.profile import (
    HALF_LIFE_BATCHES,
    RECENT_BATCHES,
    FamilyNames,
    measured_profile,
    merge_profiles,
    profile_of,
)
from tests.builders import EMPTY_BATCH
from tests.service.pairs import open_store

FAMILY = "s1s2-00c0ffee"
NAMES = {FAMILY: FamilyNames({"a": 1, "b": 2}, {("a", 0): '"v" < 0.2', ("b", 0): '"v" < 0.5'})}
LATER_US = 10**15
SECOND_US = 1_000_000

cuts = st.lists(st.integers(1, 50), min_size=2, max_size=20)


def manifest(batch: int, **parts: object) -> BatchManifest:
    """A batch without anything but what is given, committed at second ``batch``."""
    empty = replace(
        EMPTY_BATCH,
        batch=batch,
        epoch=1,
        started_at_us=batch * SECOND_US,
        committed_at_us=batch * SECOND_US,
    )
    return replace(empty, **parts)


def counters(
    stream_id: int, rows: int, newest_us: int | None, *, late: int = 0, watermark_us: int | None = None
) -> StreamCounters:
    return StreamCounters(stream_id, rows, late, 0, watermark_us, newest_us)


def steady(cut: Sequence[int], gap_us: int, stream_id: int = 1) -> list[BatchManifest]:
    """A row every ``gap_us``, so many of them in each batch."""
    ends = itertools.accumulate(cut)
    return [
        manifest(n, streams=(counters(stream_id, rows, gap_us * (end - 1)),))
        for n, (rows, end) in enumerate(zip(cut, ends, strict=True))
    ]


def measured(manifests: Sequence[BatchManifest], *, buckets: int | None = 1) -> Profile:
    return measured_profile(manifests, NAMES, buckets, now_us=LATER_US)


def rate_of(profile: Profile, stream_id: int = 1) -> Measure:
    (found,) = [s.rate_per_s for s in profile.streams if s.stream_id == stream_id]
    return found


@given(cut=cuts, gap_us=st.integers(1, 10**9))
def test_a_constant_rate_is_measured_exactly_however_it_is_cut(cut: list[int], gap_us: int) -> None:
    found = rate_of(measured(steady(cut, gap_us)))

    assert found.value == pytest.approx(1e6 / gap_us, rel=1e-12)
    assert (found.origin, found.at_us) == ("measured", (len(cut) - 1) * SECOND_US)


@given(cut=cuts, passing=st.integers(0, 50), key_rows=st.integers(1, 9), matches=st.integers(0, 10))
def test_constant_fractions_are_measured_exactly_however_rows_are_cut(
    cut: list[int], passing: int, key_rows: int, matches: int
) -> None:
    manifests = [
        manifest(
            n,
            streams=(counters(1, rows, 1_000 * n),),
            filters=(FilterCounters(FAMILY, "a", 0, 50 * rows, passing * rows),),
            keys=(KeyCounters(FAMILY, "a", key_rows * rows, rows, key_rows, key_rows**2 * rows),),
            slices=(
                SliceCounters(FAMILY, "a", 1, rows=rows, bytes=48 * rows, touched=matches * rows),
                SliceCounters(FAMILY, "b", 1, product=10 * rows),
            ),
        )
        for n, rows in enumerate(cut)
    ]

    found = measured(manifests)

    assert found.streams[0].row_bytes is not None
    assert found.streams[0].row_bytes.value == pytest.approx(48)
    (selectivity,) = [f.selectivity.value for f in found.filters]
    assert selectivity == pytest.approx(passing / 50)
    (family,) = found.families
    assert family.join_selectivity.value == pytest.approx(matches / 10)
    assert family.skew_a is not None
    assert family.skew_a.value == pytest.approx(1.0)
    assert (family.keys_b, family.skew_b) == (None, None)


@given(batches=st.lists(st.lists(st.integers(1, 100), min_size=1, max_size=10), min_size=1, max_size=10))
def test_skew_is_never_below_that_of_equal_shares(batches: list[list[int]]) -> None:
    manifests = [
        manifest(
            n,
            streams=(counters(1, sum(shares), n),),
            slices=(SliceCounters(FAMILY, "b", 1, product=1),),
            keys=(
                KeyCounters(
                    FAMILY, "a", sum(shares), len(shares), max(shares), sum(share**2 for share in shares)
                ),
            ),
        )
        for n, shares in enumerate(batches)
    ]

    (family,) = measured(manifests).families

    assert family.skew_a is not None
    assert family.skew_a.value >= 1 - 1e-12
    assert family.keys_a is not None
    assert min(map(len, batches)) - 1e-9 <= family.keys_a.value <= max(map(len, batches)) + 1e-9


@given(cut=cuts, gap_us=st.integers(1, 10**9))
def test_a_batch_covers_what_the_streams_advance_by_on_average(cut: list[int], gap_us: int) -> None:
    """Whether both streams come in every batch or take turns, the event time is the same."""
    rows = 3
    together = [
        manifest(n, streams=tuple(counters(s, rows, gap_us * rows * (n + 1)) for s in (1, 2)))
        for n in range(len(cut))
    ]
    in_turns = [
        manifest(
            2 * n + turn,
            streams=(
                counters(1, rows * (1 - turn), gap_us * rows * (n + 1)),
                counters(2, rows * turn, gap_us * rows * (n + turn)),
            ),
        )
        for n in range(len(cut))
        for turn in (0, 1)
    ]

    assert measured(together).batch_s.value == pytest.approx(gap_us * rows / 1e6)
    # The stream that is not heard of at first takes a few batches to weigh in.
    half_a_step = gap_us * rows / 2e6
    assert measured(in_turns).batch_s.value == pytest.approx(half_a_step, rel=0.2)


def test_late_rows_and_rows_without_a_time_do_not_rest_in_any_window() -> None:
    manifests = [
        manifest(0, streams=(counters(1, 5, 0),)),
        manifest(1, streams=(StreamCounters(1, 13, 2, 1, None, SECOND_US),)),
    ]

    assert rate_of(measured(manifests)).value == pytest.approx(10)


def test_a_change_counts_half_after_the_half_life() -> None:
    """Ten batches of 200 rows a second after many of 100."""
    rows = [100] * 200 + [200] * int(HALF_LIFE_BATCHES)
    manifests = [manifest(n, streams=(counters(1, count, n * SECOND_US),)) for n, count in enumerate(rows)]

    assert rate_of(measured(manifests)).value == pytest.approx(150, rel=1e-3)


def test_batches_without_input_age_nothing() -> None:
    busy = [manifest(n, streams=(counters(1, 100 * (n + 1), n * SECOND_US),)) for n in range(5)]
    idle = [manifest(n, streams=(counters(1, 0, 4 * SECOND_US),)) for n in range(5, 40)]

    assert rate_of(measured(busy + idle)) == rate_of(measured(busy))


def test_a_heartbeat_passes_over_time_in_which_no_rows_came() -> None:
    manifests = [
        manifest(0, streams=(counters(1, 1, 0),)),
        manifest(1, streams=(counters(1, 100, SECOND_US),)),
        manifest(2, streams=(counters(1, 0, SECOND_US, watermark_us=4 * SECOND_US),)),
    ]

    assert rate_of(measured(manifests)).value == pytest.approx(25, rel=0.1)


def test_one_batch_alone_has_no_rate_but_fractions() -> None:
    alone = manifest(
        0,
        streams=(counters(1, 10, SECOND_US),),
        filters=(FilterCounters(FAMILY, "b", 0, 10, 5),),
    )

    found = measured([alone], buckets=3)

    assert found.streams == ()
    assert found.filters == (FilterProfile(2, '"v" < 0.5', Measure(0.5, "measured", 0)),)
    assert found.batch_s.origin == "assumed"
    assert found.buckets == 3


def test_no_manifest_tells_nothing() -> None:
    assert measured([], buckets=None) == Profile()


def test_a_filter_in_two_families_is_one() -> None:
    names = {**NAMES, "other": FamilyNames({"a": 3, "b": 1}, {("b", 7): '"v" < 0.2'})}
    both = manifest(
        0, filters=(FilterCounters(FAMILY, "a", 0, 10, 5), FilterCounters("other", "b", 7, 30, 25))
    )

    assert measured_profile([both], names, 1, now_us=LATER_US).filters == (
        FilterProfile(1, '"v" < 0.2', Measure(0.75, "measured", 0)),
    )


def test_counters_of_a_family_that_no_plan_names_are_left_out() -> None:
    strange = manifest(
        0,
        slices=(SliceCounters("gone", "a", 1, rows=1, bytes=1, product=1),),
        filters=(FilterCounters("gone", "a", 0, 1, 1), FilterCounters(FAMILY, "a", 9, 1, 1)),
        keys=(KeyCounters("gone", "a", 1, 1, 1, 1),),
    )

    assert measured([strange]) == Profile(buckets=1)


@pytest.mark.parametrize(("keys", "within"), [(1, 0.0), (40, 0.25), (1_000, 0.03), (50_000, 0.002)])
@given(buckets=st.integers(1, 16), rows=st.integers(1, 20))
def test_join_selectivity_is_that_of_all_pairs_whatever_the_buckets(
    keys: int, within: float, buckets: int, rows: int
) -> None:
    """A bucket compares its own rows alone; few keys fall unevenly, and then it is an estimate."""
    spread = np.bincount(bucket_of(np.arange(keys), buckets), minlength=buckets)
    looked_at = int(((spread * rows) ** 2).sum())
    one = manifest(0, slices=(SliceCounters(FAMILY, "a", 1, touched=keys * rows**2, product=looked_at),))

    (family,) = measured([one], buckets=buckets).families

    assert family.join_selectivity.value == pytest.approx(1 / keys, rel=within)


def test_all_joins_of_a_family_are_one_measurement() -> None:
    parted = manifest(
        0,
        slices=(
            SliceCounters(FAMILY, "a", 1, touched=1, product=10, join="p1"),
            SliceCounters(FAMILY, "a", 1, touched=5, product=20, join="p2"),
        ),
    )

    assert measured([parted]).families[0].join_selectivity.value == pytest.approx(0.2)


@pytest.mark.parametrize("window_s", [5.0, 50.0])
def test_the_open_time_is_measured_although_windows_end_before_keys_are_closed(window_s: float) -> None:
    random, open_s = np.random.default_rng(1), 20.0
    arrives = np.sort(random.uniform(0, 1000, 20_000))
    closes = arrives + random.exponential(open_s, len(arrives))
    manifests = []
    for now in range(950, 1000):
        held = np.count_nonzero((arrives <= now) & (closes > now) & (arrives > now - window_s))
        closed = np.count_nonzero((closes > now - 1) & (closes <= now) & (closes - arrives < window_s))
        slices = (SliceCounters(FAMILY, "a", 1, product=1),)
        told = PunctuationCounters(FAMILY, "b", live=held, died=closed)
        streams = (counters(1, 20, now * SECOND_US),)
        manifests.append(manifest(now, streams=streams, slices=slices, punctuations=(told,)))
    (family,) = measured(manifests).families
    assert family.open_a_s is not None
    assert family.open_a_s.value == pytest.approx(open_s, rel=0.1)
    assert family.open_a_s.origin == "measured"
    assert family.open_b_s is None


def test_no_number_is_younger_than_now() -> None:
    found = measured_profile(steady([1, 1, 1], 10), NAMES, 1, now_us=1_500_000)

    assert rate_of(found).at_us == 1_500_000


def a_plan(version: int, filters: Sequence[PlannedFilter]) -> Plan:
    chain = (Slice(0, SECOND_US, None),)
    family = FamilyPlan(
        id=FAMILY,
        stream_a=1,
        stream_b=2,
        key=(("k", "k"),),
        key_types=("bigint",),
        columns_a=(),
        columns_b=(),
        filters_a=tuple(filters),
        filters_b=(),
        queries=(),
        strategy="mem-opt",
        joins=(JoinPlan("shared", (), chain, chain),),
    )
    return Plan(version, "mem-opt", (), (family,))


def test_names_come_from_the_plans_in_force_and_only_the_last_batches_count(tmp_path: Path) -> None:
    old, new = PlannedFilter(0, '"v" < 1', ("v",)), PlannedFilter(1, '"v" < 2', ("v",))
    with open_store(tmp_path) as store:
        store.control_log.append(plan=a_plan(1, [old]))
        store.control_log.append(plan=a_plan(2, [new]))
        store.settings.set(CHECKPOINT_SETTING, {"id": "x", "buckets": 5, "partitions": 2})
        batches = RECENT_BATCHES + 30
        for n in range(batches):
            version, bit = (1, 0) if n < batches - 10 else (2, 1)
            # What lies before the last batches would show.
            rate = 10_000 if n < 29 else 10
            store.batches.commit(
                manifest(
                    n,
                    plan_version=version,
                    streams=(counters(1, rate, n * SECOND_US),),
                    filters=(FilterCounters(FAMILY, "a", bit, 10, 1 + bit),),
                    slices=(SliceCounters(FAMILY, "a", 1),),
                )
            )
        found = profile_of(store, now_us=LATER_US)

    assert rate_of(found).value == pytest.approx(10)
    assert [(f.sql, round(f.selectivity.value, 9)) for f in found.filters] == [
        ('"v" < 1', 0.1),
        ('"v" < 2', 0.2),
    ]
    assert found.filters[0].selectivity.at_us == (batches - 11) * SECOND_US
    assert found.buckets == 5


def test_an_empty_catalog_has_an_empty_profile(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        assert profile_of(store, now_us=LATER_US) == Profile()


def test_a_manifest_of_before_these_counters_decodes_and_tells_rates() -> None:
    """Stored by the version before: no filters, keys, cpu, and slices without join and product."""
    document = (
        b'{"batch":%d,"epoch":1,"plan_version":1,"files":[],"late_files":[],"routes":[],'
        b'"streams":[{"stream_id":1,"rows":10,"late_rows":0,"rejected_rows":0,"watermark_us":null,'
        b'"max_event_time_us":%d}],"slices":[{"family":"s1s2-00c0ffee","side":"a","slice":1,"rows":5,'
        b'"bytes":200,"segments":1,"touched":3,"males":2,"inserted":0,"moved_in":0,"filtered":0,'
        b'"purged":0,"results":3}],"query_rows":[],"started_at_us":0,"committed_at_us":7}'
    )
    manifests = [decode(BatchManifest, document % (n, n * SECOND_US)) for n in range(2)]

    assert (manifests[0].filters, manifests[0].keys, manifests[0].cpu) == ((), (), CpuCounters())
    assert (manifests[0].slices[0].join, manifests[0].slices[0].product) == ("shared", 0)
    assert decode(BatchManifest, encode(manifests[0])) == manifests[0]
    found = measured(manifests)
    assert found.streams == (StreamProfile(1, Measure(10.0, "measured", 7), Measure(40.0, "measured", 7)),)
    assert (found.filters, found.families) == ((), ())


def test_the_product_of_a_slice_is_read_under_its_old_name() -> None:
    stored = b'{"family":"f","side":"a","slice":1,"candidates":20}'
    assert decode(SliceCounters, stored) == SliceCounters("f", "a", 1, product=20)


def test_the_best_origin_of_every_number_wins() -> None:
    def number(value: float, origin: str) -> Measure:
        return Measure(value, origin)  # type: ignore[arg-type]  # the three origins below

    stated = Profile(
        streams=(StreamProfile(1, number(1, "assumed"), number(48, "given")),),
        families=(FamilyProfile("f", number(0.1, "given")),),
    )
    job = Profile(
        streams=(StreamProfile(1, number(2, "measured"), number(50, "measured")),),
        filters=(FilterProfile(1, "x", number(0.2, "measured")),),
        families=(FamilyProfile("f", number(0.3, "measured"), keys_a=number(7, "measured")),),
        batch_s=number(4, "measured"),
        buckets=3,
    )
    seen = Profile(
        streams=(StreamProfile(1, number(3, "sampled")), StreamProfile(2, number(4, "sampled"))),
        filters=(
            FilterProfile(1, "x", number(0.9, "sampled")),
            FilterProfile(2, "y", number(0.8, "sampled")),
        ),
        families=(FamilyProfile("f", number(0.5, "sampled"), number(9, "sampled"), number(8, "sampled")),),
        batch_s=number(5, "sampled"),
    )

    assert merge_profiles(stated, job, seen) == Profile(
        streams=(
            StreamProfile(1, number(2, "measured"), number(48, "given")),
            StreamProfile(2, number(4, "sampled")),
        ),
        filters=(
            FilterProfile(1, "x", number(0.2, "measured")),
            FilterProfile(2, "y", number(0.8, "sampled")),
        ),
        families=(FamilyProfile("f", number(0.1, "given"), number(7, "measured"), number(8, "sampled")),),
        batch_s=number(4, "measured"),
        buckets=3,
    )
    assert merge_profiles(Profile(), Profile(), Profile()) == Profile()
