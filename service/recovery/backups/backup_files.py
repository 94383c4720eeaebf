"""Files of a backup: they are copied, then listed with their checksums, and verified when they are read.

    DIR/backup.json   format, time, last batch; length and CRC-32C of each file; CRC-32C of these values
    DIR/...           the files of the data directory

The list is written last, once all files that it names are on disk. A directory without a list is not a
backup.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import google_crc32c

from catalog.wording.outside import is_below, printable
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
    with source.open("rb") as read:
        return copy_opened(read, target)


def copy_opened(read: IO[bytes], target: Path) -> tuple[int, int]:
    """Copy an open file, as ``copy_file`` does."""
    target.parent.mkdir(parents=True, exist_ok=True)
    checksum, length = 0, 0
    status = os.fstat(read.fileno())
    with target.open("wb") as written:
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
        BackupRefused: The directory is not a backup, a later version made it, or it names files outside.
        BackupDamaged: The list has changed since it was written.
    """
    path = directory / LIST
    if not path.is_symlink() and not path.exists():
        raise BackupRefused(
            f'"{directory}" is not a backup',
            detail=f"The directory has no {LIST}, which is written once a backup is complete.",
            hint="Name a directory that sluice backup has made.",
        )
    with opened(directory, LIST) as file:
        text = file.read()
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
        found = BackupList(int(facts["created_at_us"]), int(facts["batch"]), files)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(path, "The list does not have the form that sluice backup writes.") from error
    for name in files:
        if not is_below(name) or name.startswith(".") or name == LIST:
            raise _unsafe(path, f'It names "{printable(name)}", which is not a file of a backup.')
    if missing := {"catalog.db", "events.db"} - files.keys():
        raise _damaged(path, f"The list does not name {' and '.join(sorted(missing))}.")
    return found


@contextmanager
def opened(directory: Path, name: str) -> Iterator[IO[bytes]]:
    """Open a file of a backup without following links, which could lead to files outside of it.

    Raises:
        BackupRefused: The path contains a link, or the file is not a regular file.
        BackupDamaged: The file is missing or cannot be read.
    """
    path = directory / name
    with ExitStack() as open_now:
        try:
            parent = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            open_now.callback(os.close, parent)
            *parents, last = name.split("/")
            for part in parents:
                parent = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
                open_now.callback(os.close, parent)
            # Without O_NONBLOCK, opening a named pipe would wait for a writer.
            file = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
                raise _unsafe(path, "It is a link or a device, or its directory is a link.") from error
            raise _damaged(path, f"{error.strerror or error}.") from error
        read = open_now.enter_context(os.fdopen(file, "rb"))
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise _unsafe(path, "It is not a regular file.")
        if status.st_nlink != 1:
            raise _unsafe(path, f"The file has {status.st_nlink} names (hard links).")
        yield read


def check_file(directory: Path, name: str, wanted: tuple[int, int]) -> None:
    """Refuse a file of a backup that differs from the file that was written.

    Raises:
        BackupDamaged: The file is missing, or its length or checksum differs.
        BackupRefused: The file is a link, or an archive with names that lead out of it.
    """
    path = directory / name
    checksum, length = 0, 0
    with opened(directory, name) as file:
        try:
            while chunk := file.read(_CHUNK_BYTES):
                checksum = google_crc32c.extend(checksum, chunk)
                length += len(chunk)
        except OSError as error:
            raise _damaged(path, f"{error.strerror or error}.") from error
        refuse_other(path, (length, checksum), wanted)
        if name.endswith(".zip") and zipfile.is_zipfile(file):  # Spark unpacks snapshots of its state
            with zipfile.ZipFile(file) as archive:
                outside = [member for member in archive.namelist() if not is_below(member.rstrip("/"))]
            if outside:
                raise _unsafe(path, f'It contains a file "{printable(outside[0])}".')


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


def _unsafe(path: Path, detail: str) -> BackupRefused:
    return BackupRefused(
        f'file "{printable(str(path))}" of the backup is refused, because it could lead out of the backup',
        detail=detail,
        hint="A backup has plain files without links. Copy the files of the backup instead of linking them, "
        "and restore only a backup whose origin you trust.",
    )


def _damaged(path: Path, detail: str) -> BackupDamaged:
    return BackupDamaged(f'file "{path}" of the backup is damaged', detail=detail, hint=_RESTORE_ANOTHER)
