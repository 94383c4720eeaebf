"""Errors of HTTP and of the HTTP server; other packages define errors about a request's content.

    InvalidInput
    * MalformedBody           the body is not JSON (or NDJSON)             400
    * NotHttp                 the bytes are not a request                  400
    * InvalidRequest          body or parameters do not fit the schema     422
    * NotAcceptable           no representation that the client accepts    406
    * MethodNotAllowed        the route does not have the method           405
    * UnsupportedMediaType    the route does not read this type of body    415
    * BodyTooLarge            the body is too large for one request        413
    * HeadTooLarge            path and headers are too large               431
    * RequestTooSlow          the request did not arrive in time           408
    * Unauthenticated         no key, or an unknown key                    401
    * Forbidden               the key does not allow the request           403
    * ForeignOrigin           a page of another site sent it               403
    * UnknownHost             the host does not belong to this service     421
    * AddressInUse            the address to listen on is taken            (at the start)
    * CredentialsMissing      no client could prove its identity           (at the start)
    * UnusableCertificate     a certificate or key cannot be loaded        (at the start)
    NotFound
    * RouteNotFound           no route has that path                       404
    Conflict
    * RequestUnderWay         the same Idempotency-Key is being served     409
    Overloaded
    * TooManyRequests         more requests than a key may send            429
    Unavailable
    * EngineNotReady          the engine does not process batches now      503
    * TooManyConnections      the service has too many connections         503
    * EngineReplaced          another engine has taken over                (ends sluice engine)

``api.problems`` maps these errors, and all others, to the status codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from catalog.errors import Conflict, InvalidInput, NotFound, Overloaded, Unavailable


class MalformedBody(InvalidInput):
    """The body is not JSON."""

    code = "malformed-body"


class NotHttp(InvalidInput):
    """The request is not HTTP."""

    code = "not-http"


@dataclass(frozen=True, slots=True)
class RequestFault:
    """One field, parameter or header that does not fit the schema.

    Attributes:
        where: Part of the request.
        path: Keys and indexes that lead to the fault in the body, or the parameter's name.
        detail: Description of the fault, in lower case, without a full stop.
        hint: What to send instead.
        explanation: Facts, in sentences.
    """

    where: Literal["body", "query", "path", "header"]
    path: tuple[str | int, ...]
    detail: str
    hint: str | None = None
    explanation: str | None = None


class InvalidRequest(InvalidInput):
    """The request does not fit the schema of its route.

    Attributes:
        faults: Faults of the request, at least one.
    """

    code = "invalid-request"

    def __init__(self, *faults: RequestFault) -> None:
        first = faults[0]
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        super().__init__(first.detail + more, detail=first.explanation, hint=first.hint)
        self.faults = faults


class NotAcceptable(InvalidInput):
    """The client accepts no representation that the route has."""

    code = "not-acceptable"


class MethodNotAllowed(InvalidInput):
    """The route has no such method."""

    code = "method-not-allowed"


class UnsupportedMediaType(InvalidInput):
    """The route does not read bodies of this media type."""

    code = "unsupported-media-type"


class BodyTooLarge(InvalidInput):
    """The body is too large for one request."""

    code = "body-too-large"


def body_too_large(limit: int) -> BodyTooLarge:
    """Return the error for a body with more than ``limit`` bytes."""
    return BodyTooLarge(
        "the body is too large",
        detail=f"It may have {limit} bytes (SLUICE_MAX_BODY_BYTES), both compressed and decompressed.",
        hint="Send it in several requests.",
    )


class HeadTooLarge(InvalidInput):
    """The path and headers of a request are too large."""

    code = "head-too-large"


class RequestTooSlow(InvalidInput):
    """The request did not arrive in time."""

    code = "request-too-slow"


class Unauthenticated(InvalidInput):
    """The request has no key, or an unknown key."""

    code = "unauthenticated"


class Forbidden(InvalidInput):
    """The key does not allow this."""

    code = "forbidden"


class ForeignOrigin(InvalidInput):
    """The request comes from a page of another site."""

    code = "foreign-origin"


class UnknownHost(InvalidInput):
    """The request names a host that does not belong to this service."""

    code = "unknown-host"


class TooManyRequests(Overloaded):
    """The client has exceeded its rate limit.

    Attributes:
        retry_after_s: Seconds after which the next request is accepted.
    """

    code = "too-many-requests"

    def __init__(self, primary: str, *, retry_after_s: int) -> None:
        super().__init__(primary, hint=f"Send the next one after {retry_after_s} s.")
        self.retry_after_s = retry_after_s


class RouteNotFound(NotFound):
    """No route has that path."""

    code = "route-not-found"


class RequestUnderWay(Conflict):
    """A request with the same idempotency key is being served."""

    code = "request-under-way"


class EngineNotReady(Unavailable):
    """The engine does not process batches now."""

    code = "engine-not-ready"


class TooManyConnections(Unavailable):
    """The service has reached its maximum number of connections."""

    code = "too-many-connections"


class AddressInUse(InvalidInput):
    """The address to listen on is taken, or does not belong to this machine."""

    code = "address-in-use"


class CredentialsMissing(InvalidInput):
    """The service would accept requests from other machines, but no key exists that a client could use."""

    code = "credentials-missing"


class UnusableCertificate(InvalidInput):
    """A certificate or its key cannot be loaded."""

    code = "unusable-certificate"


class EngineReplaced(Unavailable):
    """Another engine has taken over because this one did not renew its lease of the catalog in time."""

    code = "engine-replaced"
