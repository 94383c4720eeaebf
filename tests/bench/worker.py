"""Work spread over processes that end when the one that started them is killed.

A module of its own: the waiting thread keeps what its module knows until the very end, and libraries complain
of what outlives them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from typing import TypeVar

Given = TypeVar("Given")
Found = TypeVar("Found")


def spread(
    call: Callable[[Given], Found],
    over: Iterable[Given],
    jobs: int,
    begin: Callable[[], object] | None = None,
) -> Iterator[Found]:
    """Yield what a call returns of each value, in order; ``begin`` is called first in each process."""
    with ProcessPoolExecutor(jobs, get_context("spawn"), _begin, (begin,)) as pool:
        yield from pool.map(call, over)


def _begin(begin: Callable[[], object] | None) -> None:
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    if begin is not None:
        begin()


def _leave_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
