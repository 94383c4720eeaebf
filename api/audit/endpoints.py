"""The audit log over HTTP: who requested which change."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.audit.schemas import AuditEntryOut, AuditPage
from api.dependencies import Limit, WorkspaceDep
from api.errors import InvalidRequest
from api.problems import problem_responses
from api.routes import SluiceRoute

router = APIRouter(tags=["audit"], route_class=SluiceRoute)


@router.get("/audit", summary="Show who requested which change", responses=problem_responses(InvalidRequest))
def show_audit_log(
    workspace: WorkspaceDep,
    after: Annotated[
        int, Query(ge=0, le=2**62, description="Number after which the page starts.", examples=[7])
    ] = 0,
    limit: Limit = 100,
) -> AuditPage:
    """List requests that change streams, queries, plans or the engine, oldest first.

    Refused requests are listed, too; requests that post events are not. The last 100,000 entries are kept.
    """
    found = workspace.audit.page(after, limit + 1)
    items = [AuditEntryOut.of(entry) for entry in found[:limit]]
    more = len(found) > limit
    return AuditPage(items=items, next_cursor=str(items[-1].id) if more else None, has_more=more)
