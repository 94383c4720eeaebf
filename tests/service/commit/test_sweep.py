"""The sweep at a start removes what no manifest names, and does not read what it knows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.store.pruning import REPLAYED_BATCHES
from catalog.store.repositories.batches import BatchRepository
from catalog.store.results import retention
from catalog.store.store import Store
from catalog.times.clock import wall_clock_us
from catalog.values.batch import BatchManifest
from service.commit.sweep import sweep
from tests.empty_catalog import prepared
from tests.service.dropping import World, a_world


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(retention, "KEPT_BATCHES", REPLAYED_BATCHES + 1)
    with a_world(tmp_path) as made:
        yield made


def swept(world: World) -> tuple[int, int]:
    """Sweep as the next start does; return how many files went and how many manifests were read for it."""
    read = []
    with Store.open(prepared(f"sqlite:///{world.directory / 'catalog.db'}")) as store:

        class CountsManifests(BatchRepository):
            """Batches, of which those are noted whose manifests are read one by one."""

            def manifest(self, batch: int) -> BatchManifest | None:
                read.append(batch)
                return super().manifest(batch)

        store.batches = CountsManifests(store._database, wall_clock_us)
        removed = sweep(store, world.directory / "results", world.directory / "late", store.lease.epoch())
    return removed, len(read)


def left_behind(world: World, batch: int, where: str = "results") -> Path:
    """Leave the file of an attempt that was not committed."""
    path = world.directory / where / f"b{batch:09}-s1s2-e1-{batch}.parquet"
    path.write_bytes(b"of an attempt")
    return path


def test_files_of_attempts_go_and_those_of_batches_stay(world: World) -> None:
    for n in range(5):
        world.commit(n)
    strays = [left_behind(world, n) for n in (0, 3, 5)] + [left_behind(world, 4, "late")]
    assert swept(world)[0] == 4
    assert not any(path.exists() for path in strays)
    assert world.files() == world.named()
    assert swept(world)[0] == 0


def test_a_batch_that_may_have_been_replayed_is_looked_at_again(world: World) -> None:
    for n in range(30):
        world.commit(n)
    assert swept(world) == (0, 30)
    strays = [left_behind(world, n) for n in range(29 - REPLAYED_BATCHES + 1, 31)]
    assert swept(world) == (len(strays), REPLAYED_BATCHES + 1)
    assert world.files() == world.named()


def test_a_start_costs_the_same_however_many_batches_there_are(world: World) -> None:
    for n in range(60):
        world.commit(n)
        if n == 39:
            swept(world)
    assert swept(world) == (0, 20 + REPLAYED_BATCHES)
    assert swept(world) == (0, REPLAYED_BATCHES)


def test_files_of_dropped_results_go_without_a_look_at_manifests(world: World) -> None:
    for n in range(40):
        world.commit(n)
    swept(world)
    world.drop(20)
    assert swept(world) == (20, REPLAYED_BATCHES)
    assert world.files() == world.named()
    assert world.values(None) == list(range(20, 40))


def test_before_the_first_batch_everything_goes(world: World) -> None:
    left_behind(world, 0)
    assert swept(world)[0] == 1
    world.commit(1)
    assert swept(world)[0] == 0
