"""Methods of the client that need several requests: retries, pages, batches of events.

A flow is a generator. It yields steps to carry out (send a request, pause) and receives their outcome; it
yields values for the caller as `Given`. A flow does no input or output itself, so both clients can run it.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import httpx

from sluice_client import models, operations
from sluice_client.errors import NoAnswer, Problem, problem_of
from sluice_client.request import Json, Request
from sluice_client.retry import Retry, is_worth_another_try
from sluice_client.rows import Row, batches, decode_rows

T = TypeVar("T")

ARROW = "application/vnd.apache.arrow.stream"
#: Methods of requests that change nothing.
_SAFE = ("GET", "HEAD")
#: Number of items requested per page of a collection.
_PAGE = 500
#: Number of rows requested per page of results: the maximum that the service allows.
PAGE_ROWS = 10_000
#: Maximum seconds for which the service waits for further results before it answers; less than a minute,
#: because proxies close connections that are silent for a minute.
FOLLOW_WAIT_S = 20.0


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request; the outcome is a response, or the error of the connection."""

    request: Request[Any]


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait before the next step."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Given(Generic[T]):
    """A value for the caller."""

    value: T


Outcome = httpx.Response | httpx.TransportError | None
#: A flow that returns one value.
Flow = Generator[Send | Pause, Outcome, T]
#: A flow that yields values.
Supply = Generator[Send | Pause | Given[T], Outcome, None]


def answered(request: Request[T], retry: Retry) -> Flow[T]:
    """Send a request until it is answered, and read the answer.

    Raises:
        Problem: The service refused the request permanently, or it still refused it when ``patience_s`` had
            passed.
        NoAnswer: There was no answer until ``patience_s`` had passed.
    """
    if request.method not in _SAFE and request.key is None:
        request = replace(request, key=str(uuid.uuid4()))
    patience_s = retry.patience_s if request.repeatable else 0.0
    error: Problem | NoAnswer
    for attempt, pause_s in enumerate(retry.pauses(), start=1):
        outcome = yield Send(request)
        if isinstance(outcome, httpx.Response):
            if outcome.is_success:
                return request.read(outcome)
            retry_after = outcome.headers.get("Retry-After")
            error = problem_of(outcome.status_code, outcome.reason_phrase, outcome.content, retry_after)
            if not is_worth_another_try(error.status, error.code):
                raise error
            pause_s = max(pause_s, error.retry_after_s or 0)
        elif isinstance(outcome, httpx.TransportError):
            reason = str(outcome) or type(outcome).__name__
            error = NoAnswer(str(outcome.request.url.copy_with(path="/")), reason, attempt)
        else:
            raise TypeError("a request is answered with a response or an error")
        patience_s -= pause_s
        if patience_s < 0:
            raise error
        yield Pause(pause_s)
    raise AssertionError("pauses never end")


def streams(retry: Retry) -> Supply[models.Stream]:
    """Yield all streams."""
    yield from _collection("/streams", models.StreamPage, retry)


def queries(retry: Retry) -> Supply[models.Query]:
    """Yield all queries."""
    yield from _collection("/queries", models.QueryPage, retry)


def plan_versions(retry: Retry) -> Supply[models.PlanVersion]:
    """Yield the history of the plan."""
    yield from _collection("/plan/versions", models.PlanVersionPage, retry)


def migrations(retry: Retry) -> Supply[models.Migration]:
    """Yield all migrations."""
    yield from _collection("/migrations", models.MigrationPage, retry)


def _collection(path: str, kind: type[Any], retry: Retry) -> Supply[Any]:
    after: str | None = None
    while True:
        request = Request("GET", path, Json(kind), params={"after": after, "limit": _PAGE})
        page = yield from answered(request, retry)
        for item in page.items:
            yield Given(item)
        if not page.has_more:
            return
        after = page.next_cursor


def ingest(
    name: str,
    rows: Iterable[Row],
    *,
    most_rows: int,
    most_bytes: int,
    key: str | None,
    retry: Retry,
) -> Flow[int]:
    """Post rows in batches, each with its own idempotency key, and return the number of accepted rows."""
    base = key or str(uuid.uuid4())
    taken = 0
    for number, (body, _) in enumerate(batches(rows, most_rows, most_bytes)):
        answer = yield from answered(operations.append_events(name, body, f"{base}-{number}"), retry)
        taken += answer.accepted
    return taken


@dataclass(frozen=True, slots=True)
class Page:
    """A page of results.

    Attributes:
        rows: The rows, each a dictionary of typed values.
        columns: Columns of the rows.
        cursor: Cursor after the last row, from which reading can continue.
        dropped: Number of results before the page that are no longer kept.
    """

    rows: Sequence[dict[str, Any]]
    columns: Sequence[models.Column]
    cursor: str | None
    dropped: int


def result_page(name: str, after: str | None, limit: int, wait_s: float = 0) -> Request[models.ResultPage]:
    """Describe the request of a page of results."""
    return Request(
        "GET",
        "/queries/{name}/results",
        Json(models.ResultPage),
        {"name": name},
        {"after": after, "limit": limit, "wait": wait_s or None},
        wait_s=wait_s,
    )


def pages(name: str, after: str | None, most_rows: int, retry: Retry) -> Supply[Page]:
    """Yield the results so far, in pages."""
    while True:
        found = yield from answered(result_page(name, after, most_rows), retry)
        if found.rows:
            yield Given(_page(found))
        if not found.has_more:
            return
        after = found.next_cursor


def following_pages(name: str, after: str | None, most_rows: int, retry: Retry) -> Supply[Page]:
    """Yield current and future results in pages, until the query is removed and all were read."""
    over = False
    while True:
        wait_s = 0.0 if over else FOLLOW_WAIT_S
        found = yield from answered(result_page(name, after, most_rows, wait_s), retry)
        if found.rows:
            yield Given(_page(found))
            after = found.next_cursor
        elif over:
            return
        else:
            over = (yield from answered(operations.query(name), retry)).observed == "removed"


def _page(found: models.ResultPage) -> Page:
    return Page(decode_rows(found), found.columns, found.next_cursor, found.dropped)


@dataclass(frozen=True, slots=True)
class ArrowPage:
    """A page of results as an Arrow stream."""

    stream: bytes
    next_cursor: str | None
    has_more: bool


def _arrow_page(response: httpx.Response) -> ArrowPage:
    headers = response.headers
    has_more = headers.get("Sluice-Has-More") == "true"
    return ArrowPage(response.content, headers.get("Sluice-Next-Cursor"), has_more)


def arrow_page(name: str, after: str | None) -> Request[ArrowPage]:
    """Describe the request of a page of results in Arrow's format."""
    params = {"after": after, "limit": PAGE_ROWS}
    return Request("GET", "/queries/{name}/results", _arrow_page, {"name": name}, params, accept=ARROW)


def arrow_streams(name: str, after: str | None, retry: Retry) -> Flow[list[bytes]]:
    """Return the results so far as Arrow streams, one for each page."""
    read: list[bytes] = []
    while True:
        page = yield from answered(arrow_page(name, after), retry)
        read.append(page.stream)
        if not page.has_more:
            return read
        after = page.next_cursor
