"""``sluice backup``: make a consistent copy of a data directory while its service runs.

The copy is crash-consistent, because its parts are copied in the reverse of the order in which a batch makes
them durable:

    commit log ─ offset log ─ state ─ segments ─ catalog ─ event log ─ results and all other files
    batch d      up to d + 1                     d or d + 1            what the catalog names, and more

A service that starts from the copy repeats batch d + 1, or runs it for the first time. In both cases it
needs the state after batch d, whose segment files exist until batch d + 3 begins. Copying takes longer than a
batch, so all files are hard-linked first. Files are immutable, and a hard link keeps their bytes. If more
than one batch was committed meanwhile, another pass hard-links the new files; each pass is faster than the
pass before. The files are copied after the last pass.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from catalog.errors import CatalogDown
from catalog.store.store import Store
from catalog.times.clock import wall_clock_us
from operators.segments.files.segment_files import SegmentFiles
from operators.storage.folder import directory_here, names
from service.checkpoint.buckets import CHECKPOINT_SETTING
from service.checkpoint.spark_log import SparkLog
from service.commit.sync import boot_id
from service.config.data_dir import DataDir
from service.errors import BackupNotMade, BackupRefused, CorruptResults
from service.recovery.backups.backup_files import (
    BackupList,
    copy_file,
    files_below,
    is_taken,
    make_empty,
    write_list,
)
from service.recovery.checkpoint import examine_checkpoint
from service.results.files.result_check import check_files

#: Maximum number of passes that hard-link all files before the backup fails.
_ATTEMPTS = 50
#: Maximum number of snapshots per backup. A new snapshot is taken if result files were dropped meanwhile.
_SNAPSHOTS = 3
#: Directory of the hard links, inside the data directory because hard links need the same file system.
STAGING = ".backup"
#: Entries of the data directory that a backup copies separately, or leaves out (locks, logs, temporary
#: files).
_NOT_THE_REST = frozenset(
    {"checkpoint", "results", "late", "spill", "engine.lock", "spark.log", "identity.json", STAGING}
)
#: Prefix of files with rows in transit between workers. A backup leaves them out, because a repeated batch
#: writes them again.
_ARRIVING = "rows."


@dataclass(frozen=True, slots=True)
class Backup:
    """Extent of a finished backup.

    Attributes:
        batch: Last batch whose results the backup contains; -1 if none.
        files: Number of files in the backup.
        bytes: Total length of these files.
    """

    batch: int
    files: int
    bytes: int


def back_up(data_dir: DataDir, catalog: Path, target: Path) -> Backup:
    """Copy a data directory to ``target``; the directory's service may run meanwhile.

    Args:
        data_dir: The data directory.
        catalog: SQLite file of the catalog.
        target: Directory that does not exist or is empty.

    Raises:
        BackupRefused: ``target`` is not empty, is inside the data directory, or cannot be written.
        BackupNotMade: Batches were committed faster than files could be hard-linked, or another backup is
            running.
        OtherLife: The parts of the data directory do not belong together.
        CorruptResults: A result file is damaged.
        CorruptSegment: A segment is damaged.
    """
    if target.resolve().is_relative_to(data_dir.root.resolve()):
        raise BackupRefused(
            f'backup "{target}" is inside the data directory',
            hint="Name a directory elsewhere, preferably on another disk.",
        )
    if is_taken(target):
        raise BackupRefused(
            f'"{target}" is not empty', hint="Name a directory for this backup that does not exist yet."
        )
    with _staging(data_dir) as staged:
        for attempt in range(1, _SNAPSHOTS + 1):
            batch = _take(data_dir, staged, catalog)
            try:
                _verify(staged)
                break
            except CorruptResults:
                # Files were dropped or merged after the catalog was read, so a new snapshot is needed.
                if attempt == _SNAPSHOTS:
                    raise
        try:
            return _copy(data_dir, staged, target, batch)
        except OSError as error:
            raise BackupRefused(
                f'backup "{target}" cannot be written', detail=f"{error.strerror or error}: {error.filename}."
            ) from error


@contextmanager
def _staging(data_dir: DataDir) -> Iterator[DataDir]:
    """Yield an empty directory for hard links, locked so that only one backup runs at a time."""
    root = data_dir.root / STAGING
    root.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(root, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BackupNotMade(
                f'another backup of "{data_dir.root}" is running', hint="Try again after it has ended."
            ) from error
        for path in root.iterdir():  # files that a killed backup has left
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        try:
            yield DataDir(root)
        finally:
            shutil.rmtree(root)
    finally:
        os.close(descriptor)


def _take(data_dir: DataDir, staged: DataDir, catalog: Path) -> int:
    """Hard-link all files of a consistent snapshot; return the snapshot's last batch, or -1 if none."""
    for _ in range(_ATTEMPTS):
        done = _take_checkpoint(data_dir, staged)
        with ExitStack() as pins:
            # Open transactions pin the present state of both databases until both are copied.
            catalog_now = pins.enter_context(_pinned(catalog))
            events_now = pins.enter_context(_pinned(data_dir.events_db))
            committed = catalog_now.execute("SELECT coalesce(max(batch), -1) FROM batches").fetchone()[0]
            if committed > done + 1:
                continue
            _copy_database(catalog_now, staged.catalog_db)
            _copy_database(events_now, staged.events_db)
        break
    else:
        raise BackupNotMade(
            f'"{data_dir.root}" changed too fast for a backup',
            detail=f"Batches were committed while files were listed, in each of {_ATTEMPTS} attempts.",
            hint="Pause the engine (POST /api/v1/engine:pause) while the backup is made.",
        )
    if data_dir.identity.exists():
        copy_file(data_dir.identity, staged.identity)
    with Store.open(staged.catalog_url, migrate=False) as store:
        lease = store.lease.current()
        # A lease from before a reboot is kept, because it tells the next start that the last batch may be
        # incomplete.
        if lease is not None and lease.token and lease.holder.boot == boot_id():
            store.lease.release(lease)
        for named in store.result_files.all():
            for directory, own, files in (
                (data_dir.results, staged.results, named.files),
                (data_dir.late, staged.late, named.late_files),
            ):
                for file in files:
                    _name_again(directory / file.path, own / file.path)
    return int(committed)


