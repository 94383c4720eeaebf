"""The engine over HTTP: how the Spark job is, and control of it."""

from __future__ import annotations

from fastapi import APIRouter

from api.dependencies import WorkspaceDep
from api.engine.schemas import EngineOut
from api.errors import InvalidRequest, RequestUnderWay
from api.problems import problem_responses
from api.routes import SluiceRoute
from catalog.errors import Unavailable

router = APIRouter(tags=["engine"], route_class=SluiceRoute)

_CONTROL = problem_responses(RequestUnderWay, InvalidRequest, Unavailable)


@router.get("/engine", summary="Show the engine", responses=problem_responses(InvalidRequest))
def show_engine(workspace: WorkspaceDep) -> EngineOut:
    """Show the state of the Spark job."""
    return EngineOut.of(workspace.engine_status())


@router.post("/engine:pause", status_code=202, summary="Pause the engine", responses=_CONTROL)
def pause_engine(workspace: WorkspaceDep) -> EngineOut:
    """Stop processing batches; streams and queries can still be changed. Pausing twice is success."""
    workspace.pause_engine()
    return EngineOut.of(workspace.engine_status())


@router.post("/engine:resume", status_code=202, summary="Resume the engine", responses=_CONTROL)
def resume_engine(workspace: WorkspaceDep) -> EngineOut:
    """Go on after a pause, with the batch after the last one. Resuming twice is success."""
    workspace.resume_engine()
    return EngineOut.of(workspace.engine_status())


@router.post("/engine:restart", status_code=202, summary="Restart the engine", responses=_CONTROL)
def restart_engine(workspace: WorkspaceDep) -> EngineOut:
    """Stop the Spark query and start it again from its checkpoint, also after a failure."""
    workspace.restart_engine()
    return EngineOut.of(workspace.engine_status())
