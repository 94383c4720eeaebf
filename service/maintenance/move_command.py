"""The command ``sluice move``: moves the data directory that the settings name to another directory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from service.config.data_dir import DataDir
from service.config.settings import Settings
from service.engine.manifest_reader import manifest_reader
from service.engine.ownership.catalog_lease import CatalogLease
from service.engine.ownership.engine_lock import EngineLock
from service.errors import MoveRefused, NoDataDir
from service.inputs.sources.posted.event_reader import shown
from service.recovery.moving.move import FinishedMove, Place, move
from service.recovery.opening import open_catalog, sqlite_file


def move_command(
    directory: Path,
    settings: Settings,
    *,
    to: str | None,
    catalog_url: str | None,
    buckets: int | None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Move the data directory of a stopped service.

    Args:
        directory: Target data directory.
        settings: Settings of the service, which name the source.
        to: URL of the target storage. None means the target data directory.
        catalog_url: URL of the target catalog. None means SQLite in the target data directory.
        buckets: Number of buckets in the target. None keeps the number.
        say: Prints a line.

    Returns:
        The printed values, for programs: the directories ``from`` and ``to``, and the ``storage_url`` and
        ``catalog_url`` with which the service continues. If this call moved data, also the last ``batch``
        (-1: none) and the numbers of ``files``, ``state_rows`` and ``buckets``.

    Raises:
        NoDataDir: There is no data directory.
        InvalidSetting: ``to`` is not the URL of a storage.
        InvalidCatalogUrl: ``catalog_url`` is not the URL of a catalog.
        DataDirInUse: An engine runs on the source.
        MoveRefused: See ``service.recovery.moving.move.move``, which also raises further errors.
    """
    storage = settings.storage
    source = Place(DataDir(storage.data_dir.absolute(), storage=storage.apart), storage.catalog_url)
    target = Place(DataDir(directory.absolute(), storage=storage.apart_at(to)), catalog_url)
    file = sqlite_file(storage.effective_catalog_url)
    if not source.data_dir.root.is_dir() or (file is not None and not file.exists()):
        raise NoDataDir(
            f'"{source.data_dir.root}" is not a data directory of a service',
            hint="Name the directory of a service with --data-dir.",
        )
    with ExitStack() as held:
        lock = EngineLock(source.data_dir.engine_lock)
        lock.acquire()
        held.callback(lock.release)
        root = target.data_dir.root
        store = held.enter_context(open_catalog(source.data_dir, source.catalog_url, moved_to=root))
        lease = CatalogLease(store, source.data_dir.root, lambda _: None)
        lease.acquire()
        held.callback(lease.release)
        if lease.unsynced:
            raise MoveRefused(
                f'the machine of "{source.data_dir.root}" went down while its engine was running',
                hint="Start the service on that directory, stop it, then move the directory.",
            )

        read = manifest_reader(settings.spark, target.data_dir.spark_log)
        moved = move(store, source, target, buckets, read)
    say(_told(source, target, moved))
    storage_url = None if target.data_dir.storage is None else target.data_dir.storage.url
    return {
        "from": str(source.data_dir.root),
        "to": str(target.data_dir.root),
        "storage_url": storage_url,
        "catalog_url": None if target.catalog_url is None else shown(target.catalog_url),
    } | ({} if moved is None else asdict(moved))


def _told(source: Place, target: Place, moved: FinishedMove | None) -> str:
    """Return a text about the move and about the settings with which the service continues."""
    root = target.data_dir.root
    lines = [f'moved "{source.data_dir.root}" to "{root}"']
    if moved is not None:
        results = f"results up to batch {moved.batch}" if moved.batch >= 0 else "no batch yet"
        buckets = "" if moved.buckets is None else f" in {moved.buckets} buckets"
        lines[0] += f": {results}, {moved.files} files, {moved.state_rows} rows of state{buckets}"
    lines.append(f"The service continues with --data-dir {root} and")
    storage = target.data_dir.storage
    lines.append(f"  SLUICE_STORAGE_URL {'not set' if storage is None else storage.url}")
    url = target.catalog_url
    lines.append(f"  SLUICE_CATALOG_URL {'not set' if url is None else shown(url)}")
    lines.append(f'"{source.data_dir.root}" can no longer be started. Files of streams stay where they are.')
    return "\n".join(lines)
