"""A TCP proxy between catalog and server that loses the connection around a COMMIT."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self

_COMMIT = b"COMMIT\0"

Loss = Literal["request", "answer"]


class DroppingProxy:
    """Forwards connections to a server on this machine; loses the ones that it is told to.

    Args:
        port: Port of the server.

    Attributes:
        port: The proxy's own port.
        lost: How many connections it has closed at a COMMIT.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._loses: Loss | None = None
        self._passing = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.lost = 0
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def lose(self, what: Loss, *, after: int = 0) -> None:
        """Close a connection that commits: before the server gets it, or once it has answered.

        Args:
            what: What is lost.
            after: How many more commits pass before.
        """
        self._passing, self._loses = after, what

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in (self._listener, *self._open):
            _close(each)
        for thread in self._threads:
            thread.join(10)

    def _start(self, run: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # the proxy is closed
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:  # the server is away
                client.close()
                continue
            self._open += [client, server]
            committed = threading.Event()
            self._start(self._requests, client, server, committed)
            self._start(self._answers, client, server, committed)

    def _requests(self, client: socket.socket, server: socket.socket, committed: threading.Event) -> None:
        for data in _received(client):
            if _COMMIT in data and (loses := self._turn()) is not None:
                if loses == "request":
                    self.lost += 1
                    break
                committed.set()
            with suppress(OSError):
                server.sendall(data)
        _close(client, server)

    def _turn(self) -> Loss | None:
        """Return what is to be lost of a commit."""
        with self._lock:
            if self._passing > 0:
                self._passing -= 1
                return None
            loses, self._loses = self._loses, None
        return loses

    def _answers(self, client: socket.socket, server: socket.socket, committed: threading.Event) -> None:
        for data in _received(server):
            if committed.is_set():  # the server has committed, and nobody learns of it
                self.lost += 1
                break
            with suppress(OSError):
                client.sendall(data)
        _close(client, server)


def _received(source: socket.socket) -> Iterator[bytes]:
    with suppress(OSError):  # closed by the other thread
        while data := source.recv(65536):
            yield data


def _close(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):  # it is closed already
            each.shutdown(socket.SHUT_RDWR)
        each.close()
