"""Probes: whether the process is alive, and whether its parts, API and engine, work."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from api.dependencies import EngineDep, WorkspaceDep
from api.errors import EngineNotReady, InvalidRequest
from api.problems import problem_responses
from api.routes import SluiceRoute
from api.timestamps import timestamp

router = APIRouter(prefix="/health", tags=["health"], route_class=SluiceRoute)


class HealthOut(BaseModel):
    """The answer of a probe that succeeds."""

    status: Literal["ok", "standby"] = Field(
        default="ok",
        description="`standby`: everything is ready, but the engine of another process is the active one.",
    )


@router.get("/live", summary="Is the process alive?", responses=problem_responses(InvalidRequest))
async def live() -> HealthOut:
    """Answer 200 as long as the process can serve requests."""
    return HealthOut()


@router.get(
    "/ready", summary="Do its parts work?", responses=problem_responses(EngineNotReady, InvalidRequest)
)
def ready(workspace: WorkspaceDep, engine: EngineDep) -> HealthOut:
    """Answer 200 if every part of this process is ready, otherwise 503.

    The API is ready as long as the catalog answers. An engine is ready if it processes batches, is paused on
    request, or is on standby. It is not ready if it reads no input because the disk is nearly full. A process
    whose background work failed with an unexpected error is not ready until that work succeeds again.
    """
    workspace.batches.last()
    failing = workspace.faults.failing()
    if failing:
        raise EngineNotReady(
            f"background work fails: {', '.join(sorted({fault.part for fault in failing}))}",
            detail="; ".join(map(str, failing)),
            hint="The work is retried automatically within 60 s; the log has the complete error.",
        )
    if engine is None:
        return HealthOut()
    status = engine.status()
    if status.state == "standby":
        return HealthOut(status="standby")
    if status.state not in ("running", "paused"):
        detail = f"{status.error.splitlines()[0].rstrip('.')}." if status.error else None
        hint = None
        if status.retry_at_us is not None:
            hint = (
                f"The engine is restarted at {timestamp(status.retry_at_us)}; this is repeated until the "
                "cause is removed."
            )
        elif status.state == "failed":
            hint = "When the cause is removed, send POST /api/v1/engine:restart."
        raise EngineNotReady(f"the engine is {status.state}", detail=detail, hint=hint)
    input_held = workspace.input_held()
    if input_held is not None:
        raise EngineNotReady(
            "batches take no input, since the disk is nearly full",
            detail=input_held,
            hint="Free some space: reading then resumes automatically. Results can be read and queries "
            "changed meanwhile.",
        )
    return HealthOut()
