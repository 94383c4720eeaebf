"""Errors as problem details (RFC 9457); only this module knows HTTP status codes.

    {"type": "urn:sluice:problem:unknown-column", "code": "unknown-column",
     "title": "A column that the stream does not have", "status": 422,
     "detail": "column 'delya' does not exist in stream 'flights'", "hint": "Did you mean 'delay'?",
     "instance": "/api/v1/queries",
     "errors": [{"detail": ..., "hint": ..., "line": 1, "column": 8, "underline": ...}]}

``type`` is derived from the error's class, ``title`` is from ``problem_titles.json``; neither ever changes.
``detail`` describes the fault of this request.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match, Mount

from api.errors import (
    BodyTooLarge,
    Forbidden,
    ForeignOrigin,
    HeadTooLarge,
    InvalidRequest,
    MalformedBody,
    MethodNotAllowed,
    NotAcceptable,
    NotHttp,
    RequestTooSlow,
    RouteNotFound,
    TooManyRequests,
    Unauthenticated,
    UnknownHost,
    UnsupportedMediaType,
    body_too_large,
)
from api.validation import invalid_request
from catalog.errors import (
    Conflict,
    InternalError,
    InvalidInput,
    NotFound,
    Overloaded,
    SluiceError,
    StalePlanVersion,
    Unavailable,
)
from catalog.wording.outside import printable
from service.errors import IngestFull, InvalidChanges, ResultsExpired

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
_TITLES = Path(__file__).with_name("problem_titles.json")

#: HTTP status by error class. An error gets the status of its nearest base class in this table.
STATUS: Mapping[type[SluiceError], int] = {
    InvalidInput: 422,
    MalformedBody: 400,
    NotHttp: 400,
    Unauthenticated: 401,
    Forbidden: 403,
    ForeignOrigin: 403,
    MethodNotAllowed: 405,
    NotAcceptable: 406,
    RequestTooSlow: 408,
    BodyTooLarge: 413,
    UnsupportedMediaType: 415,
    HeadTooLarge: 431,
    UnknownHost: 421,
    NotFound: 404,
    ResultsExpired: 410,
    Conflict: 409,
    StalePlanVersion: 412,
    Overloaded: 429,
    Unavailable: 503,
    InternalError: 500,
}

#: Methods that a route may have.
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
#: Seconds after which a refused client may retry, unless the error states another time.
_RETRY_AFTER_S = 1
#: HTTP statuses of requests that may succeed later; such answers have ``Retry-After``.
_COME_BACK = (429, 503)
_RETRY_AFTER = {
    "Retry-After": {
        "description": "Seconds after which to send the request again.",
        "schema": {"type": "integer", "minimum": 1},
    }
}


class Fault(BaseModel):
    """One fault of a request."""

    detail: str = Field(description="What is wrong: lower case, no full stop.")
    explanation: str | None = Field(default=None, description="Facts, in sentences.")
    hint: str | None = Field(default=None, description="What to write or do instead.")
    pointer: str | None = Field(default=None, description="JSON Pointer into the body, as a URI fragment.")
    parameter: str | None = Field(
        default=None, description="Query parameter, path segment or header at fault."
    )
    line: int | None = Field(
        default=None, description="1-based line in the text of the request, such as a query's CQL."
    )
    column: int | None = Field(default=None, description="1-based column in that line.")
    underline: str | None = Field(default=None, description="The line, with carets below the fault.")


class Problem(BaseModel):
    """Why a request failed (RFC 9457)."""

    type: str = Field(description="Stable name of the kind of problem: `urn:sluice:problem:<code>`.")
    code: str = Field(description="Last part of `type`.")
    title: str = Field(description="The kind of problem, in words; the same for every problem of the type.")
    status: int = Field(description="HTTP status code.")
    detail: str = Field(description="What is wrong with this request.")
    explanation: str | None = Field(default=None, description="Facts, in sentences.")
    hint: str | None = Field(default=None, description="What to write or do instead.")
    instance: str = Field(description="Path of the request.")
    plan_version: int | None = Field(
        default=None, description="Current plan version, if the request named another one."
    )
    errors: list[Fault] = Field(
        default_factory=list, description="All faults, each with its place in the request."
    )


def status_of(error: type[SluiceError]) -> int:
    """Return the HTTP status of a class of errors."""
    return next(STATUS[base] for base in error.__mro__ if base in STATUS)


@cache
def titles() -> Mapping[str, str]:
    """Return the title of each code."""
    found: dict[str, str] = json.loads(_TITLES.read_text(encoding="utf-8"))
    return found


def problem(error: SluiceError, instance: str) -> Problem:
    """Return the problem details of an error.

    Args:
        error: The error.
        instance: Path of the request that failed.
    """
    kind = type(error)
    return Problem(
        type=f"urn:sluice:problem:{kind.code}",
        code=kind.code,
        title=titles()[kind.code],
        status=status_of(kind),
        detail=error.primary,
        explanation=error.detail,
        hint=error.hint,
        instance=instance,
        plan_version=error.plan_version if isinstance(error, StalePlanVersion) else None,
        errors=_faults(error),
    )


def problem_response(
    error: SluiceError, instance: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return an error as a response."""
    body = problem(error, instance)
    sent = dict(headers or {})
    if isinstance(error, TooManyRequests | IngestFull):
        sent.setdefault("Retry-After", str(error.retry_after_s))
    if body.status in _COME_BACK:
        sent.setdefault("Retry-After", str(_RETRY_AFTER_S))
    if body.status == 401:
        sent.setdefault("WWW-Authenticate", "Bearer")
    return JSONResponse(
        body.model_dump(mode="json", exclude_none=True), body.status, headers=sent, media_type=MEDIA_TYPE
    )


