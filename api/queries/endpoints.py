"""Queries over HTTP: their life. Their results are in ``api.queries.results``."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import anyio
from fastapi import APIRouter, Body, Request, Response

from api.dependencies import After, IfMatch, Limit, Wait, WorkspaceDep, page_of, wait_for_version
from api.errors import InvalidRequest, MalformedBody, RequestUnderWay, UnsupportedMediaType
from api.problems import problem_responses
from api.queries.schemas import BoundQuery, QueryIn, QueryOut, QueryPage, QueryText
from api.routes import SluiceRoute
from catalog.errors import InvalidInput, NameTaken, NotFound, QueryNotFound, StalePlanVersion, Unavailable
from catalog.values.query import Backfill
from service.stream_document import check_name
from service.workspace import QueryStatus, Workspace

router = APIRouter(prefix="/queries", tags=["queries"], route_class=SluiceRoute)
#: Calls on the collection as a whole, which are written with a colon.
validate_router = APIRouter(tags=["queries"], route_class=SluiceRoute)

_BODY_ERRORS = (MalformedBody, UnsupportedMediaType, InvalidRequest, InvalidInput)
_CHANGE_ERRORS = (StalePlanVersion, RequestUnderWay, Unavailable)


@validate_router.post(
    "/queries:validate", summary="Check a query", responses=problem_responses(*_BODY_ERRORS)
)
def validate_query(body: QueryText, workspace: WorkspaceDep) -> BoundQuery:
    """Parse and bind a query without adding it."""
    return BoundQuery.of(workspace.validate(body.cql, backfill=body.backfill))


@router.post(
    "",
    status_code=202,
    summary="Add a query",
    response_model=QueryOut,
    responses=problem_responses(*_BODY_ERRORS, NameTaken, *_CHANGE_ERRORS)
    | {201: {"model": QueryOut, "description": "Running (with `wait`)."}},
)
async def add_query(
    body: QueryIn,
    workspace: WorkspaceDep,
    request: Request,
    response: Response,
    if_match: IfMatch,
    wait: Wait = 0,
) -> QueryOut:
    """Add a query. It takes part from the micro-batch on that first has its `plan_version`.

    The answer is 202 as soon as the change is durable, or 201 if `wait` was long enough to see it in force.
    """
    status = await _add(workspace, body.name, body.cql, body.backfill, if_match)
    response.headers["Location"] = f"{request.url.path}/{status.query.name}"
    return await _changed(request, response, status, wait, done=201)


@router.get("", summary="List queries", responses=problem_responses(InvalidRequest))
def list_queries(workspace: WorkspaceDep, after: After = None, limit: Limit = 100) -> QueryPage:
    """List queries by name, page by page."""
    found, following = page_of(workspace.query_statuses(), lambda status: status.query.name, after, limit)
    items = [QueryOut.of_status(status) for status in found]
    return QueryPage(items=items, next_cursor=following, has_more=following is not None)


@router.get("/{name}", summary="Show a query", responses=problem_responses(QueryNotFound, InvalidRequest))
def show_query(name: str, workspace: WorkspaceDep) -> QueryOut:
    """Show one query."""
    return QueryOut.of_status(workspace.query_status(name))


@router.put(
    "/{name}",
    status_code=202,
    summary="Add a query under a name, once",
    response_model=QueryOut,
    responses=problem_responses(*_BODY_ERRORS, NameTaken, *_CHANGE_ERRORS)
    | {
        200: {"model": QueryOut, "description": "It exists already, with the same text."},
        201: {"model": QueryOut, "description": "Running (with `wait`)."},
    },
)
async def put_query(
    name: str,
    body: Annotated[QueryText, Body()],
    workspace: WorkspaceDep,
    request: Request,
    response: Response,
    if_match: IfMatch,
    wait: Wait = 0,
) -> QueryOut:
    """Make sure that a query of this name and text runs; saying so again is success.

    A query of the name with another text is left as it is, and the answer is 409.
    """
    existing = await anyio.to_thread.run_sync(_running, workspace, name)
    if existing is not None and _same(existing, body):
        return await _changed(request, response, existing, wait, done=200, pending=200)
    # With another text this ends in NameTaken.
    status = await _add(workspace, name, body.cql, body.backfill, if_match)
    return await _changed(request, response, status, wait, done=201)


@router.delete(
    "/{name}",
    status_code=202,
    summary="Remove a query",
    response_model=QueryOut,
    responses=problem_responses(QueryNotFound, InvalidRequest, *_CHANGE_ERRORS)
    | {200: {"model": QueryOut, "description": "Removed (with `wait`)."}},
)
async def remove_query(
    name: str,
    workspace: WorkspaceDep,
    request: Request,
    response: Response,
    if_match: IfMatch,
    wait: Wait = 0,
) -> QueryOut:
    """Remove a query. It gets everything up to the batch before its removal; its results stay readable."""
    change = partial(workspace.remove_query, name, if_match=if_match)
    status = await anyio.to_thread.run_sync(change)
    return await _changed(request, response, status, wait, done=200)


async def _add(
    workspace: Workspace, name: str, cql: str, backfill: Backfill, if_match: int | None
) -> QueryStatus:
    check_name("query", name, ("name",))
    change = partial(workspace.add_query, name, cql, backfill=backfill, if_match=if_match)
    return await anyio.to_thread.run_sync(change)


async def _changed(
    request: Request, response: Response, status: QueryStatus, wait_s: float, *, done: int, pending: int = 202
) -> QueryOut:
    """Answer a change of plan, after waiting for it as long as was asked for."""
    in_force = wait_s > 0 and await wait_for_version(request, status.plan_version, wait_s)
    response.status_code = done if in_force else pending
    response.headers["ETag"] = f'"{status.plan_version}"'
    if wait_s > 0:
        status = await anyio.to_thread.run_sync(_current, request.app.state.workspace, status)
    return QueryOut.of_status(status)


def _current(workspace: Workspace, status: QueryStatus) -> QueryStatus:
    """What has become of a query; as it was if its name no longer leads to it."""
    try:
        found = workspace.query_status(status.query.name)
    except NotFound:
        return status
    return found if found.query.id == status.query.id else status


def _running(workspace: Workspace, name: str) -> QueryStatus | None:
    try:
        status = workspace.query_status(name)
    except NotFound:
        return None
    return status if status.desired == "running" else None


def _same(status: QueryStatus, body: QueryText) -> bool:
    return status.query.cql.strip() == body.cql.strip() and status.query.backfill == body.backfill
