"""A data directory and its catalog are of one life, or they are not opened."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from catalog.store.store import Store
from catalog.values.stream import Column, HttpSource, Stream
from service.config.data_dir import DataDir, open_data_dir
from service.errors import CatalogMissing, OtherLife
from service.inputs.sources.posted.http_log import EventLog
from service.recovery.identity import identity_of, read_mark
from service.recovery.opening import open_catalog
from tests.service.recovery.lives import a_life, forget_identity


def remove_catalog(root: Path) -> None:
    for path in root.glob("catalog.db*"):
        path.unlink()


def test_a_directory_and_its_catalog_open_again_and_again(tmp_path: Path) -> None:
    for _ in range(3):
        with open_catalog(open_data_dir(tmp_path)) as store:
            identity = identity_of(store)
        assert identity is not None
        assert identity.settled
        assert read_mark(tmp_path / "identity.json") == {"id": identity.id}


def test_a_missing_catalog_is_refused_and_no_result_removed(tmp_path: Path) -> None:
    with a_life(tmp_path, batches=3) as life:
        files = life.files()
    remove_catalog(tmp_path)
    with pytest.raises(CatalogMissing, match="is missing") as refused:
        open_catalog(open_data_dir(tmp_path))
    assert "a checkpoint" in str(refused.value)
    assert "result files" in str(refused.value)
    assert "SLUICE_CATALOG_URL" in str(refused.value)
    assert {path.name for path in (tmp_path / "results").iterdir()} == files
    assert not (tmp_path / "catalog.db").exists()


@pytest.mark.parametrize("what", ["identity", "checkpoint", "segments", "events", "results", "late"])
def test_each_part_of_a_life_before_keeps_a_catalog_from_being_made(tmp_path: Path, what: str) -> None:
    data_dir = open_data_dir(tmp_path)
    if what == "identity":
        (tmp_path / "identity.json").write_text('{"id": "1"}')
    elif what == "checkpoint":
        (data_dir.checkpoint / "offsets").mkdir()
        (data_dir.checkpoint / "offsets" / "0").touch()
    elif what == "segments":
        (data_dir.segments / "c57b7a71801e.0.0.1").touch()
    elif what == "events":
        post(data_dir)
    else:
        (tmp_path / what / "b000000000-f-e1-0.parquet").touch()
    with pytest.raises(CatalogMissing):
        open_catalog(data_dir)


def post(data_dir: DataDir) -> None:
    stream = Stream(1, "A", (Column("ts", "timestamp"),), "ts", 0, HttpSource())
    with closing(EventLog(data_dir.events_db)) as events:
        events.append(stream, [{"ts": 1}])


def test_an_empty_catalog_elsewhere_is_refused_and_no_result_removed(tmp_path: Path) -> None:
    with a_life(tmp_path / "data", batches=3) as life:
        files = life.files()
    with pytest.raises(CatalogMissing, match="is missing"):
        open_catalog(open_data_dir(tmp_path / "data"), f"sqlite:///{tmp_path / 'other.db'}")
    Store.open(f"sqlite:///{tmp_path / 'empty.db'}").close()
    with pytest.raises(CatalogMissing, match="is missing"):
        open_catalog(open_data_dir(tmp_path / "data"), f"sqlite:///{tmp_path / 'empty.db'}")
    assert {path.name for path in (tmp_path / "data" / "results").iterdir()} == files


def test_the_catalog_of_another_directory_is_refused(tmp_path: Path) -> None:
    for name in ("one", "other"):
        with a_life(tmp_path / name, batches=2):
            pass
    with pytest.raises(OtherLife, match='the catalog does not belong to "'):
        open_catalog(open_data_dir(tmp_path / "one"), f"sqlite:///{tmp_path / 'other' / 'catalog.db'}")
    with pytest.raises(OtherLife, match='the catalog does not belong to "'):
        open_catalog(open_data_dir(tmp_path / "fresh"), f"sqlite:///{tmp_path / 'other' / 'catalog.db'}")


@pytest.mark.parametrize("part", ["events.db", "checkpoint"])
def test_a_part_of_another_directory_is_refused(tmp_path: Path, part: str) -> None:
    for name in ("one", "other"):
        with a_life(tmp_path / name, batches=2):
            pass
    if part == "checkpoint":
        shutil.rmtree(tmp_path / "one" / part)
        shutil.copytree(tmp_path / "other" / part, tmp_path / "one" / part)
    else:
        shutil.copy(tmp_path / "other" / part, tmp_path / "one" / part)
    with pytest.raises(OtherLife, match="the catalog does not belong to"):
        open_catalog(open_data_dir(tmp_path / "one"))


def test_an_event_log_that_was_removed_is_missed(tmp_path: Path) -> None:
    with a_life(tmp_path, batches=1):
        pass
    for path in tmp_path.glob("events.db*"):
        path.unlink()
    with pytest.raises(OtherLife, match="event log"):
        open_catalog(open_data_dir(tmp_path))


def test_an_event_log_that_is_older_than_the_batches_that_read_it_is_refused(tmp_path: Path) -> None:
    with a_life(tmp_path, source=HttpSource()) as life:
        for _ in range(2):
            post(life.data_dir)
        life.commit(0)
        life.commit(1)
    open_catalog(open_data_dir(tmp_path)).close()
    with closing(sqlite3.connect(tmp_path / "events.db")) as events:
        events.execute("UPDATE heads SET next_offset = 1")
        events.commit()
    with pytest.raises(OtherLife, match="is older than the catalog") as refused:
        open_catalog(open_data_dir(tmp_path))
    assert 'Batches have read 2 events of stream "A"; the log has 1.' in str(refused.value)


def test_a_directory_that_lost_its_mark_is_known_by_its_checkpoint(tmp_path: Path) -> None:
    with a_life(tmp_path, batches=1):
        pass
    mark = read_mark(tmp_path / "identity.json")
    (tmp_path / "identity.json").unlink()
    open_catalog(open_data_dir(tmp_path)).close()
    assert read_mark(tmp_path / "identity.json") == mark


def test_a_start_that_was_interrupted_is_done_again(tmp_path: Path) -> None:
    data_dir = open_data_dir(tmp_path)
    with open_catalog(data_dir) as store:
        identity = identity_of(store)
        assert identity is not None
        store.settings.set("identity", {"id": identity.id, "settled": False})
    data_dir.checkpoint_identity.unlink()
    with open_catalog(data_dir) as store:
        assert identity_of(store) == identity
    assert read_mark(data_dir.checkpoint_identity)["id"] == identity.id


def test_a_directory_without_identity_is_adopted_once(tmp_path: Path) -> None:
    with a_life(tmp_path, batches=3):
        pass
    forget_identity(tmp_path)
    with open_catalog(open_data_dir(tmp_path)) as store:
        first = identity_of(store)
    with open_catalog(open_data_dir(tmp_path)) as store:
        assert identity_of(store) == first
    assert first is not None
    assert first.settled


def test_a_directory_without_identity_and_without_checkpoint_is_not_adopted(tmp_path: Path) -> None:
    with a_life(tmp_path, batches=3):
        pass
    forget_identity(tmp_path)
    shutil.rmtree(tmp_path / "checkpoint")
    with pytest.raises(OtherLife, match="The catalog has 3 batches, but the checkpoint has none"):
        open_catalog(open_data_dir(tmp_path))


def test_a_directory_with_segments_of_another_checkpoint_is_not_adopted(tmp_path: Path) -> None:
    with a_life(tmp_path, batches=3) as life:
        (life.data_dir.segments / "0123456789ab.0.0.1").touch()
    forget_identity(tmp_path)
    with pytest.raises(OtherLife, match="Segments belong to checkpoint 0123456789ab"):
        open_catalog(open_data_dir(tmp_path))
