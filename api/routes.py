"""The route class of the API: it checks clients and parameters, and implements idempotency keys.

The guard checks each request first (``api.access.guard``). A request for a change is written to the audit log
before it is carried out. The status of its answer is added to the log later.

Unknown parameters are refused and not ignored; otherwise a misspelt ``limit`` would silently have its default
value. A mutation with an ``Idempotency-Key`` is carried out only once. If it is repeated, the answer is the
first answer again, marked ``Idempotency-Replayed: true``. Only successful answers are kept. A failed request
has changed nothing and may be sent again.

A change of the catalog (streams, queries, migrations) and its answer are stored in one transaction, because
``Once.keep`` is called inside the change's transaction. A crash can therefore not separate them. Posted
events are in a separate database; a receipt is stored there together with the events. A request to the engine
is an entry in the catalog; a repetition after a crash writes the same entry again.

If a request is sent twice, two processes may serve it at the same time. In this case one process finds the
other's answer in its own transaction, rolls the transaction back, and returns this answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

import anyio
from fastapi import Depends, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from api.access.guard import Guard, client_address
from api.access.rights import check_route
from api.access.scopes import scope_of
from api.errors import InvalidRequest, RequestFault, RequestUnderWay, UnsupportedMediaType
from api.json_body import read_body
from catalog.errors import Conflict, NotFound
from catalog.store.clients.audit_log import AuditLogRepository
from catalog.store.clients.idempotency import IdempotencyRepository, StoredAnswer
from catalog.wording.outside import printable
from catalog.wording.wording import nearest_or_known
from service.access.principal import NAMELESS, Principal

#: Methods that change something.
MUTATIONS = frozenset({"POST", "PUT", "PATCH", "DELETE"})

#: Most characters of a path in the audit log; paths of existing resources are shorter.
_SHOWN_PATH = 500

#: Headers of an answer that are kept with it.
_KEPT_HEADERS = ("content-type", "location", "etag")

_MAX_KEY_LENGTH = 255

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


@dataclass(slots=True)
class Once:
    """A mutation under an idempotency key.

    Attributes:
        answers: Stores its answer.
        key: The client's key.
        fingerprint: Hash of the request.
    """

    answers: IdempotencyRepository
    key: str
    fingerprint: str
    _kept: bool = field(default=False, init=False)

    def keep(self, status: int, headers: Mapping[str, str], body: str) -> None:
        """Keep an answer, in the transaction of the mutation or after it.

        If the request waits for the change, its final answer contains more information and replaces the
        answer stored with the mutation.
        """
        kept = {name: headers[name] for name in _KEPT_HEADERS if name in headers}
        answer = json.dumps({"headers": kept, "body": body})
        if self._kept:
            self.answers.amend(self.key, self.fingerprint, status, answer)
        else:
            before = self.answers.remember(self.key, self.fingerprint, status, answer)
            if before is not None:
                raise _AnsweredMeanwhile(before)
            self._kept = True


class _AnsweredMeanwhile(Exception):
    """Another process has served the same request; raising this rolls back its effects here."""

    def __init__(self, answer: StoredAnswer) -> None:
        super().__init__()
        self.answer = answer


def get_once(request: Request) -> Once | None:
    """Return the ``Once`` that keeps the answer of this request; None without an idempotency key."""
    once: Once | None = getattr(request.state, "once", None)
    return once


OnceDep = Annotated[Once | None, Depends(get_once)]


class SluiceRoute(APIRoute):
    """A route that refuses unknown parameters and non-JSON bodies, and obeys ``Idempotency-Key``."""

    def get_route_handler(self) -> Handler:
        """Wrap FastAPI's handler."""
        handler = super().get_route_handler()
        known = sorted(_query_parameters(self.dependant))
        method = min(self.methods or {"GET"})  # a route has one
        scope = scope_of(method, self.path_format)
        changes = method in MUTATIONS and scope in ("write", "admin")

        async def checked(request: Request) -> Response:
            guard: Guard = request.app.state.guard
            request.state.principal = principal = await guard.admit(request, scope)
            check_route(principal, scope, method, self.path_format, request.path_params)
            _check_parameters(request, known)
            if changes:
                await _log(request)
            # The route for events checks the body and its media type itself.
            if scope != "ingest" and (body := await request.body()):
                _check_media_type(request)
                read_body(body)
            key = request.headers.get("idempotency-key")
            try:
                if key is None or request.method not in MUTATIONS:
                    return await handler(request)
                return await _once(request, key, handler)
            except NotFound as error:
                if scope is not None and not principal.may_all(scope):
                    error.hint = None  # it may name streams or queries that the client may not see
                raise

        return checked


