"""The keys of a token issuer: fetched by a thread of their own, and cached.

    request ── key(kid) ──> cache ──> verified                      the usual case
                              │ unknown kid, or older than KEPT_S
                              └── thread ── document, keys ── cache

A slow issuer delays only requests whose key is not in the cache, by at most `TIMEOUT_S`. Keys in the cache
stay valid while the issuer does not answer.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

from service.errors import IssuerDown

#: Seconds that a request waits for the issuer.
TIMEOUT_S = 5.0
#: Seconds that the issuer has for each of its two answers.
_READ_S = 5.0
#: Seconds after which the keys are read again.
KEPT_S = 300.0
#: Minimum seconds between two requests to the issuer for keys that it may not have.
AGAIN_S = 30.0
#: Minimum seconds between two requests to an issuer that has failed.
_FAILED_S = 1.0
#: Maximum size of an answer of the issuer, in bytes.
_MOST_BYTES = 1 << 20
#: Exceptions that mean that an issuer cannot be reached, or that its answer is not valid.
_NO_ANSWER = (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, RecursionError)


class IssuerKeys:
    """Published keys of an issuer, by their ids; thread-safe.

    Args:
        issuer: URL of the issuer.
        parse: Returns the usable keys, by id, of the issuer's key document.
        clock_s: Monotonic clock.
    """

    def __init__(
        self,
        issuer: str,
        parse: Callable[[Any], dict[str, Any]],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._issuer = issuer
        self._parse = parse
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._keys: dict[str, Any] | None = None
        self._failure: IssuerDown | None = None
        self._asked_s = float("-inf")
        self._answered: threading.Event | None = None  # while the issuer is asked

    def key(self, kid: str) -> Any:
        """Return the key with an id, or None if the issuer has no such key.

        Raises:
            IssuerDown: The issuer's keys are needed but cannot be read.
        """
        with self._lock:
            keys, age_s = self._keys, self._clock_s() - self._asked_s
            if keys is None:
                wanted = age_s >= _FAILED_S
            else:
                wanted = age_s >= (KEPT_S if kid in keys else AGAIN_S)
            if wanted and (self._answered is None or age_s > AGAIN_S):
                self._asked_s, self._answered = self._clock_s(), threading.Event()
                threading.Thread(target=self._ask, args=(self._answered,), name="issuer", daemon=True).start()
            answered = self._answered
        if keys is not None and kid in keys:
            return keys[kid]
        if answered is not None and not answered.wait(TIMEOUT_S):
            raise IssuerDown(f'issuer "{self._issuer}" does not answer', detail=f"It had {TIMEOUT_S:g} s.")
        with self._lock:
            if self._keys is None and self._failure is not None:
                raise self._failure
            return (self._keys or {}).get(kid)

    def _ask(self, answered: threading.Event) -> None:
        keys, failure = None, None
        try:
            keys = self._parse(_read(self._keys_url()))
        except IssuerDown as error:
            failure = error
        except _NO_ANSWER as error:
            failure = IssuerDown(f'keys of issuer "{self._issuer}" cannot be read', detail=f"{error}.")
        with self._lock:
            self._keys, self._failure = keys or self._keys, failure
            if self._answered is answered:
                self._answered = None
        answered.set()

    def _keys_url(self) -> str:
        """Ask the issuer for the URL of its keys (OpenID Connect Discovery 1.0)."""
        try:
            document = _read(f"{self._issuer.rstrip('/')}/.well-known/openid-configuration")
            found, keys_url = document["issuer"], str(document["jwks_uri"])
        except _NO_ANSWER as error:
            raise IssuerDown(f'issuer "{self._issuer}" cannot be reached', detail=f"{error}.") from error
        if found != self._issuer:
            raise IssuerDown(f'issuer "{self._issuer}" calls itself "{found}"')
        if urllib.parse.urlsplit(keys_url).scheme != urllib.parse.urlsplit(self._issuer).scheme:
            raise IssuerDown(f'issuer "{self._issuer}" has its keys at "{keys_url}"')
        return keys_url


def _read(url: str) -> Any:
    """Return the JSON document at a URL; an issuer that sends it slowly is given up."""
    until_s, parts, length = time.monotonic() + _READ_S, [], 0
    with urllib.request.urlopen(url, timeout=_READ_S) as answer:
        while part := answer.read1(65536):
            parts.append(part)
            length += len(part)
            if length > _MOST_BYTES or time.monotonic() > until_s:
                raise OSError("the answer is too long or comes too slowly")
    return json.loads(b"".join(parts))
