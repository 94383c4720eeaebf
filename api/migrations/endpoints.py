"""Migrations over HTTP: requests, progress and measured cost."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import anyio
from fastapi import APIRouter, Path, Query, Request, Response

from api.dependencies import Actor, IfMatch, Limit, Wait, WorkspaceDep, wait_for_version
from api.errors import InvalidRequest, MalformedBody, RequestUnderWay, UnsupportedMediaType
from api.migrations.schemas import DryRunOut, MigrationIn, MigrationOut, MigrationPage, PolicyOut
from api.problems import problem_responses
from api.routes import OnceDep, SluiceRoute
from catalog.errors import InternalError, InvalidInput, MigrationNotFound, StalePlanVersion, Unavailable
from service.errors import PlanRefused, UnknownPlanVersion
from service.planning.migrating.migrations import MigrationStatus

router = APIRouter(prefix="/migrations", tags=["migrations"], route_class=SluiceRoute)

_ERRORS = (
    MalformedBody,
    UnsupportedMediaType,
    InvalidRequest,
    InvalidInput,
    UnknownPlanVersion,
    PlanRefused,
    StalePlanVersion,
    RequestUnderWay,
    InternalError,
    Unavailable,
)


@router.post(
    "",
    status_code=202,
    summary="Migrate the plan",
    response_model=MigrationOut | DryRunOut,
    responses=problem_responses(*_ERRORS)
    | {
        200: {
            "model": MigrationOut | DryRunOut,
            "description": "Active (only with `wait`), or the expected effect (with `dry_run`).",
        },
        202: {"model": MigrationOut, "description": "Logged; it becomes active with a later batch."},
    },
)
async def migrate(
    body: MigrationIn,
    workspace: WorkspaceDep,
    request: Request,
    response: Response,
    once: OnceDep,
    if_match: IfMatch,
    actor: Actor,
    wait: Wait = 0,
) -> MigrationOut | DryRunOut:
    """Migrate the running plan in place between two batches, without restart, replay or lost results.

    One request does one of the following: it changes strategies; it splits or merges slices at given
    boundaries; it removes slices that only removed queries needed; or it restores the strategies and chains
    of an earlier plan version. A split or merge pins the chain of its family, until a strategy is set for the
    family again or until a clean-up.

    A plan version that cannot run is detected before it is logged: the answer is a problem, the migration is
    recorded as failed, and the previous version stays in force.
    """
    asked, migrations = body.to_request(), workspace.migrations
    if body.dry_run:
        found = await anyio.to_thread.run_sync(partial(migrations.dry_run, asked, if_match=if_match))
        response.status_code = 200
        return DryRunOut.of(found)
    path = request.url.path

    def make() -> MigrationStatus:
        with migrations.migrating(asked, actor=actor, if_match=if_match) as status:
            if once is not None:
                text = MigrationOut.of(status).model_dump_json()
                once.keep(202, {"content-type": "application/json"} | _headers(path, status), text)
        return status

    status = await anyio.to_thread.run_sync(make)
    response.headers.update(_headers(path, status))
    version = status.record.plan_version
    if wait > 0 and version is not None and await wait_for_version(request, version, wait):
        response.status_code = 200
        status = await anyio.to_thread.run_sync(migrations.status, status.record.id)
    return MigrationOut.of(status)


def _headers(path: str, status: MigrationStatus) -> dict[str, str]:
    version = status.record.plan_version
    return {"location": f"{path}/{status.record.id}", "etag": f'"{version}"'}


@router.get("", summary="List migrations", responses=problem_responses(InvalidRequest))
def list_migrations(
    workspace: WorkspaceDep,
    after: Annotated[
        int, Query(ge=0, le=2**63 - 1, description="Id after which the page starts.", examples=[7])
    ] = 0,
    limit: Limit = 100,
) -> MigrationPage:
    """List the requested migrations, oldest first, failed ones included."""
    found = workspace.migrations.statuses(after, limit + 1)
    items = [MigrationOut.of(status) for status in found[:limit]]
    more = len(found) > limit
    return MigrationPage(items=items, next_cursor=str(items[-1].id) if more else None, has_more=more)


@router.get("/policy", summary="Show the policy of planning", responses=problem_responses(InvalidRequest))
def show_policy(workspace: WorkspaceDep) -> PolicyOut:
    """Show strategies, pinned chains and rules for shrinking chains; `POST /migrations` sets them."""
    return PolicyOut.of(workspace.migrations.policy())


@router.get(
    "/{id}",
    summary="Show a migration",
    responses=problem_responses(MigrationNotFound, InvalidRequest),
)
def show_migration(
    migration_id: Annotated[int, Path(alias="id", ge=1, le=2**31 - 1, description="Id of the migration.")],
    workspace: WorkspaceDep,
) -> MigrationOut:
    """Show progress and measured cost of a migration: first batch, earlier batches, rows per slice."""
    return MigrationOut.of(workspace.migrations.status(migration_id))
