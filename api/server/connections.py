"""Limits of connections: their number, the time for sending a request, and the size of its headers.

With the parser used here, uvicorn has no such limits: a connection that sends nothing, or sends a header byte
by byte, would stay open as long as the client wants.

    connected ── head ──────────> body ────────────────> answer ─────────────> idle
                 HEAD_S, bytes,   MIN_BODY_BYTES          SLOW_READER_S         uvicorn's keep-alive
                 number           each BODY_WINDOW_S      to take 64 kB         (5 s), then as at first
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from api.envelope.envelope import enveloped, new_request_id
from api.errors import HeadTooLarge, NotHttp, RequestTooSlow, TooManyConnections
from api.problems import problem_response
from api.server.tls import NamedConnection
from catalog.errors import SluiceError
from catalog.wording.outside import printable

log = logging.getLogger(__name__)

#: Minimum seconds between two warnings about refused connections.
TELL_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of the connections of one server.

    Attributes:
        connections: Maximum number of connections at the same time.
        head_bytes: Maximum size of a request's first line and headers, in bytes.
        headers: Maximum number of headers of a request.
        head_s: Seconds within which the first line and the headers must arrive, counted from the start of
            the connection or, for a later request, from the first byte.
        body_window_s: Seconds within which ``min_body_bytes`` of a body, or the end of the body, must arrive.
        min_body_bytes: Minimum number of bytes of a body in ``body_window_s``.
        slow_reader_s: Seconds after which a client that does not read its answer is disconnected.
    """

    connections: int = 512
    head_bytes: int = 64 * 1024
    headers: int = 100
    head_s: float = 10.0
    body_window_s: float = 20.0
    min_body_bytes: int = 10_000
    slow_reader_s: float = 60.0


def limited_protocol(limits: ConnectionLimits) -> type[LimitedProtocol]:
    """Return uvicorn's protocol with limits."""
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits})


