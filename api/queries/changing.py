"""Handling of a request that changes queries: make the changes, store the answer, wait, and answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, TypeVar

import anyio
from fastapi import Depends, Request, Response
from pydantic import BaseModel

from api.access.rights import check_name
from api.dependencies import Actor, IfMatch, Wait, get_principal, get_workspace, wait_for_version
from api.routes import Once, OnceDep
from catalog.values.change import Change
from service.statistics.queries.query_status import Outcome

Answer = TypeVar("Answer", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class QueryChanges:
    """A request that changes queries, apart from its changes.

    Attributes:
        request: The request.
        response: Response whose status and headers are set.
        once: Store of the answer; None if the request has no idempotency key.
        if_match: Plan version that the changes are based on; None for any version.
        actor: Author of the changes.
        wait_s: Seconds to wait until the changes are in force.
    """

    request: Request
    response: Response
    once: Once | None
    if_match: int | None
    actor: str
    wait_s: float

    async def make(
        self, changes: Change | Sequence[Change], answer: Callable[[Outcome], Answer], *, done: int = 200
    ) -> Answer:
        """Make changes and answer the request; raise the errors of ``WorkspaceQueries.changing``.

        Args:
            changes: One change, or a list of changes.
            answer: Returns the answer's body.
            done: HTTP status if the changes come into force while the request waits.
        """
        queries, principal = get_workspace(self.request).queries, get_principal(self.request)
        for change in changes if isinstance(changes, Sequence) else (changes,):
            check_name(principal, "write", change.name)

        def make() -> tuple[Outcome, Answer]:
            with queries.changing(
                changes, actor=self.actor, if_match=self.if_match, readable=principal.may_bind
            ) as outcome:
                self.response.headers["ETag"] = f'"{outcome.version}"'
                # 202 means that a change takes effect later; a change without effect has nothing left to do.
                self.response.status_code = 202 if outcome.effective else 200
                body = answer(outcome)
                if self.once is not None:
                    headers = {**self.response.headers, "content-type": "application/json"}
                    self.once.keep(self.response.status_code, headers, body.model_dump_json())
            return outcome, body

        outcome, body = await anyio.to_thread.run_sync(make)
        if self.wait_s <= 0:
            return body
        if await wait_for_version(self.request, outcome.version, self.wait_s):
            self.response.status_code = done
        statuses = await anyio.to_thread.run_sync(queries.current, outcome.statuses)
        return answer(replace(outcome, statuses=statuses))


def _query_changes(
    request: Request, response: Response, once: OnceDep, if_match: IfMatch, actor: Actor, wait: Wait = 0
) -> QueryChanges:
    return QueryChanges(request, response, once, if_match, actor, wait)


QueryChangesDep = Annotated[QueryChanges, Depends(_query_changes)]
