"""Opens a file of a source, which must lie in the directory that the source is confined to."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from catalog.values.stream import FilesSource
from service.errors import UnusableFile

#: Errors that the file does not cause and that may no longer occur later.
PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.ESTALE})


def change_of(path: str, size: int, mtime_ns: int) -> str | None:
    """Return how a file differs from its listing, by size and modification time; None if it does not.

    Raises:
        OSError: The machine is short of a resource (``PASSING``).
    """
    try:
        found = os.stat(path)
    except OSError as error:
        if error.errno in PASSING:
            raise
        return "it is gone" if isinstance(error, FileNotFoundError) else f"{error.strerror}"
    if not stat.S_ISREG(found.st_mode):
        return "it is not a regular file any more"
    if found.st_size != size:
        return f"it had {size} bytes and has {found.st_size}"
    return "it was written again" if found.st_mtime_ns != mtime_ns else None


@contextmanager
def opened_file(source: FilesSource, path: str) -> Iterator[str]:
    """Yield a path for reading a file of a source; it is valid inside the block.

    For a confined source, this is the path of an open handle, so the file that is read is the file that was
    checked, even if another file replaces it meanwhile.

    Raises:
        UnusableFile: The file is outside of the source's directory.
        OSError: The file cannot be opened.
    """
    if source.confinement is None:
        yield path
        return
    # Check before opening: a process that opens and closes a file of SQLite loses all its locks on that file,
    # which would break the catalog. An O_PATH handle cannot read, and closing it is harmless.
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        own = f"/proc/self/fd/{place}"
        if not source.confinement.allows(os.readlink(own)):
            raise UnusableFile(f'it is a link that leads out of "{source.confinement.root}"')
        # Non-blocking, since a pipe put in the file's place would make us wait for its writer.
        handle = os.open(own, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(place)
    try:
        yield f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)
