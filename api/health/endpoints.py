"""Probes: is the process alive, and does it do its work."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from api.dependencies import WorkspaceDep
from api.errors import EngineNotReady, InvalidRequest
from api.problems import problem_responses
from api.routes import SluiceRoute
from api.timestamps import timestamp

router = APIRouter(prefix="/health", tags=["health"], route_class=SluiceRoute)


class HealthOut(BaseModel):
    """The answer of a probe that succeeds."""

    status: Literal["ok"] = Field(default="ok")


@router.get("/live", summary="Is the process alive?", responses=problem_responses(InvalidRequest))
async def live() -> HealthOut:
    """Answer as long as the process serves requests at all."""
    return HealthOut()


@router.get(
    "/ready", summary="Is the engine working?", responses=problem_responses(EngineNotReady, InvalidRequest)
)
def ready(workspace: WorkspaceDep) -> HealthOut:
    """Answer 200 when the engine processes batches, or is paused on request; else 503."""
    status = workspace.engine_status()
    if status.state not in ("running", "paused"):
        detail = f"{status.error.splitlines()[0].rstrip('.')}." if status.error else None
        hint = None
        if status.retry_at_us is not None:
            hint = (
                f"It is started again at {timestamp(status.retry_at_us)}, and so on until the cause is gone."
            )
        elif status.state == "failed":
            hint = "POST /api/v1/engine:restart once the cause is gone."
        raise EngineNotReady(f"the engine is {status.state}", detail=detail, hint=hint)
    return HealthOut()
