"""Results that are too old go, and their files after them, also where a crash comes in between."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.store.results import retention
from catalog.store.results.retention import KEPT_BATCHES
from catalog.store.store import Store
from catalog.values.query import Output
from service.commit.commit import BatchCommitter
from service.commit.upkeep.retention import DEAD_LETTER_INTERVAL_S, DeadLetterRetention
from tests.catalog.examples import stored_routes
from tests.catalog.processes import SPAWN, finished
from tests.empty_catalog import prepared
from tests.service.dropping import BOTH, Q1, SECOND_US, World, a_world, retention_of
from tests.service.pairs import Batches, add_query, open_store
from tests.service.results.test_results import pair
from tests.service.spark_logs import log_of, none_voided


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(retention, "KEPT_BATCHES", 3)
    with a_world(tmp_path) as made:
        yield made


def test_files_go_at_the_look_after_the_one_that_dropped_them(world: World) -> None:
    for n in range(10):
        world.commit(n, n)
    before = world.files()
    assert world.drop(4) == 4
    assert world.files() == before
    assert world.named() == {name for name in before if int(name[1:7]) >= 4}
    assert world.drop(4) == 0
    assert world.files() == world.named()


def test_files_stay_for_as_long_as_a_page_may_take(world: World) -> None:
    for n in range(10):
        world.commit(n)
    world.retention.unlink_after_s = 2
    assert world.drop(4) == 4
    assert world.drop(5) == 1
    assert len(world.files()) == 10
    assert world.drop(6) == 1
    assert len(world.files()) == 6
    assert world.drop(7) == 1
    assert len(world.files()) == 5


def test_a_clock_that_is_set_back_does_not_stop_it(world: World) -> None:
    for n in range(10):
        world.commit(n)
    world.retention.interval_s = 1
    assert world.drop(5) == 5
    world.drop(3)
    assert len(world.files()) == 5
    assert world.drop(7) == 2


def test_late_rows_go_with_the_results_of_their_batch(world: World) -> None:
    world.commit(1)
    manifest = world.store.batches.manifest(0)
    assert manifest is not None
    for n in range(1, 10):
        name = f"b{n:09}-1-e1-late.parquet"
        (world.directory / "late" / name).write_bytes(b"late rows")
        file = replace(manifest.files[0], path=name)
        committed_at_us = n * SECOND_US
        world.store.batches.commit(
            replace(manifest, batch=n, files=(), late_files=(file,), committed_at_us=committed_at_us)
        )
    world.drop(5)
    world.drop(5)
    left = sorted(path.name for path in (world.directory / "late").iterdir())
    assert [int(name[1:10]) for name in left] == [5, 6, 7, 8, 9]


def test_a_file_that_cannot_be_removed_is_tried_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    for n in range(10):
        world.commit(n)
    stubborn = world.directory / "results" / "b000001-f-e1-0.parquet"
    stubborn.unlink()
    (stubborn / "inside").mkdir(parents=True)
    world.drop(4)
    world.drop(6)
    assert "files of dropped results cannot be removed" in caplog.text
    assert world.store.retention.kept_from()[0] == 6, "dropping goes on"
    shutil.rmtree(stubborn)
    stubborn.touch()
    world.drop(6)
    assert world.files() == world.named()


def test_what_somebody_still_needs_stays(world: World) -> None:
    for n in range(10):
        world.commit(n)
    world.retention.needed_from = lambda: 2
    assert world.drop(6) == 2
    world.retention.needed_from = lambda: None
    assert world.drop(6) == 4


def test_for_ever_is_for_ever(world: World) -> None:
    for n in range(10):
        world.commit(n)
    world.retention.retention_us = None
    assert world.drop(10**6) == 0
    assert world.values(None) == list(range(10))


def test_many_old_batches_go_in_steps(world: World) -> None:
    for n in range(130):
        world.commit(*([n] if n % 10 == 0 else []))
    assert world.drop(125) == 125
    assert world.values(None) == []
    assert world.store.retention.dropped(world.q.id) is not None


def test_a_removed_query_is_not_found_once_its_last_result_has_gone(world: World) -> None:
    other = add_query(world.store, "other", [Output("k", 'a."k"', "bigint")])
    world.batches.routes = dict(world.batches.routes) | {BOTH: (world.q.id, other.id)}
    world.commit(1, 2, route=BOTH)
    world.store.queries.remove("other", 2)
    world.batches.version = 2
    for n in range(20):
        world.commit(n)
    world.store.pruning.prune()
    assert world.reader.page(other.id, None, 10).table["k"].to_pylist() == [1, 2]
    world.drop(5)
    world.store.pruning.prune()
    assert [record.query.name for record in world.store.queries.all()] == ["q"]
    assert [ids for _, _, ids in stored_routes(world.store)] == [(world.q.id,)]
    assert world.values(None) == list(range(4, 20))


def die_after_dropping(directory: Path, batches: int) -> None:
    """Drop until the process is killed at the failpoint."""
    retention.KEPT_BATCHES = 3
    os.environ["SLUICE_FAILPOINT"] = f"after-drop@{batches}"
    lock = directory / "engine.lock"
    lock.write_text(f'{{"pid": {os.getpid()}, "jvm_pid": {os.getpid()}}}')
    with Store.open(prepared(f"sqlite:///{directory / 'catalog.db'}")) as store:
        retention_of(directory, store).run_once(batches * SECOND_US)


def committer(world: World) -> BatchCommitter:
    """As an engine makes it when it starts."""
    results, late = world.directory / "results", world.directory / "late"
    return BatchCommitter(
        world.store,
        results,
        late,
        1,
        str(world.directory / "engine.lock"),
        log_of(world.directory),
        none_voided,
    )


def test_a_crash_between_dropping_and_unlinking_leaves_what_the_next_start_sweeps(world: World) -> None:
    for n in range(10):
        world.commit(n)
    process = SPAWN.Process(target=die_after_dropping, args=(world.directory, 4))
    process.start()
    assert finished(process) == -signal.SIGKILL
    assert world.store.retention.kept_from()[0] == 4
    assert len(world.files()) == 10
    assert world.values(None) == list(range(4, 10))
    assert committer(world).sweep() == 4
    assert world.files() == world.named()
    assert world.drop(6) == 2
    world.drop(6)
    assert world.files() == world.named()
    assert world.values(None) == list(range(6, 10))


def test_batches_that_may_replay_are_whole(tmp_path: Path) -> None:
    """With the real number of kept batches: however short the retention, the last ones are all there."""
    store = open_store(tmp_path)
    q = add_query(store, "q", [Output("k", 'a."k"', "bigint")])
    batches = Batches(store, tmp_path / "results", {Q1: (q.id,)}, spacing_us=SECOND_US)
    for n in range(KEPT_BATCHES + 5):
        batches.commit([pair(Q1, 1, n, 0, n)])
    assert retention_of(tmp_path, store).run_once(10**15) == 5
    assert [m.batch for m in store.batches.manifests(5, 10**6)] == list(range(5, KEPT_BATCHES + 5))
    store.close()


def test_dead_letter_files_go_when_they_are_old_enough_and_a_look_is_due(tmp_path: Path) -> None:
    day_us = 86_400 * SECOND_US
    for name, written_s in (("old", 0), ("new", 3 * 86_400)):
        (tmp_path / f"{name}.jsonl").touch()
        os.utime(tmp_path / f"{name}.jsonl", (written_s, written_s))
    kept = DeadLetterRetention(tmp_path, 2 * day_us)

    for now_us, left in (
        (2 * day_us, {"old.jsonl", "new.jsonl"}),
        (2 * day_us + SECOND_US, {"old.jsonl", "new.jsonl"}),
        (2 * day_us + round(DEAD_LETTER_INTERVAL_S) * SECOND_US, {"new.jsonl"}),
    ):
        kept.run_once(now_us)
        assert {path.name for path in tmp_path.iterdir()} == left, now_us
    forever = DeadLetterRetention(tmp_path, None)
    forever.run_once(100 * day_us)
    assert [path.name for path in tmp_path.iterdir()] == ["new.jsonl"]
