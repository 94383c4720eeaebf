"""Requests that wait for results: one task looks for all of them, however many there are.

    commit, or 0.4 s ── one look at the catalog ──┬── new results, or removed ──> wakes readers of that query
                                                  └── key revoked, token expired ──> ends its readers

A reader costs nothing while its query has no new results. When each of 512 readers looked for itself once a
second, they took 72% of a core.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
from fastapi import Request

from api.access.guard import Guard
from catalog.errors import Unavailable
from service.workspace.workspace import Workspace

log = logging.getLogger(__name__)

#: Seconds after which the catalog is read even if no commit was noticed. A stream must end within a second
#: after its key was revoked.
LOOK_S = 0.4


class Reader:
    """A request that waits for results of a query.

    Args:
        series: Id of the query's series.
        sent: The request's header Authorization, None if there is none.
    """

    def __init__(self, series: int, sent: str | None) -> None:
        self.series = series
        self.sent = sent
        self.woken = asyncio.Event()
        self.woken.set()  # to look for results that there are already
        self.ended: Exception | None = None

    def check(self) -> None:
        """Raise the error that has ended the reader, such as ``Unauthenticated``, if there is one."""
        if self.ended is not None:
            raise self.ended

    async def wait(self) -> None:
        """Wait until there may be results, or until the reader is ended."""
        await self.woken.wait()
        self.check()
        self.woken.clear()

    def end(self, error: Exception) -> None:
        """End the reader with an error."""
        self.ended = error
        self.woken.set()


class Readers:
    """All readers of an application; for use on its event loop only.

    Args:
        guard: Checks whether clients may still read.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._readers: set[Reader] = set()
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def reading(self, workspace: Workspace, series: int, request: Request | None) -> Iterator[Reader]:
        """Yield a reader, which is woken as long as the block runs."""
        reader = Reader(series, None if request is None else request.headers.get("authorization"))
        self._readers.add(reader)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(workspace))
        try:
            yield reader
        finally:
            self._readers.discard(reader)
            if not self._readers and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _watch(self, workspace: Workspace) -> None:
        seen: int | None = None
        try:
            with workspace.commits.heard() as heard:
                while True:
                    heard.clear()
                    try:
                        seen = await self._look(workspace, seen)
                    except Unavailable as error:
                        log.debug("looking for results failed: %s", error)
                    with anyio.move_on_after(LOOK_S):
                        await heard.wait()
        except Exception as error:
            for reader in self._readers:
                reader.end(error)
            raise

    async def _look(self, workspace: Workspace, seen: int | None) -> int:
        """Wake readers with new results and end those of clients that may no longer read."""
        sent = {reader.sent for reader in self._readers if reader.sent is not None}
        refusals = await self._guard.refusals(workspace.keys, sent) if sent else {}
        series = {reader.series for reader in self._readers}
        last, news = await anyio.to_thread.run_sync(workspace.queries.news, series, seen)
        for reader in self._readers:
            if reader.sent in refusals:
                reader.end(refusals[reader.sent])
            elif reader.series in news:
                reader.woken.set()
        return last
