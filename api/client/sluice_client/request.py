"""Descriptions of requests: what a method of the client sends, and how it reads the answer.

A description does no input or output, so that both clients share it, and a test compares it with OpenAPI.
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
    """A request and the reader of its answer.

    Attributes:
        method: HTTP method.
        path: Path below ``/api/v1`` as OpenAPI writes it, such as ``/queries/{name}``.
        read: Reader of a successful answer.
        names: Values of the parts of the path.
        params: Query parameters; None leaves one out.
        body: Body; None for none.
        content_type: Its media type.
        accept: Media type of the answer.
        plan_version: Plan version that the change is made for (``If-Match``).
        key: ``Idempotency-Key``; None lets the client make one for a request that changes something.
        wait_s: How long the service may wait before it answers.
        repeatable: Whether the request may be sent again when no answer came.
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
        """Path below ``/api/v1`` with its names."""
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
        kind: Type that the answer is decoded to; fields that it does not have are ignored.
    """

    kind: type[T]

    def __call__(self, response: httpx.Response) -> T:
        """Return the decoded body."""
        return msgspec.json.decode(response.content, type=self.kind)


def text(response: httpx.Response) -> str:
    """Return an answer as text."""
    return response.text


def nothing(response: httpx.Response) -> None:
    """Return nothing, whatever the answer holds."""


def json_body(**values: Any) -> bytes:
    """Return a JSON object of the values; those that are UNSET are left out."""
    return msgspec.json.encode({name: value for name, value in values.items() if value is not UNSET})
