"""Streams over HTTP."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import anyio
from fastapi import APIRouter, Request, Response

from api.access.rights import check_name
from api.dependencies import After, Limit, PrincipalDep, WorkspaceDep, get_workspace, page_of
from api.errors import (
    BodyTooLarge,
    InvalidRequest,
    MalformedBody,
    RequestUnderWay,
    UnsupportedMediaType,
)
from api.problems import problem_responses
from api.routes import OnceDep, SluiceRoute
from api.streams.event_body import parse_events
from api.streams.schemas import (
    AppendOut,
    ContractIn,
    FileOut,
    PunctuationsOut,
    QuarantineOut,
    RetryOut,
    StreamIn,
    StreamOut,
    StreamPage,
    StreamRegistered,
)
from api.timestamps import timestamp
from catalog.columns.arrow_types import PUNCTUATION_COLUMN
from catalog.errors import InvalidInput, NameTaken, StreamInUse, StreamNotFound
from catalog.values.stream import HttpSource
from service.errors import EventLogDown, EventRejected, IngestFull, NotAnHttpStream
from service.inputs.formats.conversion.values import exact_number, needs_digits
from service.inputs.sources.posted.http_log import Sending
from service.results.result_formats import rows_for_json

router = APIRouter(prefix="/streams", tags=["streams"], route_class=SluiceRoute)

_EVENT = {"type": "object", "additionalProperties": True}
_EVENTS_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "Values by column name; omitted columns are NULL. Timestamps are ISO 8601 strings "
        "with an offset or `Z`, or integer microseconds. Decimals should be strings, which keep all digits.",
        "content": {
            "application/json": {
                "schema": {"type": "array", "items": _EVENT},
                "example": [{"ts": "2026-01-01T00:00:00Z", "user": 1, "price": "9.99"}],
            },
            "application/x-ndjson": {
                "schema": {"type": "string"},
                "example": '{"ts": "2026-01-01T00:00:00Z", "user": 1, "price": "9.99"}\n',
            },
        },
    }
}

_PUNCTUATIONS_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "Patterns: objects that give each column a value or a list of values.",
        "content": {
            "application/json": {
                "schema": {"type": "array", "items": _EVENT},
                "example": [{"item_id": 180}, {"item_id": [181, 182]}],
            },
            "application/x-ndjson": {
                "schema": {"type": "string"},
                "example": '{"item_id": 180}\n',
            },
        },
    }
}


@router.post(
    "",
    status_code=201,
    summary="Register a stream",
    responses=problem_responses(
        MalformedBody, NameTaken, RequestUnderWay, UnsupportedMediaType, InvalidRequest
    ),
)
def register_stream(
    body: StreamIn,
    workspace: WorkspaceDep,
    principal: PrincipalDep,
    request: Request,
    response: Response,
    once: OnceDep,
) -> StreamRegistered:
    """Register a stream. Nothing is read from it until a query uses it.

    `warnings` states whether its directory or glob contains no files, and which entries of the directory are
    not read.
    """
    check_name(principal, "write", body.name)
    with workspace.streams.registering(body.to_stream()) as stream:
        location, answer = f"{request.url.path}/{stream.name}", StreamRegistered.of(stream)
        answer.warnings = list(workspace.streams.warnings(stream))
        if once is not None:
            kept = {"content-type": "application/json", "location": location}
            once.keep(201, kept, answer.model_dump_json())
    response.headers["Location"] = location
    return answer


@router.get("", summary="List streams", responses=problem_responses(InvalidRequest))
def list_streams(
    workspace: WorkspaceDep, principal: PrincipalDep, after: After = None, limit: Limit = 100
) -> StreamPage:
    """List the streams that the client may read by name, page by page."""
    streams = [stream for stream in workspace.streams.all() if principal.may("read", stream.name)]
    found, following = page_of(streams, lambda stream: stream.name, after, limit)
    items = [StreamOut.of(stream) for stream in found]
    return StreamPage(items=items, next_cursor=following, has_more=following is not None)


@router.get("/{name}", summary="Show a stream", responses=problem_responses(StreamNotFound, InvalidRequest))
def show_stream(name: str, workspace: WorkspaceDep) -> StreamOut:
    """Show one stream."""
    return StreamOut.of(workspace.streams.get(name))


@router.patch(
    "/{name}",
    summary="Change a stream's contract or limits",
    responses=problem_responses(
        MalformedBody,
        StreamNotFound,
        StreamInUse,
        RequestUnderWay,
        UnsupportedMediaType,
        InvalidRequest,
        InvalidInput,
    ),
)
def change_contract(name: str, body: ContractIn, workspace: WorkspaceDep) -> StreamOut:
    """Change a stream's promises about later rows, and the limits on its windows and state.

    The change creates a plan version and takes effect at one batch boundary. Earlier promises stay valid if
    their set of columns is also part of the new contract. A row that arrived out of order under the old
    scrambling factor stays out of order under a greater one: it is not read again.

    If `retain` changes, all queries whose windows change as a result are updated at the same batch boundary,
    as by a PATCH of each query. If a query cannot run under the new limits, the answer is 409 and nothing is
    changed.
    """
    return StreamOut.of(workspace.streams.change_contract(name, body.changed))


@router.delete(
    "/{name}",
    status_code=204,
    summary="Remove a stream",
    responses=problem_responses(StreamNotFound, StreamInUse, RequestUnderWay, InvalidRequest),
)
def remove_stream(name: str, workspace: WorkspaceDep, once: OnceDep) -> None:
    """Remove a stream that no query uses."""
    with workspace.transaction():
        workspace.streams.remove(name)
        if once is not None:
            once.keep(204, {}, "")


@router.get(
    "/{name}/quarantine",
    summary="Show events from the future",
    responses=problem_responses(StreamNotFound, NotAnHttpStream, InvalidRequest),
)
def show_quarantine(name: str, workspace: WorkspaceDep, limit: Limit = 100) -> QuarantineOut:
    """Show posted events quarantined because they are further ahead of the clock than `max_ahead`.

    They are in no result. If a quarantined event is correct, it can be posted again later, or to a stream
    with a greater `max_ahead`.
    """
    rows, newest, times_us = workspace.streams.quarantined(name, limit)
    kept_out_at = [timestamp(us) for us in times_us]
    return QuarantineOut(rows=rows, events=rows_for_json(newest), kept_out_at=kept_out_at)


@router.post(
    "/{name}:reset-watermark",
    status_code=202,
    summary="Reset the watermark",
    responses=problem_responses(StreamNotFound, RequestUnderWay, InvalidRequest),
)
def reset_watermark(name: str, workspace: WorkspaceDep) -> StreamOut:
    """Reset a stream's watermark after rows with future event times have made all other rows late.

    From the next batch on, only the rows of that batch and of later ones determine the watermark. Rows that
    were late remain late. Rows of the other stream that left the state because of the wrong watermark are not
    restored.
    """
    return StreamOut.of(workspace.streams.reset_watermark(name))


@router.post(
    "/{name}/files:retry",
    status_code=202,
    summary="Retry files that were set aside",
    responses=problem_responses(StreamNotFound, RequestUnderWay, InvalidRequest),
)
def retry_files(name: str, workspace: WorkspaceDep) -> RetryOut:
    """Retry all files of a stream that were set aside; their names must not have changed.

    A corrected file is read once. All files that were listed before are read first, so the corrected rows may
    be below the watermark. A file that is still bad is set aside again, and `GET /statistics` shows the
    reason. The service looks for a missing file until the file exists.
    """
    files = workspace.streams.retry_files(name)
    return RetryOut(files=[FileOut(path=file.path, reason=file.reason) for file in files])


@router.post(
    "/{name}/events",
    status_code=202,
    summary="Append events",
    openapi_extra=_EVENTS_BODY,
    responses=problem_responses(
        MalformedBody,
        StreamNotFound,
        RequestUnderWay,
        BodyTooLarge,
        UnsupportedMediaType,
        InvalidInput,
        IngestFull,
        EventLogDown,
    ),
)
async def append_events(name: str, request: Request, once: OnceDep) -> AppendOut:
    """Append events to a stream of source type `http`.

    The request is answered once the events are durable. All events are accepted or none: an error names the
    first event that does not fit. If a request with an `Idempotency-Key` is repeated within a day, its events
    are not appended again.

    If too many events of the stream are waiting to be read by a batch, or if the disk is nearly full, the
    answer is 429 (`ingest-full`) with `Retry-After`, and no event is stored. If the event log cannot be
    written, the answer is 503. In both cases the request can be sent again, preferably with the same
    `Idempotency-Key`.
    """
    workspace, traces = get_workspace(request), request.app.state.traces
    began_ns = time.time_ns()
    body = await request.body()

    def append() -> AppendOut:
        # The stream is checked before the body: if it does not exist, the answer is 404 whatever the body is.
        stream = workspace.streams.of_posts(name)
        sending = None if once is None else Sending(once.key, once.fingerprint)
        workspace.streams.check_room(stream, sending)
        events = parse_events(
            body,
            request.headers.get("content-type", ""),
            parse_float=exact_number if needs_digits(stream) else None,
        )
        try:
            taken = workspace.streams.append(stream, events, sending=sending)
        except EventRejected as error:
            # Paths in errors of the event log begin with "events", but here the body itself is the list of
            # events.
            error.path = error.path[1:]
            raise
        if traces is not None and taken.accepted:
            offsets = taken.first_offset, taken.last_offset
            traces.accepted(request.headers, (stream.id, stream.name), offsets, began_ns)
        return AppendOut(**dataclasses.asdict(taken))

    # All steps are in one thread, because each switch between threads waits for Python's global interpreter
    # lock.
    return await anyio.to_thread.run_sync(append)


@router.post(
    "/{name}/punctuations",
    status_code=202,
    summary="Append punctuations",
    openapi_extra=_PUNCTUATIONS_BODY,
    responses=problem_responses(
        MalformedBody,
        StreamNotFound,
        RequestUnderWay,
        BodyTooLarge,
        UnsupportedMediaType,
        InvalidInput,
        IngestFull,
        EventLogDown,
    ),
)
async def append_punctuations(name: str, request: Request, once: OnceDep) -> PunctuationsOut:
    """Promise that no later row has certain values.

    Each pattern fixes all columns of one column set in the stream's `punctuations.on`, each to one value or
    to a list of values. For a stream of source type `http`, the pattern is appended after the existing
    events, like an event `{"_punctuation": {...}}`. It takes one offset for each combination of values. For
    any other stream, the pattern takes effect after the rows of the next batch. The request is answered once
    the patterns are durable.
    """
    workspace = get_workspace(request)
    body = await request.body()

    def promise() -> PunctuationsOut:
        stream = workspace.streams.get(name)
        posted = isinstance(stream.source, HttpSource)
        sending = None if once is None else Sending(once.key, once.fingerprint)
        if posted:
            workspace.streams.check_room(stream, sending)
        patterns = parse_events(
            body,
            request.headers.get("content-type", ""),
            parse_float=exact_number if needs_digits(stream) else None,
        )
        try:
            if not posted:
                with workspace.transaction():
                    accepted = workspace.streams.promise(stream, patterns)
                    answer = PunctuationsOut(accepted=accepted, first_offset=None, last_offset=None)
                    if once is not None:
                        once.keep(202, {"content-type": "application/json"}, answer.model_dump_json())
                return answer
            events = [{PUNCTUATION_COLUMN: pattern} for pattern in patterns]
            taken = workspace.streams.append(stream, events, sending=sending)
        except EventRejected as error:
            error.path = error.path[1:]
            raise
        return PunctuationsOut(
            accepted=taken.accepted, first_offset=taken.first_offset, last_offset=taken.last_offset
        )

    return await anyio.to_thread.run_sync(promise)
