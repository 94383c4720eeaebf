"""Content codings: compressed bodies of requests and answers (RFC 9110, sections 8.4 and 12.5.3).

    request   Content-Encoding: zstd         decompressed when the route reads it, up to the limit of bodies
    answer    Accept-Encoding: gzip, zstd    compressed if it is text, but not if it is a stream of events

A body is decompressed in pieces, and its decompression ends at the limit. A compressed body of 64 MB could
otherwise fill the memory.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import anyio
import pyarrow as pa
from anyio import CapacityLimiter

from api.errors import MalformedBody, UnsupportedMediaType, body_too_large

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

#: Codings that requests and answers may have, the preferred one first.
CODINGS: Final = ("zstd", "gzip")
#: Shorter answers are sent as they are: their headers are as long as they.
_SHORTEST: Final = 1024
_PIECE: Final = 1 << 20
#: Level of gzip, whose higher levels take several times longer for a few percent.
_LEVEL: Final = 1
_ITEM: Final = re.compile(r"([!#$%&'*+.^_`|~\w-]+)(?:\s*;\s*q=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?))?")
_TEXT: Final = re.compile(rb"text/(?!event-stream)|application/(\S+\+)?(json|x-ndjson|xml|javascript)\b")


def coding_of(scope: Scope) -> str | None:
    """Return the coding of a request's body, or None if the body is not compressed.

    Raises:
        UnsupportedMediaType: The body has another coding, or several.
    """
    sent = b",".join(value for name, value in scope["headers"] if name == b"content-encoding")
    codings = [each for item in sent.decode("latin-1").lower().split(",") if (each := item.strip())]
    codings = [each.removeprefix("x-") for each in codings if each != "identity"]
    if not codings:
        return None
    if len(codings) > 1 or codings[0] not in CODINGS:
        raise UnsupportedMediaType(
            f"a body with Content-Encoding {', '.join(codings)[:100]!a} cannot be read",
            hint="Compress the body with gzip or zstd, or send it without Content-Encoding.",
        )
    return codings[0]


def accepted(scope: Scope) -> str | None:
    """Return the coding of an answer that the client prefers, or None if it accepts no coding."""
    if scope["method"] == "HEAD":
        return None
    sent = b",".join(value for name, value in scope["headers"] if name == b"accept-encoding")
    found = {}
    for item in sent.decode("latin-1").lower().split(","):
        if (match := _ITEM.fullmatch(item.strip())) is not None:
            found[match[1].removeprefix("x-")] = 1.0 if match[2] is None else float(match[2])
    quality = {coding: found.get(coding, found.get("*", 0.0)) for coding in CODINGS}
    best = max(CODINGS, key=lambda coding: quality[coding])
    return best if quality[best] > 0 and quality[best] >= found.get("identity", 0.0) else None


def decompressed(body: bytes, coding: str, limit: int) -> bytes:
    """Return a decompressed body.

    Raises:
        BodyTooLarge: The body has more than ``limit`` bytes.
        MalformedBody: The body is not compressed with the coding, or is cut off.
    """
    parts, left = [], limit
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), coding) as stream:
            while part := stream.read(min(_PIECE, left + 1)):
                left -= len(part)
                if left < 0:
                    raise body_too_large(limit)
                parts.append(part)
    except (OSError, pa.ArrowException) as error:
        raise MalformedBody(
            f"the body is not {coding}",
            detail=f"{error}.",
            hint=f"Send the complete output of {coding}, or send the body without Content-Encoding.",
        ) from error
    return b"".join(parts)


def decoding(receive: Receive, coding: str, limit: int, limiter: CapacityLimiter) -> Receive:
    """Return ``receive`` for a request with a compressed body; it returns the decompressed body at once."""
    done = False

    async def decoded() -> Message:
        nonlocal done
        if done:
            return await receive()
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return message
            body += message.get("body", b"")
            if len(body) > limit:
                raise body_too_large(limit)
            if not message.get("more_body", False):
                break
        done = True
        plain = await anyio.to_thread.run_sync(decompressed, bytes(body), coding, limit, limiter=limiter)
        return {"type": "http.request", "body": plain, "more_body": False}

    return decoded


class EncodedAnswer:
    """Sends an answer compressed, if that pays.

    Args:
        send: Sends messages of the answer.
        coding: Coding that the client prefers.
    """

    def __init__(self, send: Send, coding: str) -> None:
        self._send = send
        self._coding = coding
        self._start: Message | None = None
        self._compressor: Callable[[bytes, bool], bytes] | None = None

    async def send(self, message: Message) -> None:
        """Send a message of ASGI."""
        if message["type"] == "http.response.start":
            if _pays(message):
                self._start = message
                return
            await self._send(message)
            return
        if message["type"] != "http.response.body":
            await self._send(message)
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if self._start is not None:
            start, self._start = self._start, None
            if not more and len(body) < _SHORTEST:
                await self._send(_with(start))
            elif not more:
                body = await anyio.to_thread.run_sync(_compressed, body, self._coding)
                await self._send(_with(start, self._coding, len(body)))
            else:
                self._compressor = _compressor(self._coding)
                await self._send(_with(start, self._coding))
        if self._compressor is not None:
            body = await anyio.to_thread.run_sync(self._compressor, body, not more)
        await self._send({**message, "body": body})


def _pays(start: Message) -> bool:
    """Return whether an answer is text that is not compressed yet."""
    headers = {name.lower(): value for name, value in start.get("headers", ())}
    kind = headers.get(b"content-type", b"").lower()
    return (
        start["status"] not in (204, 206, 304)
        and b"content-encoding" not in headers
        and _TEXT.match(kind) is not None
    )


def _with(start: Message, coding: str | None = None, length: int | None = None) -> Message:
    """Return the start of an answer with the headers of its coding."""
    headers = [(name.lower(), value) for name, value in start.get("headers", ())]
    if coding is not None:
        headers = [header for header in headers if header[0] != b"content-length"]
        headers.append((b"content-encoding", coding.encode()))
        if length is not None:
            headers.append((b"content-length", str(length).encode()))
    others = [value for name, value in headers if name == b"vary"]
    kept = [header for header in headers if header[0] != b"vary"]
    return {**start, "headers": [*kept, (b"vary", b", ".join([*others, b"Accept-Encoding"]))]}


def _compressed(body: bytes, coding: str) -> bytes:
    # A frame of zstd that is made at once states its length, which some clients require.
    if coding == "zstd":
        return bytes(pa.compress(body, codec="zstd", asbytes=True))
    return _compressor(coding)(body, True)


def _compressor(coding: str) -> Callable[[bytes, bool], bytes]:
    """Return a function that compresses the next part of an answer; its client can read all parts so far."""
    if coding == "gzip":
        gzip = zlib.compressobj(_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)

        def next_gzip(part: bytes, last: bool) -> bytes:
            return gzip.compress(part) + gzip.flush(zlib.Z_FINISH if last else zlib.Z_SYNC_FLUSH)

        return next_gzip
    sink = _Sink()
    zstd = pa.CompressedOutputStream(pa.PythonFile(sink, "w"), "zstd")

    def next_zstd(part: bytes, last: bool) -> bytes:
        zstd.write(part)
        zstd.close() if last else zstd.flush()
        return sink.taken()

    return next_zstd


class _Sink(io.RawIOBase):
    """A file from which the bytes written so far can be taken."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:  # Any: RawIOBase takes any buffer
        self._parts.append(bytes(data))
        return len(data)

    def taken(self) -> bytes:
        data, self._parts = b"".join(self._parts), []
        return data
