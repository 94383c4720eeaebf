"""What a receiver of webhooks, or the name it has, can do to the service, and how it knows the service."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from catalog.values.sink import SetSink, WebhookSink
from service.errors import InvalidSetting, InvalidSink, SinkFailed
from service.sinks.changes.check_sink import check_sink
from service.sinks.changes.sink_changes import sink_to_set
from service.sinks.webhook import MAX_ANSWER_BYTES, Webhooks
from service.sinks.webhook_targets import WebhookTargets
from tests.service.sinks.receiver import Receiver
from tests.service.sinks.world import HERE, World

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
Answer = Callable[[socket.socket], None]


#: Far longer than a receiver may take here, also on a busy machine.
LONG_S = 240


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """A receiver on a loopback port that reads a request and answers each as it likes; yields its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, suppress(OSError):
                        answer(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/hook"
        listener.shutdown(socket.SHUT_RDWR)


def read_request(connection: socket.socket) -> None:
    """Read a whole request: a connection that is closed with some of it unread is reset, answer and all."""
    connection.settimeout(5)
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    assert length is not None, head
    while len(body) < int(length[1]):
        body += connection.recv(65536)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as world:
        yield world


def post(world: World, url: str, *, timeout_s: float = 10.0, secret: str | None = None, **options) -> None:
    """Post one batch of the world to a URL."""
    sink = WebhookSink(url, secret=secret)
    world.set_sink(sink)
    world.commit(2)
    world.store.sinks.resolve()
    page = world.delivery.results.page(world.series, None, 10)
    targets = options.pop("targets", HERE)
    Webhooks(targets, timeout_s=timeout_s, **options).post(world.present(), sink, page)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "localhost",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "192.0.0.192",
        "168.63.129.16",
        "224.0.0.1",
        "255.255.255.255",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:10.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[fe80::1]",
        "[fd00::1]",
        "[fec0::1]",
        "[ff02::1]",
        "[::127.0.0.1]",
        "[::ffff:0:7f00:1]",
        "[64:ff9b:1:7f00:0:100:808:808]",
        "[3fff::1]",
        "[5f00::1]",
    ],
)
def test_what_is_not_public_is_not_connected_to(world: World, host: str) -> None:
    with pytest.raises(SinkFailed, match=r"is on this machine or in a private network|cannot be resolved"):
        post(world, f"http://{host}:9/", targets=WebhookTargets())


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:10.0.0.1]", "169.254.169.254"])
def test_an_address_that_is_not_public_is_refused_with_its_query(host: str) -> None:
    with pytest.raises(InvalidSink, match="address of this machine or of a private network") as caught:
        check_sink(WebhookSink(f"http://{host}/x"), WebhookTargets())

    assert caught.value.path == ("url",)
    check_sink(WebhookSink("http://93.184.216.34/x"), WebhookTargets())
    check_sink(WebhookSink("http://[2606:2800:220:1::1]/x"), WebhookTargets())


def test_the_operator_allows_names_addresses_and_networks() -> None:
    targets = WebhookTargets.of(["Hooks.internal", "10.1.0.0/16", "[fd00::7]"])

    check_sink(WebhookSink("http://10.1.2.3/"), targets)
    check_sink(WebhookSink("http://[fd00::7]/"), targets)
    check_sink(WebhookSink("http://[::ffff:10.1.2.3]/"), targets)
    with pytest.raises(InvalidSink):
        check_sink(WebhookSink("http://10.2.0.1/"), targets)
    with pytest.raises(InvalidSetting, match=r'"webhook_hosts" cannot have "10\.0\.0\.0/99"'):
        WebhookTargets.of(["10.0.0.0/99"])


def test_a_name_that_resolves_to_this_machine_is_refused_unless_it_is_allowed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def resolved(host: str, port: int, **_: object) -> list[object]:
        asked.append(host)
        # The first answer is public, each later one is not, as a name server that rebinds has it.
        address = "93.184.216.34" if len(asked) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    assert WebhookTargets().addresses("rebinding.test", 80, 1.0) == ["93.184.216.34"]
    with pytest.raises(SinkFailed, match="on this machine"):
        WebhookTargets().addresses("rebinding.test", 80, 1.0)
    assert WebhookTargets.of(["rebinding.test"]).addresses("REBINDING.test.", 80, 1.0) == ["127.0.0.1"]


