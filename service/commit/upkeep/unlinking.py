"""Delayed removal of files that the catalog no longer names.

Thanks to the delay, a page or an export of results can still open files whose names it has looked up. After
a crash during the delay, the sweep at the next start removes the files.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from catalog.times.clock import is_due
from operators.errors import StorageDown
from operators.storage.folder import Folder, remove

log = logging.getLogger(__name__)

#: Seconds before a file is unlinked. A page, or an export of some batches, needs less time between reading
#: the names of its files and opening the files.
UNLINK_AFTER_S = 60.0


@dataclass(slots=True)
class Unlinking:
    """Files that wait to be unlinked; used by one thread."""

    _waiting: deque[tuple[int, Folder, list[str]]] = field(default_factory=deque, init=False)

    def add(self, now_us: int, folder: Folder, names: Iterable[str]) -> None:
        """Add files of a folder that the catalog does not name from ``now_us`` on, wall clock, µs UTC."""
        self._waiting.append((now_us, folder, list(names)))

    def run_once(self, now_us: int, after_s: float) -> None:
        """Unlink files that were added at least ``after_s`` seconds before ``now_us``, wall clock, µs UTC."""
        while self._waiting and is_due(self._waiting[0][0], now_us, after_s):
            _, folder, names = self._waiting[0]
            try:
                remove(folder, names)
            except (OSError, StorageDown) as error:
                # Removal is tried again in the next run. If it still fails, the sweep at the next start
                # reports the error, too.
                log.warning("files of dropped results cannot be removed: %s", error)
                return
            self._waiting.popleft()
