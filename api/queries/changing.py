"""Handling of a request that changes queries: apply it, store its answer, wait, and answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import anyio
from fastapi import Request, Response
from pydantic import BaseModel

from api.dependencies import get_workspace, wait_for_version
from api.queries.schemas import QueryOut
from api.routes import Once
from catalog.values.change import Change
from service.planning.changes import one
from service.statistics.queries.query_status import Outcome, QueryStatus


@dataclass(frozen=True, slots=True)
class QueryChange:
    """One change of one query.

    Attributes:
        change: The change.
        actor: Author of the change.
        if_match: Plan version that the change is based on; None for any version.
        wait_s: Seconds to wait until the change is in force.
        done: HTTP status of the answer if the change is in force.
    """

    change: Change
    actor: str
    if_match: int | None
    wait_s: float
    done: int

    async def make(
        self, request: Request, response: Response, once: Once | None, *, location: str | None = None
    ) -> QueryOut:
        """Make the change and return the query; raise the errors of ``WorkspaceQueries.changing``."""
        workspace = get_workspace(request)
        if location is not None:
            response.headers["Location"] = location

        def make() -> Outcome:
            with workspace.queries.changing(
                one(self.change), actor=self.actor, if_match=self.if_match
            ) as outcome:
                keep_answer(once, outcome, QueryOut.of_status(outcome.statuses[0]), response.headers)
            return outcome

        outcome = await anyio.to_thread.run_sync(make)
        (status,) = await settled(request, response, outcome, self.wait_s, done=self.done)
        return QueryOut.of_status(status)


def keep_answer(once: Once | None, outcome: Outcome, answer: BaseModel, headers: Mapping[str, str]) -> None:
    """Store the answer to a change; call it in the transaction of the change.

    Args:
        once: Store of the answer; None if the request has no idempotency key.
        outcome: Result of the change.
        answer: Body of the answer.
        headers: Headers of the answer in addition to its ``ETag``.
    """
    if once is None:
        return
    kept = {"content-type": "application/json", "etag": etag(outcome.version)}
    if "location" in headers:
        kept["location"] = headers["location"]
    once.keep(202 if outcome.effective else 200, kept, answer.model_dump_json())


async def settled(
    request: Request, response: Response, outcome: Outcome, wait_s: float, *, done: int
) -> tuple[QueryStatus, ...]:
    """Wait for a change as long as requested, and set status and plan version of the answer.

    Returns:
        The changed queries after the wait.
    """
    in_force = wait_s > 0 and await wait_for_version(request, outcome.version, wait_s)
    # 202 means that a change takes effect later. A change without effect has nothing left to do, so its
    # status is 200.
    response.status_code = done if in_force else 202 if outcome.effective else 200
    response.headers["ETag"] = etag(outcome.version)
    if wait_s <= 0:
        return outcome.statuses
    workspace = get_workspace(request)
    return await anyio.to_thread.run_sync(workspace.queries.current, outcome.statuses)


def etag(version: int) -> str:
    """Return a plan version as an entity tag."""
    return f'"{version}"'
