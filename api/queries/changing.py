"""A change of queries as a request makes it: applied, kept under its key, waited for, answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import anyio
from fastapi import Request, Response
from pydantic import BaseModel

from api.dependencies import get_workspace, wait_for_version
from api.queries.schemas import QueryOut
from api.routes import Once
from catalog.errors import NotFound
from catalog.values.change import Change
from service.statistics.query_status import QueryStatus
from service.workspace.workspace import Keep, Outcome, Workspace

#: Makes the body of an answer.
Answer = Callable[[Outcome], BaseModel]


@dataclass(frozen=True, slots=True)
class QueryChange:
    """One change of one query.

    Attributes:
        change: The change.
        actor: Who makes it.
        if_match: Plan version that it is made for; None for any.
        wait_s: How long to wait for it to be in force.
        done: Status of the answer when it is.
    """

    change: Change
    actor: str
    if_match: int | None
    wait_s: float
    done: int

    async def make(
        self, request: Request, response: Response, once: Once | None, *, location: str | None = None
    ) -> QueryOut:
        """Make the change and answer with the query; raises as ``Workspace.change_one``."""
        workspace = get_workspace(request)
        if location is not None:
            response.headers["Location"] = location
        keep = keeper(once, lambda outcome: QueryOut.of_status(outcome.statuses[0]), response.headers)
        change = partial(
            workspace.change_one, self.change, actor=self.actor, if_match=self.if_match, keep=keep
        )
        outcome = await anyio.to_thread.run_sync(change)
        (status,) = await settled(request, response, outcome, self.wait_s, done=self.done)
        return QueryOut.of_status(status)


def keeper(once: Once | None, answer: Answer, headers: Mapping[str, str]) -> Keep | None:
    """Return what keeps the answer of a change in the transaction of the change.

    Args:
        once: What keeps answers; None without an idempotency key.
        answer: Makes the body.
        headers: Headers of the answer, beside its ``ETag``.
    """
    if once is None:
        return None

    def keep(outcome: Outcome) -> None:
        kept = {"content-type": "application/json", "etag": etag(outcome.version)}
        if "location" in headers:
            kept["location"] = headers["location"]
        status = 202 if outcome.effective else 200
        once.keep(status, kept, answer(outcome).model_dump_json())

    return keep


async def settled(
    request: Request, response: Response, outcome: Outcome, wait_s: float, *, done: int
) -> tuple[QueryStatus, ...]:
    """Wait for a change as long as was asked for, and set status and version of the answer.

    Returns:
        The changed queries as they are then.
    """
    in_force = wait_s > 0 and await wait_for_version(request, outcome.version, wait_s)
    # What was in effect already is not done again, so there is nothing to accept.
    response.status_code = done if in_force else 202 if outcome.effective else 200
    response.headers["ETag"] = etag(outcome.version)
    if wait_s <= 0:
        return outcome.statuses
    workspace = get_workspace(request)
    return await anyio.to_thread.run_sync(
        lambda: tuple(_current(workspace, status) for status in outcome.statuses)
    )


def etag(version: int) -> str:
    """Return a plan version as an entity tag."""
    return f'"{version}"'


def _current(workspace: Workspace, status: QueryStatus) -> QueryStatus:
    """What has become of a query; as it was if its name no longer leads to it."""
    try:
        found = workspace.query_status(status.query.name)
    except NotFound:
        return status
    return found if found.query.id == status.query.id else status
