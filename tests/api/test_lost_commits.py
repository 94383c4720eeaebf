"""A mutation whose COMMIT, or the answer to it, is lost on the way to PostgreSQL: done once under its key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.problems import MEDIA_TYPE
from catalog.errors import CatalogDown
from tests.api.without_engine import CQL, Service
from tests.builders import stream_document
from tests.dropping_proxy import DroppingProxy, Loss
from tests.postgres import PostgresServer

#: Commits of a request: the audit log's entry, the change with its answer, the answer as it was given, and
#: the entry's status.
COMMITS = 4


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[DroppingProxy]:
    with DroppingProxy(postgres.port) as opened:
        yield opened


@pytest.fixture
def service(
    postgres: PostgresServer, postgres_database: str, proxy: DroppingProxy, tmp_path: Path
) -> Iterator[Service]:
    opened = Service(tmp_path / "data", catalog_url=postgres.url(postgres_database, proxy.port))
    for name in ("A", "B"):
        opened.made("POST", "/streams", stream_document(name))
    yield opened
    opened.close()


def send_until_done(service: Service, path: str, body: Any, key: str) -> tuple[httpx.Response, bool]:
    """Send a request until it succeeds; return the answer, and whether it failed before."""
    answer = service.send("POST", path, body, key)
    failed = not answer.is_success
    if failed:
        assert (answer.status_code, answer.json()["code"]) == (503, CatalogDown.code)
        assert answer.headers["content-type"] == MEDIA_TYPE
        answer = service.send("POST", path, body, key)
    return answer, failed


@pytest.mark.parametrize("loss", ["request", "answer"])
def test_a_mutation_is_done_once_whichever_of_its_commits_is_lost(
    service: Service, proxy: DroppingProxy, loss: Loss
) -> None:
    failures = []
    for lost in range(COMMITS):
        for path, body, status in (
            ("/streams", stream_document(f"C{lost}"), 201),
            ("/queries", {"name": f"q{lost}", "cql": CQL}, 202),
        ):
            proxy.lose(loss, after=lost)
            answer, failed = send_until_done(service, path, body, key=f"{path}-{lost}")
            assert answer.status_code == status, answer.text
            failures.append(failed)
            again = service.send("POST", path, body, key=f"{path}-{lost}")
            assert (again.status_code, again.json()) == (status, answer.json())
            assert again.headers["Idempotency-Replayed"] == "true"
            assert proxy.lost == len(failures)
    # Only the last commit, the status in the audit log, is not worth a failure of what was done.
    assert failures == [True] * (2 * COMMITS - 2) + [False] * 2
    names = [stream.name for stream in service.store.streams.all()]
    assert names == ["A", "B", *(f"C{lost}" for lost in range(COMMITS))]
    assert [q.query.name for q in service.store.queries.all()] == [f"q{lost}" for lost in range(COMMITS)]
    latest = service.store.control_log.latest_plan()
    assert latest is not None
    assert latest.version == service.store.control_log.head() == COMMITS


def test_a_failed_commit_says_that_the_change_may_be_there(service: Service, proxy: DroppingProxy) -> None:
    proxy.lose("answer", after=1)
    refused = service.send("POST", "/streams", stream_document("C"))
    assert refused.status_code == 503
    assert "may have taken effect" in refused.json()["hint"]
    assert service.send("POST", "/streams", stream_document("C")).json()["code"] == "name-taken"
