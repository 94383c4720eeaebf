"""A client of the REST API: one method per kind of answer; a problem document is raised as an error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from catalog.errors import SluiceError
from service.errors import RequestRefused, ServiceFailed, UnreadableInput

#: Timeout of a request. A request may wait until a plan version is active, which takes a micro-batch.
TIMEOUT_S = 120.0

Params = Mapping[str, str | int | None]


@dataclass(frozen=True, slots=True)
class Page:
    """A page of results.

    Attributes:
        text: The rows, in the requested format.
        next_cursor: Cursor after the last row.
        has_more: Whether further results exist already.
    """

    text: str
    next_cursor: str | None
    has_more: bool


class Client:
    """Requests to one service.

    Args:
        url: Base URL of the service, such as ``http://127.0.0.1:8080``.
        key: API key; None sends requests without a key.
    """

    def __init__(self, url: str, key: str | None = None) -> None:
        self._url = url
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(
            base_url=f"{url.rstrip('/')}/api/v1",
            timeout=TIMEOUT_S,
            headers=headers,
            # A command sends only a request or two, so no connection is kept open.
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    def json(self, method: str, path: str, *, body: object = None, params: Params | None = None) -> Any:
        """Return the JSON answer to a request, or None if the answer is empty."""
        response = self._send(method, path, json=body, params=params)
        return response.json() if response.content else None

    def text(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        accept: str = "*/*",
        content: bytes = b"",
    ) -> str:
        """Return the answer to a request as text."""
        headers = {"Accept": accept}
        if content:
            headers["Content-Type"] = "application/x-ndjson"
        return self._send(method, path, params=params, headers=headers, content=content).text

    def page(self, path: str, *, params: Params, accept: str) -> Page:
        """Return a page of results."""
        response = self._send("GET", path, params=params, headers={"Accept": accept})
        has_more = response.headers.get("Sluice-Has-More") == "true"
        return Page(response.text, response.headers.get("Sluice-Next-Cursor"), has_more)

    def download(self, path: str, *, params: Params, file: Path) -> Mapping[str, str]:
        """Write an answer to a file and return its headers; the file appears once it is complete."""
        part = file.with_name(f".{file.name}.part")
        try:
            with self._answers(), self._http.stream("GET", path, params=_given(params)) as response:
                if response.is_error:
                    response.read()
                    raise _from_problem(response)
                with part.open("wb") as opened:
                    for data in response.iter_bytes():
                        opened.write(data)
            part.replace(file)
        except OSError as error:
            raise UnreadableInput(
                f'file "{file}" cannot be written', detail=f"{error.strerror or error}."
            ) from error
        finally:
            with suppress(OSError):  # no effect if the file was renamed already, or never created
                part.unlink()
        return response.headers

    def _send(self, method: str, path: str, *, params: Params | None, **request: Any) -> httpx.Response:
        with self._answers():
            response = self._http.request(method, path, params=_given(params), **request)
        if response.is_error:
            raise _from_problem(response)
        return response

    @contextmanager
    def _answers(self) -> Iterator[None]:
        """Raise an error for the user if the service does not answer a request of the block."""
        try:
            yield
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ServiceFailed(
                f'no answer from "{self._url}"',
                detail=f"{error}.",
                hint="Start the service with sluice serve, or name another one with --url.",
            ) from error


def _given(params: Params | None) -> dict[str, str | int]:
    return {name: value for name, value in (params or {}).items() if value is not None}


def _from_problem(response: httpx.Response) -> SluiceError:
    """Return the error that a problem+json body describes."""
    kind = RequestRefused if response.is_client_error else ServiceFailed
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        return kind(f"the service answered {response.status_code} {response.reason_phrase}")
    fault: dict[str, Any] = next(iter(body.get("errors") or []), {})
    primary = body.get("detail") or body.get("title") or f"the service answered {response.status_code}"
    if underline := fault.get("underline"):
        primary += "".join(f"\n    {line}" for line in underline.splitlines())
    return kind(primary, detail=body.get("explanation"), hint=body.get("hint") or fault.get("hint"))
