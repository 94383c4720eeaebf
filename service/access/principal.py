"""An authenticated client, and its permissions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

#: Parts of the API: reading (``read``), appending events (``ingest``), changing streams, queries and plans
#: (``write``), controlling the engine (``admin``).
Scope = Literal["read", "ingest", "write", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

#: Requests per second that a client may send, unless its key has a limit of its own.
DEFAULT_RATE_PER_S = 1000


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated client and its permissions.

    Attributes:
        name: The client's name in the history and the audit log, or None if the client proved no name.
        scopes: Parts of the API that the client may use.
        rate_per_s: Requests per second that the client may send. None means no limit.
    """

    name: str | None
    scopes: frozenset[str]
    rate_per_s: int | None = DEFAULT_RATE_PER_S


#: The client of every request from this machine if the service requires no key.
ANONYMOUS = Principal(None, frozenset(SCOPES), None)
