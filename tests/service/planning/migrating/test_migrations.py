"""Migrations against a catalog: what a request comes to, what stays, what fails, what it took."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog.errors import InvalidInput, MigrationNotFound, SluiceError, StalePlanVersion
from catalog.values.migration import OnLeave
from catalog.values.plan import Boundaries, Plan
from catalog.values.policies.probe import Probe
from catalog.values.policies.punctuation_policy import PunctuationPolicy
from planner.build.objective import Objective
from planner.errors import UnknownFamily
from service.errors import InvalidMigration, PlanRefused
from service.planning.records.objective import take_settings
from service.planning.records.plan_record import record_in
from tests.service.migrating import KEY, SECOND_US, Desk, desk, request


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Desk]:
    """Queries of 10 s, 30 s and 60 s in one chain; the third with a filter."""
    with desk(tmp_path) as opened:
        opened.add("q1", 10)
        opened.add("q2", 30)
        opened.add("q3", 60, " AND A.v < 0.2")
        yield opened


def history(of: Desk) -> list[tuple[str, str, list[str]]]:
    entries = of.store.plan_history.page()
    return [(e.actor, e.cause, [step["text"] for step in record_in(e).changes]) for e in entries]


# --- objectives -----------------------------------------------------------------------------------------


def test_a_strategy_is_in_force_with_the_next_version_and_stays(three: Desk) -> None:
    three.migrate(strategy="pullup")
    assert (three.plan.version, three.plan.strategy, three.ends()) == (4, "pullup", [60])
    three.add("q4", 20)
    assert three.plan.strategy == "pullup"
    assert history(three)[3][:2] == ("tester", "migrate: strategy pullup")


def test_a_migration_survives_a_restart_and_other_settings_rule_again(three: Desk, tmp_path: Path) -> None:
    three.migrate(strategy="pullup")
    three.store.close()
    with desk(tmp_path) as again:
        with again.store.transaction():
            assert not take_settings(again.store, again.base)
        again.add("q4", 20)
        assert again.plan.strategy == "pullup"
    with desk(tmp_path, base=Objective(strategy="unshared")) as other:
        with other.store.transaction():
            assert take_settings(other.store, other.base)
        assert other.versions.objective.strategy == "unshared"
    with desk(tmp_path, base=Objective(strategy="unshared")) as same, same.store.transaction():
        assert not take_settings(same.store, same.base)


def test_slices_are_searched_as_a_migration_says(three: Desk, tmp_path: Path) -> None:
    three.migrate(splits=[{"at": "15s"}])
    chain = three.ends()
    three.migrate(probe="hash(8)", invalidation="probe+insert")
    assert three.plan.families[0].probe == Probe("hash", 8, "probe+insert")
    assert history(three)[-1][:2] == ("tester", "migrate: probe hash(8), invalidation probe+insert")
    three.migrate(family_probes={"B.k = A.k": {"probe": "loops"}})
    assert (three.plan.families[0].probe, three.ends()) == (Probe("loops"), chain)
    three.add("q4", 20)
    assert three.plan.families[0].probe == Probe("loops")
    three.store.close()
    with desk(tmp_path) as again:
        again.migrate(family_probes={KEY: None})
        assert again.plan.families[0].probe == Probe("hash", 8, "probe+insert")
        again.migrate(probe="auto")
        assert again.plan.families[0].probe == Probe()


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"probe": "hash(0)"}, ("probe",)),
        ({"probe": "merge", "invalidation": "optimal"}, ("invalidation",)),
        ({"invalidation": "optimal"}, ("invalidation",)),
        ({"family_probes": {KEY: {"probe": "hsh(3)"}}}, ("family_probes", KEY, "probe")),
        ({"family_probes": {"A.k = C.k": {"probe": "loops"}}}, ("family_probes", "A.k = C.k")),
        ({"probe": "loops", "strategy": "pullup"}, ()),
    ],
)
def test_a_probe_that_cannot_be_is_refused(three: Desk, body: dict[str, Any], path: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput) as caught:
        three.migrate(**body)
    assert caught.value.path == path
    assert three.plan.version == 3


def test_a_family_acts_on_closed_keys_as_a_migration_says(three: Desk, tmp_path: Path) -> None:
    three.migrate(family_punctuations={KEY: {"purge": "lazy(100)", "propagate": "every(10s)"}})
    policy = PunctuationPolicy(100, "push", every_us=10_000_000)
    assert three.plan.families[0].punctuations == policy
    assert history(three)[-1][1] == f"migrate: {KEY}: purge lazy(100), propagate every(10s)"
    three.migrate(strategy="pullup")
    three.store.close()
    with desk(tmp_path) as again:
        again.add("q4", 20)
        assert again.plan.families[0].punctuations == policy
        again.migrate(family_punctuations={"B.k = A.k": {"propagate": "every(7)"}})
        assert again.plan.families[0].punctuations == PunctuationPolicy(every_closings=7)
        again.migrate(family_punctuations={KEY: {"purge": "eager", "propagate": "pull"}})
        assert again.plan.families[0].punctuations == PunctuationPolicy(1, "pull")
        again.migrate(family_punctuations={KEY: None})
        assert again.plan.families[0].punctuations == PunctuationPolicy()


@pytest.mark.parametrize(
    ("policy", "path"),
    [
        ({"purge": "lazy(0)"}, (KEY, "purge")),
        ({"purge": "lazy"}, (KEY, "purge")),
        ({"propagate": "often"}, (KEY, "propagate")),
        ({"propagate": "every(0)"}, (KEY, "propagate")),
        ({"propagate": "every(10 parsecs)"}, (KEY, "propagate")),
    ],
)
def test_a_policy_that_does_not_exist_is_refused(
    three: Desk, policy: dict[str, str], path: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidInput) as caught:
        three.migrate(family_punctuations={KEY: policy})
    assert caught.value.path == ("family_punctuations", *path)
    assert three.plan.version == 3


def test_a_family_s_own_strategy_can_be_set_renamed_and_taken_away(three: Desk) -> None:
    three.migrate(family_strategies={KEY: "unshared"})
    assert len(three.plan.families[0].joins) == 3
    three.migrate(family_strategies={"B.k = A.k": "pullup"})
    assert three.ends() == [60]
    assert three.versions.objective.family_strategies == {"B.k = A.k": "pullup"}
    three.migrate(strategy="unshared")
    assert three.ends() == [60]
    three.migrate(family_strategies={three.plan.families[0].id: None})
    assert len(three.plan.families[0].joins) == 3


def test_a_failed_change_leaves_the_objective_as_it_was(three: Desk) -> None:
    before = three.versions.objective
    with pytest.raises(StalePlanVersion):
        three.migrations.migrate(request(strategy="pullup"), actor="tester", if_match=1)
    with pytest.raises(UnknownFamily) as caught:
        three.migrate(family_strategies={"A.k = C.k": "pullup"})
    assert caught.value.path == ("family_strategies", "A.k = C.k")
    assert three.versions.objective == before
    assert three.plan.version == 3
    assert three.store.migrations.page() == ()


# --- splits, merges, pins -------------------------------------------------------------------------------


def test_splits_and_merges_pin_the_chain_until_a_strategy_is_set(three: Desk) -> None:
    three.migrate(splits=[{"at": "15s"}], merges=[{"at": "10s", "side": "A"}])
    assert (three.ends("a"), three.ends("b")) == ([15, 30, 60], [10, 15, 30, 60])
    three.add("q4", 20)
    three.add("q5", 90)
    assert (three.ends("a"), three.ends("b")) == ([15, 30, 60, 90], [10, 15, 30, 60, 90])
    three.migrate(merges=[{"at": 60, "family": KEY}])
    assert three.ends("a") == [15, 30, 90]
    three.migrate(strategy="mem-opt")
    assert three.ends("a") == [10, 20, 30, 60, 90]
    assert three.versions.objective.pinned == {}


def test_a_strategy_for_another_family_leaves_pins_alone(three: Desk) -> None:
    three.add("other", 5, streams="A C")
    three.migrate(splits=[{"at": "15s", "family": KEY}])
    three.migrate(family_strategies={"A.k = C.k": "pullup"})
    assert three.ends("a", next(i for i, f in enumerate(three.plan.families) if f.stream_b == 2)) == [
        10,
        15,
        30,
        60,
    ]


def test_a_cleanup_drops_pins(three: Desk) -> None:
    three.migrate(splits=[{"at": "15s"}])
    three.migrate(cleanup=True)
    assert three.ends() == [10, 30, 60]


@pytest.mark.parametrize(
    ("body", "path", "message"),
    [
        ({"merges": [{"at": "15s"}]}, ("merges", 0, "at"), "no slices of A meet at 15s"),
        ({"merges": [{"at": "60s"}]}, ("merges", 0, "at"), "slices of A cannot be merged at 1m, the"),
        ({"splits": [{"at": 5}, {"at": "10s"}]}, ("splits", 1, "at"), "slices of A meet at 10s already"),
        ({"splits": [{"at": "2 min"}]}, ("splits", 0, "at"), "the chain of A has no slice around 2m"),
        ({"splits": [{"at": "soon"}]}, ("splits", 0, "at"), '"soon" is not a length of time'),
        ({"splits": [{"at": 5, "side": "X"}]}, ("splits", 0, "side"), '"X" is not a side of the family'),
        ({"splits": [{"at": 5, "family": "A.k = C.k"}]}, ("splits", 0, "family"), "does not exist"),
        ({"rollback_to": 99}, ("rollback_to",), "the history has no plan version 99"),
        ({"on_leave": {"after": "-1"}}, ("on_leave", "after"), '"-1" is not a length of time'),
        ({}, (), "the migration asks for nothing"),
        ({"cleanup": True, "strategy": "pullup"}, (), "a migration cannot be about strategies and cleanup"),
        ({"rollback_to": 1, "splits": [{"at": 5}]}, (), "cannot be about splits and merges and rollback_to"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_its_place(
    three: Desk, body: dict[str, Any], path: tuple[str | int, ...], message: str
) -> None:
    with pytest.raises(SluiceError) as caught:
        three.migrate(**body)
    assert message in caught.value.primary
    assert caught.value.path == path
    with pytest.raises(SluiceError):
        three.migrations.dry_run(request(**body))
    assert three.plan.version == 3
    assert three.store.migrations.page() == ()


def test_a_step_must_say_its_family_where_there_are_several(three: Desk) -> None:
    three.add("other", 5, streams="A C")
    with pytest.raises(UnknownFamily, match="does not say which of 2 families") as caught:
        three.migrate(splits=[{"at": 5}])
    assert caught.value.path == ("splits", 0, "family")
    assert isinstance(InvalidMigration("x"), SluiceError)


# --- on_leave -------------------------------------------------------------------------------------------


def test_auto_shrinks_the_chain_with_the_version_in_which_a_query_leaves(three: Desk) -> None:
    three.remove("q3")
    assert three.ends() == [10, 30]


def test_manual_keeps_boundaries_and_length_until_a_cleanup(three: Desk) -> None:
    three.migrate(on_leave="manual")
    three.remove("q2")
    three.remove("q3")
    assert three.ends() == [10, 30, 60]
    (join,) = three.plan.families[0].joins
    assert [s.keep for s in join.chain_a[1:]] == [(), ()]
    three.add("q4", 40)
    assert three.ends() == [10, 30, 40, 60]
    three.migrate(cleanup=True)
    assert three.ends() == [10, 40]
    assert three.versions.objective.on_leave == OnLeave("manual")
    three.remove("q4")
    three.migrate(on_leave="auto")
    assert three.ends() == [10]


def test_under_manual_a_strategy_or_a_merge_drops_what_was_left_where_it_is_asked_for(three: Desk) -> None:
    three.migrate(on_leave="manual")
    three.remove("q2")
    three.remove("q3")
    three.migrate(merges=[{"at": "30s"}])
    assert three.ends() == [10, 60]
    three.migrate(strategy="mem-opt")
    assert three.ends() == [10]


def test_after_a_while_a_cleanup_comes_by_itself(three: Desk) -> None:
    three.migrate(on_leave={"after": "10m"})
    minute = 60 * SECOND_US
    three.now_us = 100 * minute
    three.remove("q3")
    three.now_us = 105 * minute
    three.remove("q2")
    assert three.ends() == [10, 30, 60]
    assert three.migrations.policy().cleanup_due_us == 115 * minute
    assert three.migrations.tick(115 * minute - 1) is None
    plan = three.migrations.tick(115 * minute)
    assert plan is not None
    assert three.ends() == [10]
    assert history(three)[-1][:2] == ("service", "cleanup")
    assert three.migrations.tick(200 * minute) is None
    assert three.migrations.policy().cleanup_due_us is None


def test_a_due_cleanup_makes_no_version_when_nothing_is_left(three: Desk) -> None:
    three.migrate(on_leave={"after": 1})
    three.remove("q3")
    three.migrate(cleanup=True)
    version = three.plan.version
    assert three.migrations.tick(10 * SECOND_US) is None
    assert three.plan.version == version


# --- roll-back ------------------------------------------------------------------------------------------


def test_a_rollback_brings_back_strategies_and_chains_for_the_queries_of_now(three: Desk) -> None:
    three.migrate(merges=[{"at": "10s"}])
    pinned = three.plan.version
    three.migrate(strategy="pullup", family_strategies={KEY: "unshared"})
    three.add("q4", 20)
    three.migrate(rollback_to=pinned)
    assert (three.plan.strategy, three.ends()) == ("mem-opt", [30, 60])
    assert three.versions.objective.family_strategies == {}
    three.migrate(rollback_to=pinned - 1)
    assert three.ends() == [10, 20, 30, 60]
    assert three.versions.objective.pinned == {}
    assert history(three)[-1][1] == f"rollback to {pinned - 1}"


def test_a_rollback_to_a_weighed_chain_pins_it(three: Desk) -> None:
    three.migrate(strategy="cpu-opt")
    weighed = three.plan
    chain = weighed.families[0].joins
    three.migrate(strategy="mem-opt")
    three.migrate(rollback_to=weighed.version)
    assert three.plan.families[0].joins == chain
    assert three.plan.families[0].strategy == "cpu-opt"
    assert isinstance(three.versions.objective.pinned[three.plan.families[0].id], Boundaries)


# --- dry run --------------------------------------------------------------------------------------------


def test_a_dry_run_says_steps_rows_bytes_and_costs_and_changes_nothing(three: Desk) -> None:
    three.batch(rows=100)
    found = three.migrations.dry_run(request(merges=[{"at": "10s", "side": "A"}]))
    assert [type(s).__name__ for s in found.preview.primitives] == ["Merge"]
    assert (found.preview.rows_moved, found.preview.bytes_moved) == (100, 1000)
    (before,), (after,) = found.before, found.preview.reports
    assert before.cost.cpu_s != after.cost.cpu_s
    assert before.cost.comparisons.total > 0
    assert three.plan.version == 3
    assert three.store.migrations.page() == ()


def test_a_dry_run_does_what_the_migration_then_does(three: Desk) -> None:
    for body in ({"strategy": "cpu-opt"}, {"splits": [{"at": 5}]}, {"cleanup": True}, {"rollback_to": 2}):
        expected = three.migrations.dry_run(request(**body)).preview.plan
        three.migrate(**body)
        assert three.plan == expected


# --- what came of it ------------------------------------------------------------------------------------


def test_a_migration_is_pending_until_its_first_batch_and_then_says_what_it_took(three: Desk) -> None:
    for millis in (100, 300, 200):
        three.batch(millis=millis)
    number = three.migrate(merges=[{"at": "10s"}])
    status = three.migrations.status(number)
    assert (status.state, status.record.plan_version, status.record.actor) == ("pending", 4, "tester")
    assert [step["text"] for step in status.record.migration.primitives] == [
        "merge A at 10s",
        "merge B at 10s",
    ]
    assert (status.record.migration.rows_to_move, status.record.migration.bytes_to_move) == (200, 2000)
    three.batch(rows=150, millis=250)
    status = three.migrations.status(number)
    outcome = status.record.migration.outcome
    assert outcome is not None
    assert (status.state, outcome.batch, outcome.plan_version) == ("active", 3, 4)
    assert (outcome.seconds, outcome.median_seconds, outcome.batches) == (0.25, 0.2, 3)
    a_before = [(s.window, s.rows) for s in outcome.before if s.side == "a"]
    assert a_before == [("[0s, 10s)", 100), ("[10s, 30s)", 100), ("[30s, 1m)", 100)]
    assert [(s.window, s.rows) for s in outcome.after if s.side == "a"] == [
        ("[0s, 30s)", 150),
        ("[30s, 1m)", 150),
    ]
    assert three.store.migrations.get(number).migration.outcome is None
    three.migrations.tick(0)
    assert three.store.migrations.get(number).migration.outcome == outcome
    assert three.migrations.statuses(0, 10)[0] == status


def test_two_versions_at_one_boundary_are_both_active_with_the_same_batch(three: Desk) -> None:
    first, second = three.migrate(strategy="pullup"), three.migrate(strategy="mem-opt")
    three.batch()
    for number in (first, second):
        status = three.migrations.status(number)
        assert status.state == "active"
        assert status.record.migration.outcome is not None
        assert status.record.migration.outcome.plan_version == 5
        assert status.record.migration.outcome.median_seconds is None


def test_a_version_that_cannot_run_is_recorded_as_failed_and_the_former_one_goes_on(tmp_path: Path) -> None:
    def refuse_pullup(_: Plan | None, plan: Plan) -> None:
        if plan.strategy == "pullup":
            raise ZeroDivisionError("no such machine")

    with desk(tmp_path, try_out=refuse_pullup) as found:
        found.add("q1", 10)
        with pytest.raises(PlanRefused) as caught:
            found.migrate(strategy="pullup")
        assert caught.value.detail == "ZeroDivisionError: no such machine"
        assert caught.value.hint is not None
        assert "GET /api/v1/migrations/1 keeps this error" in caught.value.hint
        (status,) = found.migrations.statuses(0, 10)
        assert (status.state, status.record.plan_version) == ("failed", None)
        assert status.record.migration.error == "plan version 2 cannot run"
        assert status.record.migration.error_code == "plan-refused"
        assert (found.plan.version, found.versions.objective.strategy) == (1, "mem-opt")
        assert len(found.store.plan_history.page()) == 1
        found.batch()
        found.migrations.tick(0)
        with pytest.raises(PlanRefused):
            found.migrations.dry_run(request(strategy="pullup"))
        assert len(found.store.migrations.page()) == 1


def test_a_migration_that_is_not_there_is_not_found(three: Desk) -> None:
    with pytest.raises(MigrationNotFound):
        three.migrations.status(1)


def test_the_history_says_who_changed_what_and_survives_the_plans(three: Desk) -> None:
    three.migrate(splits=[{"at": "15s"}])
    assert history(three)[1:] == [
        ("service", "add q2", ["extend A from 10s to 30s", "extend B from 10s to 30s", "set routes + q2"]),
        (
            "service",
            "add q3",
            [
                "extend A from 30s to 1m",
                "set filter of A [30s, 1m): + A.v < 0.2, - every row",
                "extend B from 30s to 1m",
                "set routes + q3",
            ],
        ),
        ("tester", "migrate: split at 15s", ["split A at 15s", "split B at 15s"]),
    ]
