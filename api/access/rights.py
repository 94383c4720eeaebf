"""Rights for some streams and queries only: what a client with a scope such as ``read:orders_*`` may do.

A route with the name of a stream or query in its path is checked here. A route without one is refused to such
a client, unless it checks names itself: it lists only what the client may read, or checks names in its body.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.access.scopes import PREFIX
from api.errors import Forbidden
from service.access.principal import Principal, Scope

_NAMED = ("/streams/{name}", "/queries/{name}")
#: Routes that check names themselves.
CHECKED_INSIDE = frozenset(
    {
        ("GET", "/streams"),
        ("POST", "/streams"),
        ("GET", "/queries"),
        ("POST", "/queries"),
        ("POST", "/queries:validate"),
        ("POST", "/changes"),
        ("GET", "/statistics"),
        ("GET", "/plan"),
    }
)


def check_route(
    principal: Principal, scope: Scope | None, method: str, path: str, parameters: Mapping[str, Any]
) -> None:
    """Refuse a request about streams or queries for which its client has no right.

    Args:
        principal: The client, which has the scope for some names.
        scope: Scope that the route needs; None if every client may use it.
        method: HTTP method, upper case.
        path: Path template of the route.
        parameters: Values of its parameters.

    Raises:
        Forbidden: The client lacks the right.
    """
    if scope is None or principal.may_all(scope):
        return
    path = path.removeprefix(PREFIX)
    if path.startswith(_NAMED):
        check_name(principal, scope, str(parameters["name"]))
    elif (method, path) not in CHECKED_INSIDE:
        raise Forbidden(
            "the request is about all streams and queries",
            detail=f'The key of "{principal.name}" has scope {scope} only for some of them.',
            hint=f"Use a key with scope {scope} for all names.",
        )


def check_name(principal: Principal, scope: Scope, name: str) -> None:
    """Refuse a stream or query for which a client has no right, whether it exists or not.

    Raises:
        Forbidden: The client lacks the right.
    """
    if not principal.may(scope, name):
        granted = sorted(grant for grant in principal.scopes if grant.partition(":")[0] == scope)
        raise Forbidden(
            f'the key of "{principal.name}" does not allow this for "{name[:100]}"',
            detail=f"The key has {', '.join(granted)}.",
            hint=f"Use a name that the key allows, or a key with scope {scope}:{name[:63]}.",
        )
