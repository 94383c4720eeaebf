"""Tokens of an OpenID Connect issuer (JWT), verified by PyJWT with the issuer's published keys.

The claim ``scope`` (or ``scp``) lists the token's scopes, such as ``read``, ``sluice:read`` or
``read:orders_*``. The claim ``sub`` is the client's name, shown as ``token:NAME``. Only asymmetric signatures
are accepted, so the published keys cannot be used to sign a token.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from catalog.wording.outside import printable
from service.access.issuer_keys import IssuerKeys
from service.access.principal import GRANT, Principal, foreign_name
from service.errors import TokensUnsupported

log = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
#: Seconds by which the clocks of issuer and service may differ.
_LEEWAY_S = 10
#: Seconds for which a verified token counts as valid, unless the token expires sooner.
_FRESH_S = 60.0
_REMEMBERED = 1000


class TokenVerifier:
    """Verifier of the tokens of one issuer; thread-safe.

    Args:
        issuer: URL of the issuer, as in the claim ``iss`` of its tokens.
        audience: Name of this service in the claim ``aud`` of tokens.
        clock_s: Wall clock, seconds since 1970.

    Raises:
        TokensUnsupported: PyJWT is not installed.
    """

    def __init__(self, issuer: str, audience: str, clock_s: Callable[[], float] = time.time) -> None:
        try:
            import cryptography  # noqa: F401  # PyJWT knows no asymmetric signature without it
            import jwt
        except ImportError as error:
            raise TokensUnsupported(
                "tokens of an issuer cannot be verified",
                detail=f"{error}.",
                hint="Install sluice with its extra oidc.",
            ) from error
        self._jwt = jwt
        self._issuer = issuer
        self._audience = audience
        self._clock_s = clock_s
        self._keys = IssuerKeys(issuer, self._parsed)
        self._verified: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()
        self._lock = threading.Lock()

    def known(self, text: str) -> Principal | None:
        """Return the client of a token from the cache, or None if the token must be verified."""
        with self._lock:
            found = self._verified.get(_digest(text))
        return found[0] if found is not None and self._clock_s() < found[1] else None

    def remembers(self, text: str) -> bool:
        """Return whether a token was valid when it was last verified."""
        with self._lock:
            return _digest(text) in self._verified

    def verify(self, text: str) -> Principal | None:
        """Return the client of a token, or None if the token is not valid.

        Raises:
            IssuerDown: The issuer's keys are needed but cannot be read.
        """
        jwt = self._jwt
        try:
            claims = jwt.decode(
                text,
                self._signing_key(text),
                algorithms=list(ALGORITHMS),
                issuer=self._issuer,
                audience=self._audience,
                leeway=_LEEWAY_S,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.PyJWTError as error:
            log.info("token refused: %s", printable(str(error)))
            with self._lock:
                self._verified.pop(_digest(text), None)
            return None
        principal = Principal(foreign_name("token", str(claims["sub"])), _scopes(claims))
        until_s = min(self._clock_s() + _FRESH_S, float(claims["exp"]))
        with self._lock:
            self._verified[_digest(text)] = (principal, until_s)
            while len(self._verified) > _REMEMBERED:
                self._verified.popitem(last=False)
        return principal

    def _signing_key(self, text: str) -> Any:
        kid = self._jwt.get_unverified_header(text).get("kid")
        found = None if kid is None else self._keys.key(kid)
        if found is None:
            raise self._jwt.InvalidTokenError(f"the issuer has no key with the id {kid}")
        return found.key

    def _parsed(self, document: Any) -> dict[str, Any]:
        """Return the signing keys in an issuer's key document, by id."""
        try:
            keys = self._jwt.PyJWKSet.from_dict(document).keys
        except (self._jwt.PyJWTError, AttributeError) as error:
            raise ValueError(str(error)) from error
        return {key.key_id: key for key in keys if key.key_id and key.public_key_use in ("sig", None)}


def _scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    """Return the scopes in a token's claims. A claim that is neither text nor a list gives no scopes."""
    found = claims.get("scope", claims.get("scp"))
    names = found.split() if isinstance(found, str) else found if isinstance(found, list) else []
    grants = (str(name).removeprefix("sluice:") for name in names)
    return frozenset(grant for grant in grants if GRANT.fullmatch(grant) is not None)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
