"""Watches for commits of the engine, perhaps in another process, and wakes requests that wait for results.

    engine, any process   commit ──> catalog
    thread "commits"                    └── look ── tell ──┐
    event loop                            heard ── wait ───┴── look for results

For a catalog in SQLite, changes of its files signal a write (``service.job.commit_signal``); a catalog on a
server is polled. Both methods have a cost only while requests are waiting.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from catalog.errors import CatalogDown
from catalog.store.store import Store
from service.faults import Faults
from service.job.commit_signal import CommitSignal, Signs

log = logging.getLogger(__name__)

#: Seconds between two queries for the last batch in a catalog on a server; a query takes a millisecond.
POLL_S = 0.04
#: Maximum seconds to wait for a change of the files, since a commit may leave no visible change.
WAIT_S = 0.5
#: Maximum seconds from the change of a file until its commit is visible: SQLite writes, syncs, then commits.
SETTLE_S = 0.25


class Commits:
    """Listeners for commits; safe to use from many threads and event loops.

    Attributes:
        listened: Event that is set while there is a listener.
    """

    def __init__(self) -> None:
        self.listened = threading.Event()
        self._lock = threading.Lock()
        self._listening: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def tell(self) -> None:
        """Set the events of all listeners."""
        # An event loop closes only after its coroutines have left ``heard``, so all loops here are open.
        with self._lock:
            for event, loop in self._listening.items():
                loop.call_soon_threadsafe(event.set)

    @contextmanager
    def heard(self) -> Iterator[asyncio.Event]:
        """Listen for commits: each commit sets the yielded event, and the caller clears it after waiting."""
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


@dataclass(slots=True)
class CommitWatch:
    """A thread that looks for commits.

    Attributes:
        store: Catalog.
        commits: Listeners for commits.
        signal: Signals writes to the catalog's file, or None if the catalog is not a file.
        faults: Records unexpected errors.
    """

    store: Store
    commits: Commits
    signal: CommitSignal | None
    faults: Faults = field(default_factory=Faults)
    _seen: int | None = field(default=None, init=False)
    _signs: Signs = field(default=(), init=False)
    _written_s: float = field(default=0.0, init=False)
    _stop: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="commits", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stop.set()
        self.commits.listened.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            if self.commits.listened.wait(WAIT_S) and not self.faults.attempt("commits", self._look):
                self._stop.wait(WAIT_S)

    def _look(self) -> bool:
        """Announce a new commit, or wait for one; return whether the catalog could be read."""
        signs = () if self.signal is None else self.signal.signs()
        if signs != self._signs:
            self._signs, self._written_s = signs, time.monotonic()
        try:
            last = self.store.batches.last()
        except CatalogDown as error:
            log.debug("looking for commits failed: %s", error)
            return False
        if last != self._seen:
            self._seen = last
            self.commits.tell()
        elif self.signal is None:
            self._stop.wait(POLL_S)
        else:
            settles = time.monotonic() < self._written_s + SETTLE_S
            self.signal.wait(signs, time.monotonic() + (POLL_S if settles else WAIT_S))
        return True
