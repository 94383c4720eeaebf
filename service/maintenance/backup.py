"""The commands ``sluice backup`` and ``sluice restore``, for the directories that the settings name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from service.config.data_dir import DataDir
from service.config.settings import StorageSettings
from service.errors import BackupRefused, NoDataDir
from service.recovery.backups.backup import back_up
from service.recovery.backups.restore import restore
from service.recovery.opening import sqlite_file


def backup_command(storage: StorageSettings, target: Path, *, say: Callable[[str], None]) -> dict[str, Any]:
    """Back up a data directory; its service may run meanwhile.

    Args:
        storage: Settings that locate the data directory and its catalog.
        target: Directory of the backup: new, or empty.
        say: Prints a line.

    Returns:
        The printed values, for programs: the directories ``data_dir`` and ``backup``, the last ``batch`` (-1:
        none), and the numbers of ``files`` and ``bytes``.

    Raises:
        BackupRefused: ``target`` is not usable, the catalog is on PostgreSQL, or there is a separate storage.
        NoDataDir: There is no data directory.
        BackupNotMade: See ``back_up``, which also raises further errors.
    """
    catalog = sqlite_file(storage.effective_catalog_url)
    if catalog is None:
        raise BackupRefused(
            "a catalog on PostgreSQL is not backed up",
            detail="Catalog and data directory must be copied in the same state.",
            hint="Stop the service, run pg_dump on the catalog's database and copy the data directory.",
        )
    if storage.url is not None:
        raise BackupRefused(
            "results and state in a separate storage are not backed up",
            detail=f"SLUICE_STORAGE_URL is {storage.url}. Catalog, data directory and storage must be "
            "copied in the same state.",
            hint="Stop the service, and copy the data directory and the storage.",
        )
    data_dir = DataDir(storage.data_dir.absolute())
    for path in (catalog, data_dir.events_db):
        if not path.is_file():
            raise NoDataDir(
                f'"{data_dir.root}" is not a data directory of a service',
                detail=f"There is no file {path}.",
                hint="Name the directory of a service with --data-dir.",
            )
    made = back_up(data_dir, catalog, target.absolute())
    results = f"results up to batch {made.batch}" if made.batch >= 0 else "no batch yet"
    say(f'backed up "{data_dir.root}" to "{target}": {results}, {made.files} files, {made.bytes} bytes')
    told = {"data_dir": str(data_dir.root), "backup": str(target)}
    return told | {"batch": made.batch, "files": made.files, "bytes": made.bytes}


def restore_command(backup: Path, storage: StorageSettings, *, say: Callable[[str], None]) -> dict[str, Any]:
    """Restore a backup to the data directory; raises as ``service.recovery.backups.restore.restore``.

    Args:
        backup: Directory of the backup.
        storage: Settings that locate the data directory.
        say: Prints a line.

    Returns:
        The printed values, for programs: the directories ``backup`` and ``data_dir``, the last ``batch`` (-1:
        none), and the number of ``files``.
    """
    root = storage.data_dir.absolute()
    found = restore(backup.absolute(), root)
    results = f"results up to batch {found.batch}" if found.batch >= 0 else "no batch yet"
    say(f'restored "{backup}" to "{root}": {results}, {len(found.files)} files')
    told = {"backup": str(backup), "data_dir": str(root)}
    return told | {"batch": found.batch, "files": len(found.files)}
