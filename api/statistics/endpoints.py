"""Statistics of the job, as JSON for programs and as metrics for Prometheus."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from fastapi import APIRouter, Request, Response

from api.dependencies import EngineDep, PrincipalDep, WorkspaceDep
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
def show_statistics(workspace: WorkspaceDep, principal: PrincipalDep) -> Response:
    """Show watermarks, late rows, state per slice and results per query, as of the last batch.

    Rates, selectivities, row widths, keys and skew are smoothed over the last batches, and plans are chosen
    by them. Their `age_s` is the wall-clock time since the newest batch that contributed to them.

    A client that may read only some names gets its streams and queries, the totals, and no families.

    Values that only some families have. Results, matches, removals and pairs are counted over the last
    batches:

    * Outer, semi and anti joins: `undecided_a` counts rows of the first stream that may still find a match.
      `absent_a` counts results that are rows of this stream without a partner, over all queries. `matched_a`
      counts rows that got their first match. `left_a` counts rows that were removed from the state before the
      end of their windows, because no query needed them any more. `marks_a` counts stored marks; a mark is
      the distance of a row to its nearest matches. All are null if no query decides for rows of this stream
      whether they have a match.
    * Windows of rows: `undecided_a` counts rows of the first stream that wait until their ranks are final.
    * GROUP BY: `open_groups` counts groups that may still get pairs, `closed_groups` groups that became
      results.
    * A join step whose key differs from the key of the previous step: `exchange_rows` counts pairs of the
      previous step that were sent to other buckets. `exchange_seconds` is the mean time from the commit of
      the batch that made the pairs to the commit of the batch that joined them.
    * A join step that does not store the pairs of the previous step: `again_rows` counts pairs that were made
      again, `again_partials` the pairs of equal key that were examined for this.
    * Families searched by `hash(N)` or `loops`: `rings` has, for each side, the rows scanned, the heads of
      rings examined, and the live and expired rows held.
    * Families without windows: `ordered` has, for each side, the scrambling factor of its stream, the number
      of rows by which it leads the other side (`lag`), the rows held, the number of held rows that the lag
      predicts, the strategy by which rows wait (`memory`), the mean seconds that joined rows have waited
      (`latency_s`), and the expected value of this time (`predicted_latency_s`).
    """
    found = workspace.statistics()
    if not principal.may_all("read"):
        found = found.about(lambda name: principal.may("read", name))
    body = json.dumps(dataclasses.asdict(found), allow_nan=False, ensure_ascii=False)
    return Response(body, media_type="application/json")


@metrics_router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses=problem_responses(InvalidRequest) | _METRICS,
)
def show_metrics(workspace: WorkspaceDep, engine: EngineDep, request: Request) -> Response:
    """Show counters and gauges in Prometheus' text format.

    If API and engine are separate processes, each metric is reported by only one of them. The API reports
    metrics of posted events and of the disk; the active engine reports all others.
    """
    state = None if engine is None else engine.status().state
    text = workspace.metrics(state, ingest=request.app.state.takes_events)
    return Response(text, media_type=MEDIA_TYPE)
