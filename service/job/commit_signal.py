"""Signal of commits: detects writes to the catalog and the event log by watching their files.

SQLite writes every commit to a file next to its database (``-wal``), so a commit changes the size or the time
of this file. A commit can be missed if SQLite restarts this file within one tick of the file system's clock.
So callers wait only for a limited time and then query the database. An engine that stops touches its lock
file, so that its job stops waiting.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

#: Seconds between two checks of the files, and so the longest delay of a signal; the checks take 1% of a
#: core.
LOOK_S: Final = 0.01

_SQLITE: Final = "sqlite:///"

#: Size and time of each file.
Signs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class CommitSignal:
    """Signals commits by changing files.

    Attributes:
        files: Files that every commit, or the engine's stop, changes.
    """

    files: tuple[str, ...]

    @classmethod
    def of(cls, urls: Sequence[str], *files: str) -> CommitSignal | None:
        """Return the signal for commits to databases; None if one of them is not a file.

        Args:
            urls: SQLAlchemy URLs of the databases.
            *files: Further files whose changes count.
        """
        if not all(url.startswith(_SQLITE) for url in urls):
            return None
        return cls((*(f"{url.removeprefix(_SQLITE)}-wal" for url in urls), *files))

    def signs(self) -> Signs:
        """Return the signature of the files; take it before looking for changes by a commit."""
        return tuple(_sign(file) for file in self.files)

    def wait(self, signs: Signs, until_s: float) -> bool:
        """Wait until the files have changed; return whether they did in time.

        Args:
            signs: Earlier signature of the files.
            until_s: End of the wait on the clock ``time.monotonic``.
        """
        while self.signs() == signs:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            time.sleep(min(LOOK_S, left_s))
        return True


def _sign(file: str) -> tuple[int, int]:
    try:
        stat = os.stat(file)
    except FileNotFoundError:  # before the first commit, and after the last connection is closed
        return (0, 0)
    return (stat.st_size, stat.st_mtime_ns)
