"""Delayed removal of files that the catalog no longer names.

The delay lets a page or an export of results open files whose names it has already looked up. After a crash
during the delay, the sweep at the next start removes the files.
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

#: Seconds before a file is unlinked. A page, or an export of some batches, takes less time to open the files
#: whose names it has read.
UNLINK_AFTER_S = 60.0


@dataclass(slots=True)
class Unlinking:
    """Files that wait to be unlinked; used by one thread."""

    _waiting: deque[tuple[int, Folder, list[str]]] = field(default_factory=deque, init=False)

    def add(self, now_us: int, folder: Folder, names: Iterable[str]) -> None:
        """Remove files of a folder later; nothing names them from ``now_us`` on, wall clock, µs UTC."""
        self._waiting.append((now_us, folder, list(names)))

    def run_once(self, now_us: int, after_s: float) -> None:
        """Unlink the files that have waited for ``after_s`` seconds; ``now_us`` is wall clock, µs UTC."""
        while self._waiting and is_due(self._waiting[0][0], now_us, after_s):
            _, folder, names = self._waiting[0]
            try:
                remove(folder, names)
            except (OSError, StorageDown) as error:
                # Removal is tried again at the next look. If it still fails, the sweep at the next start
                # reports the error, too.
                log.warning("files of dropped results cannot be removed: %s", error)
                return
            self._waiting.popleft()
