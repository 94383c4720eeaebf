"""The shared plan over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Response
from pydantic import BaseModel

from api.dependencies import Limit, PrincipalDep, WorkspaceDep
from api.errors import InvalidRequest, MalformedBody, UnsupportedMediaType
from api.plan.plan_structure import plan_structure
from api.plan.schemas import (
    PlanFormat,
    PlanOut,
    PlanVersionDetail,
    PlanVersionOut,
    PlanVersionPage,
    PreviewIn,
    PreviewOut,
    history_of,
)
from api.problems import problem_responses
from api.routes import SluiceRoute
from catalog.errors import InvalidInput, NameTaken, PlanVersionNotFound
from catalog.store.repositories.plan_history import HistoryEntry
from catalog.times.clock import wall_clock_us
from catalog.values.plan import Plan
from planner.drawing.svg import render_svg
from planner.explain.documents.preview_document import preview_document
from planner.explain.rendering.plan_report import plan_report
from planner.explain.rendering.render import plan_document, render_dot, render_mermaid
from service.planning.records.plan_record import record_in
from service.workspace.workspace import Workspace

router = APIRouter(prefix="/plan", tags=["plan"], route_class=SluiceRoute)
#: Routes of the whole plan whose paths contain a colon, such as ``/plan:preview``.
preview_router = APIRouter(tags=["plan"], route_class=SluiceRoute)

MERMAID = "text/vnd.mermaid"
DOT = "text/vnd.graphviz"
TEXT = "text/plain"
SVG = "image/svg+xml"

_EXAMPLE_TEXT = """\
family A.k = B.k
  slice 1 [0s, 10s)   queries q1 q2
  slice 2 [10s, 30s)  queries q2  keep A.v < 0.2
