"""A registry of schemas over HTTP, in a thread: the few requests of Confluent's that clients make."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass(slots=True)
class Registry:
    """The registry, as the tests see it.

    Attributes:
        url: Its address.
        schemas: Schemas as they were registered; ids count from 1.
        versions: Indexes of schemas by subject.
        asked: Paths of the requests for schemas.
        user: ``name:password`` that clients have to show; None asks for none.
        status: Status of all answers; None answers.
    """

    url: str = ""
    schemas: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[str, list[int]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    user: str | None = None
    status: int | None = None

    def answer(self, path: str, body: dict[str, Any] | None) -> tuple[int, Any]:
        """Return status and answer of a request."""
        match path.strip("/").split("/"):
            case ["schemas", "types"]:
                return 200, ["AVRO"]
            case ["schemas", "ids", number] if int(number) <= len(self.schemas):
                self.asked.append(path)
                return 200, self.schemas[int(number) - 1]
            case ["subjects", subject, "versions", version] if body is None:
                index = self.versions[subject][int(version) - 1]
                known = {"subject": subject, "id": index + 1, "version": int(version)}
                return 200, known | self.schemas[index]
            case ["subjects", subject, "versions"] if body is not None:
                if body not in self.schemas:
                    self.schemas.append(body)
                index = self.schemas.index(body)
                self.versions.setdefault(subject, []).append(index)
                return 200, {"id": index + 1}
        self.asked.append(path)
        return 404, {"error_code": 40403, "message": "Schema not found"}


@contextmanager
def registry() -> Iterator[Registry]:
    found = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: dict[str, Any] | None) -> None:
            wanted = None if found.user is None else base64.b64encode(found.user.encode()).decode()
            if found.status is not None:
                status, answer = found.status, {"error_code": found.status, "message": "out of order"}
            elif wanted is not None and self.headers["Authorization"] != f"Basic {wanted}":
                status, answer = 401, {"error_code": 401, "message": "Unauthorized"}
            else:
                status, answer = found.answer(self.path.partition("?")[0], body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
