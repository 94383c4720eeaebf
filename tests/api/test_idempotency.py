"""A service that dies between a mutation and its answer: what a retry under the same key then gets.

Its death is an error in the last thing that a request does under a key, keeping the answer that was given:
what was kept in the mutation's transaction is there, all else is lost. A retry comes as to a service that was
started again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog.store.clients.idempotency import IdempotencyRepository
from tests.api.without_engine import CQL, Service
from tests.builders import stream_document


class Died(RuntimeError):
    """The service is gone."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A service with the streams A and B, a query over them, and a third stream that nobody uses."""
    opened = Service(tmp_path / "data")
    for name in ("A", "B", "unused"):
        opened.made("POST", "/streams", stream_document(name))
    opened.made("POST", "/queries", {"name": "q", "cql": CQL})
    yield opened
    opened.close()


def state(service: Service) -> tuple[Any, ...]:
    store = service.store
    return (store.streams.all(), store.queries.all(), store.plan_history.page(), store.migrations.page())


@pytest.fixture
def dying(service: Service, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The service, which dies before it keeps the answer that it gives; ``undo`` starts it again."""

    def die(*_: object) -> None:
        raise Died

    monkeypatch.setattr(IdempotencyRepository, "amend", die)
    return monkeypatch


MUTATIONS: list[tuple[str, str, Any, int]] = [
    ("POST", "/streams", stream_document("C"), 201),
    ("DELETE", "/streams/unused", None, 204),
    ("POST", "/queries", {"name": "q2", "cql": CQL}, 202),
    ("PATCH", "/queries/q", {"window": "30s"}, 202),
    ("POST", "/queries/q:pause", None, 202),
    ("DELETE", "/queries/q", None, 202),
    ("POST", "/changes", {"changes": [{"remove": "q"}, {"add": {"name": "q3", "cql": CQL}}]}, 202),
    ("POST", "/migrations", {"splits": [{"at": "5s"}]}, 202),
]


@pytest.mark.parametrize(("method", "path", "body", "status"), MUTATIONS)
def test_a_retry_after_a_crash_gets_the_first_answer_and_nothing_is_done_twice(
    service: Service, dying: pytest.MonkeyPatch, method: str, path: str, body: Any, status: int
) -> None:
    before = state(service)
    with pytest.raises(Died):
        service.send(method, path, body, key="once")
    after = state(service)
    assert after != before
    dying.undo()
    retried = service.send(method, path, body, key="once")
    assert (retried.status_code, retried.headers.get("idempotency-replayed")) == (status, "true")
    assert state(service) == after
    if path == "/streams":
        assert retried.headers["location"] == "/api/v1/streams/C"
        assert retried.json() == service.made("GET", "/streams/C") | {"warnings": []}
    if path == "/migrations":
        assert retried.headers["location"] == "/api/v1/migrations/1"
        assert retried.headers["etag"] == '"2"'
        assert retried.json() == service.made("GET", "/migrations/1")


@pytest.mark.parametrize(("method", "path", "body", "status"), MUTATIONS)
def test_what_cannot_be_kept_with_its_answer_is_not_done(
    service: Service, monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: Any, status: int
) -> None:
    def die(*_: object) -> None:
        raise Died

    before = state(service)
    monkeypatch.setattr(IdempotencyRepository, "remember", die)
    with pytest.raises(Died):
        service.send(method, path, body, key="once")
    assert state(service) == before
    monkeypatch.undo()
    answer = service.send(method, path, body, key="once")
    assert (answer.status_code, answer.headers.get("idempotency-replayed")) == (status, None)


def test_the_files_of_a_stream_and_where_it_begins_come_with_it(service: Service, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"{number}.csv").write_text("ts,k\n2026-01-01T00:00:00Z,1\n")
    files = {"type": "files", "format": "csv", "path": str(tmp_path / "in"), "settle": 0}
    for name, start, position in (("old", "earliest", 0), ("new", "latest", 3)):
        service.made("POST", "/streams", stream_document(name, **files) | {"start": start})
        stream = service.store.streams.get(name)
        assert stream.initial_position == position
        assert service.store.source_files.count(stream.id) == 3


def test_events_whose_answer_was_lost_in_a_crash_are_not_appended_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [{"ts": "2026-01-01T00:00:00Z", "k": 1}]

    def die(*_: object) -> None:
        raise Died

    monkeypatch.setattr(IdempotencyRepository, "remember", die)
    with pytest.raises(Died):
        service.send("POST", "/streams/A/events", events, key="once")
    monkeypatch.undo()
    for replayed in (None, "true"):
        retried = service.send("POST", "/streams/A/events", events, key="once")
        assert retried.json() == {"accepted": 1, "quarantined": 0, "first_offset": 0, "last_offset": 0}
        assert retried.headers.get("idempotency-replayed") == replayed
    other = [{"ts": "2026-01-01T00:00:00Z", "k": 2}]
    assert service.made("POST", "/streams/A/events", other)["first_offset"] == 1
