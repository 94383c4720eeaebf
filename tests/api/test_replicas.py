"""Several API processes on one catalog: each change is planned after the other, whoever makes it.

Each replica is a whole application over connections of its own; that they share a process changes nothing
for the catalog, which knows no threads.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from service.config.data_dir import open_data_dir
from service.recovery.opening import open_catalog
from tests.api.without_engine import CQL, Service
from tests.builders import stream_document

SEED = 23
CHANGES = 12
#: An engine is at work long before, on a busy machine, too.
START_S = 120

Replicas = list[Service]


@pytest.fixture
def replicas(tmp_path: Path, either_url: str) -> Iterator[Replicas]:
    def begin(_: int) -> str:
        """Open what has neither tables nor an identity yet, as each process does."""
        with closing(open_catalog(open_data_dir(tmp_path / "data"), either_url)) as store:
            return str(store.settings.get("identity"))

    with ThreadPoolExecutor(3) as starting:
        assert len(set(starting.map(begin, range(3)))) == 1
    made = [Service(tmp_path / "data", catalog_url=either_url) for _ in range(2)]
    for name in ("A", "B"):
        made[0].made("POST", "/streams", stream_document(name))
    yield made
    for service in made:
        service.close()


def at_once(*calls: Callable[[], httpx.Response]) -> list[httpx.Response]:
    """Return the answers of calls that are made side by side."""
    with ThreadPoolExecutor(len(calls)) as callers:
        return [answer.result() for answer in [callers.submit(call) for call in calls]]


def warm(replicas: Replicas, path: str) -> None:
    """Let each application build a route before threads share it: FastAPI does so with the first request."""
    for service in replicas:
        assert service.send("POST", path, {"no_such": 1}).status_code == 422


def posting(service: Service, path: str, body: Any, **headers: str) -> Callable[[], httpx.Response]:
    return lambda: service.request("POST", path, json=body, headers=headers)


def test_changes_at_both_replicas_get_consecutive_versions(replicas: Replicas) -> None:
    rng = Random(SEED)
    warm(replicas, "/queries")

    def change(service: Service, place: int) -> list[int]:
        versions = []
        for n in range(CHANGES):
            body = {"name": f"q{place}_{n}", "cql": CQL.replace("10", str(rng.randint(1, 60)))}
            answer = service.send("POST", "/queries", body)
            assert answer.status_code == 202, answer.text
            versions.append(answer.json()["plan_version"])
        return versions

    with ThreadPoolExecutor(2) as callers:
        found = list(callers.map(change, replicas, range(2)))
    assert sorted(found[0] + found[1]) == list(range(1, 2 * CHANGES + 1)), f"seed {SEED}"
    for service in replicas:
        log = service.store.control_log
        assert [record.seq for record in log.records(0)] == list(range(1, log.head() + 1))
        plan = log.latest_plan()
        assert plan is not None
        assert {q.name for family in plan.families for q in family.queries} == {
            f"q{place}_{n}" for place in range(2) for n in range(CHANGES)
        }


def test_of_two_changes_for_one_plan_version_one_is_made(replicas: Replicas) -> None:
    one, other = replicas
    warm(replicas, "/queries")
    one.made("POST", "/queries", {"name": "q", "cql": CQL})
    answers = at_once(
        *(
            posting(service, "/queries", {"name": name, "cql": CQL}, **{"If-Match": '"1"'})
            for service, name in ((one, "x"), (other, "y"))
        )
    )
    assert sorted(answer.status_code for answer in answers) == [202, 412]
    assert other.made("GET", "/plan")["version"] == 2


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/queries", {"name": "q", "cql": CQL}),
        ("/migrations", {"strategy": "pullup"}),
        ("/streams", stream_document("C")),
        ("/streams/A/events", [{"ts": 1, "k": 1}, {"ts": 2, "k": 2}]),
    ],
)
def test_a_request_that_reaches_both_replicas_is_done_once(replicas: Replicas, path: str, body: Any) -> None:
    one, other = replicas
    before = one.store.control_log.head()
    if path == "/migrations":
        one.made("POST", "/queries", {"name": "q", "cql": CQL})
        before = one.store.control_log.head()
    warm(replicas, path)
    answers = at_once(*(posting(s, path, body, **{"Idempotency-Key": "k"}) for s in replicas))
    again = posting(other, path, body, **{"Idempotency-Key": "k"})()
    assert all(answer.is_success for answer in answers), [answer.text for answer in answers]
    assert {answer.content for answer in (*answers, again)} == {answers[0].content}
    assert again.headers["Idempotency-Replayed"] == "true"
    planned = path in ("/queries", "/migrations")
    assert one.store.control_log.head() == before + planned
    if path.endswith("/events"):
        assert one.workspace._events.end(1) == len(body)


def test_a_backlog_counts_what_others_have_posted_and_dropped(replicas: Replicas) -> None:
    one, other = replicas
    stream = one.store.streams.get("A")
    for n in range(6):
        replicas[n % 2].made("POST", "/streams/A/events", [{"ts": n, "k": n}])
        backlogs = [service.workspace._events.backlog(stream, 0) for service in replicas]
        assert backlogs[0] == backlogs[1]
        assert backlogs[0].rows == n + 1
    whole = one.workspace._events.backlog(stream, 0).bytes
    # A batch has read four of them, and the engine, another process, drops three.
    assert other.workspace._events.backlog(stream, 4).bytes == whole // 3
    other.workspace._events.drop_before(stream.id, 3)
    found = one.workspace._events.backlog(stream, 4)
    assert (found.rows, found.bytes) == (2, whole // 3)


@pytest.mark.parametrize(
    "either_url", [pytest.param("sqlite", marks=pytest.mark.slow), "postgres"], indirect=True
)
@pytest.mark.usefixtures("own_environment")
def test_the_engine_is_wished_for_by_one_and_seen_by_the_other(replicas: Replicas) -> None:
    one, other = replicas
    assert one.made("GET", "/engine")["state"] == "stopped"
    assert one.made("POST", "/engine:pause")["state"] == "stopped", "no engine runs; it is told when it comes"
    replaced = threading.Event()
    part = other.workspace.new_engine_part(replaced=replaced.set)
    part.start(stand_by=True)
    try:
        until_s = time.monotonic() + START_S
        while one.made("GET", "/engine")["state"] != "paused":
            assert other.app.state.engine is None
            assert time.monotonic() < until_s, part.status()
            time.sleep(0.1)
        refused = one.send("POST", "/engine:skip", {})
        assert (refused.status_code, refused.json()["code"]) == (409, "nothing-to-skip")
        # An engine of another machine takes over, as if this one had hung.
        lease = one.store.lease.current()
        assert lease is not None
        taken = one.store.lease.take(dataclasses.replace(lease.holder, boot="elsewhere"), 60_000, lease)
        assert taken is not None
        assert replaced.wait(START_S)
        one.store.lease.release(taken)
    finally:
        part.stop()
    assert one.made("GET", "/engine")["state"] == "stopped"
