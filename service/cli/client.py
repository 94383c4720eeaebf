"""A client of the REST API: one method per kind of answer, problems raised as errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from catalog.errors import SluiceError
from service.errors import RequestRefused, ServiceFailed

#: A request may wait for a plan version to become active, which takes a micro-batch.
TIMEOUT_S = 120.0

Params = Mapping[str, str | int | None]


class Client:
    """Requests to one service.

    Args:
        url: Base of the service, such as ``http://127.0.0.1:8080``.
        key: Key of the client; None sends none.
    """

    def __init__(self, url: str, key: str | None = None) -> None:
        self._url = url
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(
            base_url=f"{url.rstrip('/')}/api/v1",
            timeout=TIMEOUT_S,
            headers=headers,
            # A command sends a request or two, and leaves no connection open.
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    def json(self, method: str, path: str, *, body: object = None, params: Params | None = None) -> Any:
        """Return the JSON answer to a request, or None where the answer is empty."""
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

    def page(self, path: str, *, params: Params, accept: str) -> tuple[str, str | None]:
        """Return a page of results as text, and the cursor after it."""
        response = self._send("GET", path, params=params, headers={"Accept": accept})
        return response.text, response.headers.get("Sluice-Next-Cursor")

    def _send(self, method: str, path: str, *, params: Params | None, **request: Any) -> httpx.Response:
        given = {name: value for name, value in (params or {}).items() if value is not None}
        try:
            response = self._http.request(method, path, params=given, **request)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ServiceFailed(
                f'no answer from "{self._url}"',
                detail=f"{error}.",
                hint="Start the service with sluice serve, or name another one with --url.",
            ) from error
        if response.is_error:
            raise _from_problem(response)
        return response


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
