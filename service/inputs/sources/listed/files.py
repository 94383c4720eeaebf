"""Listing of files: a file is inspected once, and recorded durably before any offset refers to it.

A listed file keeps its position, and keeps its verdict until a retry is requested. A file that is corrupt or
of another schema is set aside with the reason and not read. A file whose bytes change later causes an error
when it is read.
"""

from __future__ import annotations

import glob
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from catalog.times.clock import wall_clock_us
from catalog.values.source_file import SourceFile
from catalog.values.stream import FilesSource, Stream
from operators.storage.folder import Folder
from service.errors import UnusableFile
from service.inputs.formats.file_inspectors import Inspect, inspecting
from service.inputs.formats.findings.bad_rows import BadRow, write_skipped_rows
from service.inputs.formats.findings.facts import FileFacts
from service.inputs.formats.text_input import first_line
from service.inputs.partitions import ROW_BITS
from service.inputs.sources.listed.opened_file import PASSING, opened_file
from service.log import fields

if TYPE_CHECKING:
    from catalog.store.store import Store  # not at run time: readers must not load SQLAlchemy

log = logging.getLogger(__name__)

#: Names that writers give to files that are incomplete, or that have no data of a stream.
_HIDDEN_PREFIXES: Final = (".", "_")
_TEMPORARY_SUFFIXES: Final = (".tmp", ".temp", ".part", ".partial", ".inprogress", "~")

#: Maximum number of files that one write to the catalog records. A crash during a long listing loses the
#: verdicts of at most this many files.
_FILES_PER_WRITE: Final = 256

#: Number of names that a warning shows.
_SHOWN_ENTRIES: Final = 3

#: Times ``settle_us`` that a bounded run waits for files that still change.
_PATIENCE: Final = 10

_MADE_UP: Final = ("/proc", "/sys")


def log_left_out(stream: Stream, file: SourceFile) -> None:
    """Log that a file has skipped rows, was set aside or stops its stream, for the service's operator."""
    if file.verdict == "ok":
        log.warning("rows skipped", extra=fields(stream=stream.name, path=file.path, rows=file.skipped))
    elif file.verdict == "stops":
        log.error(
            "bad file stops its stream", extra=fields(stream=stream.name, path=file.path, reason=file.reason)
        )
    else:
        log.warning("file set aside", extra=fields(stream=stream.name, path=file.path, reason=file.reason))


def in_words(stream: Stream, file: SourceFile) -> str:
    """Return the message for the user of a command about a file that was set aside or has skipped rows."""
    if file.verdict == "ok":
        return f'{file.skipped} bad rows of file "{file.path}" of stream "{stream.name}" are skipped'
    name, reason = f'file "{file.path}" of stream "{stream.name}"', file.reason or ""
    # A reason found while reading a batch names the file already.
    return f"set aside: {reason}" if reason.startswith(name) else f"{name} is set aside: {reason}"


def list_files(
    store: Store,
    stream: Stream,
    *,
    known: set[str] | None = None,
    settled: bool = True,
    tell: Callable[[Stream, SourceFile], None] = log_left_out,
    dead_letters: Folder | None = None,
) -> int:
    """List the new files of a stream, in order of their paths, and record each with its verdict.

    Files that were set aside and marked for a retry are inspected first.

    Args:
        store: Catalog that records them.
        stream: Stream with a ``files`` source.
        known: Paths that are listed already; newly listed paths are added. If None, the paths are read from
            the catalog; a caller that lists repeatedly should pass them.
        settled: As in `judged_files`.
        tell: Function that is called with each file that is set aside or has skipped rows.
        dead_letters: Folder for skipped rows, or None to drop skipped rows.

    Returns:
        Number of newly listed files, including those set aside.
    """
    if not isinstance(stream.source, FilesSource):
        return 0
    if known is None:
        known = store.source_files.paths(stream.id)
    found: list[SourceFile] = []
    listed = _judge_again(store, stream, settled, tell, dead_letters)
    new = sorted(path for path in set(candidates(stream.source.path)) - known if named(path) not in known)
    if not new:
        return listed
    for entry in judged_files(stream, new, settled=settled, dead_letters=dead_letters):
        if entry.verdict != "ok" or entry.skipped:
            tell(stream, entry)
        found.append(entry)
        if len(found) == _FILES_PER_WRITE:
            listed += _append(store, stream, found)
            known.update(f.path for f in found)
            found = []
    listed += _append(store, stream, found)
    known.update(f.path for f in found)
    return listed


