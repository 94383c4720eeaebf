"""Backup and restore without Spark: what is copied, what is refused, and what a moment is."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from catalog.store.store import Store
from operators.segments.files.segment_files import SegmentFiles
from service.config.data_dir import DataDir
from service.engine.ownership.catalog_lease import CatalogLease
from service.errors import BackupDamaged, BackupNotMade, BackupRefused, CorruptResults, OtherLife
from service.recovery.backups import backup
from service.recovery.backups.backup import STAGING, back_up
from service.recovery.backups.backup_files import LIST
from service.recovery.backups.restore import restore
from service.recovery.checkpoint import check_checkpoint
from service.recovery.identity import identity_of
from service.recovery.opening import open_catalog
from tests.service.recovery.lives import CHECKPOINT, Life, a_life, input_end
from tests.service.spark_logs import write_begun

SEGMENT = f"{CHECKPOINT}.0.1"


def make(life: Life, target: Path) -> None:
    back_up(life.data_dir, life.data_dir.catalog_db, target)


def entries(root: Path, log: str) -> list[str]:
    return sorted(p.name for p in (root / "checkpoint" / log).iterdir() if not p.name.startswith("."))


def contents(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_a_restored_backup_goes_on_where_the_original_was(tmp_path: Path) -> None:
    with a_life(tmp_path / "data", 3) as life:
        SegmentFiles(life.data_dir.segments).write(SEGMENT, b"a segment")
        (life.data_dir.segments / "rows.3.0.0.0").write_bytes(b"on its way")
        (life.data_dir.root / "dead_letters").mkdir()
        (life.data_dir.root / "dead_letters" / "b1.jsonl").write_text("{}\n")
        life.begin(3)
        make(life, tmp_path / "backup")
        files, identity = life.files(), identity_of(life.store)
        # What comes later is not in it.
        life.store.batches.commit(life.manifest(3))

    restore(tmp_path / "backup", tmp_path / "copy")
    copy = DataDir(tmp_path / "copy")
    with open_catalog(copy) as store:
        check_checkpoint(store, copy)
        assert store.batches.last() == 2
        assert identity_of(store) != identity
    assert {p.name for p in copy.results.iterdir()} == files
    assert SegmentFiles(copy.segments).read(SEGMENT).to_pybytes() == b"a segment"
    assert [p.name for p in copy.segments.iterdir()] == [SEGMENT]
    assert (copy.root / "dead_letters" / "b1.jsonl").read_text() == "{}\n"
    assert entries(copy.root, "offsets") == ["0", "1", "2", "3"]
    assert entries(copy.root, "commits") == ["0", "1", "2"]
    assert not (tmp_path / "data" / STAGING).exists()


@pytest.mark.parametrize("when", ["commit log", "segments"])
def test_batches_that_are_committed_meanwhile_are_taken_too(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three batches pass between the commit log and the catalog, which is more than can be repeated."""
    with a_life(tmp_path / "data", 1) as life:
        mirror, batches = backup._mirror, iter(range(1, 4))
        at = life.log.commits if when == "commit log" else life.data_dir.segments

        def slow(directory: Path, own: Path, *, up_to: int | None = None) -> None:
            mirror(directory, own, up_to=up_to)
            if directory == at:
                for batch in batches:
                    life.commit(batch)

        monkeypatch.setattr(backup, "_mirror", slow)
        make(life, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "copy")
    assert entries(tmp_path / "copy", "commits") == ["0", "1", "2", "3"]
    copy = DataDir(tmp_path / "copy")
    with open_catalog(copy) as store:
        check_checkpoint(store, copy)
        assert store.batches.last() == 3


