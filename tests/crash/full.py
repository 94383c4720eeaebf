"""A disk that is full from a chosen write on: whatever opens a file there, or commits, is told so.

Files count when they are opened to be written below a directory, the catalog when a write transaction is
committed. Files can be removed and renamed on a full disk.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Connection, event
from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError


@dataclass(slots=True)
class FullDisk:
    """A directory on a disk that may be full.

    Attributes:
        root: The directory.
        left: Writes until it is full; None while there is space.
    """

    root: str
    left: int | None = None

    @classmethod
    @contextmanager
    def watched(cls, root: Path) -> Iterator[Self]:
        """Look at the writes below a directory; one at a time, since an audit hook cannot be taken away."""
        global _present
        if _present is None:
            sys.addaudithook(_audit)
            event.listen(Engine, "commit", _commit)
        _present = disk = cls(str(root))
        try:
            yield disk
        finally:
            disk.root, disk.left = "\0", None

    def fill_after(self, writes: int) -> None:
        """Let so many writes succeed, and none after them."""
        self.left = writes

    def free(self) -> None:
        """Have space again."""
        self.left = None

    def is_full(self) -> bool:
        """Count a write; return whether there is no space for it."""
        if self.left is None:
            return False
        self.left -= 1
        return self.left < 0


_present: FullDisk | None = None


def _audit(name: str, arguments: tuple[Any, ...]) -> None:
    if name != "open" or _present is None:
        return
    path, _, flags = arguments
    if not isinstance(flags, int) or not flags & (os.O_WRONLY | os.O_RDWR):
        return
    if isinstance(path, str | Path) and str(path).startswith(_present.root) and _present.is_full():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def _commit(connection: Connection) -> None:
    if _present is None or not connection.get_execution_options().get("sluice_writes"):
        return
    if str(connection.engine.url.database).startswith(_present.root) and _present.is_full():
        raise OperationalError("COMMIT", {}, sqlite3.OperationalError("database or disk is full"))