class LimitedProtocol(NamedConnection):
    """A connection that is closed when it exceeds a limit."""

    limits: ClassVar[ConnectionLimits] = ConnectionLimits()
    _told_s: ClassVar[float] = float("-inf")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timer: asyncio.TimerHandle | None = None
        self._reader_timer: asyncio.TimerHandle | None = None
        self._in_head = True
        self._ended_here = False
        self._head_bytes = 0
        self._told_bytes = 0
        self._body_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Refuse a connection above the limit; start the timer for the request of any other connection."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self.tell_too_many()
            self._refuse(TooManyConnections("there are too many connections", hint="Try again later."))
            return
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers; log a client that hung up before it had its answer."""
        self._stop()
        self._stop_reader()
        unread = self.cycle is not None and (self.flow.write_paused or not self.cycle.response_complete)
        if self.cycle is not None and unread and not self._ended_here:
            state = self.cycle.scope.get("state", {})
            told = {"path": printable(self.cycle.scope["path"]), "request_id": state.get("request_id")}
            log.info("client hung up before its answer was complete", extra=told)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request."""
        if self._timer is None and (self.cycle is None or self.cycle.response_complete):
            self._begin_head()
        before = self._body_bytes
        super().data_received(data)
        if self._in_head and self._body_bytes == before:
            # The parser reports a header only when it is complete. The bytes of a header without end are
            # counted here.
            self._head_bytes += len(data)
            if self._head_bytes > self.limits.head_bytes:
                self._refuse_head()

    def on_message_begin(self) -> None:
        """Start to count the bytes of a request's head."""
        super().on_message_begin()
        self._told_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Take a piece of the path."""
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        super().on_header(name, value)
        self._count(len(name) + len(value))

    def on_headers_complete(self) -> None:
        """Begin to time the body."""
        if self.transport.is_closing():
            return
        self._in_head = False
        self._body_bytes = 0
        self._start(self.limits.body_window_s, self._check_body)
        super().on_headers_complete()
        if self.parser.get_http_version() == "1.0":
            self.cycle.__class__ = _ToTheEnd

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        if self.transport.is_closing():
            return
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the timer: the request is complete, and the application's time is not limited."""
        if self.transport.is_closing():
            return
        self._stop()
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Start a timer for a client that does not read its answer."""
        super().pause_writing()
        self._stop_reader()
        self._reader_timer = self.loop.call_later(self.limits.slow_reader_s, self._abort)

    def resume_writing(self) -> None:
        """Stop the timer, since the client reads again."""
        super().resume_writing()
        self._stop_reader()

    def shutdown(self) -> None:
        """Close the connection once its answer is complete, because the service stops."""
        self._ended_here = True
        super().shutdown()

    def _abort(self) -> None:
        self._ended_here = True
        self.transport.abort()

    def _begin_head(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        self._start(self.limits.head_s, self._head_is_late)

    def _count(self, length: int) -> None:
        self._told_bytes += length
        if self._told_bytes > self.limits.head_bytes or len(self.headers) > self.limits.headers:
            self._refuse_head()

    def _refuse_head(self) -> None:
        limits = self.limits
        self._refuse(
            HeadTooLarge(
                "the path and headers of the request are too large",
                detail=f"At most {limits.head_bytes} bytes and {limits.headers} headers are allowed.",
            )
        )

    def _head_is_late(self) -> None:
        if self.cycle is None and self._head_bytes == 0:
            self.transport.close()  # the client has sent nothing, and expects nothing
            return
        self._refuse(RequestTooSlow(f"the request did not arrive within {self.limits.head_s:g} s"))

    def _check_body(self) -> None:
        """Close the connection if the body arrives too slowly, unless the service has stopped reading it."""
        if self._body_bytes < self.limits.min_body_bytes and not self.flow.read_paused:
            self._refuse(
                RequestTooSlow(
                    "the body of the request arrives too slowly",
                    detail=f"At least {self.limits.min_body_bytes} bytes must arrive within "
                    f"{self.limits.body_window_s:g} s, "
                    f"but only {self._body_bytes} arrived.",
                )
            )
            return
        self._body_bytes = 0
        self._start(self.limits.body_window_s, self._check_body)

    def _refuse(self, error: SluiceError) -> None:
        """Send a problem, unless an answer has already started, and close the connection."""
        self._ended_here = True
        self._stop()
        if self.transport.is_closing():
            return
        under_way = self.cycle is not None and not self.cycle.response_complete
        if not under_way or not self.cycle.response_started:
            https = self.transport.get_extra_info("ssl_object") is not None
            self.transport.write(_answer(error, https=https))
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not an HTTP request."""
        self._refuse(NotHttp("the request cannot be read", detail=msg))

    def _start(self, after_s: float, then: Callable[[], None]) -> None:
        self._stop()
        self._timer = self.loop.call_later(after_s, then)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_reader(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None

    def tell_too_many(self) -> None:
        """Log that connections were refused, at most once per ``TELL_EVERY_S``."""
        now_s = time.monotonic()
        if now_s - LimitedProtocol._told_s > TELL_EVERY_S:
            LimitedProtocol._told_s = now_s
            log.warning("connections refused: there are too many", extra={"limit": self.limits.connections})


class _ToTheEnd(RequestResponseCycle):
    """An answer for HTTP/1.0, which has no chunks: without a length, it ends with the connection."""

    async def send(self, message: Any) -> None:  # Any: uvicorn's own types of messages
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            if all(name.lower() != b"content-length" for name, _ in message.get("headers", ())):
                self.chunked_encoding, self.expected_content_length = False, sys.maxsize
        elif self.expected_content_length > sys.maxsize // 2 and not message.get("more_body", False):
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)


def _answer(error: SluiceError, *, https: bool) -> bytes:
    """Return a complete HTTP answer that closes the connection; it names no path, as none may be known."""
    response = problem_response(error, "")
    lines = [STATUS_LINE[response.status_code]]
    headers = enveloped([*response.raw_headers, (b"connection", b"close")], new_request_id(), https=https)
    for name, value in headers:
        lines += [name, b": ", value, b"\r\n"]
    return b"".join([*lines, b"\r\n", bytes(response.body)])
