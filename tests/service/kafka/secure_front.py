"""TLS and SASL in front of brokers that know neither, as Kafka's protocol has them.

    client  <- TLS, SaslHandshake, SaslAuthenticate ->  front  <- plain ->  broker

The front takes part in two things only: it answers what is about SASL itself (RFC 4616, RFC 5802), and it
puts its own addresses in the place of the brokers', wherever these tell theirs. All else passes unread.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import select
import socket
import socketserver
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

import trustme

_METADATA, _COORDINATOR, _VERSIONS, _HANDSHAKE, _AUTHENTICATE = 3, 10, 18, 17, 36
_ROUNDS, _SALT = 4096, b"salt of the tests"
#: Where mock brokers listen.
_BROKERS = "127.0.0.1"


@dataclass(slots=True)
class User:
    """The user that may connect, and what the front saw of those who tried."""

    mechanism: str
    name: str
    password: str
    admitted: int = 0
    refused: int = 0


@dataclass(slots=True)
class _Session:
    """SASL on one connection."""

    user: User
    is_done: bool = False
    steps: list[str] = field(default_factory=list)

    def answer(self, token: bytes) -> bytes | None:
        """Return the server's next token; None where the client is refused."""
        user = self.user
        if user.mechanism == "PLAIN":
            self.is_done = token == f"\0{user.name}\0{user.password}".encode()
            return b"" if self.is_done else None
        algorithm = "sha512" if user.mechanism.endswith("512") else "sha256"
        if not self.steps:
            first = token.decode().removeprefix("n,,")
            fields = dict(part.split("=", 1) for part in first.split(","))
            salt = base64.b64encode(_SALT).decode()
            mine = f"r={fields['r']}front,s={salt},i={_ROUNDS}"
            self.steps = [first, mine]
            return mine.encode() if fields["n"] == user.name else None
        without, _, proof = token.decode().partition(",p=")
        said = ",".join([*self.steps, without]).encode()

        def mac(key: bytes, text: bytes) -> bytes:
            return hmac.digest(key, text, algorithm)

        salted = hashlib.pbkdf2_hmac(algorithm, user.password.encode(), _SALT, _ROUNDS)
        key = mac(salted, b"Client Key")
        signature = mac(hashlib.new(algorithm, key).digest(), said)
        wanted = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        self.is_done = hmac.compare_digest(wanted, base64.b64decode(proof))
        return b"v=" + base64.b64encode(mac(mac(salted, b"Server Key"), said)) if self.is_done else None


def _with_sasl(answer: bytes, version: int) -> bytes:
    """Add the two kinds of SASL requests to a broker's answer about the requests that it knows."""
    kinds = ((_HANDSHAKE, 0, 1), (_AUTHENTICATE, 0, 0))
    if version >= 3:  # compact: the number of entries and one more, a byte as long as there are few
        assert answer[6] < 126
        more = b"".join(struct.pack(">hhhb", *kind, 0) for kind in kinds)
        return answer[:6] + bytes([answer[6] + len(kinds)]) + more + answer[7:]
    (count,) = struct.unpack(">i", answer[6:10])
    return (
        answer[:6]
        + struct.pack(">i", count + len(kinds))
        + b"".join(struct.pack(">hhh", *kind) for kind in kinds)
        + answer[10:]
    )


class _Front(socketserver.ThreadingTCPServer):
    """The front of one broker: a thread for each connection, and none is left when the front is closed.

    Attributes:
        ports: Ports of all fronts by those of their brokers.
    """

    def __init__(
        self, address: str, broker: int, ports: dict[int, int], tls: ssl.SSLContext | None, user: User | None
    ) -> None:
        super().__init__((address, 0), _Connection)
        self.broker, self.ports, self.tls, self.user = broker, ports, tls, user
        self._open: dict[socket.socket, socket.socket] = {}
        ports[broker] = self.server_address[1]
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))
        self._thread.start()

    def process_request(self, request: socket.socket, client_address: object) -> None:
        # TLS takes the descriptor of the first over, and only that of the copy is known from outside.
        self._open[request] = request.dup()
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:
        with self._open.pop(request) as connection, suppress(OSError):  # the client may have gone
            connection.shutdown(socket.SHUT_RDWR)
        request.close()

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        for connection in list(self._open.values()):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.server_close()  # waits for the threads


