"""What the client does when the service does not answer, or not now; without a service."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import anyio
import httpx
import pytest

from sluice_client import AsyncClient, Client, Retry, errors

#: Pauses of no time: an exhausted patience needs one that the service asks for.
AT_ONCE = Retry(first_pause_s=0, longest_pause_s=0)
APPENDED = {"accepted": 2, "first_offset": 0, "last_offset": 1, "quarantined": 0}
QUERY_GONE = {
    "type": "urn:sluice:problem:query-not-found",
    "code": "query-not-found",
    "title": "No query of that name",
    "status": 404,
    "detail": 'query "q" does not exist',
    "hint": 'Did you mean "q1"?',
    "instance": "/api/v1/queries/q",
}


class Service:
    """Answers requests in turn; an exception is a lost connection."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self._answers: Iterator[httpx.Response | Exception] = iter(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def client(self, retry: Retry = AT_ONCE) -> Client:
        return Client("http://sluice.test", retry=retry, transport=httpx.MockTransport(self))


def ok(document: object) -> httpx.Response:
    return httpx.Response(200, json=document)


def busy(retry_after: str = "0") -> httpx.Response:
    return httpx.Response(
        429,
        json={"code": "ingest-full", "title": "", "status": 429, "detail": "full"},
        headers={"Retry-After": retry_after},
    )


def results(rows: list[int], cursor: str | None, *, has_more: bool = False) -> httpx.Response:
    columns = [{"name": "k", "type": "bigint"}]
    document = {"columns": columns, "rows": [{"k": k} for k in rows], "next_cursor": cursor}
    return ok(document | {"has_more": has_more, "dropped": 0, "kept_since": None})


def query(observed: str) -> httpx.Response:
    side = {"stream": "A", "alias": "A", "window": "5s", "filter": None}
    document = {
        **dict.fromkeys(("cql", "backfill", "join", "name", "desired_at", "observed_at"), ""),
        **dict.fromkeys(("id", "series", "plan_version", "results"), 0),
        **{name: [] for name in ("streams", "key", "columns", "revisions")},
        "a": side,
        "b": side,
        "desired": "removed",
        "observed": observed,
    }
    return ok(document)


@pytest.mark.parametrize(
    "failure",
    [httpx.ConnectError("refused"), httpx.ReadTimeout("slow"), busy(), httpx.Response(502, text="proxy")],
    ids=["no connection", "no answer in time", "back-pressure", "a proxy's error"],
)
def test_what_failed_is_sent_again_under_the_same_key(failure: httpx.Response | Exception) -> None:
    service = Service(failure, ok(APPENDED))
    with service.client() as client:
        assert client.ingest("A", [{"k": 1}, {"k": 2}]) == 2
    first, second = service.requests
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]
    assert first.content == second.content == b'{"k": 1}\n{"k": 2}'


def test_batches_have_keys_of_their_own_that_a_repeated_call_has_again() -> None:
    keys = []
    for _ in range(2):
        service = Service(ok(APPENDED), ok(APPENDED))
        with service.client() as client:
            assert client.ingest("A", ({"k": k} for k in range(4)), batch_rows=2, key="load") == 4
        keys.append([request.headers["Idempotency-Key"] for request in service.requests])
    assert keys == [["load-0", "load-1"]] * 2


def test_a_problem_is_raised_as_its_class_with_its_hint() -> None:
    service = Service(httpx.Response(404, json=QUERY_GONE))
    with service.client() as client, pytest.raises(errors.QueryNotFound) as raised:
        client.query("q")
    assert str(raised.value) == 'query "q" does not exist\n  hint: Did you mean "q1"?'
    assert len(service.requests) == 1


def test_a_problem_in_a_text_shows_the_place() -> None:
    fault = {"detail": "no such column", "line": 1, "column": 8, "underline": "SELECT A.kk\n       ^^^^"}
    document = QUERY_GONE | {"code": "unknown-column", "status": 422, "detail": "no such column"}
    service = Service(httpx.Response(422, json=document | {"errors": [fault]}))
    with service.client() as client, pytest.raises(errors.UnknownColumn) as raised:
        client.validate("SELECT A.kk")
    assert str(raised.value).splitlines()[:3] == [
        "1:8: no such column",
        "    SELECT A.kk",
        "           ^^^^",
    ]


def test_an_unknown_problem_is_raised_as_the_class_of_its_status() -> None:
    document = QUERY_GONE | {"code": "brand-new", "status": 409}
    service = Service(httpx.Response(409, json=document))
    with service.client() as client, pytest.raises(errors.Conflict) as raised:
        client.query("q")
    assert raised.value.code == "brand-new"


def test_patience_ends_with_the_last_error() -> None:
    service = Service(busy("31"))
    with service.client() as client, pytest.raises(errors.IngestFull) as raised:
        client.ingest("A", [{"k": 1}])
    assert raised.value.retry_after_s == 31
    lost = Service(httpx.ConnectError("refused"))
    with (
        lost.client(Retry(first_pause_s=1, patience_s=0)) as client,
        pytest.raises(errors.NoAnswer, match=r'^no answer from "http://sluice.test/": refused$'),
    ):
        client.engine()


def test_a_restart_is_sent_once() -> None:
    service = Service(httpx.ReadTimeout("slow"))
    retry = Retry(first_pause_s=1)
    with service.client(retry) as client, pytest.raises(errors.NoAnswer):
        client.restart_engine()
    assert len(service.requests) == 1


@pytest.mark.parametrize("value", [-1, float("nan")])
def test_an_impossible_retry_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="patience_s must be 0 or more"):
        Retry(patience_s=value)


def following() -> Service:
    return Service(
        results([1, 2], "0.2"),
        httpx.ReadError("connection reset"),
        httpx.ConnectError("refused"),
        results([3], "1.1"),
        results([], None),
        query("running"),
        results([], None),
        query("removed"),
        results([4], "2.1"),
        results([], None),
    )


def test_following_goes_on_after_a_lost_connection_until_the_query_is_removed() -> None:
    service = following()
    with service.client() as client:
        assert [row["k"] for row in client.follow("q")] == [1, 2, 3, 4]
    asked = [request.url.params.get("after") for request in service.requests if "results" in request.url.path]
    assert asked == [None, "0.2", "0.2", "0.2", "1.1", "1.1", "1.1", "2.1"]


def test_both_clients_send_the_same() -> None:
    async def rows(transport: Callable[[httpx.Request], httpx.Response]) -> list[int]:
        mock = httpx.MockTransport(transport)
        async with AsyncClient("http://sluice.test", retry=AT_ONCE, transport=mock) as client:
            return [row["k"] async for row in client.follow("q")]

    blocking, waiting = following(), following()
    with blocking.client() as client:
        assert [row["k"] for row in client.follow("q")] == anyio.run(rows, waiting)
    assert [(request.method, request.url) for request in blocking.requests] == [
        (request.method, request.url) for request in waiting.requests
    ]


def test_a_key_is_sent_and_not_shown() -> None:
    service = Service(ok(APPENDED))
    transport = httpx.MockTransport(service)
    with Client("http://sluice.test", key="secret", transport=transport) as client:
        client.punctuate("A", [{"k": 1}])
        assert "secret" not in repr(client)
    (request,) = service.requests
    assert request.headers["Authorization"] == "Bearer secret"
    assert json.loads(request.content) == [{"k": 1}]
