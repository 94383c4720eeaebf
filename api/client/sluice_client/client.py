"""The two clients, with the same methods: blocking, and for asyncio."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial, wraps
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

import httpx

from sluice_client import flows, operations
from sluice_client.flows import Flow, Given, Outcome, Page, Pause, Supply
from sluice_client.frames import rows_of
from sluice_client.request import Request
from sluice_client.results import AsyncResults, Results
from sluice_client.retry import DEFAULT_RETRY, Retry

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8080"
#: Default number of rows per batch of events: the service writes such a batch to disk in milliseconds, and an
#: error names the batch's first invalid row.
INGEST_ROWS = 10_000
#: Maximum size of a batch of events in bytes; the service accepts up to 64 MiB.
INGEST_BYTES = 16 << 20
#: Seconds for which a follower retries an unavailable service before it raises an error.
FOLLOW_PATIENCE_S = 600.0


class _Operation(Generic[P, T]):
    """Method of both clients, made from the description of its request."""

    def __init__(self, describe: Callable[P, Request[T]]) -> None:
        self._describe = describe
        self.__doc__ = describe.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Callable[P, Request[T]]: ...
    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, Awaitable[T]]: ...
    def __get__(
        self, client: Client | AsyncClient | None, owner: type
    ) -> Callable[P, Request[T]] | Callable[P, T] | Callable[P, Awaitable[T]]:
        if client is None:
            return self._describe
        describe, retry, run = self._describe, client.retry, client.run

        @wraps(describe)
        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return run(flows.answered(describe(*args, **kwargs), retry))

        return method


class _Collection(Generic[T]):
    """Method of both clients that iterates over all items of a collection."""

    def __init__(self, start: Callable[[Retry], Supply[T]]) -> None:
        self._start = start
        self.__doc__ = start.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Client, owner: type) -> Callable[[], Iterator[T]]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[[], AsyncIterator[T]]: ...
    def __get__(
        self, client: Client | AsyncClient | None, owner: type
    ) -> Self | Callable[[], Iterator[T]] | Callable[[], AsyncIterator[T]]:
        if client is None:
            return self
        # A blocking or an asynchronous iterator, depending on the class of the client.
        supply: Callable[[Supply[T]], Any] = client.supply
        retry = client.retry
        return lambda: supply(self._start(retry))


class _Operations:
    """Methods and configuration that both clients share.

    Args:
        url: Base URL of the service; by default the environment variable ``SLUICE_URL``, or port 8080 of this
            machine.
        key: API key of the client; by default the environment variable ``SLUICE_KEY``, or no key.
        timeout_s: Timeout in seconds for connecting and for each read; a request's own waiting time in the
            service is added to the read timeout.
        retry: Rules by which requests are sent again.
    """

    register_stream = _Operation(operations.register_stream)
    stream = _Operation(operations.stream)
    streams = _Collection(flows.streams)
    change_stream = _Operation(operations.change_stream)
    remove_stream = _Operation(operations.remove_stream)
    quarantine = _Operation(operations.quarantine)
    reset_watermark = _Operation(operations.reset_watermark)
    retry_files = _Operation(operations.retry_files)
    punctuate = _Operation(operations.punctuate)

    validate = _Operation(operations.validate)
    add_query = _Operation(operations.add_query)
    put_query = _Operation(operations.put_query)
    query = _Operation(operations.query)
    queries = _Collection(flows.queries)
    update_query = _Operation(operations.update_query)
    remove_query = _Operation(operations.remove_query)
    pause_query = _Operation(operations.pause_query)
    resume_query = _Operation(operations.resume_query)
    propagate = _Operation(operations.propagate)
    change = _Operation(operations.change)

    preview = _Operation(operations.preview)
    plan = _Operation(operations.plan)
    plan_text = _Operation(operations.plan_text)
    plan_versions = _Collection(flows.plan_versions)
    migrate = _Operation(operations.migrate)
    dry_run = _Operation(operations.dry_run)
    migration = _Operation(operations.migration)
    migrations = _Collection(flows.migrations)
    policy = _Operation(operations.policy)

    statistics = _Operation(operations.statistics)
    engine = _Operation(operations.engine)
    last_batches = _Operation(operations.last_batches)
    pause_engine = _Operation(operations.pause_engine)
    resume_engine = _Operation(operations.resume_engine)
    restart_engine = _Operation(operations.restart_engine)

    def __init__(self, url: str | None, key: str | None, timeout_s: float, retry: Retry) -> None:
        self.url = (url or os.environ.get("SLUICE_URL") or DEFAULT_URL).rstrip("/")
        self.retry = retry
        self._timeout_s = timeout_s
        self._key = key or os.environ.get("SLUICE_KEY")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def _base(self) -> str:
        return f"{self.url}/api/v1"

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    def _sent(self, request: Request[Any]) -> dict[str, Any]:
        """Return the arguments of a request for httpx."""
        return {
            "method": request.method,
            "url": request.url,
            "params": {name: value for name, value in request.params.items() if value is not None},
            "content": request.body,
            "headers": request.headers(),
            "timeout": httpx.Timeout(self._timeout_s, read=self._timeout_s + request.wait_s),
        }

    def _ingest(self, stream: str, data: Any, most_rows: int, key: str | None) -> Flow[int]:
        return flows.ingest(
            stream, rows_of(data), most_rows=most_rows, most_bytes=INGEST_BYTES, key=key, retry=self.retry
        )

    def _read(
        self, query: str, after: str | None, *, on: bool = False
    ) -> tuple[str, str | None, Retry, Callable[[], Supply[Page]]]:
        """Return arguments of a reader of results; with ``on`` the reader also waits for later results."""
        pages, retry = flows.pages, self.retry
        if on:
            pages = flows.following_pages
            retry = replace(retry, patience_s=max(retry.patience_s, FOLLOW_PATIENCE_S))
        return query, after, retry, partial(pages, query, after, flows.PAGE_ROWS, retry)


class Client(_Operations):
    """Blocking client of a service.

    Args:
        url: Base URL of the service; by default the environment variable ``SLUICE_URL``, or port 8080 of this
            machine.
        key: API key of the client; by default the environment variable ``SLUICE_KEY``, or no key.
        timeout_s: Timeout in seconds for connecting and for each read; a request's own waiting time in the
            service is added to the read timeout.
        retry: Rules by which requests are sent again.
        verify: Trusted certificates, as for httpx.
        transport: Transport of httpx, for tests.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        timeout_s: float = 30.0,
        retry: Retry = DEFAULT_RETRY,
        verify: ssl.SSLContext | bool = True,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        super().__init__(url, key, timeout_s, retry)
        self._http = httpx.Client(
            base_url=self._base, headers=self._headers, verify=verify, transport=transport
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ingest(self, stream: str, rows: Any, *, batch_rows: int = INGEST_ROWS, key: str | None = None) -> int:
        """Post rows in batches, and return the number of accepted rows; an accepted batch is on disk.

        A batch is accepted or refused as a whole. The service accepts it only once, even if the client sends
        it several times. While the service is overloaded, the client retries for as long as ``retry`` allows.

        Args:
            stream: The stream.
            rows: An iterable of mappings, or a frame of pandas, polars or Arrow.
            batch_rows: Maximum number of rows in a batch.
            key: Prefix of the batches' idempotency keys. A failed call can be repeated within a day with the
                same key, rows and ``batch_rows``: rows that were already accepted are not accepted again.
        """
        return self.run(self._ingest(stream, rows, batch_rows, key))

    def results(self, query: str, *, after: str | None = None) -> Results:
        """Return the results so far: an iterable of rows, or a frame by ``to_pandas`` and similar methods.

        Args:
            query: Name of the query; results of a removed query stay readable.
            after: Cursor after which the results begin.
        """
        return Results(self, *self._read(query, after))

    def follow(self, query: str, *, after: str | None = None) -> Results:
        """Return the results so far and all later ones, until the query is removed.

        If the connection is lost, the client connects again and continues after the last page: no row is
        missed, and none is returned twice. To continue in another process, save the ``cursor`` of the last
        processed page from ``pages()``.

        Args:
            query: Name of the query.
            after: Cursor after which the results begin.
        """
        return Results(self, *self._read(query, after, on=True))

    def run(self, flow: Flow[T]) -> T:
        """Run a flow (a generator of requests) to its end and return its value."""
        outcome: Outcome = None
        while True:
            try:
                step = flow.send(outcome)
            except StopIteration as end:
                value: T = end.value
                return value
            outcome = self._take(step)

    def supply(self, flow: Supply[T]) -> Iterator[T]:
        """Yield the values of a flow."""
        outcome: Outcome = None
        while True:
            try:
                step = flow.send(outcome)
            except StopIteration:
                return
            if isinstance(step, Given):
                outcome = None
                yield step.value
            else:
                outcome = self._take(step)

    def _take(self, step: flows.Send | Pause) -> Outcome:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        try:
            return self._http.request(**self._sent(step.request))
        except httpx.TransportError as error:
            return error


class AsyncClient(_Operations):
    """Client of a service for asyncio; methods and arguments are those of ``Client``."""

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        timeout_s: float = 30.0,
        retry: Retry = DEFAULT_RETRY,
        verify: ssl.SSLContext | bool = True,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(url, key, timeout_s, retry)
        self._http = httpx.AsyncClient(
            base_url=self._base, headers=self._headers, verify=verify, transport=transport
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def ingest(
        self, stream: str, rows: Any, *, batch_rows: int = INGEST_ROWS, key: str | None = None
    ) -> int:
        """Post rows in batches, and return the number of accepted rows; see ``Client.ingest``."""
        return await self.run(self._ingest(stream, rows, batch_rows, key))

    def results(self, query: str, *, after: str | None = None) -> AsyncResults:
        """Return the results so far; see ``Client.results``."""
        return AsyncResults(self, *self._read(query, after))

    def follow(self, query: str, *, after: str | None = None) -> AsyncResults:
        """Return the results so far and all later ones; see ``Client.follow``."""
        return AsyncResults(self, *self._read(query, after, on=True))

    async def run(self, flow: Flow[T]) -> T:
        """Run a flow (a generator of requests) to its end and return its value."""
        outcome: Outcome = None
        while True:
            try:
                step = flow.send(outcome)
            except StopIteration as end:
                value: T = end.value
                return value
            outcome = await self._take(step)

    async def supply(self, flow: Supply[T]) -> AsyncIterator[T]:
        """Yield the values of a flow."""
        outcome: Outcome = None
        while True:
            try:
                step = flow.send(outcome)
            except StopIteration:
                return
            if isinstance(step, Given):
                outcome = None
                yield step.value
            else:
                outcome = await self._take(step)

    async def _take(self, step: flows.Send | Pause) -> Outcome:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        try:
            return await self._http.request(**self._sent(step.request))
        except httpx.TransportError as error:
            return error
