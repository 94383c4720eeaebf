"""Backups that were changed to read or write files elsewhere: they are refused, and nothing is written."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import google_crc32c
import pytest

from catalog.errors import CorruptDocument
from catalog.values.batch import ResultFile
from catalog.wording.outside import is_below
from operators.segments.files.segment_files import SegmentFiles
from operators.segments.segment import ArrivedFile
from operators.storage.folder import create, fetch, read, remove
from operators.storage.object_folder import ObjectFolder
from service.errors import BackupDamaged, BackupRefused
from service.recovery.backups.backup import back_up
from service.recovery.backups.backup_files import LIST, copy_file
from service.recovery.backups.restore import restore
from tests.service.recovery.lives import a_life

OUTSIDE = ("../victim", "a/../../victim", "/etc/victim", "a//victim", "./victim", "", "a/", "a\0b", "\ud800")


def listed(backup: Path, *, changes: dict[str, Path | None]) -> None:
    """Write a list with other names whose checksums are right; None removes a name."""
    facts = json.loads((backup / LIST).read_text())
    del facts["crc32c"]
    for name, path in changes.items():
        facts["files"].pop(name, None)
        if path is not None:
            data = path.read_bytes()
            facts["files"][name] = [len(data), google_crc32c.value(data)]
    checksum = google_crc32c.value(json.dumps(facts, sort_keys=True).encode())
    (backup / LIST).write_text(json.dumps(facts | {"crc32c": checksum}))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made")
    with a_life(root / "data", 2) as life:
        back_up(life.data_dir, life.data_dir.catalog_db, root / "backup")
    return root / "backup"


@pytest.fixture
def backup(made: Path, tmp_path: Path) -> Path:
    """A backup beside a file that nobody may read or write."""
    (tmp_path / "victim").write_bytes(b"old")
    return Path(shutil.copytree(made, tmp_path / "backup"))


def refused(backup: Path, error: type[Exception], match: str) -> None:
    before = {path: path.read_bytes() for path in backup.parent.rglob("*") if path.is_file()}
    with pytest.raises(error, match=match) as caught:
        restore(backup, backup.parent / "copy")
    assert str(caught.value).replace("\n", "").isprintable()
    assert not (backup.parent / "copy").exists()
    assert {path: path.read_bytes() for path in backup.parent.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", [*OUTSIDE, ".catalog.db.restored", ".backup/x", LIST])
def test_a_name_that_leads_elsewhere_is_refused(name: str, backup: Path) -> None:
    listed(backup, changes={name: backup.parent / "victim"})
    refused(backup, BackupRefused, "lead out of the backup")


@pytest.mark.parametrize("name", ["catalog.db", "events.db"])
def test_a_list_without_its_databases_is_refused(name: str, backup: Path) -> None:
    listed(backup, changes={name: None})
    refused(backup, BackupDamaged, name)


def symbolic(path: Path, real: Path) -> None:
    path.symlink_to(path.rename(real))


def hard(path: Path, real: Path) -> None:
    real.hardlink_to(path)


def directory(path: Path, real: Path) -> None:
    path.parent.rename(real)
    path.parent.symlink_to(real)


def pipe(path: Path, real: Path) -> None:
    path.rename(real)
    os.mkfifo(path)


LINKS = [(link, name) for link in (symbolic, hard, pipe) for name in ("catalog.db", "events.db", LIST)]


@pytest.mark.parametrize(("link", "name"), [*LINKS, (directory, "checkpoint/identity.json")])
def test_a_link_is_refused(link: Callable[[Path, Path], None], name: str, backup: Path) -> None:
    link(backup / name, backup.parent / "real")
    with pytest.raises(BackupRefused, match="lead out of the backup"):
        restore(backup, backup.parent / "copy")
    assert not (backup.parent / "copy").exists()


def test_an_archive_with_a_member_elsewhere_is_refused(backup: Path) -> None:
    archive = backup / "checkpoint" / "7.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("../../victim", b"new")
    listed(backup, changes={"checkpoint/7.zip": archive})
    refused(backup, BackupRefused, "lead out of the backup")


def test_a_catalog_that_names_files_elsewhere_is_refused(backup: Path) -> None:
    with closing(sqlite3.connect(backup / "catalog.db")) as catalog, catalog:
        found = catalog.execute("SELECT document FROM batches WHERE batch = 0").fetchone()[0]
        path = json.loads(found)["files"][0]["path"]
        text = (found.decode() if isinstance(found, bytes) else found).replace(path, "../../victim")
        catalog.execute("UPDATE batches SET document = ? WHERE batch = 0", (text,))
    listed(backup, changes={"catalog.db": backup / "catalog.db"})
    refused(backup, CorruptDocument, "leads out of its directory")


def test_a_catalog_with_names_of_other_files_is_refused(backup: Path) -> None:
    with closing(sqlite3.connect(backup / "catalog.db")) as catalog, catalog:
        found = catalog.execute("SELECT document FROM streams").fetchone()[0]
        document = json.loads(found) | {"name": "../../victim"}
        catalog.execute("UPDATE streams SET document = ?", (json.dumps(document),))
    listed(backup, changes={"catalog.db": backup / "catalog.db"})
    refused(backup, CorruptDocument, "a stream or query named")


def test_a_backup_that_was_copied_is_restored(backup: Path) -> None:
    for path in [path for path in backup.rglob("*") if path.is_file()]:
        copy_file(path, backup.parent / "copied" / path.relative_to(backup))
    (backup.parent / "here").symlink_to(backup.parent / "copied")
    restore(backup.parent / "here", backup.parent / "copy")


@pytest.mark.parametrize("name", OUTSIDE)
def test_no_stored_name_leads_out_of_its_folder(name: str, tmp_path: Path) -> None:
    """Names of results, segments and objects come from the catalog, from Spark's state and from stores."""
    (tmp_path / "victim").write_bytes(b"old")
    folder = tmp_path / "folder"
    (folder / "a").mkdir(parents=True)
    (folder / "mine").touch()
    segments = SegmentFiles(folder)
    for deed in (
        lambda: ResultFile(name, "f", 1),
        lambda: fetch(folder, [name]),
        lambda: read(folder, name),
        lambda: create(folder, name, b""),
        lambda: remove(folder, [name]),
        lambda: ObjectFolder(folder, "memory:///", 1).fetch([name]),
        lambda: segments.read(name),
        lambda: segments.write(name, b"new"),
        lambda: segments.remove([name]),
        lambda: segments.link(ArrivedFile("mine", 0), name),
        lambda: segments.link(ArrivedFile(name, 0), "mine"),
    ):
        with pytest.raises(CorruptDocument, match="leads out of its directory"):
            deed()
    assert (tmp_path / "victim").read_bytes() == b"old"
    assert not is_below(name)
