"""An authenticated client, and its permissions."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Literal, get_args

#: Parts of the API: reading (``read``), appending events (``ingest``), changing streams, queries and plans
#: (``write``), controlling the engine (``admin``).
Scope = Literal["read", "ingest", "write", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
#: A scope, perhaps limited to streams and queries with a name, or with the beginning of a name
#: (``read:orders_*``).
GRANT = re.compile(r"(read|ingest|write)(:(\*|[A-Za-z][A-Za-z0-9_]{0,62}\*?))?|admin")

#: Requests per second that a client may send, unless its key has a limit of its own.
DEFAULT_RATE_PER_S = 1000
#: Most characters of a name that another authority has given.
_SHOWN = 100
#: Author of a change if the client proved no name; no key may have this name.
NAMELESS = "anonymous"


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated client and its permissions.

    Attributes:
        name: The client's name in the history and the audit log, unique among keys, tokens (`foreign_name`)
            and certificates; None if the client proved no name.
        scopes: Parts of the API that the client may use (`GRANT`).
        rate_per_s: Requests per second that the client may send. None means no limit.
    """

    name: str | None
    scopes: frozenset[str]
    rate_per_s: int | None = DEFAULT_RATE_PER_S

    def may(self, scope: Scope, name: str | None = None) -> bool:
        """Return whether the client may use a scope for a stream or query; without a name, for any at all.

        >>> ann = Principal("ann", frozenset({"read:orders_*", "write:orders_1"}))
        >>> ann.may("read"), ann.may("read", "Orders_2"), ann.may("write", "orders_2"), ann.may("ingest")
        (True, True, False, False)
        """
        patterns = self._patterns(scope)
        if name is None:
            return bool(patterns)
        wanted = name.lower()
        return any(
            wanted.startswith(pattern[:-1]) if pattern.endswith("*") else wanted == pattern
            for pattern in patterns
        )

    def may_all(self, scope: Scope) -> bool:
        """Return whether the client may use a scope for all streams and queries."""
        return "*" in self._patterns(scope)

    def may_bind(self, stream: str) -> bool:
        """Return whether the client's queries may be about a stream."""
        return self.may("read", stream) or self.may("write", stream)

    def _patterns(self, scope: Scope) -> set[str]:
        granted = (grant.partition(":") for grant in self.scopes)
        return {pattern.lower() or "*" for of, _, pattern in granted if of == scope}


def foreign_name(kind: Literal["token", "certificate"], name: str) -> str:
    r"""Return the name of a client that another authority has named, for logs and histories.

    It differs from the name of every key, which has no colon, and is one printable word. A name that is long
    or not such a word is quoted; a long one ends in its hash instead of the rest.

    >>> foreign_name("token", "ops"), foreign_name("token", "a for b"), foreign_name("token", "a\0")
    ('token:ops', 'token:"a for b"', 'token:"a\\u0000"')
    """
    if name.isprintable() and not set(name) & set(' "') and 0 < len(name) <= _SHOWN:
        return f"{kind}:{name}"
    if len(name) > _SHOWN:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:15]
        name = f"{name[:_SHOWN]}…{digest}"
    return f"{kind}:{json.dumps(name, ensure_ascii=not name.isprintable())}"


#: The client of every request from this machine if the service requires no key.
ANONYMOUS = Principal(None, frozenset(SCOPES), None)
