"""Connections that are slow, idle, too many or too large, against uvicorn with the service's protocol."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from api.server.connections import ConnectionLimits, limited_protocol
from api.server.loop import LOOP, HandshakeLoop
from tests.api.certificates import Authority, Signed
from tests.waiting import until

QUICK = ConnectionLimits(
    connections=250,
    head_bytes=8192,
    headers=20,
    head_s=1.0,
    body_window_s=0.5,
    min_body_bytes=1000,
    slow_reader_s=1.0,
)
#: Far longer than the limits above, also on a busy machine.
LONG_S = 120
#: What uvloop gives a TLS handshake.
_USUAL_S = 60
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the body's length; ``/slow`` takes 2 s, ``/large`` is 50 MB, ``/chunks`` has no length."""
    length = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        length += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    if scope["path"] == "/slow":
        await asyncio.sleep(2)
    if scope["path"] == "/chunks":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in (b"one", b"", b"two"):
            await send({"type": "http.response.body", "body": part, "more_body": part != b"two"})
        return
    body = str(length).encode() if scope["path"] != "/large" else b"x" * 50_000_000
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


class Server:
    """uvicorn in a thread."""

    def __init__(self, limits: ConnectionLimits, tls: Signed | None = None) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.address = self.listener.getsockname()
        config = uvicorn.Config(
            echo,
            http=limited_protocol(limits),
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_keep_alive=1,
            loop=LOOP,
            ssl_certfile=None if tls is None else tls.cert,
            ssl_keyfile=None if tls is None else str(tls.key),
        )
        self.uvicorn = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.uvicorn.run, args=([self.listener],))

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=2 * LONG_S)

    @property
    def open(self) -> int:
        """Connections that the server has."""
        return len(self.uvicorn.server_state.connections)


@contextmanager
def serving(limits: ConnectionLimits = QUICK, tls: Signed | None = None) -> Iterator[Server]:
    server = Server(limits, tls)
    server.thread.start()
    try:
        while not server.uvicorn.started:
            time.sleep(0.01)
        yield server
    finally:
        server.uvicorn.force_exit = server.uvicorn.should_exit = True
        server.thread.join()
        server.listener.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def answer(connection: socket.socket) -> bytes:
    """All that comes until the other side closes the connection."""
    data = b""
    try:
        while piece := connection.recv(65536):
            data += piece
    except ConnectionResetError:
        pass
    return data


def closed_within_s(connection: socket.socket) -> float:
    began_s = time.monotonic()
    answer(connection)
    return time.monotonic() - began_s


def dripping_s(connection: socket.socket, piece: bytes) -> float:
    """Send a piece every 50 ms until the server closes the connection; return the seconds that took."""
    began_s = time.monotonic()
    try:
        while time.monotonic() - began_s < 2 * LONG_S:
            connection.sendall(piece)
            time.sleep(0.05)
    except OSError:
        pass
    return time.monotonic() - began_s


def test_two_hundred_half_open_requests_are_closed_and_others_are_served_meanwhile(server: Server) -> None:
    with ExitStack() as stack:
        half_open = [stack.enter_context(server.connect()) for _ in range(200)]
        for connection in half_open:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nX-A: ")
        other = stack.enter_context(server.connect())
        other.sendall(GET)
        assert other.recv(65536).startswith(b"HTTP/1.1 200")

        answers = [answer(connection) for connection in half_open]

    assert all(text.startswith(b"HTTP/1.1 408") for text in answers)
    assert b'"code":"request-too-slow"' in answers[0]


def test_a_connection_that_sends_nothing_is_closed(server: Server) -> None:
    with server.connect() as connection:
        assert closed_within_s(connection) < LONG_S


@pytest.mark.parametrize("piece", [b"x", b"\r\n"])
def test_a_head_that_drips_is_closed_however_lively_it_is(server: Server, piece: bytes) -> None:
    with server.connect() as connection:
        if piece == b"x":
            connection.sendall(b"GET / HTTP/1.1\r\nX: ")
        assert dripping_s(connection, piece) < LONG_S


def test_a_second_request_on_a_connection_has_its_time_too(server: Server) -> None:
    for piece in (b"GET / HT", b"\r\n"):
        with server.connect() as connection:
            connection.sendall(GET)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
            connection.sendall(piece)
            assert closed_within_s(connection) < LONG_S


def test_a_connection_is_kept_for_a_while_and_not_longer() -> None:
    with serving(replace(QUICK, head_s=5.0)) as server, server.connect() as connection:
        for _ in range(3):
            connection.sendall(GET)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        assert closed_within_s(connection) < LONG_S


