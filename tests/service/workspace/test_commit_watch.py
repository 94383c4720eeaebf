"""Whoever waits for results is told of commits by the engine's thread, and only while it listens."""

from __future__ import annotations

import asyncio
import threading

from service.workspace.commit_watch import Commits


def test_a_commit_wakes_all_that_listen_on_their_own_loops() -> None:
    commits = Commits()
    listening = threading.Barrier(4, timeout=10)
    heard: list[int] = []

    async def listen(number: int) -> None:
        with commits.heard() as event:
            await asyncio.to_thread(listening.wait)
            await asyncio.wait_for(event.wait(), 10)
            heard.append(number)

    threads = [threading.Thread(target=asyncio.run, args=(listen(number),)) for number in range(3)]
    for thread in threads:
        thread.start()
    listening.wait()
    commits.tell()
    for thread in threads:
        thread.join(10)
    assert sorted(heard) == [0, 1, 2]


def test_a_commit_between_two_waits_is_not_missed() -> None:
    async def listen() -> None:
        commits = Commits()
        with commits.heard() as event:
            for _ in range(3):
                event.clear()
                commits.tell()  # before anybody waits
                await asyncio.wait_for(event.wait(), 10)

    asyncio.run(listen())


def test_who_left_hears_nothing_and_its_closed_loop_is_left_alone() -> None:
    commits = Commits()

    async def listen() -> asyncio.Event:
        with commits.heard() as event:
            return event

    event = asyncio.run(listen())
    commits.tell()
    assert not event.is_set()
