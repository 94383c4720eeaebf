"""An S3 server that can be slow, refuse or break off, and that remembers what it was asked."""

from __future__ import annotations

import hashlib
import io
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import boto3
import pytest
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from tests.s3 import KEYS

_BUCKET = "front"
Answer = Callable[..., Any]


class _Quiet(WSGIRequestHandler):
    def log(self, *_: object) -> None:
        """Say nothing."""


@dataclass(slots=True)
class Front:
    """The server, as the tests see it.

    Attributes:
        url: URL of a prefix in it.
        refuses: So many requests are answered 503, the next ones first.
        hangs: So many requests get no answer, the next ones first.
        breaks_off: Whether objects end in their middle.
        stalls: So many objects stop in their middle without an end, the next ones first.
        together: Uploads wait for each other there; None: they do not.
        asked: How often what was asked for: the method, or ``list`` or ``copy``.
        signed: How many uploads came with the SHA-256 of what they brought.
    """

    url: str = field(default_factory=lambda: f"s3://{_BUCKET}/{uuid.uuid4().hex}")
    refuses: int = 0
    hangs: int = 0
    breaks_off: bool = False
    stalls: int = 0
    together: threading.Barrier | None = None
    asked: Counter[str] = field(default_factory=Counter)
    signed: int = 0
    _app: Any = field(default_factory=lambda: DomainDispatcherApplication(create_backend_app))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)

    def end(self) -> None:
        """Let go of the requests that hang."""
        self._over.set()

    def __call__(self, environ: dict[str, Any], start_response: Answer) -> Iterable[bytes]:
        """Answer a request."""
        method = environ["REQUEST_METHOD"]
        kind = "copy" if "HTTP_X_AMZ_COPY_SOURCE" in environ else method
        kind = "list" if "list-type" in environ["QUERY_STRING"] else kind
        with self._lock:
            self.asked[kind] += 1
            refused, self.refuses = self.refuses > 0, max(self.refuses - 1, 0)
            hung, self.hangs = self.hangs > 0, max(self.hangs - 1, 0)
            stalled = method == "GET" and self.stalls > 0
            self.stalls -= stalled
        if hung:
            self._over.wait()
        if refused:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response("503 Slow Down", [("Content-Length", "0")])
            return []
        if method == "PUT":
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            environ["wsgi.input"] = io.BytesIO(body)
            with self._lock:
                self.signed += environ.get("HTTP_X_AMZ_CONTENT_SHA256") == hashlib.sha256(body).hexdigest()
            if self.together is not None:
                self.together.wait()
        answer: Iterable[bytes] = self._app(environ, start_response)
        if method == "GET" and self.breaks_off:
            whole = b"".join(answer)
            return [whole[: len(whole) // 2]]
        return self._stalled(b"".join(answer)) if stalled else answer

    def _stalled(self, whole: bytes) -> Iterator[bytes]:
        yield whole[: len(whole) // 2]
        self._over.wait()


@contextmanager
def front(patch: pytest.MonkeyPatch) -> Iterator[Front]:
    """Yield a server that clients of the test reach through their environment."""
    found = Front()
    server = make_server("127.0.0.1", 0, found, threaded=True, request_handler=_Quiet)
    address = f"http://127.0.0.1:{server.server_port}"
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": address, "AWS_ALLOW_HTTP": "true"}.items():
        patch.setenv(name, value)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        boto3.client("s3", endpoint_url=address).create_bucket(Bucket=_BUCKET)
        found.asked.clear()
        found.signed = 0
        yield found
    finally:
        found.end()
        server.shutdown()
        thread.join()
        server.server_close()
