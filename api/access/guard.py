"""The guard of routes: it identifies senders, checks their scope and rate, and writes the audit log.

    Authorization: Bearer sluice_...    a key               (service.access.api_keys)
    Authorization: Bearer eyJ...        an issuer's token   (service.access.tokens)
    a client certificate                its common name     (api.access.connections)
    nothing                             on a loopback address, or with --insecure, everything is allowed

A key that is sent decides, even where none is required: a wrong key is refused everywhere.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import anyio
from anyio import CapacityLimiter
from fastapi import Request

from api.access.rate_limit import RateLimit
from api.errors import Forbidden, TooManyRequests, Unauthenticated
from catalog.errors import Unavailable
from service.access.api_keys import PREFIX, KeyVerifier
from service.access.principal import ANONYMOUS, SCOPES, Principal, Scope
from service.access.tokens import TokenVerifier

#: Requests with an unknown key that one address may send per second: each may cost 50 ms.
_UNKNOWN_PER_S = 5.0
#: Keys that are verified at one time.
_VERIFIED_AT_ONCE = 2
_HOW = "Send the header Authorization: Bearer <key>; sluice key create makes one."


@dataclass(slots=True)
class Guard:
    """Authentication and rate limits, which every route asks before it does anything.

    Attributes:
        required: Whether a client must prove who it is.
        tokens: Verifies tokens of an issuer; None if none is trusted.
    """

    required: bool
    tokens: TokenVerifier | None = None
    _limits: RateLimit = field(default_factory=RateLimit)
    _unknown: RateLimit = field(default_factory=RateLimit)
    _verifying: CapacityLimiter | None = None

    async def admit(self, request: Request, scope: Scope | None) -> Principal:
        """Return who sends a request, if he may.

        Args:
            request: The request.
            scope: Scope that the route needs; None if every client may use it.

        Raises:
            Unauthenticated: There is no key, or none that is good.
            Forbidden: The key does not allow it.
            TooManyRequests: Too many requests came with it, or with unknown ones.
        """
        principal = await self._allowed(request, scope)
        if principal.name is not None and principal.rate_per_s is not None:
            wait_s = self._limits.take(principal.name, principal.rate_per_s)
            _refuse(wait_s, f'requests with the key of "{principal.name}"')
        return principal

    async def admit_again(self, request: Request, scope: Scope) -> None:
        """Look once more at who has sent a request whose answer goes on, and count no request of his.

        Raises:
            Unauthenticated: The key is not good any more.
            Forbidden: It does not allow this any more.
        """
        # Neither says anything about the key.
        with suppress(TooManyRequests, Unavailable):
            await self._allowed(request, scope)

    async def _allowed(self, request: Request, scope: Scope | None) -> Principal:
        """Return who sends a request, if he may."""
        sent = request.headers.get("authorization")
        certificate = getattr(request.state, "client_certificate", None)
        if sent is not None:
            principal = await self._proved(request, sent)
        elif certificate is not None:
            principal = Principal(certificate, frozenset(SCOPES))
        elif scope is None or not self.required:
            principal = ANONYMOUS
        else:
            raise Unauthenticated("the request has no key", hint=_HOW)
        if scope is not None and scope not in principal.scopes:
            raise Forbidden(
                f'the key of "{principal.name}" does not allow this',
                detail=f"It needs scope {scope} and has {', '.join(sorted(principal.scopes)) or 'none'}.",
                hint=f"Use a key with it: sluice key create NAME --scope {scope}.",
            )
        return principal

    async def _proved(self, request: Request, sent: str) -> Principal:
        """Return who proves to be who he says by the header Authorization."""
        kind, _, text = sent.partition(" ")
        text = text.strip()
        if kind.lower() != "bearer" or not text.isascii():
            raise Unauthenticated("the header Authorization has no key", hint=_HOW)
        keys: KeyVerifier = request.app.state.workspace.keys
        verifier: _Verifier | None = keys if text.startswith(PREFIX) else self.tokens
        if verifier is None:
            raise Unauthenticated("the key is not one of Sluice's keys", hint=_HOW)
        principal = verifier.known(text)
        if principal is not None:
            return principal
        address = client_address(request)
        if self._verifying is None:
            self._verifying = CapacityLimiter(_VERIFIED_AT_ONCE)
        async with self._verifying:
            # A client that keeps sending keys that are none may not keep the processor busy with them, nor
            # keep others of its address out. Here, since many may have been sent at one time.
            if not verifier.remembers(text):
                _refuse(self._unknown.look(address, _UNKNOWN_PER_S), "unknown keys from your address")
            own = CapacityLimiter(1)  # it must not wait for threads of other requests
            principal = await anyio.to_thread.run_sync(verifier.verify, text, limiter=own)
            if principal is None:
                self._unknown.take(address, _UNKNOWN_PER_S)
        if principal is None:
            raise Unauthenticated("the key is unknown, has expired or was revoked", hint=_HOW)
        return principal


class _Verifier(Protocol):
    """Verifies what a client sends as its key."""

    def known(self, text: str) -> Principal | None:
        """Return the cached principal of a key or token; None if it must be looked up."""

    def remembers(self, text: str) -> bool:
        """Return whether it was good when last verified, so that it costs little to verify it again."""

    def verify(self, text: str) -> Principal | None:
        """Return who is behind it, None if it is not good; in a thread."""


def client_address(request: Request) -> str:
    """Return the address that a request comes from."""
    return request.client.host if request.client is not None else "?"


def _refuse(wait_s: float, what: str) -> None:
    """Refuse a request for which there is no token."""
    if wait_s > 0:
        raise TooManyRequests(f"too many {what}", retry_after_s=math.ceil(wait_s))
