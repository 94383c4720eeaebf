"""Queries over HTTP: adding, changing, removing. Results and lists of changes are in other modules."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import quote

import anyio
from fastapi import APIRouter, Body, Query

from api.dependencies import After, Limit, PrincipalDep, WorkspaceDep, page_of, wait_for_version
from api.errors import InvalidRequest, MalformedBody, RequestUnderWay, UnsupportedMediaType
from api.problems import problem_responses
from api.queries.changing import QueryChangesDep
from api.queries.schemas import BoundQuery, QueryIn, QueryOut, QueryPage, QueryPatch, QueryPut, QueryText
from api.queries.sinks import present_sink, to_sink
from api.routes import OnceDep, SluiceRoute
from catalog.errors import InvalidInput, NameTaken, NotFound, QueryNotFound, StalePlanVersion, Unavailable
from catalog.values.change import AddQuery, PauseQuery, RemoveQuery, ResumeQuery
from catalog.values.query import Backfill
from service.errors import NoResultPunctuations, SinkInUse
from service.statistics.queries.query_status import Outcome, QueryStatus
from service.workspace.workspace import Workspace

router = APIRouter(prefix="/queries", tags=["queries"], route_class=SluiceRoute)
#: Operations on the whole collection, whose paths have a colon.
validate_router = APIRouter(tags=["queries"], route_class=SluiceRoute)

_BODY_ERRORS = (MalformedBody, UnsupportedMediaType, InvalidRequest, InvalidInput)
_CHANGE_ERRORS = (StalePlanVersion, RequestUnderWay, Unavailable)


@validate_router.post(
    "/queries:validate", summary="Check a query", responses=problem_responses(*_BODY_ERRORS)
)
def validate_query(body: QueryText, workspace: WorkspaceDep, principal: PrincipalDep) -> BoundQuery:
    """Parse and bind a query without adding it."""
    bound = workspace.queries.validate(body.cql, backfill=body.backfill, readable=principal.may_bind)
    return BoundQuery.of(bound)


@router.post(
    "",
    status_code=202,
    summary="Add a query",
    response_model=QueryOut,
    responses=problem_responses(*_BODY_ERRORS, NameTaken, SinkInUse, *_CHANGE_ERRORS)
    | {201: {"model": QueryOut, "description": "Running (with `wait`)."}},
)
async def add_query(
    body: QueryIn,
    changes: QueryChangesDep,
) -> QueryOut:
    """Add a query. The query starts with the first micro-batch under its `plan_version`.

    The answer is 202 as soon as the change is durable, or 201 if the change came into force within `wait`.
    """
    # Percent-encoded, because a header must be ASCII. The change itself refuses a name that is not ASCII.
    location = f"{changes.request.url.path}/{quote(body.name, safe='')}"
    changes.response.headers["Location"] = location
    return await changes.make(body.to_change(), _changed, done=201)


@router.get("", summary="List queries", responses=problem_responses(InvalidRequest))
def list_queries(
    workspace: WorkspaceDep, principal: PrincipalDep, after: After = None, limit: Limit = 100
) -> QueryPage:
    """List the running and paused queries that the client may read by name, page by page."""
    names = {i: name for i, name in workspace.queries.names().items() if principal.may("read", name)}
    found, following = page_of(list(names.items()), lambda item: item[1], after, limit)
    statuses = {status.query.id: status for status in workspace.queries.statuses([i for i, _ in found])}
    # A query that was removed between the two reads is omitted.
    items = [QueryOut.of_status(statuses[i]) for i, _ in found if i in statuses]
    return QueryPage(items=items, next_cursor=following, has_more=following is not None)


@router.get("/{name}", summary="Show a query", responses=problem_responses(QueryNotFound, InvalidRequest))
def show_query(name: str, workspace: WorkspaceDep) -> QueryOut:
    """Show one query."""
    return QueryOut.of_status(workspace.queries.status(name))


@router.put(
    "/{name}",
    status_code=202,
    summary="Add a query under a name, once",
    response_model=QueryOut,
    responses=problem_responses(*_BODY_ERRORS, NameTaken, SinkInUse, *_CHANGE_ERRORS)
    | {
        200: {"model": QueryOut, "description": "The query exists already, with the same text."},
        201: {"model": QueryOut, "description": "Running (with `wait`)."},
    },
)
async def put_query(
    name: str,
    body: Annotated[QueryPut, Body()],
    workspace: WorkspaceDep,
    changes: QueryChangesDep,
) -> QueryOut:
    """Make sure that a query of this name, text and sink runs; repeating the request succeeds.

    If a query with this name has another text or sink, it is not changed and the answer is 409: `PATCH`
    changes it.
    """
    existing = await anyio.to_thread.run_sync(_running, workspace, name)
    if existing is not None and _same(existing, body):
        wait_s = changes.wait_s
        if wait_s > 0 and await wait_for_version(changes.request, existing.plan_version, wait_s):
            existing = await anyio.to_thread.run_sync(workspace.queries.status, name)
        changes.response.status_code = 200
        changes.response.headers["ETag"] = f'"{existing.plan_version}"'
        return QueryOut.of_status(existing)
    # With another text or sink this raises NameTaken.
    added = AddQuery(name, body.cql, body.backfill, to_sink(body.sink))
    return await changes.make(added, _changed, done=201)


@router.patch(
    "/{name}",
    status_code=202,
    summary="Update a query",
    response_model=QueryOut,
    responses=problem_responses(*_BODY_ERRORS, QueryNotFound, SinkInUse, *_CHANGE_ERRORS)
    | {
        200: {
            "model": QueryOut,
            "description": "The change is in force (only with `wait`), or nothing had to change.",
        }
    },
)
async def update_query(
    name: str,
    body: Annotated[QueryPatch, Body()],
    changes: QueryChangesDep,
) -> QueryOut:
    """Give a query a new text or new parts of it (windows, filters, select list), or another sink.

    The old version of the query leaves and the new version enters at the same micro-batch boundary, so no
    result is lost or duplicated. With `backfill: state` (the default), rows that are in the state at this
    boundary also take part under the new text. Results continue under the same query name. A paused query
    stays paused.

    A new sink without a new text is set immediately and creates no plan version: `sink_observed.from_batch`
    is the first batch that the new sink receives. If the text is new as well, the sink starts with the first
    batch under the new text.
    """
    return await changes.make(body.to_change(name), _changed)


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
    changes: QueryChangesDep,
) -> QueryOut:
    """Remove a query. Its results and its sink are complete up to the last batch before the removal.

    The results remain readable for as long as the service keeps results.
    """
    return await changes.make(RemoveQuery(name), _changed)


@router.post(
    "/{name}:pause",
    status_code=202,
    summary="Pause a query",
    response_model=QueryOut,
    responses=problem_responses(QueryNotFound, InvalidRequest, *_CHANGE_ERRORS)
    | {200: {"model": QueryOut, "description": "Paused (with `wait`), or paused already."}},
)
async def pause_query(
    name: str,
    changes: QueryChangesDep,
) -> QueryOut:
    """Take a query out of the plan. It keeps its name and text, and costs nothing until it is resumed."""
    return await changes.make(PauseQuery(name), _changed)


@router.post(
    "/{name}:resume",
    status_code=202,
    summary="Resume a query",
    response_model=QueryOut,
    responses=problem_responses(QueryNotFound, InvalidRequest, *_CHANGE_ERRORS)
    | {200: {"model": QueryOut, "description": "Running (with `wait`), or running already."}},
)
async def resume_query(
    name: str,
    changes: QueryChangesDep,
    backfill: Annotated[
        Literal["none", "state"],
        Query(description="Whether rows that are in the state when the query resumes take part."),
    ] = "state",
) -> QueryOut:
    """Resume a paused query with its former text. Its new results are appended to the earlier ones.

    Pairs that were missed during the pause are not added later.
    """
    return await changes.make(ResumeQuery(name, backfill), _changed)


@router.post(
    "/{name}:propagate",
    status_code=202,
    summary="Ask for result punctuations",
    response_model=QueryOut,
    responses=problem_responses(
        QueryNotFound, InvalidRequest, NoResultPunctuations, RequestUnderWay, Unavailable
    ),
)
async def propagate_punctuations(name: str, workspace: WorkspaceDep, once: OnceDep) -> QueryOut:
    """Propagate the pending result punctuations now, regardless of the policy of the query's family.

    The punctuations are among the results of the next batch, for all queries of the family. The policy is
    set with `POST /migrations` (`family_punctuations`).
    """

    def ask() -> QueryOut:
        with workspace.transaction():
            answer = QueryOut.of_status(workspace.queries.propagate(name))
            if once is not None:
                once.keep(202, {"content-type": "application/json"}, answer.model_dump_json())
        return answer

    return await anyio.to_thread.run_sync(ask)


def _changed(outcome: Outcome) -> QueryOut:
    return QueryOut.of_status(outcome.statuses[0])


def _running(workspace: Workspace, name: str) -> QueryStatus | None:
    try:
        status = workspace.queries.status(name)
    except NotFound:
        return None
    return status if status.desired == "running" else None


def _same(status: QueryStatus, body: QueryPut) -> bool:
    backfill: Backfill = status.query.backfill
    sink = present_sink(status.sinks)
    wanted = (body.cql.strip(), body.backfill, to_sink(body.sink))
    return (status.query.cql.strip(), backfill, None if sink is None else sink.sink) == wanted
