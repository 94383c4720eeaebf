"""Syncs files to disk before the catalog names them; a reboot may lose files that were not synced.

One call syncs a whole file system with the writes of all processes. A batch writes tens of files in several
processes. If each file were synced separately, ext4 would commit its journal once per file
(docs/reliability.md has the figures).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from operators.storage.folder import Folder
from operators.storage.object_folder import ObjectFolder


def boot_id() -> str:
    """Return the id of the machine's boot, empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux
        return ""


def sync_file(path: Path) -> None:
    """Sync one file, or the names in one directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file_systems(folders: Iterable[Folder]) -> None:
    """Sync everything that was written on the file systems of some directories.

    Args:
        folders: Existing directories; object stores are skipped, since they sync by themselves.

    Raises:
        OSError: Something could not be written.
    """
    done: set[int] = set()
    for directory in folders:
        if isinstance(directory, ObjectFolder):
            continue
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            device = os.fstat(descriptor).st_dev
            if device not in done:
                done.add(device)
                _sync_file_system(descriptor)
        finally:
            os.close(descriptor)


def _sync_file_system(descriptor: int) -> None:
    syncfs = _syncfs()
    if syncfs is None:
        os.sync()
    elif syncfs(descriptor):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@cache
def _syncfs() -> Any:  # Any: a foreign function
    """Return Linux's ``syncfs``, None on other systems."""
    return getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
