"""Syncs of files to disk before the catalog names them, because a reboot may lose files that were not synced.

One call syncs a whole file system, including the writes of other processes. A batch writes tens of files in
several processes. If each file were synced separately, ext4 would commit its journal once per file
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
    """Return the id of the machine's current boot, or an empty text if the system has no such id."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux
        return ""


def sync_file(path: Path) -> None:
    """Sync the content of a file, or the names of the files in a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file_systems(folders: Iterable[Folder]) -> None:
    """Sync all writes to the file systems that contain some directories.

    Args:
        folders: Existing directories. Folders of object stores are skipped, because stores keep what they
            have accepted.

    Raises:
        OSError: A write did not reach the disk.
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
    """Return Linux's function ``syncfs``, or None on other systems."""
    return getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
