"""Workers end when the process that started them is killed; else they would wait for work forever.

A module of its own: the waiting thread keeps what its module knows until the very end, and libraries complain
of what outlives them.
"""

from __future__ import annotations

import os
import threading
from multiprocessing import parent_process


def leave_with_parent() -> None:
    """Watch the parent from now on."""
    threading.Thread(target=_wait, daemon=True).start()


def _wait() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
