"""Tells coroutines that a batch was committed, so that who waits for results need not look for them.

    engine's thread   commit ── tell ──┐
    event loop        heard ── wait ───┴── look for results

A commit by another process is not heard of: whoever waits looks now and then all the same.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Commits:
    """The commits of one engine; safe to use from many threads and event loops."""

    def __init__(self) -> None:
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
        try:
            yield event
        finally:
            with self._lock:
                del self._listening[event]
