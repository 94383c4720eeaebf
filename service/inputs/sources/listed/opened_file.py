"""Opens a file of a source, which must lie in the directory that the source is confined to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from catalog.values.stream import FilesSource
from service.errors import UnusableFile


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
