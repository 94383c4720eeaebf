"""The guard of routes: it identifies senders, checks their scope and rate, and writes the audit log.

    Authorization: Bearer sluice_...    a key               (service.access.api_keys)
    Authorization: Bearer eyJ...        an issuer's token   (service.access.tokens)
    a client certificate                its common name     (api.server.tls)
    nothing                             on a loopback address, or with --insecure, everything is allowed

A key in a request is always checked, even if the service requires none. A wrong key is always refused.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import anyio
from anyio import CapacityLimiter
from fastapi import Request

from api.access.rate_limit import RateLimit
from api.errors import Forbidden, TooManyRequests, Unauthenticated
from catalog.errors import SluiceError, Unavailable
from catalog.wording.outside import printable
from service.access.api_keys import PREFIX, KeyVerifier
from service.access.principal import ANONYMOUS, SCOPES, Principal, Scope, foreign_name
from service.access.tokens import TokenVerifier

#: Maximum requests per second with an unknown key from one address; verifying an unknown key may take 50 ms.
_UNKNOWN_PER_S = 5.0
#: Maximum number of unknown keys of one address that wait to be verified. Keys are verified one at a time,
#: because each hash takes 64 MB and several threads; tokens have a pool of their own.
_WAITING = 10
_HOW = "Send the header Authorization: Bearer <key>; sluice key create makes one."


@dataclass(slots=True)
class Guard:
    """Authentication and rate limits, which every route checks before it does anything.

    Attributes:
        required: Whether a client must prove its identity.
        tokens: Verifier of an issuer's tokens; None if no issuer is trusted.
    """

    required: bool
    tokens: TokenVerifier | None = None
    _limits: RateLimit = field(default_factory=RateLimit)
    _unknown: RateLimit = field(default_factory=RateLimit)
    _lanes: dict[bool, CapacityLimiter] = field(default_factory=dict)
    _waiting: Counter[str] = field(default_factory=Counter)

    async def admit(self, request: Request, scope: Scope | None) -> Principal:
        """Return the sender of a request, if the request is allowed.

        Args:
            request: The request.
            scope: Scope that the route needs; None if every client may use it.

        Raises:
            Unauthenticated: There is no valid key.
            Forbidden: The key does not allow the request.
            TooManyRequests: Too many requests use this key, or too many unknown keys come from this address.
        """
        principal = await self._allowed(request, scope)
        if principal.name is not None and principal.rate_per_s is not None:
            wait_s = self._limits.take(principal.name, principal.rate_per_s)
            _refuse(wait_s, f'requests with the key of "{principal.name}"')
        return principal

    async def refusals(self, keys: KeyVerifier, sent: Collection[str]) -> dict[str, SluiceError]:
        """Check senders again while their answers are being sent, without counting requests.

        Args:
            keys: Verifier of keys.
            sent: Headers Authorization that were valid.

        Returns:
            The error for each header that is no longer valid: its key was revoked, or its token has expired.
        """
        texts = {each: _text(each) for each in sent}
        known = {text for text in texts.values() if text.startswith(PREFIX)}
        good = await anyio.to_thread.run_sync(keys.still_valid, known)
        for text in set(texts.values()) - known:
            good |= {text} if await self._is_good_token(text) else set()
        lost = Unauthenticated("the key is unknown, has expired or was revoked", hint=_HOW)
        return {each: lost for each, text in texts.items() if text not in good}

    async def _is_good_token(self, text: str) -> bool:
        if self.tokens is None or self.tokens.known(text) is not None:
            return self.tokens is not None
        with suppress(Unavailable):  # the issuer does not answer, which does not mean that the token is bad
            return await anyio.to_thread.run_sync(self.tokens.verify, text) is not None
        return True

    async def _allowed(self, request: Request, scope: Scope | None) -> Principal:
        """Return the sender of a request, if the request is allowed."""
        sent = request.headers.get("authorization")
        certificate = getattr(request.state, "client_certificate", None)
        if sent is not None:
            principal = await self._proved(request, sent)
        elif certificate is not None:
            principal = Principal(foreign_name("certificate", certificate), frozenset(SCOPES))
        elif scope is None or not self.required:
            principal = ANONYMOUS
        else:
            raise Unauthenticated("the request has no key", hint=_HOW)
        if scope is not None and not principal.may(scope):
            raise Forbidden(
                f'the key of "{principal.name}" does not allow this',
                detail=f"The request needs scope {scope}; "
                f"the key has {', '.join(sorted(principal.scopes)) or 'none'}.",
                hint=f"Use a key with the scope: sluice key create NAME --scope {scope}.",
            )
        return principal

    async def _proved(self, request: Request, sent: str) -> Principal:
        """Return the sender whose identity the header Authorization proves."""
        kind, text = sent.partition(" ")[0], _text(sent)
        if kind.lower() != "bearer" or not text.isascii():
            raise Unauthenticated("the header Authorization has no key", hint=_HOW)
        keys: KeyVerifier = request.app.state.workspace.keys
        verifier: _Verifier | None = keys if text.startswith(PREFIX) else self.tokens
        if verifier is None:
            raise Unauthenticated("the key is not one of Sluice's keys", hint=_HOW)
        principal = verifier.known(text)
        if principal is not None:
            return principal
        if verifier.remembers(text):  # no hash is computed, so this must not wait behind guesses
            own = CapacityLimiter(1)
            principal = await anyio.to_thread.run_sync(verifier.verify, text, limiter=own)
        else:
            lane = self._lanes.setdefault(verifier is keys, CapacityLimiter(1 if verifier is keys else 20))
            principal = await self._verified(verifier, text, client_address(request), lane)
        if principal is None:
            raise Unauthenticated("the key is unknown, has expired or was revoked", hint=_HOW)
        return principal

    async def _verified(
        self, verifier: _Verifier, text: str, address: str, lane: CapacityLimiter
    ) -> Principal | None:
        """Verify a key or token that is not known: compute a hash, or wait for the issuer."""
        if self._waiting[address] >= _WAITING:
            raise TooManyRequests("too many unknown keys from your address", retry_after_s=1)
        self._waiting[address] += 1
        try:
            async with lane:
                # A client that keeps sending unknown keys must not keep the processor busy, and must not lock
                # out other clients with its address. The limit is checked here, inside the limiter, because
                # many such requests may have arrived at the same time.
                _refuse(self._unknown.look(address, _UNKNOWN_PER_S), "unknown keys from your address")
                own = CapacityLimiter(1)  # verification must not wait for threads of other requests
                principal = await anyio.to_thread.run_sync(verifier.verify, text, limiter=own)
                if principal is None:
                    self._unknown.take(address, _UNKNOWN_PER_S)
                return principal
        finally:
            self._waiting[address] -= 1
            if not self._waiting[address]:
                del self._waiting[address]


class _Verifier(Protocol):
    """Verifies the keys or tokens that clients send."""

    def known(self, text: str) -> Principal | None:
        """Return the cached principal of a key or token; None if it must be verified."""

    def remembers(self, text: str) -> bool:
        """Return whether the text was valid when last verified; if so, verifying it again is cheap."""

    def verify(self, text: str) -> Principal | None:
        """Return the principal of a key or token, None if it is not valid; call this in a thread."""


def _text(sent: str) -> str:
    """Return the key or token in a header Authorization."""
    return sent.partition(" ")[2].strip()


def client_address(request: Request) -> str:
    """Return the address of a request's client; a proxy may have sent any text."""
    return printable(request.client.host, 100) if request.client is not None else "?"


def _refuse(wait_s: float, what: str) -> None:
    """Refuse a request that exceeds its rate limit."""
    if wait_s > 0:
        raise TooManyRequests(f"too many {what}", retry_after_s=math.ceil(wait_s))
