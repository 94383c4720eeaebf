"""Counters of the job, for programs and for Prometheus."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from fastapi import APIRouter, Request, Response

from api.dependencies import EngineDep, WorkspaceDep
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
    the wall-clock time since the newest batch that contributed to them. Plans are chosen by them.

    Of a family of outer, semi and anti joins, `undecided_a` is how many rows of its first stream wait
    for the verdict, `absent_a` how many results of the last batches are such rows without a partner,
    all queries together; `matched_a` is how many rows got their first match in the last batches, and
    `left_a` how many left although windows still reached them, because no query needed them any more.
    `marks_a` is how many marks are held, each the distance of a row to its nearest matches. All are
    null where no query judges rows of that stream. In a family with windows of rows `undecided_a` is
    how many rows of its first stream wait until their ranks are final. In a family of queries with
    GROUP BY `open_groups` is how many groups may still get pairs, and `closed_groups` how many groups
    came out in the last batches. In a step whose key differs from that of the step before,
    `exchange_rows` is how many pairs of the step before went to other buckets in the last batches, and
    `exchange_seconds` is the mean time from the commit of their batch to that of the batch that joined
    them. In a step where the pairs of the step before do not rest, `again_rows` is how many of them were
    made again in the last batches, and `again_partials` how many pairs of equal key were looked at for it.
    `rings` has, for each side of a family that is searched by
    `hash(N)` or `loops`, the rows scanned, the heads of rings looked at, and the live and expired rows held.
    `ordered` has, for each side of a family without windows, the scrambling factor of its stream, the rows by
    which it leads the other one (`lag`), the rows that this predicts and those that are held, where its rows
    wait (`memory`), and how many seconds the rows joined in the last batches have waited on average
    (`latency_s`), beside the expectation (`predicted_latency_s`).
    """
    body = json.dumps(dataclasses.asdict(workspace.statistics()), allow_nan=False, ensure_ascii=False)
    return Response(body, media_type="application/json")


@metrics_router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses=problem_responses(InvalidRequest) | _METRICS,
)
def show_metrics(workspace: WorkspaceDep, engine: EngineDep, request: Request) -> Response:
    """Show counters and gauges in Prometheus' text format.

    Where API and engine are separate processes, each metric comes from one of them: those of posted events
    and the disk from the API, all others from the engine at work.
    """
    state = None if engine is None else engine.status().state
    text = workspace.metrics(state, ingest=request.app.state.takes_events)
    return Response(text, media_type=MEDIA_TYPE)
