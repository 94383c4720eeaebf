"""API keys ``sluice_<id>_<secret>``; the catalog stores the id and a hash of the secret.

The hash is made with Argon2id (RFC 9106). It is slow on purpose, about 50 ms, so that a stolen catalog does
not reveal the keys. After its first verification, a key is recognized by its SHA-256, which is kept in memory
only. While a key is used, the catalog is asked at most once a second whether the key was revoked.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import VerifyMismatchError

from catalog.store.clients.api_keys import ApiKey, ApiKeyRepository
from catalog.wording.outside import printable
from service.access.principal import DEFAULT_RATE_PER_S, GRANT, NAMELESS, SCOPES, Principal
from service.errors import InvalidKey

#: Prefix of every key; it makes a leaked key recognizable, for example in a repository.
PREFIX = "sluice_"
_HASHER = PasswordHasher()
#: Seconds for which a key counts as valid after the catalog confirmed it.
FRESH_S = 1.0
#: Maximum number of verified keys that are cached.
_REMEMBERED = 1000
_TEXT = re.compile(r"sluice_([a-z0-9]{12})_([A-Za-z0-9_-]{43})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")


def create_key(
    keys: ApiKeyRepository, name: str, scopes: Iterable[str], rate_per_s: int = DEFAULT_RATE_PER_S
) -> str:
    """Make a key and return it; it cannot be shown again.

    Args:
        keys: Repository that stores the key.
        name: Name of the key's holder.
        scopes: Scopes that the key grants, at least one, each perhaps limited to names (``GRANT``).
        rate_per_s: Requests per second that clients may send with the key.

    Raises:
        InvalidKey: Name, scopes or limit are invalid.
        KeyExists: A valid key with this name already exists.
    """
    if not _NAME.fullmatch(name) or name == NAMELESS:
        raise InvalidKey(
            f'a key cannot be named "{printable(name)}"',
            hint=f"Write 1 to 64 letters, digits, _ . @ and -, first a letter or digit; not {NAMELESS}.",
        )
    wanted = in_order(scopes)
    unknown = [grant for grant in wanted if GRANT.fullmatch(grant) is None]
    if unknown or not wanted:
        said = f'scope "{printable(unknown[0])}" is not known' if unknown else "the key has no scope"
        raise InvalidKey(
            said,
            hint=f"Scopes are {', '.join(SCOPES)}. All but admin may be limited to streams and queries of a "
            "name (read:orders), or of all names with a beginning (read:orders_*).",
        )
    if rate_per_s < 1:
        raise InvalidKey(
            f"a limit of {rate_per_s} requests per second is not allowed", hint="Give 1 or more."
        )
    key_id = secrets.token_hex(6)
    secret = secrets.token_urlsafe(32)
    keys.add(key_id, name, wanted, _HASHER.hash(secret), rate_per_s)
    return f"{PREFIX}{key_id}_{secret}"


def in_order(scopes: Iterable[str]) -> tuple[str, ...]:
    """Return scopes once each, in the order of ``SCOPES``, unknown ones first."""

    def rank(grant: str) -> tuple[int, str]:
        scope = grant.partition(":")[0]
        return (list(SCOPES).index(scope) if scope in SCOPES else -1), grant

    return tuple(sorted(set(scopes), key=rank))


@cache
def _nobodys() -> str:
    """Return the hash of a secret that nobody knows."""
    return _HASHER.hash(secrets.token_urlsafe(32))


def _is_of(secret: str, stored: str) -> bool:
    """Return whether a secret matches a stored hash; the comparison takes constant time."""
    if stored.startswith("scrypt$"):
        return _is_of_scrypt(secret, stored)
    try:
        return _HASHER.verify(stored, secret)
    except VerifyMismatchError:
        return False


def _is_of_scrypt(secret: str, stored: str) -> bool:
    """Return whether a secret matches a scrypt hash, which earlier versions of Sluice stored."""
    _, n, r, p, salt, digest = stored.split("$")
    found = hashlib.scrypt(
        secret.encode(), salt=base64.b64decode(salt), n=int(n), r=int(r), p=int(p), dklen=64
    )
    return hmac.compare_digest(found, base64.b64decode(digest))


@dataclass(frozen=True, slots=True)
class _Verified:
    """An API key that was verified, in the cache of a `KeyVerifier`.

    Attributes:
        key: The catalog's record of the key.
        until_s: Time from which the catalog must be asked for the key again, monotonic clock, seconds.
    """

    key: ApiKey
    until_s: float


class KeyVerifier:
    """Verifier of API keys; thread-safe.

    Args:
        keys: The catalog's keys.
        clock_s: Monotonic clock.
    """

    def __init__(self, keys: ApiKeyRepository, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._keys = keys
        self._clock_s = clock_s
        self._verified: OrderedDict[bytes, _Verified] = OrderedDict()
        self._lock = threading.Lock()

    def known(self, text: str) -> Principal | None:
        """Return the holder of a key from the cache, or None if the key must be verified."""
        with self._lock:
            found = self._verified.get(_digest(text))
        return _holder(found.key) if found is not None and self._clock_s() < found.until_s else None

    def remembers(self, text: str) -> bool:
        """Return whether a key was valid when it was last verified."""
        with self._lock:
            return _digest(text) in self._verified

    def still_valid(self, texts: Collection[str]) -> set[str]:
        """Return those of some keys, all verified before, that were not revoked since; asks the catalog."""
        ids = {text: match[1] for text in texts if (match := _TEXT.fullmatch(text)) is not None}
        valid = self._keys.valid_among(ids.values()) if ids else frozenset()
        for text in texts:
            if ids.get(text) not in valid:
                with self._lock:
                    self._verified.pop(_digest(text), None)
        return {text for text, key_id in ids.items() if key_id in valid}

    def verify(self, text: str) -> Principal | None:
        """Return the holder of a key, or None if the key is not valid. A new key takes about 50 ms.

        An unknown id takes as long as a wrong secret, so that clients cannot find out which ids exist.
        """
        match, digest = _TEXT.fullmatch(text), _digest(text)
        if match is None:
            return None
        key = self._keys.find(match[1])
        with self._lock:
            known = self._verified.get(digest)
        if known is None and not _is_of(match[2], _nobodys() if key is None else key.secret_hash):
            return None
        if key is None or key.revoked_at_us is not None:
            with self._lock:
                self._verified.pop(digest, None)
            return None
        with self._lock:
            self._verified[digest] = _Verified(key, self._clock_s() + FRESH_S)
            self._verified.move_to_end(digest)
            while len(self._verified) > _REMEMBERED:
                self._verified.popitem(last=False)
        return _holder(key)


def _holder(key: ApiKey) -> Principal:
    return Principal(key.name, frozenset(key.scopes), key.rate_per_s)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
