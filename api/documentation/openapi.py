"""The OpenAPI document: FastAPI's description of the routes, with additions that all routes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api.access.scopes import scope_of
from api.documentation.descriptions import describe_document, operations
from api.errors import (
    Forbidden,
    ForeignOrigin,
    InvalidRequest,
    RequestUnderWay,
    TooManyRequests,
    Unauthenticated,
    UnknownHost,
    UnsupportedMediaType,
)
from api.problems import MEDIA_TYPE, Problem, problem_responses
from api.routes import MUTATIONS
from catalog.errors import SluiceError
from service.access.principal import Scope

_DESCRIPTION = """
Register streams, add and remove continuous window joins, and read their results. Every change of the plan
takes effect at a micro-batch boundary, without a restart of the job.

* **Errors** are problem details (RFC 9457) with a stable `type`, a `hint` and, in `errors`, the place of the
  fault.
* **Mutations** take an `Idempotency-Key`: if a request is repeated with the key within a day, it gets the
  first answer again. A change of streams, queries or the plan is stored together with its answer, so this is
  true even after a crash of the service between change and answer; posted events are stored once. Requests to
  the engine are carried out again.
* **Changes of the plan** take `If-Match` with the plan version they were made for, and `wait` in seconds.
* **Collections** are paged: `limit` is the size of a page, and `next_cursor` is the `after` of the next page.
* **Access**: on a loopback address no key is needed; elsewhere each operation needs a key with the scope that
  its security requirement names: `read`, `ingest`, `write` or `admin`.
* **Values**: timestamps are ISO 8601 with `Z` and microseconds, decimals are strings, and the doubles that
  JSON lacks are the strings `NaN`, `Infinity` and `-Infinity`.
"""

_IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Makes the request safe to repeat; a UUID, for example.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}
#: Answer 409 of mutations that have no other conflict.
_KEY_CONFLICT = {
    **problem_responses(RequestUnderWay)[409],
    "description": "The key was used for another request, or the same request is still being served",
}


@dataclass(frozen=True, slots=True)
class Security:
    """Ways for a client to prove its identity, as the OpenAPI document lists them.

    Attributes:
        required: Whether a client must prove its identity.
        issuer: Issuer whose tokens are accepted; None if there is none.
        certificates: Whether clients may prove their identity by a certificate.
    """

    required: bool
    issuer: str | None
    certificates: bool

    def schemes(self) -> dict[str, dict[str, str]]:
        """Return the security schemes by name."""
        found = {
            "key": {
                "type": "http",
                "scheme": "bearer",
                "description": "A key: `sluice key create NAME --scope read` makes one.",
            }
        }
        if self.issuer is not None:
            url = f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"
            found["token"] = {"type": "openIdConnect", "openIdConnectUrl": url}
        if self.certificates:
            found["certificate"] = {"type": "mutualTLS", "description": "A certificate allows everything."}
        return found

    def of(self, scope: Scope | None) -> list[dict[str, list[str]]]:
        """Return the alternative security requirements of an operation with this scope; one must be met."""
        if scope is None:
            return []
        found = [{name: [] if name == "certificate" else [str(scope)]} for name in self.schemes()]
        return found if self.required else [*found, {}]


def describe(app: FastAPI, security: Security) -> None:
    """Make the application serve the completed OpenAPI document."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app, security)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way to extend the document


def _document(app: FastAPI, security: Security) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        description=_DESCRIPTION.strip(),
        routes=app.routes,
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(problem.pop("$defs", {}))
    schemas["Problem"] = problem
    document["components"]["securitySchemes"] = security.schemes()
    for name, schema in schemas.items():
        if "-" in name:  # a model whose form in requests differs from its form in answers
            schema["title"] = name.replace("-", "")  # generators name classes by titles
    for path, method, operation in operations(document):
        scope = scope_of(method.upper(), path)
        operation["security"] = security.of(scope)
        refusals: list[type[SluiceError]] = [ForeignOrigin, UnknownHost]
        if scope is not None:
            refusals += [Unauthenticated, Forbidden, TooManyRequests]
        if method.upper() in MUTATIONS:
            operation.setdefault("parameters", []).append(_IDEMPOTENCY_KEY)
            refusals.append(UnsupportedMediaType)
            operation["responses"].setdefault("409", _KEY_CONFLICT)
        for status, response in problem_responses(*refusals).items():
            operation["responses"].setdefault(str(status), response)
        _replace_validation_error(operation["responses"])
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    describe_document(document)
    return document


def _replace_validation_error(responses: dict[str, Any]) -> None:
    """Replace FastAPI's own form of 422, which this service never sends."""
    found = responses.get("422")
    if found is not None and MEDIA_TYPE not in found.get("content", {}):
        responses["422"] = {
            **problem_responses(InvalidRequest)[422],
            "description": "The request does not fit the schema of its route",
        }
