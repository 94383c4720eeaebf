"""``sluice repair``: report faults of a data directory and their repair; with --yes, repair it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from service.config.data_dir import DataDir
from service.config.settings import SparkSettings, StorageSettings
from service.engine.manifest_reader import manifest_reader
from service.engine.ownership.catalog_lease import CatalogLease
from service.engine.ownership.engine_lock import EngineLock
from service.errors import NoDataDir, OtherLife
from service.maintenance.diagnosis.find_repair import find_repair
from service.recovery.checkpoint import check_checkpoint
from service.recovery.opening import open_catalog


def repair(
    directory: Path, storage: StorageSettings, spark: SparkSettings, *, yes: bool, say: Callable[[str], None]
) -> dict[str, Any]:
    """Repair a data directory, or describe the repair.

    Args:
        directory: Data directory of a service, or output directory of a run.
        storage: Locations of the catalog and of a separate storage; the data directory in these settings is
            not used.
        spark: Settings of Spark, which reads the state.
        yes: Whether to do the repair.
        say: Prints a line.

    Returns:
        The printed facts, for programs: the fault as ``wrong``, the description of the ``repair`` (both
        None if nothing is wrong), and whether it was ``repaired``.

    Raises:
        NoDataDir: There is no data directory.
        DataDirInUse: An engine runs on the data directory.
        OtherLife: The catalog does not belong to the directory.
        NotRepairable: The remaining files are not enough for a repair.
    """
    data_dir = _data_dir(directory, storage)
    lock = EngineLock(data_dir.engine_lock)
    lock.acquire()
    try:
        with open_catalog(data_dir, storage.catalog_url) as store:
            lease = CatalogLease(store, data_dir.root, lambda _: None)
            lease.acquire()
            try:
                if lease.unsynced:
                    # Check now, because the next start can no longer know that power may have failed.
                    with suppress(OtherLife):
                        check_checkpoint(store, data_dir, unsynced=True)
                read = manifest_reader(spark, data_dir.spark_log)
                found = find_repair(store, data_dir, data_dir.events_url(storage.catalog_url), read)
                if found is None:
                    say("nothing to repair: catalog, checkpoint and results belong together and are whole")
                    return {"wrong": None, "repair": None, "repaired": False}
                say(f"wrong: {found.found}")
                say(f"repair: {found.does}")
                if yes:
                    found.apply()
                say("repaired" if yes else "nothing was changed; --yes repairs it")
                return {"wrong": found.found, "repair": found.does, "repaired": yes}
            finally:
                lease.release()
    finally:
        lock.release()


def _data_dir(directory: Path, storage: StorageSettings) -> DataDir:
    root = directory.absolute()
    if (root / "_sluice").is_dir():
        root = root / "_sluice"
    if not root.is_dir() or not any(
        (root / name).exists() for name in ("catalog.db", "checkpoint", "events.db")
    ):
        raise NoDataDir(
            f'"{directory}" is not a data directory',
            hint="Name the directory of a service (--data-dir) or the output of a run (--out).",
        )
    shared = root.parent / "results" if root.name == "_sluice" else None
    if shared is not None and next(shared.glob("[bm][0-9]*-*.parquet"), None) is not None:
        return DataDir(root, shared, storage.apart).create()
    return storage.model_copy(update={"data_dir": root}).open_data_dir()
