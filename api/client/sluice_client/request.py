"""Descriptions of the client's requests, and decoders of their answers.

A description does no input or output itself, so both clients share it. A test compares the descriptions with
the OpenAPI document.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx
import msgspec
from msgspec import UNSET

T = TypeVar("T")

JSON = "application/json"
NDJSON = "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """A request, and the function that decodes its answer.

    Attributes:
        method: HTTP method.
        path: Path template below ``/api/v1``, as in the OpenAPI document, such as ``/queries/{name}``.
        read: Reader of a successful answer.
        names: Values of the variables in the path.
        params: Query parameters; a parameter with value None is not sent.
        body: Body; None for none.
        content_type: Media type of the body.
        accept: Media type of the answer.
        plan_version: Plan version that the change is based on (``If-Match``).
        key: Value of ``Idempotency-Key``; if it is None and the request changes something, the client
            generates a key.
        wait_s: Seconds that the service may wait before it answers.
        repeatable: Whether the request may be sent again if there was no answer.
    """

    method: str
    path: str
    read: Callable[[httpx.Response], T]
    names: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str | int | float | None] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON
    accept: str = JSON
    plan_version: int | None = None
    key: str | None = None
    wait_s: float = 0.0
    repeatable: bool = True

    @property
    def url(self) -> str:
        """Return the path below ``/api/v1`` with the values of its variables."""
        return self.path.format(**{part: quote(name, safe="") for part, name in self.names.items()})

    def headers(self) -> dict[str, str]:
        """Return the headers of the request."""
        sent = {"Accept": self.accept}
        if self.body is not None:
            sent["Content-Type"] = self.content_type
        if self.plan_version is not None:
            sent["If-Match"] = f'"{self.plan_version}"'
        if self.key is not None:
            sent["Idempotency-Key"] = self.key
        return sent


@dataclass(frozen=True, slots=True)
class Json(Generic[T]):
    """Reader of a JSON answer.

    Attributes:
        kind: Type of the decoded answer; fields that the type lacks are ignored.
    """

    kind: type[T]

    def __call__(self, response: httpx.Response) -> T:
        """Return the decoded body."""
        return msgspec.json.decode(response.content, type=self.kind)


def text(response: httpx.Response) -> str:
    """Return an answer as text."""
    return response.text


def nothing(response: httpx.Response) -> None:
    """Return None and ignore the answer."""


def json_body(**values: Any) -> bytes:
    """Return a JSON object of the values, without UNSET values."""
    return msgspec.json.encode({name: value for name, value in values.items() if value is not UNSET})
