"""Checks of result files: each must have the length and the checksum in its batch's manifest.

A file is read completely once per process, when it is first needed; later only its length, modification time
and inode are compared.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import google_crc32c
import pyarrow as pa

from catalog.values.batch import ResultFile
from operators.storage.folder import Folder, fetch
from service.errors import CorruptResults

#: Maximum number of files that a process remembers as checked.
_KEPT = 4_096
_whole: OrderedDict[str, tuple[int, int, int]] = OrderedDict()
_lock = threading.Lock()


def length_and_checksum(path: Path) -> tuple[int, int]:
    """Return a file's length in bytes and the CRC-32C of its bytes.

    Raises:
        OSError: The file cannot be read.
    """
    if not path.stat().st_size:
        return 0, 0
    with pa.memory_map(str(path)) as file:
        found = file.read_buffer()
        return found.size, google_crc32c.value(found)


def check_files(directory: Folder, files: Sequence[ResultFile]) -> None:
    """Refuse files that have changed; without a recorded checksum, refuse missing and empty files only.

    Args:
        directory: Folder that the paths are relative to.
        files: Files as a manifest names them.

    Raises:
        CorruptResults: A file is missing, or its content has changed since it was written.
        StorageDown: The object store cannot be reached.
    """
    for file, path in zip(files, fetch(directory, [file.path for file in files]), strict=True):
        try:
            status = path.stat()
            looks = (status.st_size, status.st_mtime_ns, status.st_ino)
            with _lock:
                if _whole.get(str(path)) == looks:
                    continue
            if not status.st_size:
                raise corrupt(path, "It is empty.")
            if file.bytes is not None and status.st_size != file.bytes:
                raise corrupt(path, f"It has {status.st_size} bytes, but its batch wrote {file.bytes}.")
            if file.crc32c is not None and length_and_checksum(path)[1] != file.crc32c:
                raise corrupt(path, "Its checksum is not the one that its batch wrote.")
        except OSError as error:
            raise corrupt(path, f"{error.strerror or error}.") from error
        with _lock:
            _whole[str(path)] = looks
            while len(_whole) > _KEPT:
                _whole.popitem(last=False)


def corrupt(path: Path, detail: str) -> CorruptResults:
    """Return the error for a file that has changed since it was written."""
    return CorruptResults(
        f'result file "{path}" is damaged',
        detail=detail,
        hint="Restore the file from a backup, or stop the service and see what sluice repair can do.",
    )
