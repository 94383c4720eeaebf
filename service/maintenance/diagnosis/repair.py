"""``sluice repair``: report a fault of a data directory and its repair; with --yes, do the repair."""

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
    """Describe the fault of a data directory and its repair, and do the repair if asked to.

    Args:
        directory: Data directory of a service, or output directory of a run.
        storage: Settings that locate the catalog and a separate storage. The settings' data directory is not
            used.
        spark: Settings of the Spark that reads the state.
        yes: Whether to do the repair.
        say: Prints a line.

    Returns:
        The printed values, for programs: the fault as ``wrong`` and the description of the ``repair``, both
        None if there is no fault, and whether it was ``repaired``.

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
                    # This check removes files that may be incomplete after a power failure. It is made now,
                    # because the lease that shows the failure is about to be released.
                    with suppress(OtherLife):
                        check_checkpoint(store, data_dir, unsynced=True)
                read = manifest_reader(spark, data_dir.spark_log)
                found = find_repair(store, data_dir, data_dir.events_url(storage.catalog_url), read)
                if found is None:
                    say("nothing to repair: catalog, checkpoint and results belong together and are complete")
                    return {"wrong": None, "repair": None, "repaired": False}
                say(f"wrong: {found.found}")
                say(f"repair: {found.does}")
                if yes:
                    found.apply()
                say("repaired" if yes else "nothing was changed; with --yes, the command does the repair")
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
