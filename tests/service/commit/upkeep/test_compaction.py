"""Files of old batches are merged into larger ones, and nobody who reads sees a difference."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import Connection

from catalog.errors import FencedOut
from catalog.store.pruning import REPLAYED_BATCHES
from catalog.store.results import retention
from catalog.store.results.compaction import Compaction
from catalog.store.results.retention import KEPT_BATCHES
from catalog.store.store import Store
from catalog.values.batch import ResultFile
from service.commit.sweep import sweep, sweep_merged
from service.commit.upkeep import compaction
from service.commit.upkeep.compaction import Compactor
from service.errors import CorruptResults
from service.results.export import export_query
from service.statistics.profile import RECENT_BATCHES
from tests.catalog.processes import SPAWN, finished
from tests.empty_catalog import prepared
from tests.epochs import begin_epoch
from tests.examples import seeds
from tests.service.compacting import BATCHES, FILES, KEPT, Twins, compact, compactor_of, named, twins
from tests.service.dropping import Q1, SECOND_US, World, a_world
from tests.service.results.test_results import pair


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(retention, "KEPT_BATCHES", KEPT)
    with a_world(tmp_path) as made:
        yield made


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Twins]:
    monkeypatch.setattr(retention, "KEPT_BATCHES", KEPT)
    with twins(tmp_path) as made:
        yield made


def spans(store: Store) -> list[tuple[int, int, int]]:
    """First and last batch and level of each file of the table."""
    return [(each.first, each.last, each.level) for each in store.result_files.merged()]


@pytest.mark.parametrize("seed", seeds(4, short=1))
def test_a_twin_whose_files_are_merged_gives_the_same_answers(seed: int, both: Twins, tmp_path: Path) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)
    horizon = 0
    for _ in range(8):
        both.commit_random(rng, rng.randint(1, 10))
        if rng.random() < 0.6:
            compact(both.compactor)
        else:
            both.compactor.run_once()
        both.check(rng)
        if rng.random() < 0.3:
            horizon = rng.randint(horizon, max(horizon, both.plain.batches.next - KEPT))
            both.drop(horizon)
            both.check(rng)
        if rng.random() < 0.2:  # a service that was killed, and is started again
            results, late = both.merged.directory / "results", both.merged.directory / "late"
            sweep(both.merged.store, results, late, both.merged.store.lease.epoch())
            sweep_merged(both.merged.store, results, late, both.merged.store.lease.epoch())
            both.compactor = compactor_of(both.merged.directory, both.merged.store)
            both.check(rng)
    compact(both.compactor)
    both.drop(horizon)
    both.check(rng)
    both.check_files()
    assert both.merged.store.result_files.merged_until() > 0
    for query in both.queries:
        exported = []
        for twin in (both.merged, both.plain):
            record = twin.store.queries.by_id(query).query
            out = tmp_path / "out" / twin.directory.name
            export_query(twin.store, twin.directory / "results", "q", [record], out)
            exported.append(pa.concat_tables(pq.read_table(p) for p in sorted((out / "q").iterdir())))
        assert exported[0].equals(exported[1])


def test_files_are_merged_by_time_level_by_level(world: World) -> None:
    batches = BATCHES * FILES * FILES
    for n in range(batches + KEPT):
        world.commit(n, n)
    compactor = compactor_of(world.directory, world.store)
    assert compact(compactor) == FILES * FILES + FILES + 1
    assert spans(world.store) == [(0, batches - 1, 3)]
    assert len(world.files()) == 1 + 2 * KEPT
    assert world.values(None) == [n for n in range(batches + KEPT) for _ in range(2)]


def test_each_row_is_written_once_per_level(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    merge_files = compaction.merge_files

    def counted(paths: list[Path], target: Path) -> tuple[int, int, int]:
        facts = merge_files(paths, target)
        written.append(facts[0])
        return facts

    monkeypatch.setattr(compaction, "merge_files", counted)
    compactor = compactor_of(world.directory, world.store)
    for n in range(BATCHES * FILES**2 + KEPT):
        world.commit(n)
        compact(compactor)
    assert sum(written) == 3 * BATCHES * FILES**2
    assert len(world.files()) == 1 + KEPT


def test_the_last_batches_stay_as_they_are(world: World) -> None:
    assert max(REPLAYED_BATCHES, RECENT_BATCHES) < KEPT_BATCHES
    for n in range(30):
        world.commit(n)
    whole = world.store.batches.manifests(0, 29)
    compact(compactor_of(world.directory, world.store))
    until = world.store.result_files.merged_until()
    assert until == 24
    assert world.store.batches.manifests(until, 29) == whole[until:]
    assert world.store.batches.manifests(0, until - 1) == tuple(m.thinned() for m in whole[:until])


def test_large_files_stay_and_no_file_becomes_larger_than_the_most(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(4 * BATCHES + KEPT):
        world.batches.commit([pair(Q1, 1, n, i, i) for i in range(2_000 if n == 5 else 1)])
    large = {p.name for p in (world.directory / "results").glob("b000005-*")}
    sizes = [p.stat().st_size for p in (world.directory / "results").glob("b000000-*")]
    monkeypatch.setattr(compaction, "LARGE_BYTES", sizes[0] + 1)
    monkeypatch.setattr(compaction, "MOST_BYTES", 2 * sizes[0] + 20)
    before, merge_files, lengths = world.values(None), compaction.merge_files, []

    def noted(paths: list[Path], target: Path) -> tuple[int, int, int]:
        lengths.append(sum(path.stat().st_size for path in paths))
        return merge_files(paths, target)

    monkeypatch.setattr(compaction, "merge_files", noted)
    compact(compactor_of(world.directory, world.store))
    assert large <= world.files()
    assert sizes[0] < max(lengths) <= 2 * sizes[0] + 20
    assert world.values(None) == before


def test_a_file_spans_a_small_part_of_the_retention(world: World) -> None:
    for n in range(100):
        world.commit(n)
    compact(compactor_of(world.directory, world.store, retention_us=24 * 20 * SECOND_US))
    assert max(last - first for first, last, _ in spans(world.store)) in range(BATCHES * FILES - 1, 21)


def test_a_damaged_file_is_not_merged_and_stays_damaged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for n in range(BATCHES * FILES + KEPT):
        world.commit(n)
    damaged = world.directory / "results" / "b000002-f-e1-0.parquet"
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 255
    for m in world.store.batches.manifests(0, 100):
        facts = [replace(f, bytes=len(data), crc32c=1 if m.batch == 2 else None) for f in m.files]
        if m.batch == 2:
            world.store.batches.replace_files(replace(m, files=tuple(facts)))
    damaged.write_bytes(data)
    compactor = compactor_of(world.directory, world.store)
    compact(compactor)
    assert caplog.text.count("file is not merged") == 1
    assert damaged.exists()
    with pytest.raises(CorruptResults, match="b000002"):
        world.values(None)
    assert world.reader.page(world.q.id, "2.1", 100).table["k"].to_pylist() == list(
        range(3, BATCHES * FILES + KEPT)
    )


def test_files_of_other_types_are_left_alone(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Late rows are of a stream by its name, which another one may have later."""
    for n in range(BATCHES + KEPT):
        world.commit(n)
    for n, kind in ((0, pa.int64()), (1, pa.string())):
        path = world.directory / "late" / f"b{n:09}-{n}-e1-late.parquet"
        pq.write_table(pa.table({"x": pa.array([None], kind)}), path)
        m = world.store.batches.manifest(n)
        assert m is not None
        world.store.batches.replace_files(replace(m, late_files=(ResultFile(path.name, "A", 1),)))
    compact(compactor_of(world.directory, world.store))
    assert "are not merged" in caplog.text
    assert len(named(world.store, late=True)) == 2
    assert spans(world.store) == [(0, 0, 1), (0, BATCHES - 1, 1), (1, 1, 1)]