def problem_responses(*errors: type[SluiceError]) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI ``responses`` of a route that can fail with these errors."""
    kinds: dict[int, list[type[SluiceError]]] = {}
    for error in errors:
        kinds.setdefault(status_of(error), []).append(error)
    return {
        status: {
            "description": "; ".join(titles()[kind.code] for kind in kinds[status]),
            "content": {
                MEDIA_TYPE: {
                    "schema": {"$ref": "#/components/schemas/Problem"},
                    "example": _example(kinds[status][0]),
                }
            },
            **({"headers": _RETRY_AFTER} if status in _COME_BACK else {}),
        }
        for status in sorted(kinds)
    }


def _example(kind: type[SluiceError]) -> dict[str, Any]:
    title = titles()[kind.code]
    return {
        "type": f"urn:sluice:problem:{kind.code}",
        "code": kind.code,
        "title": title,
        "status": status_of(kind),
        "detail": title[:1].lower() + title[1:],
        "instance": "/api/v1",
        "errors": [],
    }


def install(app: FastAPI) -> None:
    """Make an app answer every failure with problem details."""
    app.add_exception_handler(SluiceError, _sluice_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_exception)
    app.add_exception_handler(ClientDisconnect, _hung_up)
    app.add_exception_handler(Exception, _unexpected)


async def _sluice_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, SluiceError)  # Registered for this class only.
    # 503 is expected while a part is down, and probes repeat it every second: no log line for each.
    if isinstance(error, InternalError):
        log.error("request failed", extra=_told(request) | {"code": error.code}, exc_info=error)
    return problem_response(error, request.url.path)


async def _validation_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # Registered for this class only.
    return problem_response(invalid_request(error), request.url.path)


async def _http_exception(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # Registered for this class only.
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_allowed(request))
    return problem_response(_of_status(request, error, headers), request.url.path, headers)


async def _hung_up(request: Request, error: Exception) -> Response:
    """Answer nobody; the audit log gets nginx's status for this, and the server logs a line."""
    return Response(status_code=499)


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    log.error("request failed", extra=_told(request), exc_info=error)
    hidden = InternalError(
        "the request failed inside Sluice", hint="The log of the service states the reason."
    )
    return problem_response(hidden, request.url.path)


def _told(request: Request) -> dict[str, object]:
    """Return the fields of a log line about a request."""
    return {"path": printable(request.url.path), "request_id": getattr(request.state, "request_id", None)}


def _allowed(request: Request) -> list[str]:
    """Return the methods a path allows; the framework names only those of the first matching route."""
    routes = request.app.routes
    # A mounted application has replaced ``root_path`` by its own path; restore the original.
    scope = {**request.scope, "root_path": request.scope.get("app_root_path", "")}
    if any(isinstance(route, Mount) and route.matches(scope)[0] is Match.FULL for route in routes):
        return ["GET", "HEAD"]
    scopes = {method: {**scope, "method": method} for method in _METHODS}
    return [
        method
        for method, scope in scopes.items()
        if any(route.matches(scope)[0] is Match.FULL for route in routes)
    ]


def _of_status(request: Request, error: HTTPException, headers: Mapping[str, str]) -> SluiceError:
    """Return Sluice's error for a request that the framework has refused."""
    path = request.url.path
    if error.status_code == 404:
        return RouteNotFound(
            f'path "{path}" does not exist', hint="GET /api/v1/openapi.json lists all paths."
        )
    if error.status_code == 405:
        hint = f"Use one of: {headers['Allow']}."
        return MethodNotAllowed(f'method {request.method} is not allowed on "{path}"', hint=hint)
    if error.status_code == 413:
        return body_too_large(request.app.state.max_body_bytes)
    if error.status_code < 500:
        return MalformedBody("the request cannot be read", detail=f"{error.detail}.")
    return InternalError(f"the request failed with status {error.status_code}")


def _faults(error: SluiceError) -> list[Fault]:
    if isinstance(error, InvalidRequest):
        return [
            Fault(
                detail=fault.detail,
                explanation=fault.explanation,
                hint=fault.hint,
                pointer=_pointer(fault.path) if fault.where == "body" else None,
                parameter=None if fault.where == "body" else str(fault.path[0]),
            )
            for fault in error.faults
        ]
    if isinstance(error, InvalidChanges):
        return [fault for each in error.errors for fault in _faults(each)]
    location = error.location
    if location is None:
        return [_described(error)] if error.path else []
    return [
        _described(error).model_copy(
            update={
                "line": location.line,
                "column": location.column,
                "underline": location.underlined() or None,
            }
        )
    ]


def _described(error: SluiceError) -> Fault:
    pointer = _pointer(error.path) if error.path else None
    return Fault(detail=error.primary, explanation=error.detail, hint=error.hint, pointer=pointer)


def _pointer(path: Sequence[str | int]) -> str:
    """Return a path's JSON Pointer (RFC 6901) as a URI fragment, with characters escaped as needed."""
    parts = (str(part).replace("~", "~0").replace("/", "~1") for part in path)
    return "#" + "".join("/" + quote(part, safe="~!$&'()*+,;=:@?") for part in parts)
