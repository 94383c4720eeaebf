"""The scope that an operation requires, by method and path."""

from __future__ import annotations

from service.access.principal import Scope

PREFIX = "/api/v1"

#: Probes, which need no key.
_PUBLIC = frozenset({"/health/live", "/health/ready"})
#: Posts that change nothing.
_QUESTIONS = frozenset({"/queries:validate", "/plan:preview"})
_INGEST = frozenset({"/streams/{name}/events", "/streams/{name}/punctuations"})
_ADMIN = ("/engine:", "/audit")


def scope_of(method: str, path: str) -> Scope | None:
    """Return the scope that an operation requires, None if anybody may use it.

    Args:
        method: HTTP method, upper case.
        path: Path template of the route, with parameter names in braces.

    >>> scope_of("GET", "/api/v1/streams"), scope_of("POST", "/api/v1/streams/{name}/events")
    ('read', 'ingest')
    >>> scope_of("DELETE", "/api/v1/streams/{name}"), scope_of("POST", "/api/v1/engine:pause")
    ('write', 'admin')
    """
    path = path.removeprefix(PREFIX)
    if path in _PUBLIC:
        return None
    if path.startswith(_ADMIN):
        return "admin"
    if method == "GET" or path in _QUESTIONS:
        return "read"
    return "ingest" if path in _INGEST else "write"
