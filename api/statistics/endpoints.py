"""Counters of the job, for programs and for Prometheus."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from fastapi import APIRouter, Response

from api.dependencies import WorkspaceDep
from api.errors import InvalidRequest
from api.problems import problem_responses
from api.routes import SluiceRoute
from service.statistics.metrics import MEDIA_TYPE
from service.statistics.statistics import Statistics

router = APIRouter(tags=["statistics"], route_class=SluiceRoute)
metrics_router = APIRouter(tags=["statistics"], route_class=SluiceRoute)

_METRICS: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}


@router.get(
    "/statistics",
    summary="Show statistics",
    response_model=Statistics,
    responses=problem_responses(InvalidRequest),
)
def show_statistics(workspace: WorkspaceDep) -> Response:
    """Show watermarks, late rows, state per slice and results per query, as of the last batch.

    Rates, selectivities, row widths, keys and skew are smoothed over the last batches; `age_s` beside them is
    the wall-clock time since the newest batch that had a say in them. They are what plans are chosen by.
    """
    body = json.dumps(dataclasses.asdict(workspace.statistics()), allow_nan=False, ensure_ascii=False)
    return Response(body, media_type="application/json")


@metrics_router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses=problem_responses(InvalidRequest) | _METRICS,
)
def show_metrics(workspace: WorkspaceDep) -> Response:
    """Show counters and gauges in Prometheus' text format."""
    return Response(workspace.metrics(), media_type=MEDIA_TYPE)
