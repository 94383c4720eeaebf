"""Opening a file of a source, which must lie in the directory that the source is confined to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from catalog.values.stream import FilesSource
from service.errors import UnusableFile


@contextmanager
def opened_file(source: FilesSource, path: str) -> Iterator[str]:
    """Yield the path to read a file of a source by, as long as the block runs.

    Where the source is confined that is the path of an open handle: what was checked is what is read,
    whatever is put in the file's place meanwhile.

    Raises:
        UnusableFile: The file is outside of the directory.
        OSError: It cannot be opened.
    """
    if source.confinement is None:
        yield path
        return
    # Looked at before it is opened: whoever opens a file of SQLite and closes it gives up all locks that his
    # process has on it, and the catalog breaks. Such a handle reads nothing, and closing it does no harm.
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        own = f"/proc/self/fd/{place}"
        if not source.confinement.allows(os.readlink(own)):
            raise UnusableFile(f'it is a link that leads out of "{source.confinement.root}"')
        # A pipe that was put in its place would have us wait for its writer.
        handle = os.open(own, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(place)
    try:
        yield f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)
