"""Signal of commits: detects writes to the catalog and the event log by watching their files.

SQLite writes every commit to a file next to the database (``-wal``), so a commit changes the size or the
modification time of this file. A commit is missed if SQLite starts this file anew within one tick of the file
system's clock. So callers wait only for a limited time and then query the database. An engine that stops
touches its lock file, so that its job stops waiting.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

#: Seconds between two checks of the files, which is also the maximum delay of a signal. The checks take 1% of
#: a core.
LOOK_S: Final = 0.01

_SQLITE: Final = "sqlite:///"

#: Size and modification time of each file; a file that does not exist has zeros.
Signs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class CommitSignal:
    """Signal of commits, and of the engine's stop: a change of one of the files.

    Attributes:
        files: Files of which each commit, or the engine's stop, changes one.
    """

    files: tuple[str, ...]

    @classmethod
    def of(cls, urls: Sequence[str], *files: str) -> CommitSignal | None:
        """Return the signal for commits to databases, or None if a database is not a SQLite file.

        Args:
            urls: SQLAlchemy URLs of the databases.
            *files: Further files whose changes are signals.
        """
        if not all(url.startswith(_SQLITE) for url in urls):
            return None
        return cls((*(f"{url.removeprefix(_SQLITE)}-wal" for url in urls), *files))

    def signs(self) -> Signs:
        """Return the present sizes and times of the files. Call it before querying the database."""
        return tuple(_sign(file) for file in self.files)

    def wait(self, signs: Signs, until_s: float) -> bool:
        """Wait until a file has changed; return False if no file changed in time.

        Args:
            signs: Earlier result of `signs`.
            until_s: End of the wait, as a time of ``time.monotonic``, seconds.
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
