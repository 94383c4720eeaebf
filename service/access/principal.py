"""An authenticated client, and its permissions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

#: Parts of the API: reading, appending events, changing streams, queries and plans, controlling the engine.
Scope = Literal["read", "ingest", "write", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

#: Requests per second, unless a key has a limit of its own.
DEFAULT_RATE_PER_S = 1000


@dataclass(frozen=True, slots=True)
class Principal:
    """A client.

    Attributes:
        name: Its name in history and audit log; None if nothing proved one.
        scopes: Parts of the API that it may use.
        rate_per_s: Requests that it may send per second; None without limit.
    """

    name: str | None
    scopes: frozenset[str]
    rate_per_s: int | None = DEFAULT_RATE_PER_S


#: Any client on this machine, if the service asks for no key.
ANONYMOUS = Principal(None, frozenset(SCOPES), None)
