"""Files that changed after a batch had read them; ``on_change`` of their source says what follows.

    position   0          1        2                      7
    listing    a.csv ok   b.csv    c.csv   ... a.csv grew ... a.csv again: set aside, read whole, or stops

The changed file is listed again, at the end, so repeated batches read what they read before. Files that
change before they are read are found by the batch that reads them (``service.engine.failed_batch``).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from catalog.values.source_file import SourceFile
from catalog.values.stream import FilesSource, Stream
from operators.storage.folder import Folder
from service.inputs.sources.listed.files import judged_files, log_left_out
from service.inputs.sources.listed.opened_file import change_of

if TYPE_CHECKING:
    from catalog.store.store import Store  # not at run time: readers must not load SQLAlchemy

#: Files of a stream that are checked at a time; a check takes a few µs.
_PAGE: Final = 200


@dataclass(slots=True)
class ChangedFiles:
    """Checks the read files of streams, some at a time.

    Attributes:
        store: Catalog.
        dead_letters: Folder for skipped rows, or None to drop skipped rows.
    """

    store: Store
    dead_letters: Folder | None = None
    _next: dict[int, int] = field(default_factory=dict)

    def look(self, stream: Stream, source: FilesSource, read_up_to: int) -> int:
        """Check some files of a stream; return the number of files that were listed again.

        Args:
            stream: The stream.
            source: Its source.
            read_up_to: Position before which committed batches have read the stream's files.
        """
        files = self.store.source_files
        if source.on_change == "reread":
            aside = [f for f in files.set_aside(stream.id) if f.verdict == "set-aside" and _change(f)]
            files.retry(stream.id, aside)
        first = max(self._next.get(stream.id, 0), stream.initial_position)
        page = files.current(stream.id, first, read_up_to, _PAGE)
        self._next[stream.id] = page[-1].position + 1 if len(page) == _PAGE else 0
        return sum(self._list_again(stream, source, file) for file in page)

    def _list_again(self, stream: Stream, source: FilesSource, file: SourceFile) -> bool:
        change = _change(file)
        if change is None:
            return False
        if source.on_change == "reread":
            found = next(iter(judged_files(stream, [file.path], dead_letters=self.dead_letters)), None)
        else:
            found = _not_read(file, source, change)
        if found is None:
            return False
        self.store.source_files.list_again(stream.id, file, found)
        if found.verdict != "ok" or found.skipped:
            log_left_out(stream, found)
        return True


def _change(file: SourceFile) -> str | None:
    """Return how a file has changed; a file that is gone, or is no file any more, has not."""
    return change_of(file.path, file.size, file.mtime_ns) if os.path.isfile(file.path) else None


def _not_read(file: SourceFile, source: FilesSource, change: str) -> SourceFile | None:
    try:
        there = os.stat(file.path)
    except FileNotFoundError:
        return None
    return replace(
        file,
        size=there.st_size,
        mtime_ns=there.st_mtime_ns,
        rows=0,
        t_min_us=None,
        t_max_us=None,
        skipped=0,
        verdict="stops" if source.on_change == "stop" else "set-aside",
        reason=f"it changed after it was read: {change}; a retry reads the whole file again",
    )
