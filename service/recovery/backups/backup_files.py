"""Files of a backup: they are copied, then listed with their checksums, and verified when they are read.

    DIR/backup.json   format, time, last batch; length and CRC-32C of each file; CRC-32C of these values
    DIR/...           the files of the data directory

The list is written last, once all files that it names are on disk. A directory without a list is not a
backup.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c

from service.commit.sync import sync_file, sync_file_systems
from service.errors import BackupDamaged, BackupRefused

LIST = "backup.json"

#: Format number, increased when older versions cannot restore new backups.
_FORMAT = 1
_CHUNK_BYTES = 1 << 20
_RESTORE_ANOTHER = "Restore another backup, because this backup has changed since it was written."


@dataclass(frozen=True, slots=True)
class BackupList:
    """Contents of a backup's list.

    Attributes:
        created_at_us: Time of the backup, µs UTC.
        batch: Last batch whose results the backup contains; -1 if none.
        files: Length in bytes and CRC-32C of each file, by the file's path relative to the backup.
    """

    created_at_us: int
    batch: int
    files: Mapping[str, tuple[int, int]]


def files_below(directory: Path) -> Iterator[Path]:
    """Yield all regular files below a directory, in any order, except files that are removed meanwhile."""
    for parent, _, names in os.walk(directory):
        for name in names:
            path = Path(parent) / name
            if path.is_file() and not path.is_symlink():
                yield path


def copy_file(source: Path, target: Path) -> tuple[int, int]:
    """Copy a file and its timestamps; return length and CRC-32C of the bytes that were read.

    Raises:
        OSError: The file cannot be read, or the copy cannot be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    checksum, length = 0, 0
    with source.open("rb") as read, target.open("wb") as written:
        status = os.fstat(read.fileno())
        while chunk := read.read(_CHUNK_BYTES):
            checksum = google_crc32c.extend(checksum, chunk)
            length += len(chunk)
            written.write(chunk)
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    return length, checksum


def write_list(directory: Path, found: BackupList) -> None:
    """Sync the files of a backup, then write its list."""
    sync_file_systems([directory])
    facts: dict[str, Any] = {  # Any: values of JSON
        "format": _FORMAT,
        "created_at_us": found.created_at_us,
        "batch": found.batch,
        "files": {path: list(facts) for path, facts in sorted(found.files.items())},
    }
    path = directory / LIST
    path.write_text(json.dumps(facts | {"crc32c": _checksum(facts)}, indent=1), encoding="utf-8")
    sync_file(path)
    sync_file(directory)


def read_list(directory: Path) -> BackupList:
    """Return the list of a backup.

    Raises:
        BackupRefused: The directory is not a backup, or a later version made it.
        BackupDamaged: The list has changed since it was written.
    """
    path = directory / LIST
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise BackupRefused(
            f'"{directory}" is not a backup',
            detail=f"The directory has no {LIST}, which is written once a backup is complete.",
            hint="Name a directory that sluice backup has made.",
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise _damaged(path, f"{error}.") from error
    try:
        facts = json.loads(text)
        checksum = facts.pop("crc32c")
        if checksum != _checksum(facts):
            raise _damaged(path, "The list does not match its checksum.")
        if facts["format"] > _FORMAT:
            raise BackupRefused(
                f'a later version of Sluice made backup "{directory}"',
                detail=f"The backup has format {facts['format']}; this version reads up to {_FORMAT}.",
                hint="Restore the backup with the version that made it, or with a later version.",
            )
        files = {str(name): (int(length), int(crc)) for name, (length, crc) in facts["files"].items()}
        return BackupList(int(facts["created_at_us"]), int(facts["batch"]), files)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, "The list does not have the form that sluice backup writes.") from error


def check_file(directory: Path, name: str, wanted: tuple[int, int]) -> None:
    """Refuse a file of a backup that differs from the file that was written.

    Raises:
        BackupDamaged: The file is missing, or its length or checksum differs.
    """
    path = directory / name
    checksum, length = 0, 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                checksum = google_crc32c.extend(checksum, chunk)
                length += len(chunk)
    except OSError as error:
        raise _damaged(path, f"{error.strerror or error}.") from error
    refuse_other(path, (length, checksum), wanted)


def refuse_other(path: Path, found: tuple[int, int], wanted: tuple[int, int]) -> None:
    """Raise ``BackupDamaged`` if a file's length or checksum differs from the list."""
    if found[0] != wanted[0]:
        raise _damaged(path, f"The file has {found[0]} bytes, but {wanted[0]} were written.")
    if found[1] != wanted[1]:
        raise _damaged(path, "The file's checksum differs from the checksum in the list.")


def is_taken(directory: Path) -> bool:
    """Return whether a path is a file, or a directory that is not empty."""
    if directory.is_dir():
        return any(directory.iterdir())
    return directory.exists() or directory.is_symlink()


def make_empty(directory: Path, names: Iterable[Path]) -> None:
    """Remove the given files from a directory, then all of its empty subdirectories."""
    for path in names:
        path.unlink(missing_ok=True)
    for parent, _, _ in os.walk(directory, topdown=False):
        if Path(parent) != directory and not any(Path(parent).iterdir()):
            Path(parent).rmdir()


def _checksum(facts: Mapping[str, Any]) -> int:
    return int(google_crc32c.value(json.dumps(facts, sort_keys=True).encode()))


def _damaged(path: Path, detail: str) -> BackupDamaged:
    return BackupDamaged(f'file "{path}" of the backup is damaged', detail=detail, hint=_RESTORE_ANOTHER)