def _take_checkpoint(data_dir: DataDir, staged: DataDir) -> int:
    """Hard-link Spark's checkpoint; return the last batch in the commit log, or -1 if none."""
    segments = directory_here(data_dir.segments)
    ours, theirs = SparkLog(staged.checkpoint), SparkLog(data_dir.checkpoint)
    for directory in (ours.commits, ours.offsets):
        shutil.rmtree(directory, ignore_errors=True)
    _mirror(theirs.commits, ours.commits)
    entries = [int(path.name) for path in files_below(ours.commits) if path.name.isdigit()]
    last = max(entries, default=-1)
    _mirror(theirs.offsets, ours.offsets, up_to=last + 1)
    for path in data_dir.checkpoint.iterdir() if data_dir.checkpoint.is_dir() else ():
        if path in (theirs.commits, theirs.offsets, segments) or path.name.startswith("."):
            continue
        if path.is_dir():
            _mirror(path, staged.checkpoint / path.name)
        else:
            _name_again(path, staged.checkpoint / path.name)
    _mirror(segments, directory_here(staged.segments))
    return max(ours.done(), default=-1)


def _mirror(directory: Path, own: Path, *, up_to: int | None = None) -> None:
    """Mirror ``directory`` in ``own`` with hard links, and remove links to files that no longer exist.

    Args:
        directory: Directory to mirror; a missing directory counts as empty.
        own: Target directory, which may contain links from earlier calls.
        up_to: Number of the last entry to include if the directory is a log of Spark; None includes all
            files.
    """
    own.mkdir(parents=True, exist_ok=True)
    found = set()
    for path in files_below(directory):
        entry = path.name.strip(".").partition(".")[0]
        if path.name.endswith(".tmp") or (path.name.startswith(_ARRIVING) and directory.name == "segments"):
            continue
        if path.name.startswith(".") and directory.name == "segments":
            continue
        if up_to is not None and (not entry.isdigit() or int(entry) > up_to):
            continue
        target = own / path.relative_to(directory)
        if _name_again(path, target):
            found.add(target)
    for path in list(files_below(own)):
        if path not in found:
            path.unlink()


def _name_again(path: Path, target: Path) -> bool:
    """Hard-link a file, or copy it if a hard link is impossible; return whether the file exists."""
    try:
        if target.exists():
            ours, theirs = target.stat(), path.stat()
            if (ours.st_size, ours.st_mtime_ns) == (theirs.st_size, theirs.st_mtime_ns):
                return True
            target.unlink()
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            target.hardlink_to(path)
        except FileNotFoundError:
            raise
        except OSError:  # hard links are not supported, or the target is on another file system
            copy_file(path, target)
    except FileNotFoundError:
        return False
    return True


@contextmanager
def _pinned(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database in a transaction that pins its present state while others write."""
    try:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as connection:
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            yield connection
    except sqlite3.Error as error:
        raise CatalogDown(f'"{path}" cannot be read', detail=f"SQLite says: {error}.") from error


def _copy_database(connection: sqlite3.Connection, target: Path) -> None:
    target.unlink(missing_ok=True)
    with closing(sqlite3.connect(target)) as copy:
        connection.backup(copy)


def _verify(staged: DataDir) -> None:
    """Refuse parts that are damaged or do not belong together, because their backup would be useless."""
    with Store.open(staged.catalog_url, migrate=False) as store:
        for named in store.result_files.all():
            check_files(staged.results, named.files)
            check_files(staged.late, named.late_files)
        examine_checkpoint(store, staged)
        facts = store.settings.get(CHECKPOINT_SETTING)
    segments = SegmentFiles(staged.segments, sealed=isinstance(facts, dict) and bool(facts.get("sealed")))
    for name in names(staged.segments):
        segments.read(name)


def _copy(data_dir: DataDir, staged: DataDir, target: Path, batch: int) -> Backup:
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    files: dict[str, tuple[int, int]] = {}
    try:
        for path in files_below(staged.root):
            name = str(path.relative_to(staged.root))
            files[name] = copy_file(path, target / name)
        for path in _rest(data_dir):
            name = str(path.relative_to(data_dir.root))
            try:
                files[name] = copy_file(path, target / name)
            except FileNotFoundError:
                (target / name).unlink(missing_ok=True)
        write_list(target, BackupList(wall_clock_us(), batch, files))
    except BaseException:
        make_empty(target, list(files_below(target)))
        raise
    return Backup(batch, len(files), sum(length for length, _ in files.values()))


def _rest(data_dir: DataDir) -> Iterator[Path]:
    """Yield all files that other functions do not copy, such as dead letters, exports and sources."""
    for path in sorted(data_dir.root.iterdir()):
        databases = (data_dir.catalog_db.name, data_dir.events_db.name)
        if path.name in _NOT_THE_REST or path.name.startswith((*databases, "checkpoint.before-", ".")):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from (found for found in files_below(path) if not found.name.startswith("."))
        elif path.is_file() and not path.is_symlink():
            yield path
