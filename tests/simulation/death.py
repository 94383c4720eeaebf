"""Death before a durable write: whatever runs in this process is cut off there, and writes nothing more.

Files count when they are opened to be written, renamed, linked or removed below a directory; the catalog when
a write transaction is committed. What is written by other means says so (``Death.write``).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, event
from sqlalchemy.engine import Engine

_WRITING = os.O_WRONLY | os.O_RDWR
_OF_PATHS = frozenset({"os.rename", "os.link", "os.remove", "os.truncate"})


class Died(BaseException):
    """The processes of the service have died; no code of it can go on."""


@dataclass(slots=True)
class Death:
    """Counts durable writes below a directory, and lets the service die before one of them.

    Attributes:
        root: The directory.
        writes: Writes so far, over all lives.
        left: Writes before death; None: it does not come.
        dead: Whether it has come.
    """

    root: str
    writes: int = 0
    left: int | None = None
    dead: bool = False

    def write(self) -> None:
        """Die if it is time, or if death has come: then cleaning up does not happen either."""
        if self.dead:
            raise Died
        self.writes += 1
        if self.left is not None:
            if self.left <= 0:
                self.left, self.dead = None, True
                raise Died
            self.left -= 1

    def revive(self) -> None:
        """Begin another life."""
        self.left, self.dead = None, False

    def watch(self) -> Callable[[], None]:
        """Look at all writes from now on; call the result to look no longer.

        There is one at a time: an audit hook cannot be taken away.
        """
        global _present
        if _present is None:
            sys.addaudithook(_audit)
            event.listen(Engine, "commit", _commit)
        _present = self

        def stop() -> None:
            self.left, self.dead, self.root = None, False, "\0"

        return stop


_present: Death | None = None


def _audit(name: str, arguments: tuple[Any, ...]) -> None:
    if name == "open":
        path, _, flags = arguments
        if not isinstance(flags, int) or not flags & _WRITING:
            return
    elif name in _OF_PATHS:
        path = arguments[0]
    else:
        return
    if _present is not None and isinstance(path, str | Path) and str(path).startswith(_present.root):
        _present.write()


def _commit(connection: Connection) -> None:
    if _present is not None and connection.get_execution_options().get("sluice_writes"):
        url = connection.engine.url
        if str(url.database).startswith(_present.root):
            _present.write()
