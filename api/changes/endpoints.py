"""Lists of changes over HTTP: all changes of a list enter one plan version, or none is made."""

from __future__ import annotations

from fastapi import APIRouter

from api.changes.schemas import ChangesIn, ChangesOut
from api.errors import InvalidRequest, MalformedBody, RequestUnderWay, UnsupportedMediaType
from api.problems import problem_responses
from api.queries.changing import QueryChangesDep
from api.queries.schemas import QueryOut
from api.routes import SluiceRoute
from catalog.errors import InvalidInput, NameTaken, StalePlanVersion, Unavailable
from service.errors import SinkInUse
from service.statistics.queries.query_status import Outcome

router = APIRouter(tags=["queries"], route_class=SluiceRoute)


@router.post(
    "/changes",
    status_code=202,
    summary="Change several queries at once",
    response_model=ChangesOut,
    responses=problem_responses(
        MalformedBody,
        UnsupportedMediaType,
        InvalidRequest,
        InvalidInput,
        NameTaken,
        SinkInUse,
        StalePlanVersion,
        RequestUnderWay,
        Unavailable,
    )
    | {200: {"model": ChangesOut, "description": "In force (with `wait`), or nothing had to change."}},
)
async def change_queries(body: ChangesIn, changes: QueryChangesDep) -> ChangesOut:
    """Add, update, remove, pause and resume queries in one plan version: either all changes or none.

    If any change is invalid, nothing is changed, and `errors` has all faults.
    """
    return await changes.make([change.to_change() for change in body.changes], _answer)


def _answer(outcome: Outcome) -> ChangesOut:
    return ChangesOut(
        plan_version=outcome.version, queries=[QueryOut.of_status(status) for status in outcome.statuses]
    )
