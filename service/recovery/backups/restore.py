"""``sluice restore``: make a data directory from a backup, with a new identity.

All files are verified before the first file is written, and again while they are copied. The catalog is
written last. A service refuses to start without a catalog, so an interrupted restore cannot be used by
mistake.

A restored directory gets a new identity, because the original may still exist. So neither directory accepts
the catalog, checkpoint or event log of the other directory.
"""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing
from pathlib import Path

from catalog.errors import CorruptDocument
from catalog.store.store import Store
from catalog.values.stream import NAME_PATTERN
from catalog.wording.outside import printable
from service.commit.sync import sync_file, sync_file_systems
from service.config.data_dir import DataDir
from service.errors import BackupRefused
from service.recovery.backups.backup_files import (
    BackupList,
    check_file,
    copy_opened,
    files_below,
    is_taken,
    make_empty,
    opened,
    read_list,
    refuse_other,
)
from service.recovery.identity import Identity, identity_of, read_mark, settle, write_mark


def restore(backup: Path, root: Path) -> BackupList:
    """Restore a backup to a data directory and return its list.

    Args:
        backup: Directory that ``sluice backup`` has made.
        root: Data directory that does not exist or is empty.

    Raises:
        BackupRefused: ``backup`` is not a backup, or ``root`` is not empty or cannot be written.
        BackupDamaged: A file of the backup is missing or has changed. Nothing is restored.
        CorruptDocument: The catalog of the backup names files outside of the data directory.
        CatalogVersionMismatch: A later version of Sluice made the backup.
    """
    found = read_list(backup)
    if is_taken(root):
        raise BackupRefused(
            f'data directory "{root}" is not empty',
            detail="A backup is restored to a new directory, because existing files would not belong to it.",
            hint="Name another directory with --data-dir, or move this directory away.",
        )
    for name, facts in found.files.items():
        check_file(backup, name, facts)
    try:
        _write(backup, DataDir(root), found)
    except OSError as error:
        raise BackupRefused(
            f'data directory "{root}" cannot be written',
            detail=f"{error.strerror or error}: {error.filename}.",
        ) from error
    return found


def _write(backup: Path, data_dir: DataDir, found: BackupList) -> None:
    new = not data_dir.root.exists()
    data_dir.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    catalog = data_dir.root / ".catalog.db.restored"
    try:
        for name, facts in found.files.items():
            target = catalog if name == data_dir.catalog_db.name else data_dir.root / name
            with opened(backup, name) as file:
                refuse_other(backup / name, copy_opened(file, target), facts)
        data_dir.create()
        _give_identity(data_dir, catalog)
        sync_file_systems([data_dir.root])
        catalog.replace(data_dir.catalog_db)
        sync_file(data_dir.root)
    except BaseException:
        make_empty(data_dir.root, list(files_below(data_dir.root)))
        if new:
            data_dir.root.rmdir()
        raise


def _check_names(store: Store) -> None:
    """Refuse a catalog that names files elsewhere: result files, and streams and queries with files."""
    for _ in store.result_files.all():
        pass  # ``ResultFile`` refuses such a name
    streams = [stream.name for stream in store.streams.all()]
    for name in (*streams, *(record.query.name for record in store.queries.all())):
        if NAME_PATTERN.fullmatch(name) is None:
            raise CorruptDocument(
                f'the catalog of the backup has a stream or query named "{printable(name)}"',
                detail="Sluice accepts no such name, so the catalog was changed by someone else.",
                hint="Restore another backup.",
            )


def _give_identity(data_dir: DataDir, catalog: Path) -> None:
    """Give a new identity to the catalog and to every part that already has an identity."""
    with Store.open(f"sqlite:///{catalog}") as store:
        _check_names(store)
        if identity_of(store) is None:
            return  # an old version made the backup; the first start assigns an identity
        new = uuid.uuid4().hex
        for path in (data_dir.identity, data_dir.checkpoint_identity):
            if mark := read_mark(path):
                write_mark(path, mark | {"id": new})
        with closing(sqlite3.connect(data_dir.events_db)) as events, events:
            events.execute("UPDATE identity SET id = ?", (new,))
        settle(store, Identity(new, settled=False))
