"""Moves without Spark: what is refused, what an interrupted one leaves, and catalogs of both kinds."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from catalog.store.store import Store
from catalog.values.stream import HttpSource
from operators.bucket.bucket import Bucket
from operators.bucket.state.manifest import encode_manifest
from operators.storage.folder import names
from service.checkpoint.buckets import CHECKPOINT_SETTING, bucket_keys, stored_buckets
from service.config.data_dir import DataDir
from service.config.storage import Storage
from service.errors import CorruptResults, DataDirMoved, MoveRefused
from service.inputs.reading.voided import VoidedBatch, void_batch
from service.inputs.sources.posted.http_log import EventLog
from service.recovery.checkpoint import check_checkpoint, standing
from service.recovery.identity import identity_of
from service.recovery.moving import move as moving
from service.recovery.moving.move import FinishedMove, Place, move
from service.recovery.opening import open_catalog
from tests.s3 import S3Server
from tests.service.inputs.streams import stream_of
from tests.service.recovery.lives import Life, a_life, input_end
from tests.service.spark_logs import write_begun


def manifests(checkpoint: Path, number: int) -> dict[int, bytes]:
    """The state of a life: one bucket without rows."""
    return {bucket_keys(1, 1)[0]: encode_manifest(Bucket(next_batch=number + 1))}


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    """A data directory that has done three batches."""
    with a_life(tmp_path / "old", 3) as made:
        yield made


def place(root: Path, storage: str | None = None, catalog_url: str | None = None) -> Place:
    apart = None if storage is None else Storage(storage, root.parent / "cache", 1 << 26)
    return Place(DataDir(root, storage=apart), catalog_url)


def moved(life: Life, target: Place, buckets: int | None = None) -> FinishedMove | None:
    return move(life.store, Place(life.data_dir, None), target, buckets, manifests)


def contents(root: Path) -> dict[str, bytes]:
    files = (p for p in root.rglob("*") if p.is_file() and not p.name.startswith("catalog.db"))
    return {str(p.relative_to(root)): p.read_bytes() for p in files}


def test_the_new_directory_goes_on_and_the_old_one_is_as_it_was_but_does_not_start(
    life: Life, tmp_path: Path
) -> None:
    (life.data_dir.exports / "gusts").mkdir(parents=True)
    (life.data_dir.exports / "gusts" / "b1.csv").write_text("1\n")
    before = contents(life.data_dir.root)
    done = moved(life, place(tmp_path / "new"), buckets=8)
    assert done == FinishedMove(batch=2, buckets=8, files=4, state_rows=0)
    assert contents(life.data_dir.root) == before

    new = DataDir(tmp_path / "new")
    assert (new.exports / "gusts" / "b1.csv").read_text() == "1\n"
    with open_catalog(new) as store:
        check_checkpoint(store, new)
        found = standing(store, new.checkpoint)
        assert (found.first, found.committed, found.done, found.begun) == (3, 2, 2, ())
        assert identity_of(store) == identity_of(life.store)
        assert stored_buckets(store) == 8
        names_of = {file.path for named in store.result_files.all() for file in named.files}
        assert set(names(new.results)) == names_of == life.files()
    with pytest.raises(DataDirMoved, match="was moved to"):
        open_catalog(life.data_dir)


def test_a_batch_that_is_not_done_is_repeated_and_one_that_was_only_begun_is_not(tmp_path: Path) -> None:
    with a_life(tmp_path / "old", 3) as life:
        life.commit(3, done=False)
        life.begin(4)
        # Spark begins no batch before the one before is done: its log has lost that.
        (life.log.offsets / "4").unlink()
        moved(life, place(tmp_path / "new"))
    new = DataDir(tmp_path / "new")
    with open_catalog(new) as store:
        check_checkpoint(store, new)
        found = standing(store, new.checkpoint)
        assert (found.first, list(found.repeated)) == (3, [3])


@pytest.mark.parametrize("died_at", ["catalog", "mark", "end"])
def test_a_move_that_died_is_done_again_and_nothing_starts_twice(
    died_at: str, life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = place(tmp_path / "new", f"file://{tmp_path / 'mount'}")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if died_at == "catalog":
            patch.setattr(Store, "copy_to", die)
        else:
            patch.setattr(moving, "mark_moved" if died_at == "mark" else "_finish", die)
        with pytest.raises(KeyboardInterrupt):
            moved(life, new, 2)
    with pytest.raises(DataDirMoved, match="is not complete"):
        open_catalog(new.data_dir)
    if died_at == "end":
        with pytest.raises(DataDirMoved):
            open_catalog(life.data_dir)
    else:
        open_catalog(life.data_dir).close()
    again = moved(life, new, 2)
    assert (again is None) == (died_at == "end")
    open_catalog(new.data_dir).close()


def test_a_storage_that_is_not_empty_is_refused_and_left(life: Life, tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    (mount / "results").mkdir(parents=True)
    (mount / "results" / "another.parquet").write_bytes(b"1")
    for _ in range(2):
        with pytest.raises(MoveRefused, match=r"storage .* is not empty"):
            moved(life, place(tmp_path / "new", f"file://{mount}"))
    assert contents(mount) == {"results/another.parquet": b"1"}
    assert not (tmp_path / "new").exists()


def test_a_catalog_that_is_not_empty_is_refused_the_source_s_own_too(life: Life, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'other.db'}") as other:
        other.streams.add(stream_of(HttpSource(), stream_id=0, name="A"))
    for url in (f"sqlite:///{tmp_path / 'other.db'}", life.data_dir.catalog_url):
        for _ in range(2):
            with pytest.raises(MoveRefused, match=r"catalog .* is not empty"):
                moved(life, place(tmp_path / "new", catalog_url=url))
    assert life.store.batches.last() == 2


def test_a_directory_that_is_not_empty_or_the_source_s_own_is_refused(life: Life, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "mine.txt").write_text("1")
    with pytest.raises(MoveRefused, match="is not empty"):
        moved(life, place(tmp_path / "new"))
    for root in (life.data_dir.root, life.data_dir.root / "new", tmp_path):
        with pytest.raises(MoveRefused, match="inside of it"):
            moved(life, place(root))
    assert contents(tmp_path / "new") == {"mine.txt": b"1"}


def test_a_directory_that_was_moved_away_is_not_moved_again(life: Life, tmp_path: Path) -> None:
    moved(life, place(tmp_path / "new"))
    assert moved(life, place(tmp_path / "new")) is None
    shutil.rmtree(tmp_path / "new")
    with pytest.raises(MoveRefused, match="which is not there"):
        moved(life, place(tmp_path / "new"))


def test_a_batch_that_was_begun_and_voided_is_finished_first(life: Life, tmp_path: Path) -> None:
    write_begun(life.log, 3, input_end(3))
    void_batch(life.store, VoidedBatch(3, (), "it fails", "ann", 0))
    with pytest.raises(MoveRefused, match="batch 3 was begun") as refused:
        moved(life, place(tmp_path / "new"))
    assert "Start the service" in str(refused.value)


def test_a_damaged_result_ends_the_move(life: Life, tmp_path: Path) -> None:
    damaged = life.data_dir.results / min(life.files())
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    with pytest.raises(CorruptResults):
        moved(life, place(tmp_path / "new"))
    open_catalog(life.data_dir).close()


def test_events_and_changes_that_come_meanwhile_are_not_lost_unnoticed(
    life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = life.store.streams.add(stream_of(HttpSource(), stream_id=0, name="H"))
    copied = Store.copy_to

    def slow(self: Store, target: Store, then: object) -> int:
        rows = copied(self, target, then)  # type: ignore[arg-type]
        with closing(EventLog(life.data_dir.events_db)) as events:
            events.append(stream, [EVENT])
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(Store, "copy_to", slow)
        with pytest.raises(MoveRefused, match="changed while it was moved"):
            moved(life, place(tmp_path / "new"))
    open_catalog(life.data_dir).close()
    moved(life, place(tmp_path / "new"))
    with closing(EventLog(tmp_path / "new" / "events.db")) as events:
        assert events.end(stream.id) == 1


EVENT = {"ts": "2026-01-01T00:00:00Z", "k": 1, "v": 0.5}


def test_catalog_and_events_go_to_postgresql_and_back(life: Life, tmp_path: Path, postgres_url: str) -> None:
    stream = life.store.streams.add(stream_of(HttpSource(), stream_id=0, name="H"))
    with closing(EventLog(life.data_dir.events_db)) as events:
        events.append(stream, [EVENT, EVENT])
    there, back = place(tmp_path / "new", catalog_url=postgres_url), place(tmp_path / "back")
    moved(life, there)
    assert not there.data_dir.events_db.exists()
    with open_catalog(there.data_dir, postgres_url) as store:
        assert store.batches.last() == 2
        assert store.settings.get(CHECKPOINT_SETTING) is not None
        with closing(EventLog(there.events_url)) as events:
            assert events.append(stream, [EVENT]) == (2, 2)
        move(store, there, back, None, manifests)
    with open_catalog(back.data_dir) as store, closing(EventLog(back.events_url)) as events:
        assert store.batches.last() == 2
        assert events.end(stream.id) == 3
    with pytest.raises(DataDirMoved):
        open_catalog(there.data_dir, postgres_url)


def test_everything_goes_into_an_object_store_and_is_read_back(
    life: Life, tmp_path: Path, s3: S3Server
) -> None:
    url = s3.new_url()
    there = place(tmp_path / "new", url)
    moved(life, there, 2)
    stored = s3.objects(url)
    assert {name for name in stored if name.startswith("results/")} == {f"results/{n}" for n in life.files()}
    assert len([name for name in stored if name.startswith("segments/") and name.endswith(".begin")]) == 2
    shutil.rmtree(tmp_path / "cache")
    with open_catalog(there.data_dir) as store:
        move(store, there, place(tmp_path / "back"), 1, manifests)
    assert set(names(DataDir(tmp_path / "back").results)) == life.files()
