"""Dependencies of routes: the workspace, paging, waiting and preconditions."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

import anyio
from anyio import CapacityLimiter
from fastapi import Depends, Header, Query, Request

from api.errors import InvalidRequest, RequestFault
from service.access.principal import NAMELESS, Principal
from service.workspace.engine_part import EnginePart
from service.workspace.workspace import Workspace

T = TypeVar("T")

#: Maximum number of requests that wait for a plan version at the same time; each occupies a thread.
MAX_WAITING_REQUESTS = 200

#: Maximum seconds that a request may wait; the limit is below the common proxy timeout of five minutes.
MAX_WAIT_S = 240

_VERSION = re.compile(r'"(\d{1,9})"|(\d{1,9})')


def get_workspace(request: Request) -> Workspace:
    """Return the app's workspace."""
    workspace: Workspace = request.app.state.workspace
    return workspace


WorkspaceDep = Annotated[Workspace, Depends(get_workspace)]


def get_engine(request: Request) -> EnginePart | None:
    """Return the engine of this process, None if it has none."""
    engine: EnginePart | None = request.app.state.engine
    return engine


EngineDep = Annotated[EnginePart | None, Depends(get_engine)]

After = Annotated[
    str | None,
    Query(
        description="Name after which the page starts: `next_cursor` of the page before.",
        examples=["flights"],
    ),
]
Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of items on the page.")]
Wait = Annotated[
    float,
    Query(ge=0, le=MAX_WAIT_S, description="Seconds to wait for the new plan version to be in force."),
]


def get_if_match(
    if_match: Annotated[
        str | None,
        Header(
            description="Plan version that the change is based on, as in the `ETag` of `GET /plan`.",
            examples=['"7"'],
        ),
    ] = None,
) -> int | None:
    """Return the plan version in ``If-Match``; None if the header is missing or ``*``."""
    if if_match is None or if_match.strip() == "*":
        return None
    match = _VERSION.fullmatch(if_match.strip())
    if match is None:
        raise InvalidRequest(
            RequestFault(
                "header",
                ("If-Match",),
                f"header \"If-Match\": '{if_match}' is not a plan version",
                'Send the ETag of GET /api/v1/plan, such as "7" in double quotes.',
            )
        )
    return int(match[1] or match[2])


IfMatch = Annotated[int | None, Depends(get_if_match)]


def get_actor(
    request: Request,
    x_actor: Annotated[
        str,
        Header(
            alias="X-Actor",
            max_length=100,
            min_length=1,
            description="Who changes the plan, for the history. If the client is authenticated, its name "
            "precedes this value.",
            examples=["ops@example.org"],
        ),
    ] = NAMELESS,
) -> str:
    """Return the author of a change, from the name of the authenticated client and ``X-Actor``."""
    principal: Principal = request.state.principal
    if not x_actor.isprintable():
        hint = "Send a name of printable characters."
        raise InvalidRequest(RequestFault("header", ("X-Actor",), 'header "X-Actor" cannot be printed', hint))
    if principal.name is None:
        return x_actor
    return principal.name if x_actor == NAMELESS else f"{principal.name} for {x_actor}"


Actor = Annotated[str, Depends(get_actor)]


def get_principal(request: Request) -> Principal:
    """Return the authenticated client, or `ANONYMOUS`."""
    principal: Principal = request.state.principal
    return principal


PrincipalDep = Annotated[Principal, Depends(get_principal)]


async def wait_for_version(request: Request, version: int, wait_s: float) -> bool:
    """Wait until a plan version is in force, without delaying other requests.

    Returns:
        Whether the version is in force.
    """
    workspace, limiter = get_workspace(request), request.app.state.wait_limiter
    assert isinstance(limiter, CapacityLimiter)  # Set by the app's lifespan.
    return await anyio.to_thread.run_sync(
        workspace.wait_for_version, version, wait_s, limiter=limiter, abandon_on_cancel=True
    )


def page_of(
    items: Sequence[T], name: Callable[[T], str], after: str | None, limit: int
) -> tuple[list[T], str | None]:
    """Return one page of a collection, ordered by name.

    Args:
        items: The whole collection, in any order.
        name: Returns the name of an item.
        after: Name after which the page starts; an item of that name need not exist.
        limit: Maximum number of items on the page.

    Returns:
        The items, and the name of the last item, after which the next page starts; None on the last page.
    """
    ordered = sorted((item for item in items if after is None or name(item) > after), key=name)
    return ordered[:limit], name(ordered[limit - 1]) if len(ordered) > limit else None
