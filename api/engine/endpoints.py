"""The engine over HTTP: state of the Spark job, and control of it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.dependencies import Actor, WorkspaceDep
from api.engine.schemas import BatchList, BatchOut, EngineOut, SkipIn, SkipOut
from api.errors import InvalidRequest, MalformedBody, RequestUnderWay, UnsupportedMediaType
from api.problems import problem_responses
from api.routes import SluiceRoute
from catalog.errors import StreamNotFound, Unavailable
from service.errors import NothingToSkip
from service.workspace.workspace import Workspace

router = APIRouter(tags=["engine"], route_class=SluiceRoute)

_CONTROL = problem_responses(RequestUnderWay, InvalidRequest, Unavailable)


@router.get("/engine", summary="Show the engine", responses=problem_responses(InvalidRequest))
def show_engine(workspace: WorkspaceDep) -> EngineOut:
    """Show the state of the Spark job."""
    return _shown(workspace)


@router.get("/engine/batches", summary="Show the last batches", responses=problem_responses(InvalidRequest))
def show_batches(
    workspace: WorkspaceDep,
    limit: Annotated[
        int, Query(ge=1, le=200, description="Maximum number of batches; the newest are shown.")
    ] = 20,
) -> BatchList:
    """Show the last committed batches, oldest first: rows, time per phase, state size and skew."""
    last = workspace.batches.last_manifest()
    if last is None:
        return BatchList(items=[])
    manifests = workspace.batches.manifests(max(last.batch - limit + 1, 0), last.batch)
    return BatchList(items=[BatchOut.of(manifest) for manifest in manifests])


@router.post("/engine:pause", status_code=202, summary="Pause the engine", responses=_CONTROL)
def pause_engine(workspace: WorkspaceDep) -> EngineOut:
    """Stop processing batches; streams and queries can still be changed. Pausing twice succeeds.

    The engine stays paused until it is resumed or restarted, even if another process takes over the engine.
    """
    workspace.engine.want("paused")
    return _shown(workspace)


@router.post("/engine:resume", status_code=202, summary="Resume the engine", responses=_CONTROL)
def resume_engine(workspace: WorkspaceDep) -> EngineOut:
    """Resume after a pause, with the batch that follows the last committed one. Resuming twice succeeds."""
    workspace.engine.want("running")
    return _shown(workspace)


@router.post("/engine:restart", status_code=202, summary="Restart the engine", responses=_CONTROL)
def restart_engine(workspace: WorkspaceDep) -> EngineOut:
    """Stop the Spark query and start it again from its checkpoint; this also works after a failure."""
    workspace.engine.want("running", restart=True)
    return _shown(workspace)


@router.post(
    "/engine:skip",
    status_code=202,
    summary="Skip a batch that fails",
    responses=problem_responses(
        RequestUnderWay,
        InvalidRequest,
        MalformedBody,
        UnsupportedMediaType,
        StreamNotFound,
        NothingToSkip,
        Unavailable,
    ),
)
def skip_batch(workspace: WorkspaceDep, body: SkipIn, actor: Actor) -> SkipOut:
    """Void the batch that has failed last; restart the job without its rows.

    The decision is stored, and it also applies when the batch is repeated. Rows of the named stream, or of
    all streams, are left out of the batch. They are written to `dead_letters/` in the data directory,
    together with the reason, and never contribute to results. Queries that do not use the stream continue
    with all of their rows.
    """
    return SkipOut.of(workspace.skip_batch(body.stream, actor))


def _shown(workspace: Workspace) -> EngineOut:
    last = workspace.batches.last_manifest()
    return EngineOut.of(workspace.engine.status(), last, workspace.input_held())