def test_an_engine_that_is_always_faster_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with a_life(tmp_path / "data", 1) as life:
        mirror = backup._mirror

        def slow(directory: Path, own: Path, *, up_to: int | None = None) -> None:
            mirror(directory, own, up_to=up_to)
            if directory == life.data_dir.segments:
                for _ in range(2):
                    last = life.store.batches.last()
                    assert last is not None
                    life.commit(last + 1)

        monkeypatch.setattr(backup, "_mirror", slow)
        monkeypatch.setattr(backup, "_ATTEMPTS", 3)
        with pytest.raises(BackupNotMade, match="changed too fast"):
            make(life, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()
    assert not (tmp_path / "data" / STAGING).exists()


def test_a_first_batch_that_was_begun_is_begun_in_the_copy(tmp_path: Path) -> None:
    with a_life(tmp_path / "data") as life:
        write_begun(life.log, 0, input_end(0))
        make(life, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "copy")
    copy = DataDir(tmp_path / "copy")
    with open_catalog(copy) as store:
        check_checkpoint(store, copy)
    assert entries(copy.root, "offsets") == ["0"]


def test_the_original_and_its_copy_do_not_accept_each_others_catalog(tmp_path: Path) -> None:
    with a_life(tmp_path / "data", 2) as life:
        make(life, tmp_path / "backup")
        restore(tmp_path / "backup", tmp_path / "copy")
        url = life.data_dir.catalog_url
        with pytest.raises(OtherLife, match="the catalog does not belong to"):
            open_catalog(DataDir(tmp_path / "copy"), url)
    with pytest.raises(OtherLife, match="the catalog does not belong to"):
        open_catalog(DataDir(tmp_path / "data"), DataDir(tmp_path / "copy").catalog_url)


def test_the_lease_stays_with_the_original(tmp_path: Path) -> None:
    with a_life(tmp_path / "data", 1) as life:
        lease = CatalogLease(life.store, life.data_dir.root, lambda _: None)
        lease.acquire()
        make(life, tmp_path / "backup")
        held = life.store.lease.current()
        assert held is not None
        assert held.token
        lease.release()
    restore(tmp_path / "backup", tmp_path / "copy")
    with Store.open(f"sqlite:///{tmp_path / 'copy' / 'catalog.db'}") as store:
        copied = store.lease.current()
        assert copied is not None
        assert not copied.token


@pytest.mark.parametrize(
    "name", ["catalog.db", "events.db", "checkpoint/commits/1", "checkpoint/identity.json", "results", LIST]
)
@pytest.mark.parametrize("damage", ["flipped", "shorter", "missing"])
def test_a_damaged_backup_is_refused_by_the_file(name: str, damage: str, tmp_path: Path) -> None:
    with a_life(tmp_path / "data", 2) as life:
        make(life, tmp_path / "backup")
    path = tmp_path / "backup" / name
    if path.is_dir():
        path = min(path.iterdir())
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "shorter":
        path.write_bytes(data[:-1])
    else:
        path.write_bytes(
            data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]
        )
    expected = BackupRefused if (name, damage) == (LIST, "missing") else BackupDamaged
    with pytest.raises(expected) as caught:
        restore(tmp_path / "backup", tmp_path / "copy")
    assert path.name in str(caught.value)
    assert not (tmp_path / "copy").exists()


def test_nothing_is_written_where_something_is(tmp_path: Path) -> None:
    with a_life(tmp_path / "data", 1) as life:
        taken = tmp_path / "taken"
        taken.mkdir()
        (taken / "a").touch()
        with pytest.raises(BackupRefused, match="is not empty"):
            make(life, taken)
        with pytest.raises(BackupRefused, match="inside the data directory"):
            make(life, life.data_dir.root / "backup")
        make(life, tmp_path / "backup")
    before = contents(tmp_path / "data")
    with pytest.raises(BackupRefused, match=r'data directory ".*data" is not empty'):
        restore(tmp_path / "backup", tmp_path / "data")
    assert contents(tmp_path / "data") == before


def test_a_second_backup_at_the_same_time_is_refused(tmp_path: Path) -> None:
    with (
        a_life(tmp_path / "data", 1) as life,
        backup._staging(life.data_dir),
        pytest.raises(BackupNotMade, match="another backup"),
    ):
        make(life, tmp_path / "backup")


def test_what_a_killed_backup_left_goes_with_the_next(tmp_path: Path) -> None:
    with a_life(tmp_path / "data", 1) as life:
        left = life.data_dir.root / STAGING / "results"
        left.mkdir(parents=True)
        (left / "b9-left.parquet").touch()
        make(life, tmp_path / "backup")
    assert not (tmp_path / "backup" / "results" / "b9-left.parquet").exists()
    assert not (tmp_path / "data" / STAGING).exists()


def test_damaged_results_are_not_backed_up(tmp_path: Path) -> None:
    with a_life(tmp_path / "data", 2) as life:
        path = min(life.data_dir.results.iterdir())
        path.write_bytes(b"")
        with pytest.raises(CorruptResults, match=path.name):
            make(life, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


@pytest.mark.parametrize("damaged", [False, True])
def test_merged_files_are_backed_up_too(damaged: bool, tmp_path: Path) -> None:
    with a_life(tmp_path / "data", 5) as life:
        life.merge(3)
        files = life.files()
        if damaged:
            path = min(life.data_dir.results.iterdir())
            path.write_bytes(b"")
            with pytest.raises(CorruptResults, match=path.name):
                make(life, tmp_path / "backup")
            return
        make(life, tmp_path / "backup")
        merged = life.store.result_files.merged()
    restore(tmp_path / "backup", tmp_path / "copy")
    copy = DataDir(tmp_path / "copy")
    with open_catalog(copy) as store:
        check_checkpoint(store, copy)
        assert store.result_files.merged() == merged
    assert {p.name for p in copy.results.iterdir()} == files


def test_events_posted_before_the_backup_are_in_it(tmp_path: Path) -> None:
    with (
        a_life(tmp_path / "data", 1) as life,
        closing(sqlite3.connect(life.data_dir.events_db)) as connection,
    ):
        connection.execute("INSERT INTO heads VALUES (1, 7)")
        connection.commit()  # in the write-ahead log
        make(life, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "copy")
    with closing(sqlite3.connect(tmp_path / "copy" / "events.db")) as connection:
        assert connection.execute("SELECT next_offset FROM heads").fetchone() == (7,)
