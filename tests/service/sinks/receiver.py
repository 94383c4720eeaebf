"""A receiver of webhooks: a real server on a loopback port that remembers what it was sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from catalog.values.sink import WebhookSink


@dataclass(frozen=True, slots=True)
class Received:
    """One request.

    Attributes:
        path: Path of the URL.
        headers: Its headers, names in lower case.
        rows: Objects of its lines.
        status: What it was answered.
        body: The bytes.
    """

    path: str
    headers: Mapping[str, str]
    rows: tuple[Any, ...]
    status: int
    body: bytes


class Receiver:
    """Answers 204, or ``status`` for the next ``refusing`` requests, or for every second one if ``fitful``.

    It waits for ``open`` before it answers.
    """

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self.refusing = 0
        self.fitful = False
        self.status = 503
        self.open = threading.Event()
        self.open.set()
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = receiver._take(self.path, dict(self.headers), body)
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base's name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def taken(self, path: str) -> list[Received]:
        """What was sent to a path and taken, once per key, as a careful receiver does."""
        with self._lock:
            taken = [r for r in self.requests if r.path == path and r.status == 204]
        first: dict[str, Received] = {}
        for request in taken:
            known = first.setdefault(request.headers["idempotency-key"], request)
            assert known.rows == request.rows, "a key has other rows"
        return list(first.values())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.open.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _take(self, path: str, headers: Mapping[str, str], body: bytes) -> int:
        self.open.wait(30)
        rows = tuple(json.loads(line) for line in body.splitlines())
        with self._lock:
            refuses = self.refusing or (self.fitful and len(self.requests) % 2)
            status = self.status if refuses else 204
            self.refusing = max(0, self.refusing - 1)
            known = {name.lower(): value for name, value in headers.items()}
            self.requests.append(Received(path, known, rows, status, body))
        return status


def posted(receiver: Receiver, sink: WebhookSink) -> dict[int, list[Any]]:
    """Rows that a receiver took, by batch, in the order in which they came."""
    found: dict[int, list[Any]] = {}
    for request in receiver.taken("/" + sink.url.rpartition("/")[2]):
        batch = int(request.headers["sluice-batch"])
        assert batch == max([batch, *found]), "batches come in order"
        found.setdefault(batch, []).extend(request.rows)
    return found
