"""Folders: where segments, results, late rows and dead letters are stored.

    directory          the files themselves, on one machine or on a mount that all machines share
    ObjectFolder       an object store has the files; each machine writes to its cache directory first

    write folder / name  ->  publish  ->  name it in a manifest  ->  fetch on any machine  ->  remove

For a directory, ``publish`` and ``fetch`` do nothing.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TypeAlias

from catalog.wording.outside import check_below
from operators.storage.object_folder import ObjectFolder, Stored, sizes_here

Folder: TypeAlias = Path | ObjectFolder


def prepare(folder: Folder) -> None:
    """Make the directory on this machine if it is a cache; other folders already exist."""
    if isinstance(folder, ObjectFolder):
        folder.prepare()


def directory_here(folder: Folder) -> Path:
    """Return the folder's directory on this machine."""
    return folder.directory if isinstance(folder, ObjectFolder) else folder


def place_of(folder: Folder) -> str:
    """Return the name of a folder for messages: its URL or path."""
    return folder.url if isinstance(folder, ObjectFolder) else str(folder)


def folder_text(folder: Folder) -> str:
    """Return a folder as text, for options that must be text; ``folder_of`` is the inverse."""
    if isinstance(folder, ObjectFolder):
        return json.dumps([str(folder.directory), folder.url, folder.cache_bytes])
    return json.dumps([str(folder)])


def folder_of(text: str) -> Folder:
    """Return the folder for a text from ``folder_text``.

    >>> folder_of(folder_text(Path("/data/late")))
    PosixPath('/data/late')
    """
    directory, *apart = json.loads(text)
    return ObjectFolder(Path(directory), *apart) if apart else Path(directory)


def path_in(folder: Folder, name: str) -> Path:
    """Return the path of a file on this machine.

    Raises:
        CorruptDocument: The name, which a stored document may have, leads out of the folder.
    """
    return folder / check_below(name)


def publish(folder: Folder, names: Collection[str]) -> dict[str, str]:
    """Make files written on this machine durable and available to all machines.

    Files of a directory are synced by the engine before it commits (``service.commit.sync``).

    Returns:
        ETags of the files by name, if the store returns ETags.

    Raises:
        StorageDown: The object store does not accept a file, or cannot be reached.
        OSError: A file cannot be read on this machine.
    """
    return folder.publish(names) if isinstance(folder, ObjectFolder) else {}


def fetch(folder: Folder, names: Collection[str]) -> list[Path]:
    """Return the local paths of files, after downloading missing files.

    A path is also returned for a file that exists nowhere; opening it fails.

    Raises:
        StorageDown: The object store cannot be reached.
        OSError: A file cannot be written on this machine.
    """
    if isinstance(folder, ObjectFolder):
        folder.fetch(names)
    return [path_in(folder, name) for name in names]


def stored(folder: Folder, names: Collection[str]) -> dict[str, Stored]:
    """Return the metadata of the files that all machines can read.

    Raises:
        StorageDown: The object store cannot be reached.
    """
    if isinstance(folder, ObjectFolder):
        return folder.stored(names)
    return {name: Stored(size, None) for name, size in sizes_here(folder, names).items()}


def contents(folder: Folder) -> dict[str, int]:
    """Return the bytes of all files by name, without half-written files.

    Raises:
        StorageDown: The object store cannot be reached.
    """
    if isinstance(folder, ObjectFolder):
        return folder.contents()
    if not folder.is_dir():
        return {}
    with os.scandir(folder) as found:
        return {file.name: file.stat().st_size for file in found if not file.name.startswith(".")}


def names(folder: Folder) -> list[str]:
    """Return the names of all files; raises as ``contents`` does."""
    if isinstance(folder, ObjectFolder):
        return list(folder.contents())
    if not folder.is_dir():
        return []
    with os.scandir(folder) as found:
        return [file.name for file in found if not file.name.startswith(".")]


def written_before(folder: Folder, when_us: int) -> list[str]:
    """Return the names of files last written before a time, wall clock µs.

    Raises:
        StorageDown: The object store cannot be reached.
    """
    if isinstance(folder, ObjectFolder):
        return folder.written_before(when_us)
    if not folder.is_dir():
        return []
    with os.scandir(folder) as found:
        return [
            file.name
            for file in found
            if not file.name.startswith(".") and file.stat().st_mtime_ns < when_us * 1000
        ]


def create(folder: Folder, name: str, data: bytes) -> bool:
    """Create a file atomically; return False if a file of that name exists.

    Raises:
        StorageDown: The object store cannot be reached.
        OSError: The file cannot be written.
    """
    if isinstance(folder, ObjectFolder):
        return folder.create(name, data)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with path_in(folder, name).open("xb") as file:
            file.write(data)
    except FileExistsError:
        return False
    return True


def read(folder: Folder, name: str) -> bytes | None:
    """Return the current bytes of a file, as seen by all machines, or None if the file does not exist.

    Raises:
        StorageDown: The object store cannot be reached.
        OSError: The file cannot be read.
    """
    if isinstance(folder, ObjectFolder):
        return folder.read(name)
    try:
        return path_in(folder, name).read_bytes()
    except FileNotFoundError:
        return None


def remove(folder: Folder, gone: Iterable[str]) -> None:
    """Remove files; a file that does not exist is skipped.

    Raises:
        StorageDown: The object store cannot be reached.
        OSError: A file cannot be removed.
    """
    for name in (gone := list(gone)):
        path_in(folder, name).unlink(missing_ok=True)
    if gone and isinstance(folder, ObjectFolder):
        folder.remove(gone)


def check_writable(folders: Iterable[Folder]) -> None:
    """Refuse folders that cannot be written, before data is lost.

    Raises:
        StorageDown: The object store does not accept a file, or cannot be reached.
        OSError: A directory does not accept a file.
    """
    name = f"look-{uuid.uuid4().hex}"
    for folder in folders:
        create(folder, name, b"")
        remove(folder, [name])