@pytest.mark.parametrize("method", ["name", "replace"])
def test_results_that_are_dropped_while_they_are_merged_go(
    method: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(BATCHES * FILES + KEPT):
        world.commit(n)
    compactor = compactor_of(world.directory, world.store)
    real = getattr(world.store.compaction, method)

    def too_late(*args: Any) -> bool:
        world.drop(BATCHES + 1)
        named_it: bool = real(*args)
        assert not named_it
        return named_it

    with monkeypatch.context() as patch:
        patch.setattr(world.store.compaction, method, too_late)
        while compactor.run_once():
            pass
    compact(compactor)
    world.drop(BATCHES + 1)
    assert world.files() == named(world.store)
    assert world.values(None) == list(range(BATCHES + 1, BATCHES * FILES + KEPT))


def test_a_merged_file_goes_with_the_last_of_its_batches(world: World) -> None:
    for n in range(3 * BATCHES + KEPT):
        world.commit(n)
    compact(compactor_of(world.directory, world.store, files_at_a_time=99))
    merged = {p.name for p in (world.directory / "results").glob("m*")}
    for kept_from, left in ((BATCHES - 1, 3), (BATCHES, 2), (3 * BATCHES - 1, 1), (3 * BATCHES, 0)):
        world.drop(kept_from)
        world.drop(kept_from)
        assert len(merged & world.files()) == left
        assert world.values(None) == list(range(kept_from, 3 * BATCHES + KEPT))


@pytest.mark.parametrize("times", [1, 2])
def test_a_page_that_is_read_while_its_files_are_merged_is_whole(
    times: int, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(BATCHES * FILES + KEPT):
        world.commit(n)
    compactor = compactor_of(world.directory, world.store)
    if times == 2:  # from level to level
        while len(spans(world.store)) < FILES:
            compactor.run_once()
    names = world.store.result_files.of_family
    read = []

    def and_then(*args: Any) -> object:
        found = names(*args)
        if not read:
            compact(compactor)
        read.append(found)
        return found

    monkeypatch.setattr(world.store.result_files, "of_family", and_then)
    assert world.values(None) == list(range(BATCHES * FILES + KEPT))
    assert len(read) == 2


def test_a_page_reads_only_the_row_groups_of_its_batches(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.results.files.merge._ROWS_PER_GROUP", 2)
    for n in range(BATCHES + KEPT):
        world.commit(n)
    compact(compactor_of(world.directory, world.store))
    (merged,) = (world.directory / "results").glob("m*")
    with pq.ParquetFile(merged) as file:
        columns = [file.metadata.row_group(n).column(2) for n in range(file.num_row_groups)]
        assert [(c.statistics.min, c.statistics.max) for c in columns] == [(0, 1), (2, 3)]
        assert columns[0].path_in_schema == "_batch"


def test_new_files_are_synced_before_they_are_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(BATCHES * FILES + KEPT):
        world.commit(n)
    synced: set[str] = set()
    unsynced = []
    monkeypatch.setattr(compaction, "sync_file_systems", lambda _: synced.update(world.files()))

    def checked(method: Any) -> Any:
        def call(*args: Any) -> Any:
            files = args[-1] if isinstance(args[-1], list) else [args[-1]]
            unsynced.extend(each for each in files if each.file.path not in synced)
            return method(*args)

        return call

    for name in ("name", "replace"):
        monkeypatch.setattr(world.store.compaction, name, checked(getattr(world.store.compaction, name)))
    assert compact(compactor_of(world.directory, world.store)) == FILES + 1
    assert unsynced == []


def test_who_is_fenced_out_leaves_no_files(world: World) -> None:
    for n in range(BATCHES + KEPT):
        world.commit(n)

    def refuse(_: Connection) -> None:
        raise FencedOut("another engine has taken over")

    world.store._database.guard(refuse)
    before = world.files()
    with pytest.raises(FencedOut):
        compact(compactor_of(world.directory, world.store))
    assert world.files() == before


def die_at(directory: Path, point: str, first: int) -> None:
    """Merge until the process is killed at a failpoint."""
    os.environ["SLUICE_FAILPOINT"] = f"{point}@{first}"
    lock = directory / "engine.lock"
    lock.write_text(f'{{"pid": {os.getpid()}, "jvm_pid": {os.getpid()}}}')
    with Store.open(prepared(f"sqlite:///{directory / 'catalog.db'}")) as store:
        compact(compactor_of(directory, store))


@pytest.mark.parametrize(
    "first",
    [BATCHES, *(pytest.param(first, marks=pytest.mark.slow) for first in (0, BATCHES * FILES))],
)
@pytest.mark.parametrize("point", ["before-compaction", "after-compaction"])
def test_a_crash_loses_and_doubles_nothing(point: str, first: int, world: World) -> None:
    batches = 2 * BATCHES * FILES + KEPT
    for n in range(batches):
        world.commit(n)
    process = SPAWN.Process(target=die_at, args=(world.directory, point, first))
    process.start()
    assert finished(process) == -signal.SIGKILL
    assert world.values(None) == list(range(batches))
    assert world.files() > named(world.store), "a crash leaves files of before or after"
    results, late = world.directory / "results", world.directory / "late"
    compactor = compactor_of(world.directory, world.store)
    compactor.start()
    compactor.stop()
    sweep(world.store, results, late, world.store.lease.epoch())
    assert world.files() == named(world.store)
    compact(compactor_of(world.directory, world.store))
    assert world.files() == named(world.store)
    assert world.values(None) == list(range(batches))


def test_an_engine_that_hung_removes_no_file_that_its_successor_merges(world: World) -> None:
    hung = compactor_of(world.directory, world.store)
    for _ in range(2):
        begin_epoch(world.store)
    successors, leftover = (
        world.directory / "results" / f"m000000000-000000003-0-e{epoch}-0123456789ab.parquet"
        for epoch in (hung.epoch + 1, hung.epoch)
    )
    for file in (successors, leftover):
        file.touch()
    hung.start()
    hung.stop()
    assert successors.exists()
    assert not leftover.exists()


def test_the_sweep_of_an_engine_that_restarts_takes_nothing_from_the_compactor(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs at any moment: while a merged file has no name yet, and while names are moved."""
    batches = BATCHES * FILES + KEPT
    for n in range(batches):
        world.commit(n)
    results, late = world.directory / "results", world.directory / "late"
    compactor = compactor_of(world.directory, world.store, files_at_a_time=99)
    name, manifest = Compaction.name, world.store.batches.manifest

    def swept_before(self: Compaction, *args: Any) -> bool:
        sweep(world.store, results, late, world.store.lease.epoch())
        return name(self, *args)

    monkeypatch.setattr(Compaction, "name", swept_before)
    compactor.run_once()
    monkeypatch.setattr(Compaction, "name", name)
    monkeypatch.setattr(compaction, "LARGE_BYTES", 1)  # from here on files move as they are
    monkeypatch.setattr(world.store.batches, "manifest", lambda n: (compact(compactor), manifest(n))[1])
    sweep(world.store, results, late, world.store.lease.epoch())
    assert world.store.result_files.merged_until() == BATCHES * FILES
    assert world.values(None) == list(range(batches))


def test_a_compactor_runs_by_itself_and_stops(world: World) -> None:
    for n in range(BATCHES * FILES + KEPT):
        world.commit(n)
    compactor = compactor_of(world.directory, world.store, interval_s=0.001)
    compactor.start()
    while len(spans(world.store)) != 1:
        compactor._stop.wait(0.001)
    compactor.stop()
    assert world.values(None) == list(range(BATCHES * FILES + KEPT))


def test_batches_that_are_merged_are_a_fixed_number(world: World) -> None:
    fields = Compactor.__dataclass_fields__
    assert fields["kept_batches"].default == KEPT_BATCHES
    assert fields["unlink_after_s"].default >= 60
