"""A page of results that waits for the first one (`wait`), over raw HTTP and without an engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from api.results import readers
from api.results.endpoints import events_of, open_stream
from service.access.api_keys import create_key
from tests.api.without_engine import CQL, Service
from tests.builders import stream_document
from tests.catalog.examples import plan
from tests.epochs import begin_epoch
from tests.service.pairs import Batches
from tests.service.results.test_results import pair

#: How long requests may wait here; none of them is to do so to the end.
LONG_S = 120


@dataclass
class Waiting:
    """A service without its engine, whose query has one result in batch 0."""

    service: Service
    batches: Batches

    def commit(self, *, tell: bool = True) -> None:
        """Do as the engine does."""
        self.batches.commit([pair(1, self.batches.next, 1, 0, self.batches.next)])
        if tell:
            self.service.workspace.commits.tell()

    def answer(
        self, path: str, meanwhile: Callable[[], object], headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """Send a request, and let something happen once it waits."""
        commits = self.service.workspace.commits
        answers: list[httpx.Response] = []

        async def send() -> None:
            transport = httpx.ASGITransport(self.service.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1/api/v1") as client:
                answers.append(await client.get(path, headers=headers))

        async def both() -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(send)
                while not commits._listening:
                    await anyio.sleep(0.005)
                await anyio.to_thread.run_sync(meanwhile)

        started_s = time.monotonic()
        anyio.run(both)
        assert time.monotonic() - started_s < LONG_S
        assert not commits._listening
        return answers[0]


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Waiting]:
    service = Service(tmp_path / "data")
    for name in ("A", "B"):
        service.made("POST", "/streams", stream_document(name))
    query = service.made("POST", "/queries", {"name": "q", "cql": CQL})
    store, results = service.store, service.workspace.data_dir.results
    begin_epoch(store)
    made = Waiting(service, Batches(store, results, {1: (query["id"],)}))
    made.commit()
    yield made
    service.close()


def keys(answer: httpx.Response) -> list[Any]:
    assert answer.status_code == 200, answer.text
    return [row["k"] for row in answer.json()["rows"]]


def test_a_page_that_would_be_empty_comes_with_the_next_commit(waiting: Waiting) -> None:
    answer = waiting.answer(f"/queries/q/results?after=0.1&wait={LONG_S}", waiting.commit)
    assert keys(answer) == [1]
    assert answer.json()["next_cursor"] == "1.1"


def test_a_commit_without_results_of_the_query_is_waited_past(waiting: Waiting) -> None:
    def others_first() -> None:
        waiting.batches.commit()
        waiting.service.workspace.commits.tell()
        waiting.commit()

    assert keys(waiting.answer(f"/queries/q/results?after=0.1&wait={LONG_S}", others_first)) == [2]


def test_a_commit_that_was_not_heard_of_is_seen_all_the_same(waiting: Waiting) -> None:
    unheard = waiting.answer(
        f"/queries/q/results?after=0.1&wait={LONG_S}", lambda: waiting.commit(tell=False)
    )
    assert keys(unheard) == [1]


def test_what_is_there_is_not_waited_for(waiting: Waiting) -> None:
    started_s = time.monotonic()
    assert keys(waiting.service.send("GET", f"/queries/q/results?wait={LONG_S}")) == [0]
    assert time.monotonic() - started_s < LONG_S


def test_an_empty_page_comes_when_the_time_is_over(waiting: Waiting) -> None:
    answer = waiting.service.send("GET", "/queries/q/results?after=0.1&wait=0.05")
    assert keys(answer) == []
    assert answer.json()["next_cursor"] == "0.1"


def test_a_removed_query_is_not_waited_for(waiting: Waiting) -> None:
    def remove() -> None:
        store = waiting.service.store
        store.control_log.append(plan=plan(2))
        store.queries.remove("q", 2)
        waiting.batches.version = 2
        waiting.batches.commit()
        waiting.service.workspace.commits.tell()

    assert keys(waiting.answer(f"/queries/q/results?after=0.1&wait={LONG_S}", remove)) == []


@pytest.mark.parametrize(
    ("asked", "status"),
    [("nobody/results?wait=1", 404), ("q/results?wait=1&after=x", 422), ("q/results?wait=-1", 422)],
)
def test_what_cannot_be_meant_is_refused_at_once(waiting: Waiting, asked: str, status: int) -> None:
    assert waiting.service.send("GET", f"/queries/{asked}").status_code == status


def test_readers_that_wait_do_not_look_for_themselves(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are, and although other queries have results: one task looks for all of them."""
    monkeypatch.setattr(readers, "LOOK_S", 0.005)
    workspace, readers_of = waiting.service.workspace, waiting.service.app.state.readers
    looks: list[str] = []
    look, news = workspace.results.page_if_any, workspace.queries.news
    monkeypatch.setattr(workspace.results, "page_if_any", lambda *a: looks.append("reader") or look(*a))
    monkeypatch.setattr(workspace.queries, "news", lambda *a: looks.append("task") or news(*a))

    async def follow() -> None:
        series, page = await open_stream("q", workspace)
        async with anyio.create_task_group() as tasks:

            async def one() -> None:
                with readers_of.reading(workspace, series, None) as reader:
                    async for _ in events_of(workspace, "/x", reader, page):
                        pass

            for _ in range(30):
                tasks.start_soon(one)
            while looks.count("task") < 3:
                await anyio.sleep(0.001)
            for _ in range(5):
                waiting.batches.commit()
                workspace.commits.tell()
                seen = looks.count("task")
                while looks.count("task") < seen + 2:
                    await anyio.sleep(0.001)
            assert looks.count("reader") <= 60  # at their beginning, and once the task has begun
            tasks.cancel_scope.cancel()

    anyio.run(follow)


@pytest.mark.parametrize("path", [f"/queries/q/results?after=0.1&wait={LONG_S}", "/queries/q/results/stream"])
def test_a_request_whose_key_is_revoked_ends(waiting: Waiting, path: str) -> None:
    keys = waiting.service.store.api_keys
    headers = {"Authorization": f"Bearer {create_key(keys, 'ann', ['read'])}"}
    answer = waiting.answer(path, lambda: keys.revoke("ann"), headers)
    if "stream" in path:
        assert answer.text.partition("event: gone")[2].count('"code":"unauthenticated"') == 1
    else:
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