def test_a_body_that_drips_is_closed(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n")
        assert dripping_s(connection, b"x") < LONG_S


def test_a_body_that_comes_at_a_fair_rate_and_an_application_that_takes_long_are_waited_for() -> None:
    fair = replace(QUICK, head_s=LONG_S, body_window_s=2.0, min_body_bytes=1)
    with serving(fair) as server, server.connect() as connection:
        connection.sendall(
            b"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\nConnection: close\r\n\r\n"
        )
        for _ in range(20):
            connection.sendall(b"x" * 1000)
            time.sleep(0.15)
        assert answer(connection).endswith(b"\r\n\r\n20000")


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"p" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"v" * 9000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"v" * 9000,
        b"GET / HTTP/1.1\r\n" + b"X: v\r\n" * 21 + b"\r\n",
    ],
)
def test_a_head_that_is_too_large_is_refused(server: Server, head: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(head)
        text = answer(connection)

    assert text.startswith(b"HTTP/1.1 431")
    assert text.count(b"HTTP/1.1") == 1, "the application has not seen it"
    assert b'"code":"head-too-large"' in text


def test_what_is_no_request_gets_a_problem_in_the_envelope_of_every_answer(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        text = answer(connection)

    assert text.startswith(b"HTTP/1.1 400")
    assert b'"code":"not-http"' in text
    assert b"\r\nx-request-id: " in text
    assert b"\r\nx-content-type-options: nosniff\r\n" in text
    assert b"\r\nserver: " not in text.lower()


def test_an_endless_header_does_not_fill_the_memory(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX: ")
        sent = 0
        with suppress(OSError):
            while sent < 200 << 20:
                sent += connection.send(b"v" * 65536)
    assert sent < 50 << 20


def test_a_large_body_after_a_small_head_is_not_counted_as_head(server: Server) -> None:
    with server.connect() as connection:
        head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\nConnection: close\r\n\r\n"
        connection.sendall(head + b"x" * 1_000_000)
        assert answer(connection).endswith(b"1000000")


def test_a_client_that_does_not_read_its_answer_is_cut_off(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        deadline = time.monotonic() + LONG_S
        while server.open == 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        while server.open > 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert server.open == 0


@pytest.mark.parametrize("more", [b"", b"Connection: keep-alive\r\n"])
def test_http_1_0_gets_no_chunks(server: Server, more: bytes) -> None:
    for path, body in ((b"/chunks", b"onetwo"), (b"/", b"0")):
        with server.connect() as connection:
            connection.sendall(b"GET " + path + b" HTTP/1.0\r\nHost: a\r\n" + more + b"\r\n")
            head, _, found = answer(connection).partition(b"\r\n\r\n")
        assert found == body
        assert b"transfer-encoding" not in head
    with server.connect() as connection:
        connection.sendall(b"GET /chunks HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert answer(connection).endswith(b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    "sent",
    [
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf",
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhal",
        b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
)
def test_a_client_that_hangs_up_is_one_line(
    server: Server, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[logging.LogRecord]:
        return [record for record in caplog.records if record.name != "uvicorn.access"]

    with caplog.at_level(logging.INFO), server.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(sent)
        if b"large" in sent:
            connection.recv(1)  # the answer has begun
        connection.close()
        until(told, limit_s=LONG_S)
        # A later request shows that nothing else is logged about the earlier one.
        with server.connect() as other:
            other.sendall(GET)
            other.recv(65536)
    (record,) = told()
    message = "client hung up before its answer was complete"
    assert (record.levelname, record.getMessage()) == ("INFO", message)


def test_one_connection_too_many_is_refused_and_later_ones_are_not() -> None:
    with serving(replace(QUICK, connections=3, head_s=30.0)) as server:
        with ExitStack() as stack:
            for _ in range(3):
                stack.enter_context(server.connect())
            while server.open < 3:
                time.sleep(0.01)
            with server.connect() as fourth:
                text = answer(fourth)
            assert text.startswith(b"HTTP/1.1 503")
            assert b"retry-after" in text
            assert b'"code":"too-many-connections"' in text
        while server.open:
            time.sleep(0.01)
        with server.connect() as again:
            again.sendall(GET)
            assert again.recv(65536).startswith(b"HTTP/1.1 200")


def test_a_tls_handshake_that_does_not_come_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert HandshakeLoop.handshake_s == ConnectionLimits().head_s
    monkeypatch.setattr(HandshakeLoop, "handshake_s", 0.5)
    authority = Authority(tmp_path)

    with serving(tls=authority.sign("service")) as server, ExitStack() as clients:
        silent = [clients.enter_context(server.connect()) for _ in range(20)]
        for connection in silent:
            connection.settimeout(_USUAL_S / 2)
            assert answer(connection) == b""
        context = authority.client()
        with context.wrap_socket(server.connect(), server_hostname="127.0.0.1") as good:
            good.sendall(GET)
            assert good.recv(15) == b"HTTP/1.1 200 OK"


def test_tls_handshakes_under_way_count_among_the_connections(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    limits = replace(QUICK, connections=6, head_s=LONG_S)

    def is_answered(server: Server) -> bool:
        try:
            with authority.client().wrap_socket(server.connect(), server_hostname="127.0.0.1") as good:
                good.sendall(GET)
                return good.recv(15) == b"HTTP/1.1 200 OK"
        except (ssl.SSLError, OSError):
            return False

    with serving(limits, authority.sign("service")) as server:
        for _ in range(20):
            assert is_answered(server), "a handshake that is over counts no more"
        with ExitStack() as clients:
            silent = [clients.enter_context(server.connect()) for _ in range(6)]
            until(lambda: not is_answered(server), lambda: "one connection too many was answered", LONG_S)
            with server.connect() as another:
                assert answer(another) == b"", "it is closed without an answer"
            silent[0].close()
            silent[1].sendall(b"this is not a handshake")
            until(lambda: is_answered(server), lambda: "handshakes that have failed still count", LONG_S)
        until(lambda: is_answered(server), lambda: "connections that have gone still count", LONG_S)