def test_a_name_is_resolved_once_and_the_checked_address_is_connected_to(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    real = socket.getaddrinfo

    def resolved(host: str | bytes, port: int, *arguments: object, **options: object) -> object:
        if host != "hooks.test":
            return real(host, port, *arguments, **options)
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    with Receiver() as receiver:
        post(world, f"{receiver.url.replace('127.0.0.1', 'hooks.test')}/x")

        assert asked == ["hooks.test"]
        (request,) = receiver.requests
        assert request.headers["host"].startswith("hooks.test:")


def test_a_proxy_of_the_environment_gets_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as proxy, Receiver() as receiver:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        post(world, f"{receiver.url}/x")

        assert (len(proxy.requests), len(receiver.requests)) == (0, 1)


def test_a_redirect_is_not_followed(world: World) -> None:
    with Receiver() as other:

        def redirect(connection: socket.socket) -> None:
            read_request(connection)
            connection.sendall(f"HTTP/1.1 307 Away\r\nLocation: {other.url}/x\r\n\r\n".encode())

        with answering(redirect) as url, pytest.raises(SinkFailed, match="the receiver answered 307 Away"):
            post(world, url)
        assert other.requests == []


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 204 No\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_a_receiver_that_drips_has_its_time_in_total(world: World, first: bytes) -> None:
    def drip(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(first or b"H")
        for _ in range(20 * LONG_S):
            time.sleep(0.05)
            connection.sendall(b"x")

    began_s = time.monotonic()
    with answering(drip) as url, pytest.raises(SinkFailed, match=r"Time|Remote|illegal"):
        post(world, url, timeout_s=0.5)

    assert time.monotonic() - began_s < LONG_S / 2


def test_a_receiver_that_takes_the_request_slowly_has_its_time_in_total(world: World) -> None:
    def slow(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        while not over.wait(0.05):
            connection.recv(16)

    over = threading.Event()
    began_s = time.monotonic()
    with answering(slow) as url:
        with pytest.raises(SinkFailed, match="Timeout"):
            post(world, url, timeout_s=0.5)
        over.set()

    assert time.monotonic() - began_s < LONG_S / 2


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: "])
def test_of_an_endless_answer_64_kb_are_read(world: World, start: bytes) -> None:
    sent = []

    def endless(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
        read_request(connection)
        connection.sendall(start)
        with suppress(OSError):
            while sum(sent) < 100 << 20:
                sent.append(connection.send(b"y" * 16 * 1024))

    with answering(endless) as url:
        if start.endswith(b"\r\n\r\n"):
            post(world, url)  # the status says that it took it
        else:
            with pytest.raises(SinkFailed):
                post(world, url)
        time.sleep(0.2)

    # What the receiver could send on is what the system's buffers hold.
    assert sum(sent) < MAX_ANSWER_BYTES + (8 << 20)


def test_a_receiver_can_verify_who_sent_a_request(world: World) -> None:
    with Receiver() as receiver:
        post(world, f"{receiver.url}/x", secret=SECRET, clock_s=lambda: 1_767_225_600.9)
        (request,) = receiver.requests

    message_id, timestamp = request.headers["webhook-id"], request.headers["webhook-timestamp"]
    signed = f"{message_id}.{timestamp}.".encode() + request.body
    digest = hmac.new(bytes(range(32)), signed, hashlib.sha256).digest()
    assert timestamp == "1767225600"
    assert message_id == request.headers["idempotency-key"]
    assert request.headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"


def test_without_a_secret_nothing_is_signed(world: World) -> None:
    with Receiver() as receiver:
        post(world, f"{receiver.url}/x")

        assert "webhook-signature" not in receiver.requests[0].headers


@pytest.mark.parametrize(
    "secret", ["", "open-sesame", "whsec_", "whsec_c2hvcnQ=", "whsec_not base64!", SECRET + "é"]
)
def test_a_secret_that_cannot_sign_is_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(InvalidSink) as caught:
        check_sink(WebhookSink("http://example.org/", secret=secret), HERE)

    assert caught.value.path == ("secret",)
    assert "sesame" not in str(caught.value)


def test_a_sink_set_again_keeps_its_secret_unless_it_is_another_receiver(world: World) -> None:
    signed = WebhookSink("http://example.org/a", secret=SECRET)
    world.set_sink(signed)

    def wanted(sink: WebhookSink) -> SetSink | None:
        return sink_to_set(world.store, world.series, SetSink(sink), HERE)

    other = "whsec_" + base64.b64encode(bytes(32)).decode()
    assert wanted(WebhookSink("http://example.org/a")) is None
    assert wanted(WebhookSink("http://example.org/b")) == SetSink(WebhookSink("http://example.org/b"))
    changed = WebhookSink("http://example.org/a", secret=other)
    assert wanted(changed) == SetSink(changed)
    assert SECRET not in repr(signed)