def _judge_again(
    store: Store,
    stream: Stream,
    settled: bool,
    tell: Callable[[Stream, SourceFile], None],
    dead_letters: Folder | None,
) -> int:
    """Inspect files marked for a retry; a file that is missing or still being written stays marked."""
    read = 0
    for former in store.source_files.to_retry(stream.id):
        for found in judged_files(stream, [former.path], settled=settled, dead_letters=dead_letters):
            store.source_files.judged_again(stream.id, former, found)
            if found.verdict == "ok":
                read += 1
                log.info("file is read after all", extra=fields(stream=stream.name, path=found.path))
            if found.verdict != "ok" or found.skipped:
                tell(stream, found)
    return read


def judged_files(
    stream: Stream, paths: Sequence[str], *, settled: bool = True, dead_letters: Folder | None = None
) -> Iterator[SourceFile]:
    """Inspect files and yield their entries, without recording anything in the catalog.

    Args:
        stream: Stream with a ``files`` source.
        paths: The files.
        settled: Whether to leave out files that have changed within ``settle_us`` of the source, because
            their writer may still be writing them.
        dead_letters: As in `list_files`.

    Yields:
        An entry for each file, with position 0; files that are missing or being written are left out.
    """
    assert isinstance(stream.source, FilesSource)
    with inspecting(stream, stream.source) as inspect:
        for path in paths:
            entry = _judge(stream, path, inspect, settled, dead_letters)
            if entry is not None:
                yield entry


def unsettled_s(source: FilesSource, file: os.stat_result) -> float:
    """Return seconds until a file has been unchanged for long enough; 0 if it has.

    A modification time in the future says nothing, since it is of the clock of another machine.
    """
    left_s = file.st_mtime + source.settle_us / 1_000_000 - time.time()
    return max(left_s, 0.0) if left_s <= 2 * source.settle_us / 1_000_000 else 0.0


def wait_for_settled(source: FilesSource) -> None:
    """Wait until the newest file has been unchanged for long enough, but not longer than a few times that."""
    until_s = time.monotonic() + _PATIENCE * source.settle_us / 1_000_000
    while time.monotonic() < until_s:
        left_s = 0.0
        for path in candidates(source.path):
            with suppress(FileNotFoundError):
                left_s = max(left_s, unsettled_s(source, os.stat(path)))
        if not left_s:
            return
        time.sleep(min(left_s, max(until_s - time.monotonic(), 0.0)))


def _append(store: Store, stream: Stream, found: list[SourceFile]) -> int:
    """Record files, unless another thread has listed them: two threads may list a new stream at once."""
    with store.transaction():
        known = store.source_files.listed(stream.id, [f.path for f in found])
        return len(store.source_files.append(stream.id, [f for f in found if f.path not in known]))


def candidates(path: str) -> Iterator[str]:
    """Yield the visible, complete files of a path: a file, matches of a glob, or files right in a directory.

    Only regular files are yielded, because a pipe or a device has no end, and opening it may wait forever.
    """
    if os.path.isdir(path):
        with os.scandir(path) as entries:
            yield from (entry.path for entry in entries if _is_visible(entry.name) and entry.is_file())
    elif os.path.isfile(path):
        yield path
    else:
        for match in _matches(path):
            if _is_visible(os.path.basename(match)) and os.path.isfile(match) and not is_of_kernel(match):
                yield match


def _matches(pattern: str) -> Iterator[str]:
    """Yield the matches of a glob; below ``**`` links to a parent directory are not followed.

    Raises:
        OSError: A directory below ``**`` cannot be read; `glob` would ignore that.
    """
    parts = pattern.split("/")
    if "**" not in parts:
        yield from glob.iglob(pattern)
        return
    at = parts.index("**")
    rest = "/".join(parts[at + 1 :]) or "*"
    for base in glob.iglob("/".join(parts[:at]) or "/"):
        for directory in _directories(base, frozenset()):
            yield from _matches(f"{glob.escape(directory)}/{rest}")


def _directories(directory: str, above: frozenset[str]) -> Iterator[str]:
    """Yield a directory and all visible directories below it."""
    real = os.path.realpath(directory)
    if real in above or not os.path.isdir(directory):
        return
    yield directory
    with os.scandir(directory) as entries:
        below = sorted(entry.path for entry in entries if not entry.name.startswith(".") and entry.is_dir())
    for each in below:
        yield from _directories(each, above | {real})


