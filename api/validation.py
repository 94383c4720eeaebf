"""Validation errors of pydantic and FastAPI in the wording of Sluice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from fastapi.exceptions import RequestValidationError

from api.errors import InvalidRequest, MalformedBody, RequestFault
from catalog.errors import Location, SluiceError
from catalog.wording.mistakes import mistake

_PARTS: Mapping[str, Literal["body", "query", "path", "header"]] = {
    "body": "body",
    "query": "query",
    "path": "path",
    "header": "header",
}

#: Names of the parts of a request in messages.
_KINDS = {"body": "field", "query": "parameter", "path": "path segment", "header": "header"}


def invalid_request(error: RequestValidationError) -> SluiceError:
    """Return FastAPI's error as Sluice's: malformed JSON with its place, otherwise one fault per field."""
    errors: Sequence[Mapping[str, Any]] = error.errors()
    if errors[0]["type"] == "json_invalid":
        return malformed_json(str(error.body), int(errors[0]["loc"][1]), str(errors[0]["ctx"]["error"]))
    return InvalidRequest(*(_fault(found, error.body) for found in errors))


def malformed_json(text: str, position: int, reason: str) -> MalformedBody:
    """Return the error of a body that is not JSON.

    Args:
        text: The body.
        position: Number of characters before the place at which the parser stopped.
        reason: What the parser expected there.
    """
    line_start = text.rfind("\n", 0, position) + 1
    return MalformedBody(
        "the body is not JSON",
        detail=f"{reason.removesuffix(' at').removesuffix(' starting')}.",
        location=Location(text.count("\n", 0, position) + 1, position - line_start + 1, text),
    )


def _fault(error: Mapping[str, Any], body: object) -> RequestFault:
    where = _PARTS[str(error["loc"][0])]
    path = tuple(error["loc"][1:])
    if where == "body":
        path = _within(path, body)
    found = mistake(error, path)
    path = found.path
    # FastAPI names a header by its Python parameter.
    name = str(path[-1]) if path else "body"
    if len(path) > 1 and isinstance(path[-1], int):
        name = f"{path[-2]}[{path[-1]}]"
    hint = found.hint
    if not path and error["type"] == "missing":
        hint = "Send a JSON object, with Content-Type: application/json."
    subject = f'{_KINDS[where]} "{name}"' if path else "the body"
    return RequestFault(where, path, found.said_of(subject), hint, found.detail)


def _within(path: tuple[str | int, ...], body: object) -> tuple[str | int, ...]:
    """Drop path parts that are not in the body: pydantic adds tags of the alternatives it tried."""
    kept: list[str | int] = []
    node = body
    for position, part in enumerate(path):
        inner = _child(node, part)
        if inner is None and position < len(path) - 1:
            continue
        kept.append(part)
        node = inner[0] if inner is not None else None
    return tuple(kept)


def _child(node: object, part: str | int) -> tuple[object] | None:
    """Return the value under a key or index, in a tuple; None if there is none."""
    if isinstance(node, dict) and part in node:
        return (node[part],)
    if isinstance(node, list) and isinstance(part, int) and part < len(node):
        return (node[part],)
    return None
