"""Caps on the state of streams: the horizon that evicts what is over the cap, and queries that are paused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.store.store import Store
from catalog.values.change import AddQuery
from catalog.values.control import Horizon
from catalog.values.counters.batch_counters import HeldTimes, StreamCounters
from catalog.values.stream import AtCap
from planner.build.objective import Objective
from service.caps.state_caps import StateCaps, horizon_for
from service.inputs.reading.sample import CatalogRows
from service.planning.preview import Statistician
from service.planning.versions import Versions
from service.statistics.queries.query_status import query_statuses
from tests.builders import EMPTY_BATCH
from tests.service.applying import apply_changes
from tests.service.pairs import open_store

MB = 1_000_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path)
    yield opened
    opened.close()


@given(
    st.lists(
        st.tuples(
            st.integers(64, 10_000), st.lists(st.integers(0, 10**6), min_size=65, max_size=65).map(sorted)
        ),
        min_size=1,
        max_size=4,
    ),
    st.floats(0.01, 0.99),
)
def test_a_horizon_takes_the_excess_and_little_more(
    buckets: list[tuple[int, list[int]]], part: float
) -> None:
    held = [HeldTimes(1, size, tuple(times)) for size, times in buckets]
    excess = sum(each.bytes for each in held) * part

    def gone(horizon_us: int) -> float:
        parts = [(each, list(zip(each.times_us, each.times_us[1:], strict=False))) for each in held]
        return sum(each.bytes / 64 * sum(end < horizon_us for _, end in cuts) for each, cuts in parts)

    found = horizon_for(held, excess)
    assert gone(found) >= excess * (1 - 1e-9)
    assert gone(found - 1) < excess * (1 + 1e-9)


def test_rows_over_the_cap_get_one_horizon_at_a_time(store: Store) -> None:
    caps = begun(store, "evict")
    commit(store, 0, 1.0)
    caps.run_once(0)
    assert store.control_log.horizon(1) is None
    commit(store, 1, 1.2)
    caps.run_once(0)
    # 0.2 MB are over the cap, and 0.1 MB are left free: a quarter of what is held, its oldest rows.
    (record,) = store.control_log.records(1)
    assert record.horizon == Horizon(1, 251)
    commit(store, 2, 1.3)
    caps.run_once(0)
    assert store.control_log.head() == record.seq, "the last one is not in force yet"
    commit(store, 3, 1.3, horizon_us=251)
    caps.run_once(0)
    assert store.control_log.horizon(1) == 311
    commit(store, 4, 5.0, horizon_us=311)
    caps.run_once(0)
    assert store.control_log.horizon(1) == 600, "never above the watermark"


def test_a_query_tells_how_far_back_it_is_complete(store: Store) -> None:
    begun(store, "evict")
    commit(store, 0, 1.2)
    assert [status.complete_within_us for status in query_statuses(store, store.queries.running())] == [
        None
    ] * 3
    commit(store, 1, 1.2, horizon_us=251)
    within = {s.query.name: s.complete_within_us for s in query_statuses(store, store.queries.running())}
    assert within == {"now": None, "long": 349, "unbounded": 349}


def test_the_query_with_the_longest_window_is_paused_with_the_reason(store: Store) -> None:
    caps = begun(store, "stop")
    commit(store, 0, 1.2)
    for _ in range(2):
        caps.run_once(0)
    assert {record.query.name for record in store.queries.running()} == {"now", "long"}
    (paused,) = store.queries.paused()
    assert paused.pause_reason is not None
    assert 'rows of stream "A" take more than its state_cap_mb of 1' in paused.pause_reason
    commit(store, 1, 1.2)
    caps.run_once(0)
    assert len(store.queries.running()) == 2, "the plan without it is not in force yet"
    commit(store, 2, 1.2, plan_version=2)
    caps.run_once(0)
    assert {record.query.name for record in store.queries.running()} == {"now"}


def begun(store: Store, at_cap: AtCap) -> StateCaps:
    """Run queries over A, which has a cap of 1 MB."""
    store.streams.replace(replace(store.streams.get("A"), state_cap_mb=1, at_cap=at_cap))
    versions = Versions(store, Statistician(store, CatalogRows(store), 1), Objective("mem-opt"))
    text = "SELECT a.v FROM A [{}] a, B [NOW] b WHERE a.k = b.k"
    windows = {"now": "NOW", "long": "RANGE 1 HOUR", "unbounded": "RANGE UNBOUNDED"}
    apply_changes(versions, [AddQuery(n, text.format(window)) for n, window in windows.items()])
    return StateCaps(store, versions)


def commit(
    store: Store, batch: int, held_mb: float, *, horizon_us: int | None = None, plan_version: int = 1
) -> None:
    """Commit a batch in which rows of A at 0 to 1000 µs are held, in equal parts by two buckets."""
    held = HeldTimes(1, round(held_mb * MB / 2), tuple(range(0, 1001, 10)))
    store.batches.commit(
        replace(
            EMPTY_BATCH,
            batch=batch,
            epoch=store.lease.epoch(),
            plan_version=plan_version,
            streams=tuple(
                StreamCounters(i, 10, 0, 0, 600, 1000, horizon_us=horizon_us if i == 1 else None)
                for i in (1, 2)
            ),
            started_at_us=batch,
            committed_at_us=batch,
            held=(held, held),
        )
    )
