"""Results of a query over HTTP: in pages, as a stream of events, or as one file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, TypeVar

import anyio
import pyarrow as pa
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event

from api.dependencies import MAX_WAIT_S, WorkspaceDep
from api.errors import Forbidden, InvalidRequest, NotAcceptable, Unauthenticated
from api.problems import problem, problem_responses
from api.queries.schemas import ResultsOut, result_columns
from api.results import negotiation
from api.results.readers import Reader, Readers
from api.results.result_streams import StreamFormat, streamed
from api.routes import SluiceRoute
from api.timestamps import timestamp, timestamp_or_none
from catalog.errors import QueryNotFound
from service.errors import InvalidCursor, ResultsExpired
from service.results.pages.page import ResultPage
from service.results.result_formats import (
    arrow_stream,
    csv_text,
    events,
    json_array,
    json_line,
    ndjson,
    parquet,
)
from service.results.results import MAX_PAGE_ROWS
from service.workspace.workspace import Workspace

Answer = TypeVar("Answer")

router = APIRouter(prefix="/queries/{name}/results", tags=["results"], route_class=SluiceRoute)
export_router = APIRouter(prefix="/queries", tags=["results"], route_class=SluiceRoute)

#: Results read at a time for a stream of events.
_EVENTS_PER_PAGE = 1_000

#: Seconds without events after which a stream sends a keep-alive comment, so that proxies do not close the
#: connection.
_PING_S = 15.0

_CURSOR = "Cursor after which results start: `next_cursor` of the page before."
AfterCursor = Annotated[str | None, Query(description=_CURSOR, examples=["7.250"])]

_PAGES: dict[int | str, dict[str, Any]] = {
    200: {
        "model": ResultsOut,
        "description": "Results in order. For all formats except JSON, the cursor is in the header "
        "`Sluice-Next-Cursor`.",
        "content": {
            negotiation.NDJSON: {"schema": {"type": "string"}, "example": '{"k":1,"_event_time":"..."}\n'},
            negotiation.CSV: {"schema": {"type": "string"}, "example": '"k","_event_time"\n1,"..."\n'},
            negotiation.ARROW: {"schema": {"type": "string", "format": "binary"}},
            negotiation.PARQUET: {"schema": {"type": "string", "format": "binary"}},
        },
        "headers": {
            "Sluice-Next-Cursor": {"schema": {"type": "string"}, "description": _CURSOR},
            "Sluice-Has-More": {
                "schema": {"type": "boolean"},
                "description": "Whether there are further results already.",
            },
            "Sluice-Dropped": {
                "schema": {"type": "integer"},
                "description": "Number of results that are no longer kept; only present if there are any and "
                "reading starts without `after`.",
            },
            "Sluice-Kept-Since": {
                "schema": {"type": "string", "format": "date-time"},
                "description": "Wall-clock time since which results are kept; only present with "
                "`Sluice-Dropped`.",
            },
        },
    }
}


#: FastAPI's description of an answer of server-sent events.
_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Results, an event each.",
        "content": {
            "text/event-stream": {
                "itemSchema": {
                    "type": "object",
                    "properties": {
                        "data": {"type": "string"},
                        "event": {"type": "string"},
                        "id": {"type": "string"},
                        "retry": {"type": "integer", "minimum": 0},
                    },
                }
            }
        },
    }
}

#: Media type of each format of an export.
_STREAMS = {
    StreamFormat.PARQUET: negotiation.PARQUET,
    StreamFormat.ARROW: negotiation.ARROW,
    StreamFormat.CSV: negotiation.CSV,
    StreamFormat.NDJSON: negotiation.NDJSON,
}

_EXPORT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "All results between the cursors, in order.",
        "content": {kind: {"schema": {"type": "string", "format": "binary"}} for kind in _STREAMS.values()},
        "headers": {
            "Sluice-Rows": {"schema": {"type": "integer"}, "description": "Number of results in the file."},
            "Sluice-Next-Cursor": {
                "schema": {"type": "string"},
                "description": "Cursor after the last result of the file.",
            },
            "Sluice-Dropped": {
                "schema": {"type": "integer"},
                "description": "Number of results that are no longer kept; only present if there are any and "
                "`after` is missing.",
            },
        },
    }
}

#: Writers of all formats except JSON, whose document also contains the cursor.
_WRITERS: dict[str, Callable[[pa.Table], bytes]] = {
    negotiation.NDJSON: ndjson,
    negotiation.CSV: csv_text,
    negotiation.ARROW: arrow_stream,
    negotiation.PARQUET: parquet,
}


@router.get(
    "",
    summary="Read results",
    response_model=ResultsOut,
    responses=problem_responses(QueryNotFound, NotAcceptable, ResultsExpired, InvalidCursor, InvalidRequest)
    | _PAGES,
)
async def read_results(
    name: str,
    workspace: WorkspaceDep,
    request: Request,
    after: AfterCursor = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE_ROWS, description="Maximum number of rows.")] = 100,
    wait: Annotated[
        float,
        Query(ge=0, le=MAX_WAIT_S, description="Maximum seconds to wait for a result if there is none yet."),
    ] = 0,
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> Response:
    """Read the results so far, page by page; results of a removed query can be read, too.

    With `wait`, the request is answered as soon as there is a result after the cursor. If there is none
    within `wait` seconds, the answer is an empty page.

    Results are ordered by micro-batch, then event time. `Accept` chooses JSON, NDJSON, CSV, Arrow or Parquet.
    An update of the query does not interrupt the results; a page ends where the columns change.

    The settings of the service say how long results are kept. Without `after`, reading starts at the first
    kept result, and `dropped` is the number of results that are no longer kept. If results that follow
    `after` are no longer kept, the answer is 410.
    """
    kind = negotiation.negotiate(accept)
    series = await anyio.to_thread.run_sync(workspace.queries.series, name)

    def answer(page: ResultPage) -> Response:
        return Response(_body(kind, page), media_type=kind, headers=_headers(request, page, limit))

    if wait:
        readers: Readers = request.app.state.readers
        with readers.reading(workspace, series, request) as reader, anyio.move_on_after(wait):
            awaited = await _next_page(workspace, reader, after, limit, answer)
            if awaited is not None:
                return awaited
    return await anyio.to_thread.run_sync(lambda: answer(workspace.results.page(series, after, limit)))


async def open_stream(
    name: str,
    workspace: WorkspaceDep,
    after: AfterCursor = None,
    last_event_id: Annotated[
        str | None,
        Header(
            description="Id of the last event received; takes precedence over `after`.", examples=["7.250"]
        ),
    ] = None,
) -> tuple[int, ResultPage]:
    """Find the query, check the cursor and read the first page, so that errors set the status."""
    cursor = last_event_id or after
    series = await anyio.to_thread.run_sync(workspace.queries.series, name)
    return series, await anyio.to_thread.run_sync(workspace.results.page, series, cursor, _EVENTS_PER_PAGE)


@router.get(
    "/stream",
    summary="Follow results",
    response_class=StreamingResponse,  # FastAPI takes EventSourceResponse as a sign of a generator function
    responses=problem_responses(QueryNotFound, ResultsExpired, InvalidCursor, InvalidRequest) | _EVENTS,
)
async def follow_results(
    workspace: WorkspaceDep,
    request: Request,
    opened: Annotated[tuple[int, ResultPage], Depends(open_stream)],
) -> EventSourceResponse:
    """Follow results as server-sent events.

    An event `result` has a row as its data and the cursor after the row as its id. For queries that select
    `_punctuation`, an event `punctuation` names a key that has no later results. A client that reconnects
    with `Last-Event-ID` misses no result and gets none twice. When the query is removed and all its results
    have been sent, an event `end` closes the stream. While the query is paused, the stream stays open.

    A stream without a cursor begins at the first result that is kept. If earlier results are no longer kept,
    the first event is `dropped`, with their number and `kept_since`. If a client reads so slowly that its
    next results are no longer kept, an event `gone`, whose data is the problem, ends the stream. The stream
    also ends if the client's key is revoked or its token expires.
    """
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    told = _reading(request.app.state.readers, workspace, request, *opened)
    return EventSourceResponse(told, headers=headers)


async def _reading(
    readers: Readers, workspace: Workspace, request: Request, series: int, page: ResultPage
) -> AsyncIterator[bytes]:
    with readers.reading(workspace, series, request) as reader:
        async for told in events_of(workspace, request.url.path, reader, page):
            yield told


async def events_of(
    workspace: Workspace, path: str, reader: Reader, page: ResultPage
) -> AsyncIterator[bytes]:
    """Yield the events of a page and of all later pages, a page at a time.

    Args:
        workspace: The workspace.
        path: Path of the request.
        reader: The reader.
        page: First page of results.
    """
    if page.kept_since_us is not None:
        facts = {"dropped": page.dropped, "kept_since": timestamp(page.kept_since_us)}
        yield format_sse_event(data_str=json_line(facts), event="dropped")
    reached, told = page.next_cursor, await anyio.to_thread.run_sync(_events, page)
    while True:
        if told:
            yield told

        def events_and_cursor(found: ResultPage) -> tuple[bytes, str | None]:
            return _events(found), found.next_cursor

        following = None
        try:
            with anyio.move_on_after(_PING_S) as waiting:
                following = await _next_page(workspace, reader, reached, _EVENTS_PER_PAGE, events_and_cursor)
            reader.check()
        except (ResultsExpired, QueryNotFound, Unauthenticated, Forbidden) as error:
            document = problem(error, path).model_dump(mode="json", exclude_none=True)
            yield format_sse_event(data_str=json_line(document), event="gone")
            return
        if following is not None:
            told, reached = following
        elif waiting.cancelled_caught:
            told = KEEPALIVE_COMMENT
        else:
            yield format_sse_event(data_str="{}", event="end", id=reached)
            return


def _events(page: ResultPage) -> bytes:
    """Return the events of a page."""
    ids = [pa.array(list(page.cursors()), pa.string())]
    return events(page.table, "result", ids)


@export_router.get(
    "/{name}/results:export",
    summary="Export results",
    response_class=StreamingResponse,
    responses=problem_responses(QueryNotFound, ResultsExpired, InvalidCursor, InvalidRequest) | _EXPORT,
)
async def export_results(
    name: str,
    workspace: WorkspaceDep,
    form: Annotated[
        StreamFormat, Query(alias="format", description="Format of the file.")
    ] = StreamFormat.NDJSON,
    after: AfterCursor = None,
    until: Annotated[
        str | None,
        Query(
            description="Cursor of the last result to export; by default, the cursor of the newest result.",
            examples=["9.10"],
        ),
    ] = None,
) -> StreamingResponse:
    """Read all results between two cursors, however many, as one file.

    The file is sent while the results are still being read. The file is complete only if the answer ends
    normally. If the connection is lost earlier, a Parquet file or Arrow stream lacks its end, and the file
    has fewer rows than `Sluice-Rows` states.

    A file has the columns of one version of the query's text. If an update changed the columns between the
    two cursors, the answer is 422; it names the cursor up to which the columns are the same.
    """
    series = await anyio.to_thread.run_sync(workspace.queries.series, name)
    found = await anyio.to_thread.run_sync(workspace.results.export, series, after, until)
    headers = {
        "Sluice-Rows": str(found.rows),
        "Cache-Control": "no-store",
        "Content-Disposition": f'attachment; filename="{name}.{form}"',
    }
    if found.next_cursor is not None:
        headers["Sluice-Next-Cursor"] = found.next_cursor
    if found.dropped:
        headers["Sluice-Dropped"] = str(found.dropped)
    parts = (part for part in streamed(form, found.schema, found.tables) if part)
    return StreamingResponse(parts, media_type=_STREAMS[form], headers=headers)


def _headers(request: Request, page: ResultPage, limit: int) -> dict[str, str]:
    headers = {"Sluice-Has-More": str(page.has_more).lower(), "Vary": "Accept", "Cache-Control": "no-store"}
    if page.next_cursor is not None:
        headers["Sluice-Next-Cursor"] = page.next_cursor
        following = request.url.include_query_params(after=page.next_cursor, limit=limit)
        headers["Link"] = f'<{following.path}?{following.query}>; rel="next"'
    if page.kept_since_us is not None:
        headers |= {"Sluice-Dropped": str(page.dropped), "Sluice-Kept-Since": timestamp(page.kept_since_us)}
    return headers


def _body(kind: str, page: ResultPage) -> bytes:
    if (writer := _WRITERS.get(kind)) is not None:
        return writer(page.table)
    columns = {"columns": [column.model_dump() for column in result_columns(page)]}
    document = {
        "next_cursor": page.next_cursor,
        "has_more": page.has_more,
        "dropped": page.dropped,
        "kept_since": timestamp_or_none(page.kept_since_us),
    }
    head, tail = json_line(columns).encode(), json_line(document).encode()
    return head[:-1] + b',"rows":' + json_array(page.table) + b"," + tail[1:]


async def _next_page(
    workspace: Workspace,
    reader: Reader,
    after: str | None,
    limit: int,
    answer: Callable[[ResultPage], Answer],
) -> Answer | None:
    """Wait for results after a cursor and return an answer with a page; None if the query has ended.

    The thread that reads the page also makes the answer, because each switch between threads waits for
    Python's global interpreter lock.
    """

    def look() -> tuple[Answer | None, bool]:
        over = False
        try:
            page = workspace.results.page_if_any(reader.series, after, limit)
        except InvalidCursor:
            _is_over(
                workspace, reader.series
            )  # raises QueryNotFound, not InvalidCursor, if the query is gone
            raise
        if page is None and (over := _is_over(workspace, reader.series)):
            # The removal is now in force, so this last look sees all results that there will ever be.
            page = workspace.results.page_if_any(reader.series, after, limit)
        return None if page is None else answer(page), over

    while True:
        await reader.wait()
        complete = False
        try:
            found, over = await anyio.to_thread.run_sync(look)
            complete = found is None and not over
        finally:
            if not complete:  # there may be more, or the caller was cancelled and has not seen what was found
                reader.woken.set()
        if found is not None or over:
            return found


def _is_over(workspace: Workspace, series: int) -> bool:
    """Return whether the query was removed and no batch will add results."""
    removed = workspace.queries.removed_with(series)
    return removed is not None and workspace.wait_for_version(removed, 0)