"""

#: Costs change while the ETag stays the same. A browser that cached the answer would get 304 and show old
#: costs.
_NOT_KEPT = "no-store"
#: Plan before the first query.
_NO_PLAN = Plan(version=0, strategy="mem-opt", streams=(), families=())

_FORMATS: dict[int | str, dict[str, Any]] = {
    200: {
        "model": PlanOut,
        "content": {
            TEXT: {"schema": {"type": "string"}, "example": _EXAMPLE_TEXT},
            MERMAID: {"schema": {"type": "string"}, "example": "flowchart LR"},
            DOT: {"schema": {"type": "string"}, "example": "digraph plan {}"},
            SVG: {"schema": {"type": "string"}, "example": "<svg></svg>"},
        },
        "headers": {"ETag": {"schema": {"type": "string"}, "description": "Plan version, for `If-Match`."}},
    }
}

_VERSION_FORMATS = _FORMATS | {200: _FORMATS[200] | {"model": PlanVersionDetail}}

Format = Annotated[
    PlanFormat,
    Query(
        alias="format",
        description="`json`, `text` as `sluice plan` prints it, or a drawing: `mermaid`, `dot` "
        "(Graphviz), or `svg`, in which the chains are to scale.",
    ),
]
Detail = Annotated[
    Literal["full", "structure"],
    Query(
        description="`structure` omits facts that can be derived (the queries of each slice, unions) and "
        "facts that change with the streams (costs). This keeps even a plan of a thousand queries small."
    ),
]


@router.get(
    "",
    summary="Show the plan",
    response_model=PlanOut,
    responses=problem_responses(InvalidRequest)
    | _FORMATS
    | {304: {"description": "The plan version in `If-None-Match` is still the newest."}},
)
def show_plan(
    workspace: WorkspaceDep,
    principal: PrincipalDep,
    form: Format = "json",
    detail: Detail = "full",
    if_none_match: Annotated[
        str | None, Header(description="`ETag` of the plan that the client has.")
    ] = None,
) -> Response:
    """Show the newest plan version: families, joins, slices, queries and unions, with their costs.

    Costs are estimates from the present statistics, under the paper's model (comparisons per second) and the
    calibrated one (CPU seconds per second). `GET /engine` shows which version is in force. If `If-None-Match`
    contains the `ETag`, the answer is 304 as long as the plan version is unchanged. Omit the header to see
    changed statistics and costs. A client that may read only some names gets the families that have only
    queries and streams of these names.
    """
    plan = workspace.plans.latest() or _NO_PLAN
    if not principal.may_all("read"):
        plan = _plan_about(plan, lambda name: principal.may("read", name))
    structure = detail == "structure" and form == "json"
    tag = f'"structure-{plan.version}"' if structure else f'"{plan.version}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if if_none_match is not None and _names(if_none_match, tag):
        return Response(status_code=304, headers=headers)
    if not structure:
        return _rendered(workspace, plan, form)
    text = json.dumps(plan_structure(plan), ensure_ascii=False)
    return Response(text, media_type="application/json", headers=headers)


def _plan_about(plan: Plan, readable: Callable[[str], bool]) -> Plan:
    """Return a plan with the families over two streams whose queries are all readable, and their streams."""
    ids = {stream.id for stream in plan.streams}
    kept = tuple(
        family
        for family in plan.families
        if {family.stream_a, family.stream_b} <= ids and all(readable(query.name) for query in family.queries)
    )
    shown = {stream_id for family in kept for stream_id in (family.stream_a, family.stream_b)}
    streams = tuple(s for s in plan.streams if s.id in shown or readable(s.name))
    return replace(plan, streams=streams, families=kept)


def _names(header: str, tag: str) -> bool:
    """Return whether ``If-None-Match`` contains the tag, by weak comparison (RFC 9110)."""
    given = [part.strip().removeprefix("W/") for part in header.split(",")]
    return "*" in given or tag in given


@preview_router.post(
    "/plan:preview",
    summary="Preview a change",
    response_model=PreviewOut,
    responses=problem_responses(MalformedBody, UnsupportedMediaType, InvalidRequest, InvalidInput, NameTaken),
)
def preview_plan(body: PreviewIn, workspace: WorkspaceDep) -> Response:
    """Show the effect of a change without making it.

    The answer contains the resulting plan, the primitives (steps) that lead from the running plan to it, and
    the memory and CPU cost under every strategy for comparison. Statistics in the body have precedence over
    statistics that the job has measured. Statistics that are neither in the body nor measured are sampled
    from the inputs.
    """
    document = preview_document(workspace.plans.preview(body.to_request()), now_us=wall_clock_us())
    answer = PreviewOut.model_validate(document).model_dump(mode="json")
    return Response(json.dumps(answer, ensure_ascii=False), media_type="application/json")


@router.get("/versions", summary="List plan versions", responses=problem_responses(InvalidRequest))
def list_versions(
    workspace: WorkspaceDep,
    after: Annotated[
        int, Query(ge=0, le=2**63 - 1, description="Version after which the page starts.", examples=[7])
    ] = 0,
    limit: Limit = 100,
) -> PlanVersionPage:
    """List plan versions, oldest first, with author, cause, and the steps from the previous version."""
    following = workspace.plans.history(after, limit + 1)
    items = [PlanVersionOut.of(entry) for entry in following[:limit]]
    more = len(following) > limit
    return PlanVersionPage(items=items, next_cursor=str(items[-1].version) if more else None, has_more=more)


@router.get(
    "/versions/{version}",
    summary="Show a plan version",
    response_model=PlanVersionDetail,
    responses=problem_responses(PlanVersionNotFound, InvalidRequest) | _VERSION_FORMATS,
)
def show_version(
    version: Annotated[int, Path(ge=1, le=2**31 - 1, description="Plan version.")],
    workspace: WorkspaceDep,
    form: Format = "json",
) -> Response:
    """Show one version of the plan, and its entry in the history.

    Some time after a newer version has replaced it, the plan itself is deleted; its author, cause and steps
    are kept.
    """
    entry = workspace.plans.history_entry(version)
    try:
        plan = workspace.plans.version(version)
    except PlanVersionNotFound:
        if entry is None or form != "json":
            raise
        plan = None
    if form != "json" and plan is not None:
        return _rendered(workspace, plan, form)
    return _json(_detail(workspace, version, plan, entry), version)


def _rendered(workspace: Workspace, plan: Plan, form: PlanFormat) -> Response:
    headers = {"ETag": f'"{plan.version}"', "Cache-Control": _NOT_KEPT}
    reports = workspace.plans.explain(plan)
    if form == "mermaid":
        return Response(render_mermaid(plan, reports) + "\n", media_type=MERMAID, headers=headers)
    if form == "dot":
        return Response(render_dot(plan, reports) + "\n", media_type=DOT, headers=headers)
    if form == "svg":
        return Response(render_svg(plan) + "\n", media_type=SVG, headers=headers)
    if form == "text":
        text = plan_report(plan, list(reports.values()))
        return Response(f"{text}\n", media_type=TEXT, headers=headers)
    return _json(PlanOut.model_validate(plan_document(plan, reports)), plan.version)


def _detail(
    workspace: Workspace, version: int, plan: Plan | None, entry: HistoryEntry | None
) -> PlanVersionDetail:
    if plan is not None:
        document = plan_document(plan, workspace.plans.explain(plan))
    else:
        strategy = None if entry is None else record_in(entry).strategy
        document = {"version": version, "strategy": strategy or "mem-opt", "streams": [], "families": []}
    return PlanVersionDetail.model_validate(document | {"dropped": plan is None} | history_of(entry))


def _json(document: BaseModel, version: int) -> Response:
    headers = {"ETag": f'"{version}"', "Cache-Control": _NOT_KEPT}
    text = json.dumps(document.model_dump(mode="json"), ensure_ascii=False)
    return Response(text, media_type="application/json", headers=headers)