def source_warnings(stream: Stream, source: FilesSource) -> tuple[str, ...]:
    """Return warnings about a stream's path: it has no files, or it has entries that are not read.

    Raises:
        OSError: A directory cannot be read.
    """
    path = source.path
    has_files = next(candidates(path), None) is not None
    if not os.path.isdir(path):
        base = path
        while glob.has_magic(base):
            base = os.path.dirname(base)
        if has_files:
            return ()
        what = f'nothing matches "{path}"' if os.path.isdir(base) else f'"{base}" does not exist'
        return (f'stream "{stream.name}" has no files: {what}',)
    found: list[str] = []
    directories, special = _other_entries(path)
    if not has_files:
        told = f'stream "{stream.name}" has no files: "{path}" holds none'
        if directories:
            count = f"{directories} {'directory' if directories == 1 else 'directories'}"
            told += f', but {count}; write path: "{path}/**/*" to read the files in '
            told += "it" if directories == 1 else "them"
        found.append(told)
    if special:
        shown = ", ".join(f'"{named(name)}"' for name in special[:_SHOWN_ENTRIES])
        more = f" and {len(special) - _SHOWN_ENTRIES} more" if len(special) > _SHOWN_ENTRIES else ""
        found.append(
            f'{shown}{more} in the directory of stream "{stream.name}" cannot be read: not a regular file, '
            "but a pipe, a socket, a device or a broken link"
        )
    return tuple(found)


def _other_entries(directory: str) -> tuple[int, list[str]]:
    """Return the number of visible directories in a directory, and the names of its special entries."""
    directories, special = 0, []
    with os.scandir(directory) as entries:
        for entry in entries:
            if not _is_visible(entry.name) or entry.is_file():
                continue
            if entry.is_dir():
                directories += 1
            else:
                special.append(entry.name)
    return directories, sorted(special)


def named(path: str) -> str:
    """Return a path as stored in the catalog: bytes of a name that are not UTF-8 are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def is_of_kernel(path: str) -> bool:
    """Return whether a path lies in a kernel file system, in which some files have no end."""
    return any(os.path.normpath(path) == root or path.startswith(root + "/") for root in _MADE_UP)


def _is_visible(name: str) -> bool:
    return not name.startswith(_HIDDEN_PREFIXES) and not name.endswith(_TEMPORARY_SUFFIXES)


def _in_short(error: Exception) -> str:
    if isinstance(error, UnusableFile):
        return error.primary
    if not isinstance(error, OSError):
        log.error("inspecting a file failed with an unexpected error", exc_info=error)
    return f"it cannot be read ({type(error).__name__}: {first_line(error)})"


def _judge(
    stream: Stream, path: str, inspect: Inspect, settled: bool, dead_letters: Folder | None
) -> SourceFile | None:
    """Inspect a file and return its entry, or None if it is missing or still being written."""
    bad: list[BadRow] | None = [] if stream.on_error == "skip-rows" else None
    latest_us = None if stream.max_ahead_us is None else wall_clock_us() + stream.max_ahead_us
    try:
        before = os.stat(path)
        assert isinstance(stream.source, FilesSource)
        if not stat.S_ISREG(before.st_mode) or (settled and unsettled_s(stream.source, before) > 0):
            return None
        try:
            if named(path) != path:
                raise UnusableFile("its name is not UTF-8; rename it")
            with opened_file(stream.source, path) as opened:
                facts, reason = inspect(opened, bad, latest_us), None
            if facts.rows >> ROW_BITS:
                raise UnusableFile(f"it has {facts.rows} rows; split it")
        except FileNotFoundError:
            return None
        except Exception as error:
            # Any error concerns only this file, unless the machine is short of a resource.
            if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in PASSING):
                raise
            facts, reason, bad = FileFacts(0, None, None), _in_short(error), None
        after = os.stat(path)
    except FileNotFoundError:
        return None
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        return None
    if bad and dead_letters is not None:
        write_skipped_rows(dead_letters, stream.name, path, before, bad)
    return SourceFile(
        position=0,  # assigned by the catalog
        path=named(path),
        size=before.st_size,
        mtime_ns=before.st_mtime_ns,
        rows=facts.rows,
        t_min_us=facts.t_min_us,
        t_max_us=facts.t_max_us,
        verdict="ok" if reason is None else "stops" if stream.on_error == "stop" else "set-aside",
        reason=reason,
        skipped=len(bad or ()),
    )
