"""The envelope of every answer: a request id, security headers, and a check of the origin.

The envelope is the outermost layer of the application. It therefore also covers the framework's own error
answers, pages and unknown paths.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import anyio
from anyio import CapacityLimiter

from api.envelope.codings import CODINGS, EncodedAnswer, accepted, coding_of, decoding
from api.envelope.origins import Origins
from api.errors import UnsupportedMediaType, body_too_large
from catalog.errors import SluiceError, Unavailable

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)

#: Content security policy of answers that are not pages: an answer may load nothing and may not be shown in a
#: frame.
_CONTENT_POLICY = b"default-src 'none'; frame-ancestors 'none'"
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", _CONTENT_POLICY),
)
_HSTS = (b"strict-transport-security", b"max-age=31536000")
#: Maximum number of bodies that are decompressed at the same time.
_DECOMPRESSED_AT_ONCE = 2
#: A request id that the client sends is used only if it matches this pattern, because ids are written to
#: logs.
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


def enveloped(
    headers: Iterable[tuple[bytes, bytes]], request_id: bytes, *, https: bool
) -> list[tuple[bytes, bytes]]:
    """Return an answer's own headers, and the common headers that it does not set itself."""
    kept = list(headers)
    given = {name.lower() for name, _ in kept}
    added = (*_HEADERS, _HSTS) if https else _HEADERS
    return [*kept, *(header for header in added if header[0] not in given), (b"x-request-id", request_id)]


def new_request_id() -> bytes:
    """Return an id for a request whose client has sent none."""
    return secrets.token_hex(8).encode()


class Envelope:
    """ASGI application that checks each request before the wrapped application gets it.

    Args:
        app: The application.
        origins: Hosts and origins that are accepted.
        answer: Function that makes an answer from an error, the path of the request and more headers.
        max_body_bytes: Maximum size of a body, before and after it is decompressed.
    """

    def __init__(
        self,
        app: ASGIApp,
        origins: Origins,
        answer: Callable[[SluiceError, str, Mapping[str, str]], Response],
        max_body_bytes: int,
    ) -> None:
        self._app = app
        self._origins = origins
        self._answer = answer
        self._max_body_bytes = max_body_bytes
        self._decompressing: CapacityLimiter | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id.decode()
        https = scope["scheme"] == "https"
        if (wanted := accepted(scope)) is not None:
            send = EncodedAnswer(send, wanted).send

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                on_answer: Callable[[int], None] | None = scope["state"].get("on_answer")
                if on_answer is not None:
                    # The entry in the audit log is completed before the answer is sent: a client that has the
                    # answer can rely on the entry.
                    try:
                        with anyio.CancelScope(shield=True):
                            await anyio.to_thread.run_sync(on_answer, message["status"])
                    except Unavailable as error:
                        # The change has been made, and the answer says so. Only the audit entry lacks the
                        # status: it shows the request alone.
                        log.warning(
                            "audit log has no status: %s", error, extra={"request_id": request_id.decode()}
                        )
                headers = enveloped(message.get("headers", ()), request_id, https=https)
                message = {**message, "headers": headers}
            await send(message)

        try:
            self._origins.check(scope["method"], scope["headers"])
            _check_length(scope, self._max_body_bytes)
            coding = coding_of(scope)
        except SluiceError as error:
            # RFC 7694: the answer names the codings that a body may have.
            told = {"Accept-Encoding": ", ".join(CODINGS)} if isinstance(error, UnsupportedMediaType) else {}
            await self._answer(error, scope["path"], told)(scope, receive, send_with_headers)
            return
        if coding is not None:
            if self._decompressing is None:
                self._decompressing = CapacityLimiter(_DECOMPRESSED_AT_ONCE)
            receive = decoding(receive, coding, self._max_body_bytes, self._decompressing)
        await self._app(scope, receive, send_with_headers)


def _check_length(scope: Scope, limit: int) -> None:
    """Refuse a request whose ``Content-Length`` is too large; other bodies are counted while read.

    Raises:
        BodyTooLarge: ``Content-Length`` is above the limit.
    """
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > limit:
            raise body_too_large(limit)


def _request_id(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return bytes(value)
    return new_request_id()
