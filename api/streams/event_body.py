"""Events in a request body: a JSON array of objects, or one object per line (NDJSON)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from api.errors import InvalidRequest, MalformedBody, RequestFault, UnsupportedMediaType
from api.json_body import body_text, check_text, read_json
from api.validation import malformed_json
from catalog.errors import Location

JSON_TYPES = ("application/json",)
NDJSON_TYPES = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/jsonlines")

#: Maximum number of characters of an invalid line that an error shows.
_SHOWN = 200


def parse_events(
    body: bytes, content_type: str, *, parse_float: Callable[[str], Any] | None = None
) -> list[dict[str, Any]]:
    """Return the events of a body.

    Args:
        body: The body, UTF-8.
        content_type: Media type of the body, possibly with parameters.
        parse_float: As in `read_json`.

    Raises:
        UnsupportedMediaType: The media type of the body is neither JSON nor NDJSON.
        MalformedBody: The body is not JSON; the error names the place.
        InvalidRequest: An event is not an object; the error names its index.
    """
    media_type = content_type.split(";", 1)[0].strip().lower()
    if media_type in JSON_TYPES:
        events = _array(body_text(body), parse_float)
    elif media_type in NDJSON_TYPES:
        events = _lines(body_text(body), parse_float)
    else:
        raise UnsupportedMediaType(
            f'the body is of type "{media_type}"' if media_type else "the body has no type",
            hint="Send a JSON array as application/json, or one object per line as application/x-ndjson.",
        )
    check_text(body, events)
    return _objects(events)


def _array(text: str, parse_float: Callable[[str], Any] | None) -> list[Any]:
    try:
        events = read_json(text, parse_float=parse_float)
    except json.JSONDecodeError as error:
        raise malformed_json(text, error.pos, error.msg) from error
    if not isinstance(events, list):
        hint = "Put the event into brackets, or send one object per line as application/x-ndjson."
        raise InvalidRequest(RequestFault("body", (), "the body is not an array of events", hint))
    return events


def _lines(text: str, parse_float: Callable[[str], Any] | None) -> list[Any]:
    events = []
    # Not splitlines(): it also splits at characters that JSON strings may contain unescaped.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            events.append(read_json(line, f"line {number} of the body", parse_float=parse_float))
        except json.JSONDecodeError as error:
            shown = "\n" * (number - 1) + line[:_SHOWN]
            raise MalformedBody(
                f"line {number} of the body is not JSON",
                detail=f"{error.msg}.",
                location=Location(number, error.pos + 1, shown),
            ) from error
    return events


def _objects(events: list[Any]) -> list[dict[str, Any]]:
    if not events:
        raise InvalidRequest(RequestFault("body", (), "the body holds no event", "Send at least one event."))
    for index, event in enumerate(events):
        if not isinstance(event, dict):
            raise InvalidRequest(
                RequestFault(
                    "body", (index,), f"event {index} is not an object", "Send an object of column values."
                )
            )
    return events