def _query_parameters(dependant: Dependant) -> set[str]:
    names = {field.alias for field in dependant.query_params}
    for inner in dependant.dependencies:
        names |= _query_parameters(inner)
    return names


def _check_parameters(request: Request, known: list[str]) -> None:
    faults = []
    for name in request.query_params:
        if name not in known:
            hint = nearest_or_known(name, known) or "This route takes no parameters."
            faults.append(RequestFault("query", (name,), f'parameter "{name}" is not known', hint))
    if faults:
        raise InvalidRequest(*faults)


def _check_media_type(request: Request) -> None:
    sent = request.headers.get("content-type", "").split(";", 1)[0].strip().lower()
    if sent == "application/json" or sent.endswith("+json"):
        return
    raise UnsupportedMediaType(
        f'the body is of type "{sent}"' if sent else "the body has no type",
        hint="Send JSON with the header Content-Type: application/json (curl: --json '{...}').",
    )


async def _log(request: Request) -> None:
    """Write a request for a change to the audit log; the status of its answer is added later."""
    audit: AuditLogRepository = request.app.state.workspace.audit
    principal: Principal = request.state.principal
    entry = await anyio.to_thread.run_sync(
        audit.begin,
        principal.name or NAMELESS,
        client_address(request),
        request.state.request_id,
        request.method,
        printable(request.url.path, _SHOWN_PATH),
    )
    request.state.on_answer = partial(audit.end, entry)


async def _once(request: Request, key: str, handler: Handler) -> Response:
    """Serve a mutation, or return the answer stored under its key if it was served before."""
    if not 1 <= len(key) <= _MAX_KEY_LENGTH:
        detail = f'header "Idempotency-Key" has {len(key)} characters'
        hint = f"Send 1 to {_MAX_KEY_LENGTH}, a UUID for example."
        raise InvalidRequest(RequestFault("header", ("Idempotency-Key",), detail, hint))
    answers: IdempotencyRepository = request.app.state.workspace.answers
    fingerprint = _fingerprint(request, await request.body())
    with _under_way(request.app.state.idempotency_keys, key):
        stored = await anyio.to_thread.run_sync(answers.recall, key, fingerprint)
        if stored is not None:
            return _replayed(stored)
        request.state.once = once = Once(answers, key, fingerprint)
        try:
            response = await handler(request)
            if response.status_code < 300:
                body = bytes(response.body).decode()
                await anyio.to_thread.run_sync(once.keep, response.status_code, response.headers, body)
        except _AnsweredMeanwhile as found:
            return _replayed(found.answer)
        except (Conflict, NotFound):
            # The conflict may be caused by the same request, if another process has served it meanwhile.
            stored = await anyio.to_thread.run_sync(answers.recall, key, fingerprint)
            if stored is None:
                raise
            return _replayed(stored)
        return response


def _replayed(stored: StoredAnswer) -> Response:
    kept = json.loads(stored.body)
    return Response(kept["body"], stored.status, kept["headers"] | {"Idempotency-Replayed": "true"})


@contextmanager
def _under_way(keys: set[str], key: str) -> Iterator[None]:
    """Refuse a request whose key is in use by a request in progress; for use on the event loop only."""
    if key in keys:
        raise RequestUnderWay(
            f'a request with idempotency key "{key}" is being served', hint="Send it again in a moment."
        )
    keys.add(key)
    try:
        yield
    finally:
        keys.discard(key)


def _fingerprint(request: Request, body: bytes) -> str:
    digest = hashlib.sha256()
    for part in (request.method, request.url.path, request.url.query):
        digest.update(part.encode() + b"\0")
    digest.update(body)
    return digest.hexdigest()
