"""Tells coroutines that a batch was committed, so that requests that wait for results need not poll.

    engine, any process   commit ──> catalog
    thread "commits"                    └── look ── tell ──┐
    event loop                            heard ── wait ───┴── look for results

The thread polls only while there are listeners, and only for the number of the last batch.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Commits:
    """Listeners for commits; safe to use from many threads and event loops.

    Attributes:
        listened: Set while somebody listens.
    """

    def __init__(self) -> None:
        self.listened = threading.Event()
        self._lock = threading.Lock()
        self._listening: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def tell(self) -> None:
        """Set the events of all that listen."""
        # A loop closes after its coroutines have left ``heard``, so none of these is closed.
        with self._lock:
            for event, loop in self._listening.items():
                loop.call_soon_threadsafe(event.set)

    @contextmanager
    def heard(self) -> Iterator[asyncio.Event]:
        """Listen; the event is set by every commit from now on and cleared by whoever waits for it."""
        event = asyncio.Event()
        with self._lock:
            self._listening[event] = asyncio.get_running_loop()
            self.listened.set()
        try:
            yield event
        finally:
            with self._lock:
                del self._listening[event]
                if not self._listening:
                    self.listened.clear()
