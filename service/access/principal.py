"""An authenticated client, and its permissions."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Literal, get_args

#: Parts of the API: reading (``read``), appending events (``ingest``), changing streams, queries and plans
#: (``write``), controlling the engine (``admin``).
Scope = Literal["read", "ingest", "write", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

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
        scopes: Parts of the API that the client may use.
        rate_per_s: Requests per second that the client may send. None means no limit.
    """

    name: str | None
    scopes: frozenset[str]
    rate_per_s: int | None = DEFAULT_RATE_PER_S


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
