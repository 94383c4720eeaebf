"""The control log: numbers without gaps, plans by position."""

from __future__ import annotations

import pytest

from catalog.errors import InvariantBroken, PlanVersionNotFound
from catalog.store.store import Store
from catalog.values.control import ControlRecord, Heartbeat, Horizon, Pull
from tests.catalog.examples import plan, undone


def test_an_empty_log_has_no_head_and_no_plan(store: Store) -> None:
    assert store.control_log.head() == 0
    assert store.control_log.records(0) == ()
    assert store.control_log.plan_at(5) is None
    assert store.control_log.latest_plan() is None
    assert store.control_log.kept_plan(1) is None


def test_records_come_back_in_order_and_in_ranges(store: Store) -> None:
    first = store.control_log.append(plan=plan(1))
    beat = store.control_log.append(heartbeat=Heartbeat(1, -5), at_batch=3)
    second = store.control_log.append(plan=plan(2, queries=3), at_batch=4)
    assert first == ControlRecord(1, None, plan=plan(1))
    assert store.control_log.head() == 3
    assert store.control_log.records(0) == (first, beat, second)
    assert store.control_log.records(1) == (beat, second)
    assert store.control_log.records(1, up_to=2) == (beat,)
    assert store.control_log.records(0, limit=2) == (first, beat)
    assert store.control_log.records(3) == ()


def test_horizons_of_a_stream_are_records_and_the_latest_is_known(store: Store) -> None:
    assert store.control_log.horizon(1) is None
    records = [store.control_log.append(horizon=Horizon(i, t)) for i, t in ((1, -5), (2, 9), (1, 7))]
    assert store.control_log.records(0) == tuple(records)
    assert records[2] == ControlRecord(3, None, horizon=Horizon(1, 7))
    assert [store.control_log.horizon(i) for i in (1, 2, 3)] == [7, 9, None]


def test_the_plan_in_force_follows_the_position(store: Store) -> None:
    beat = Heartbeat(1, 5)
    store.control_log.append(heartbeat=beat)
    store.control_log.append(plan=plan(1))
    store.control_log.append(heartbeat=beat)
    store.control_log.append(plan=plan(2, queries=2))
    assert [store.control_log.plan_at(seq) for seq in range(6)] == [
        None,
        None,
        plan(1),
        plan(1),
        plan(2, queries=2),
        plan(2, queries=2),
    ]
    assert store.control_log.latest_plan() == plan(2, queries=2)
    assert store.control_log.plan(1) == plan(1)
    assert [(r.plan.version, r.seq) for r in store.control_log.records(0) if r.plan] == [(1, 2), (2, 4)]


def test_a_plan_is_decoded_once(store: Store) -> None:
    store.control_log.append(plan=plan(1))
    assert store.control_log.plan_at(1) is store.control_log.latest_plan()


def test_more_plans_than_are_kept_are_read_again(store: Store) -> None:
    with store.transaction():
        for version in range(1, 101):
            store.control_log.append(plan=plan(version))
    for _ in range(2):
        assert [r.plan.version for r in store.control_log.records(0) if r.plan] == list(range(1, 101))


def test_plan_versions_follow_each_other(store: Store) -> None:
    store.control_log.append(plan=plan(1))
    for wrong in (1, 3):
        with pytest.raises(InvariantBroken, match=f"plan version {wrong} does not follow version 1"):
            store.control_log.append(plan=plan(wrong))
    assert store.control_log.head() == 1


def test_a_record_carries_one_thing(store: Store) -> None:
    with pytest.raises(ValueError, match="either a plan, a heartbeat, promises, a pull or a horizon"):
        store.control_log.append()
    with pytest.raises(ValueError, match="either a plan, a heartbeat, promises, a pull or a horizon"):
        store.control_log.append(plan=plan(1), heartbeat=Heartbeat(1, 1))
    assert store.control_log.head() == 0


def test_a_request_for_result_punctuations_is_a_record(store: Store) -> None:
    appended = store.control_log.append(pull=Pull(7, 2))
    assert store.control_log.records(0) == (appended,)


def test_a_version_that_never_was_is_not_found(store: Store) -> None:
    with pytest.raises(PlanVersionNotFound, match="plan version 9 does not exist"):
        store.control_log.plan(9)


def test_a_plan_that_was_rolled_back_is_forgotten(store: Store) -> None:
    with undone(store):
        store.control_log.append(plan=plan(1, queries=1))
        assert store.control_log.latest_plan() == plan(1, queries=1)
    assert store.control_log.latest_plan() is None
    store.control_log.append(plan=plan(1, queries=2))
    assert store.control_log.latest_plan() == plan(1, queries=2)
    assert store.control_log.records(0)[0].plan == plan(1, queries=2)
