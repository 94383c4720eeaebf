"""Posts results to a URL: NDJSON, in parts, each with a key by which a receiver recognizes repetitions.

    POST <url>
    Content-Type: application/x-ndjson
    Sluice-Query: gusts
    Sluice-Batch: 42
    Sluice-Cursor: 42.250             the cursor after the last row, as GET /queries/gusts/results gives it
    Idempotency-Key: sluice-17-42.0   series, batch and first row: the same part has the same rows and key
    Sluice-Lost-Rows: 340             only if results were lost to the sink: their number so far

Requests of a sink with a secret are signed (``signature``), and a sink may have further headers
(``webhook_headers``). Any status 2xx accepts a part. After another answer, or without an answer, the part is
sent again later. So a part may arrive twice, but parts are never out of order or skipped.

An attempt takes at most ten seconds, from the resolution of the name to the end of the answer, and reads at
most 64 kB. It uses a new connection to a checked address (``webhook_targets``): a connection pool or a proxy
would resolve the name again, and could get another address.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import httpcore
import httpx

from catalog.values.sink import SinkRecord, WebhookSink
from service.errors import SinkFailed
from service.results.pages.page import ResultPage
from service.results.result_formats import ndjson
from service.sinks.signature import signature_headers
from service.sinks.webhook_headers import sent_headers, without_secrets
from service.sinks.webhook_targets import WebhookTargets

#: Seconds for an attempt; a receiver that needs longer should answer first and work afterwards.
TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 3.0
#: Maximum bytes read of an answer, including headers; only its status is used.
MAX_ANSWER_BYTES = 64 * 1024

_FAILURES = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError)


class Webhooks:
    """Posts parts of results; safe to use from many threads.

    Args:
        targets: Allowed targets.
        timeout_s: Seconds for an attempt.
        clock_s: Wall clock, seconds since 1970.
    """

    def __init__(
        self,
        targets: WebhookTargets,
        *,
        timeout_s: float = TIMEOUT_S,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self._targets = targets
        self._timeout_s = timeout_s
        self._clock_s = clock_s
        self._ssl = httpx.create_ssl_context()

    def post(self, record: SinkRecord, sink: WebhookSink, page: ResultPage) -> None:
        """Post a page that has results of one batch.

        Raises:
            SinkFailed: The receiver did not accept the page, or is not allowed to receive a secret in the
                headers.
            SecretMissing: A secret used in the headers is not set.
        """
        body = ndjson(page.table)
        own = sent_headers(sink)
        headers = {**own, **part_headers(record, page)}
        if sink.secret is not None:
            key = headers["Idempotency-Key"]
            headers |= signature_headers(sink.secret, key, int(self._clock_s()), body)
        budget = _Budget(time.monotonic() + self._timeout_s, self._timeout_s)
        try:
            status, reason = self._sent(sink.url, headers, body, budget)
        except _FAILURES as error:
            raise SinkFailed(
                f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            ) from error
        except httpx.InvalidURL as error:
            raise SinkFailed(f"InvalidURL: {error}") from error
        # Redirects are not followed: results are sent only to the URL of the sink.
        if not 200 <= status < 300:
            told = without_secrets(reason, sink, own)
            raise SinkFailed(f"the receiver answered {status} {told}".rstrip())

    def _sent(self, url: str, headers: Mapping[str, str], body: bytes, budget: _Budget) -> tuple[int, str]:
        """Send a request; return status and reason phrase of the answer."""
        parsed = httpx.URL(url)
        target = httpcore.URL(
            scheme=parsed.raw_scheme, host=parsed.raw_host, port=parsed.port, target=parsed.raw_path
        )
        sent = [("Host", parsed.netloc.decode("ascii")), *headers.items()]
        backend = _CheckedBackend(self._targets, budget)
        with (
            httpcore.ConnectionPool(self._ssl, max_connections=1, network_backend=backend) as pool,
            pool.stream("POST", target, headers=sent, content=body) as response,
        ):
            for _ in response.iter_stream():
                if budget.bytes_left <= 0:
                    break
            reason: bytes = response.extensions.get("reason_phrase", b"")
            return response.status, reason.decode("ascii", "replace")


@dataclass(slots=True)
class _Budget:
    """Remaining time and bytes of an attempt.

    Attributes:
        until_s: End of the attempt, monotonic clock.
        timeout_s: Length of the attempt, for the error.
        bytes_left: Bytes that may still be read.
    """

    until_s: float
    timeout_s: float
    bytes_left: int = MAX_ANSWER_BYTES

    def left_s(self) -> float:
        """Return the remaining seconds, more than 0.

        Raises:
            httpcore.TimeoutException: No time is left.
        """
        left_s = self.until_s - time.monotonic()
        if left_s <= 0:
            raise httpcore.TimeoutException(f"not done within {self.timeout_s:g} s")
        return left_s


class _CheckedBackend(httpcore.NetworkBackend):
    """Connects only to checked addresses."""

    def __init__(self, targets: WebhookTargets, budget: _Budget) -> None:
        self._targets = targets
        self._budget = budget
        self._network = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address of a host that answers; arguments as in the base class."""
        *others, last = self._targets.addresses(host, port, self._budget.left_s())
        for address in others:
            try:
                return self._connected(address, port, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue  # another address may answer; only the last address's error is raised
        return self._connected(last, port, socket_options)

    def _connected(
        self, address: str, port: int, socket_options: Iterable[httpcore.SOCKET_OPTION] | None
    ) -> httpcore.NetworkStream:
        timeout_s = min(CONNECT_TIMEOUT_S, self._budget.left_s())
        stream = self._network.connect_tcp(address, port, timeout_s, socket_options=socket_options)
        return _BoundedStream(stream, self._budget)


class _BoundedStream(httpcore.NetworkStream):
    """A connection with limits: each step gets the remaining time and bytes of the attempt."""

    def __init__(self, stream: httpcore.NetworkStream, budget: _Budget) -> None:
        self._stream = stream
        self._budget = budget

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read at most the remaining bytes of the budget."""
        if self._budget.bytes_left <= 0:
            raise httpcore.ReadError(f"the headers of the answer are longer than {MAX_ANSWER_BYTES} bytes")
        data = self._stream.read(min(max_bytes, self._budget.bytes_left), self._budget.left_s())
        self._budget.bytes_left -= len(data)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write within the remaining time; the base class would apply a timeout to each piece."""
        connection = self._stream.get_extra_info("socket")
        rest = memoryview(buffer)
        while rest:
            connection.settimeout(self._budget.left_s())
            try:
                rest = rest[connection.send(rest) :]
            except TimeoutError as error:
                raise httpcore.WriteTimeout(str(error)) from error
            except OSError as error:
                raise httpcore.WriteError(str(error)) from error

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        """Switch to TLS, for the host name of the URL; arguments as in the base class."""
        stream = self._stream.start_tls(ssl_context, server_hostname, self._budget.left_s())
        return _BoundedStream(stream, self._budget)

    def get_extra_info(self, info: str) -> Any:
        """Return information about the connection; arguments as in the base class."""
        return self._stream.get_extra_info(info)


def part_headers(record: SinkRecord, page: ResultPage) -> Mapping[str, str]:
    """Return the headers of the request that sends a part of the results."""
    (span,) = page.spans
    lost = {"Sluice-Lost-Rows": str(record.lost_rows)} if record.lost else {}
    return lost | {
        "Content-Type": "application/x-ndjson",
        "Sluice-Query": record.query,
        "Sluice-Batch": str(span.batch),
        "Sluice-Cursor": str(page.next_cursor),
        "Idempotency-Key": f"sluice-{record.series}-{span.batch}.{span.first}",
    }
