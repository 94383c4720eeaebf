"""News: whether somebody has written to the catalog or the event log, at the price of looking at some files.

SQLite writes every commit to a file beside its database (``-wal``), whose size and time tell that there was
one. A commit can go unseen where that file is begun again within one tick of the file system's clock; so
whoever waits for news does so for a while only and then looks for itself. An engine that stops touches its
lock, so that its job is not kept waiting.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

#: How often files are looked at, and so what a commit may wait: 1% of a core.
LOOK_S: Final = 0.01

_SQLITE: Final = "sqlite:///"

#: Size and time of each file.
Signs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class CommitSignal:
    """Tells of commits.

    Attributes:
        files: Files that every commit, or the engine's stop, changes.
    """

    files: tuple[str, ...]

    @classmethod
    def of(cls, urls: Sequence[str], *files: str) -> CommitSignal | None:
        """Return what tells of commits to databases; None if one of them is not a file.

        Args:
            urls: SQLAlchemy URLs of the databases.
            *files: Further files that tell of something.
        """
        if not all(url.startswith(_SQLITE) for url in urls):
            return None
        return cls((*(f"{url.removeprefix(_SQLITE)}-wal" for url in urls), *files))

    def signs(self) -> Signs:
        """Return the signature of the files; take it before looking for changes by a commit."""
        return tuple(_sign(file) for file in self.files)

    def wait(self, signs: Signs, until_s: float) -> bool:
        """Wait until the files look otherwise; return whether they did in time.

        Args:
            signs: How they looked.
            until_s: Until when to wait, as ``time.monotonic`` counts.
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
