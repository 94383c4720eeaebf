"""Compressed bodies and answers: which codings are read and written, and what ends at a limit."""

from __future__ import annotations

import gzip
import json
import logging
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pyarrow as pa
import pytest

from api.envelope.codings import EncodedAnswer, accepted, decompressed
from api.errors import BodyTooLarge
from tests.api.without_engine import CQL, Service
from tests.builders import stream_document

LIMIT = 1 << 20
EVENTS = json.dumps([{"ts": 1, "k": 1}]).encode()
GZIP = gzip.compress(EVENTS)
ZSTD = pa.compress(EVENTS, codec="zstd", asbytes=True)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service(tmp_path_factory.mktemp("codings"), max_body_bytes=LIMIT)
    for name in "AB":
        service.made("POST", "/streams", stream_document(name))
    yield service
    service.close()


def plain(data: bytes, coding: str, length: int | None = None) -> bytes:
    return bytes(pa.CompressedInputStream(pa.BufferReader(data), coding).read(length))


def post(service: Service, coding: str, body: bytes, path: str = "/streams/A/events") -> Any:
    return service.send_text("POST", path, body, {"Content-Encoding": coding})


QUERY = json.dumps({"cql": CQL}).encode()


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(QUERY)),
        ("X-GZip", gzip.compress(QUERY)),
        ("gzip", gzip.compress(QUERY[:9]) + gzip.compress(QUERY[9:])),
        ("zstd", pa.compress(QUERY, codec="zstd", asbytes=True)),
        ("identity, zstd", pa.compress(QUERY, codec="zstd", asbytes=True)),
        ("identity", QUERY),
        ("", QUERY),
    ],
)
def test_a_compressed_body_is_read(service: Service, coding: str, body: bytes) -> None:
    assert post(service, coding, body, "/queries:validate").status_code == 200


def test_compressed_events_are_stored(tmp_path: Path) -> None:
    service = Service(tmp_path)
    try:
        service.made("POST", "/streams", stream_document("A"))
        for coding, body in (("gzip", GZIP), ("zstd", ZSTD)):
            assert post(service, coding, body).json()["accepted"] == 1
    finally:
        service.close()


@pytest.mark.parametrize("coding", ["deflate", "br", "gzip, gzip", "gzip\x7f", "compress"])
def test_another_coding_is_refused_with_those_to_use(service: Service, coding: str) -> None:
    answer = post(service, coding, zlib.compress(EVENTS))
    assert (answer.status_code, answer.headers["accept-encoding"]) == (415, "zstd, gzip")
    assert answer.json()["hint"].startswith("Compress the body with gzip or zstd")


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", GZIP[:-1]),
        ("gzip", GZIP + b"junk"),
        ("gzip", EVENTS),
        ("gzip", ZSTD),
        ("zstd", ZSTD[:-1]),
        ("zstd", ZSTD + b"junk"),
        ("zstd", b"\x28"),
    ],
)
def test_a_body_that_is_not_what_it_says_is_refused(service: Service, coding: str, body: bytes) -> None:
    problem = post(service, coding, body).json()
    assert (problem["status"], problem["detail"]) == (400, f"the body is not {coding}")


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_body_that_grows_beyond_the_limit_is_refused(service: Service, coding: str) -> None:
    zeros = bytes(100 << 20)
    zeros = gzip.compress(zeros, 1) if coding == "gzip" else pa.compress(zeros, codec="zstd", asbytes=True)
    assert len(zeros) < LIMIT
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(BodyTooLarge):
        decompressed(zeros, coding, LIMIT)
    assert pa.default_memory_pool().max_memory() - before < 20 << 20
    answer = post(service, coding, zeros)
    assert answer.status_code == 413
    assert "SLUICE_MAX_BODY_BYTES" in answer.json()["explanation"]


@pytest.mark.parametrize("coding", ["gzip", "identity"])
def test_a_body_is_limited_before_it_is_decompressed(service: Service, coding: str) -> None:
    assert post(service, coding, bytes(LIMIT + 1)).status_code == 413

    async def parts() -> Any:
        for _ in range(3):
            yield bytes(LIMIT // 2)

    headers = {"Content-Encoding": coding, "Content-Type": "application/json"}
    answer = service.request("POST", "/streams/A/events", content=parts(), headers=headers)
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("sent", "coding"),
    [
        ("gzip", "gzip"),
        ("gzip, deflate, br", "gzip"),
        ("zstd, gzip", "zstd"),
        ("gzip;q=1.0, zstd; q=0.5", "gzip"),
        ("*", "zstd"),
        ("*;q=0, gzip;q=0.1", "gzip"),
        ("gzip;q=0", None),
        ("identity", None),
        ("identity;q=1, gzip;q=0.5", None),
        ("br", None),
        ("", None),
        ("gzip;q=2, \xff", None),
    ],
)
def test_the_client_chooses_the_coding_of_an_answer(service: Service, sent: str, coding: str | None) -> None:
    headers = [(b"accept-encoding", sent.encode("latin-1"))]
    assert accepted({"method": "GET", "headers": headers}) == coding
    assert accepted({"method": "HEAD", "headers": headers}) is None
    answer = service.request("GET", "/openapi.json", headers={"Accept-Encoding": sent.encode("latin-1")})
    assert answer.headers.get("content-encoding") == coding
    text = plain(answer.content, "zstd") if coding == "zstd" else answer.content
    assert json.loads(text)["openapi"]
    if coding is not None:
        assert "Accept-Encoding" in answer.headers["vary"]
        assert int(answer.headers["content-length"]) < len(text) / 2


def test_a_short_answer_is_not_compressed(service: Service) -> None:
    answer = service.request("GET", "/streams?limit=1&after=z", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_streamed_answer_is_readable_part_by_part(coding: str) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def stream(kind: bytes) -> None:
        sent.clear()
        answer = EncodedAnswer(send, coding)
        headers = [(b"content-type", kind), (b"content-length", b"9"), (b"vary", b"Accept")]
        await answer.send({"type": "http.response.start", "status": 200, "headers": headers})
        for part, more in ((b"first\n", True), (b"2\n", True), (b"", False)):
            await answer.send({"type": "http.response.body", "body": part, "more_body": more})

    anyio.run(stream, b"application/x-ndjson")
    headers = dict(sent[0]["headers"])
    assert (headers[b"vary"], headers[b"content-encoding"]) == (b"Accept, Accept-Encoding", coding.encode())
    assert b"content-length" not in headers
    first = sent[1]["body"]
    assert plain(first, coding, 6) == b"first\n"
    whole = b"".join(message["body"] for message in sent[1:])
    assert plain(whole, coding) == b"first\n2\n"
    for kind in (b"text/event-stream; charset=utf-8", b"application/vnd.apache.arrow.stream"):
        anyio.run(stream, kind)
        assert b"content-encoding" not in dict(sent[0]["headers"])
        assert [message["body"] for message in sent[1:]] == [b"first\n", b"2\n", b""]


@pytest.mark.parametrize("coding", [b"gzip", b"identity"])
def test_a_client_that_hangs_up_is_no_error(
    service: Service, coding: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Its line in the log is the server's (tests/api/server)."""
    messages = iter([{"type": "http.request", "body": b"[", "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        pass

    path = "/api/v1/streams/A/events"
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), (b"content-encoding", coding)]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    with caplog.at_level(logging.INFO):
        anyio.run(service.app, scope, receive, send)
    assert caplog.records == []