class _Connection(socketserver.BaseRequestHandler):
    server: _Front
    request: socket.socket

    def handle(self) -> None:
        tls, user = self.server.tls, self.server.user
        self._session = None if user is None else _Session(user)
        self._asked: dict[int, tuple[int, int]] = {}
        # Clients that go and handshakes that fail are what the tests are about.
        with suppress(ConnectionError, ssl.SSLError):
            client = self.request if tls is None else tls.wrap_socket(self.request, server_side=True)
            with client, socket.create_connection((_BROKERS, self.server.broker)) as broker:
                self._talk(client, broker)

    def _talk(self, client: socket.socket, broker: socket.socket) -> None:
        while True:
            is_ahead = isinstance(client, ssl.SSLSocket) and client.pending()
            ready = [client] if is_ahead else select.select([client, broker], [], [])[0]
            if broker in ready:
                _send(client, self._answer(_frame(broker)))
            if client in ready and not self._request(_frame(client), client, broker):
                return

    def _request(self, frame: bytes, client: socket.socket, broker: socket.socket) -> bool:
        """Answer what is about SASL, or pass the request on; False where the client must not ask it."""
        session = self._session
        kind, version, number = struct.unpack(">hhi", frame[:8])
        (length,) = struct.unpack(">h", frame[8:10])
        body = frame[10 + max(length, 0) :]
        if session is not None and kind == _HANDSHAKE:
            is_right = body[2:].decode() == session.user.mechanism
            name = session.user.mechanism.encode()
            code = 0 if is_right else 33
            _send(client, struct.pack(f">ihih{len(name)}s", number, code, 1, len(name), name))
        elif session is not None and kind == _AUTHENTICATE:
            token = session.answer(body[4:])
            session.user.admitted += session.is_done
            session.user.refused += token is None
            code, token = (58, b"") if token is None else (0, token)
            _send(client, struct.pack(f">ihhi{len(token)}s", number, code, -1, len(token), token))
        elif session is not None and not session.is_done and kind != _VERSIONS:
            return False
        else:
            self._asked[number] = (kind, version)
            _send(broker, frame)
        return True

    def _answer(self, answer: bytes) -> bytes:
        kind, version = self._asked.pop(struct.unpack(">i", answer[:4])[0])
        if kind == _VERSIONS and self._session is not None:
            return _with_sasl(answer, version)
        if kind in (_METADATA, _COORDINATOR):
            here, there = _BROKERS.encode(), self.server.server_address[0].encode()
            for theirs, ours in self.server.ports.items():
                answer = answer.replace(here + struct.pack(">i", theirs), there + struct.pack(">i", ours))
        return answer


def _frame(connection: socket.socket) -> bytes:
    (length,) = struct.unpack(">i", _exactly(connection, 4))
    return _exactly(connection, length)


def _exactly(connection: socket.socket, length: int) -> bytes:
    read = b""
    while len(read) < length:
        piece = connection.recv(length - len(read))
        if not piece:
            raise ConnectionResetError
        read += piece
    return read


def _send(connection: socket.socket, frame: bytes) -> None:
    connection.sendall(struct.pack(">i", len(frame)) + frame)


@contextmanager
def secured(
    bootstrap: str,
    *,
    ca: trustme.CA | None = None,
    host: str = "127.0.0.1",
    client_ca: trustme.CA | None = None,
    user: User | None = None,
    address: str = _BROKERS,
) -> Iterator[str]:
    """Open a front before brokers at 127.0.0.1 and yield its own addresses.

    Args:
        bootstrap: The brokers.
        ca: Authority that signs the front's certificate; None for no encryption.
        host: Host that the certificate is for.
        client_ca: Authority of the certificates that clients must have; None asks for none.
        user: Who may connect; None asks for no name.
        address: Address at which the fronts listen, as long a text as the brokers' address.
    """
    assert len(address) == len(_BROKERS)
    tls = None
    if ca is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ca.issue_cert(host).configure_cert(tls)
        if client_ca is not None:
            client_ca.configure_trust(tls)
            tls.verify_mode = ssl.CERT_REQUIRED
    ports: dict[int, int] = {}
    with ExitStack() as fronts:
        for broker in bootstrap.split(","):
            front = _Front(address, int(broker.rpartition(":")[2]), ports, tls, user)
            fronts.callback(front.close)
        yield ",".join(f"{address}:{port}" for port in ports.values())
