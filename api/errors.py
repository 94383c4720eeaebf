"""Errors of HTTP and its server; what a request means is judged below, by errors of the other packages.

    InvalidInput
    * MalformedBody           the body is not JSON (or NDJSON)            400
    * NotHttp                 the bytes are not a request                     400
    * InvalidRequest          body or parameters do not fit the schema     422
    * NotAcceptable           no representation that the client takes      406
    * MethodNotAllowed        the route has no such method                 405
    * UnsupportedMediaType    the body is of another type                  415
    * BodyTooLarge            the body is too big for one request          413
    * HeadTooLarge            path and headers are too large               431
    * RequestTooSlow          the request did not come in time             408
    * Unauthenticated         no key, or none that is known                401
    * Forbidden               the key may do other things                  403
    * ForeignOrigin           a page of another site sent it               403
    * UnknownHost             the host does not belong to this service     421
    * AddressInUse            the address to listen on is taken            (at the start)
    * CredentialsMissing      nobody could prove who he is                 (at the start)
    * UnusableCertificate     a certificate or key cannot be loaded        (at the start)
    NotFound
    * RouteNotFound           no route has that path                       404
    Conflict
    * RequestUnderWay         the same Idempotency-Key is being served     409
    Overloaded
    * TooManyRequests         more requests than a key may send            429
    Unavailable
    * EngineNotReady          the engine does not process batches now      503
    * TooManyConnections      there are as many as the service serves      503
    * EngineReplaced          another engine has taken over                (ends sluice engine)

The numbers are given in ``api.problems``, as for every other error.
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
    """One field, parameter or header that does not fit.

    Attributes:
        where: Part of the request.
        path: Keys and indexes inside the body, or the parameter's name.
        detail: What is wrong with it.
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
        faults: What does not fit, at least one.
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
    """The body is of a media type that the route does not read."""

    code = "unsupported-media-type"


class BodyTooLarge(InvalidInput):
    """The body is too big for one request."""

    code = "body-too-large"


def body_too_large() -> BodyTooLarge:
    """Return the error of a body beyond the limit."""
    return BodyTooLarge("the body is too large", hint="Send it in several requests.")


class HeadTooLarge(InvalidInput):
    """The path and headers of a request are too large."""

    code = "head-too-large"


class RequestTooSlow(InvalidInput):
    """The request did not come in time."""

    code = "request-too-slow"


class Unauthenticated(InvalidInput):
    """The request has no key, or none that is known here."""

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
    """More requests than one may send.

    Attributes:
        retry_after_s: Seconds after which one more is let in.
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
    """There are as many connections as the service serves."""

    code = "too-many-connections"


class AddressInUse(InvalidInput):
    """The address to listen on is taken or not ours."""

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
