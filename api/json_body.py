"""Reader of JSON bodies that is stricter than Python's.

Python accepts bodies that two readers would interpret differently, or that fail only later, when they are
stored or sent in an answer. Examples are a key that appears twice in an object, ``NaN``, text with half of a
surrogate pair, and 1,000 levels of brackets. This module refuses all such bodies, and its errors name the
place in the body.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

from api.errors import InvalidRequest, MalformedBody, RequestFault
from api.validation import malformed_json

#: Maximum depth of nested arrays and objects; the deepest document of the API has 7 levels.
MAX_DEPTH: Final = 64

#: A JSON escape of one half of a surrogate pair; it also matches if the other half follows.
_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def body_text(body: bytes) -> str:
    """Return a body as text.

    Raises:
        MalformedBody: The body is not UTF-8, or it is empty.
    """
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MalformedBody(
            "the body is not UTF-8", detail=f"Byte {error.start} cannot be decoded.", hint="Send UTF-8."
        ) from error
    if not text.strip():
        raise MalformedBody("the body is empty", hint="Send JSON.")
    return text


def read_json(text: str, what: str = "the body", *, parse_float: Callable[[str], Any] | None = None) -> Any:
    """Return the value of a JSON text.

    Args:
        text: The text.
        what: Its name in errors.
        parse_float: Converts the text of a number with a fraction or an exponent; if None, such a number
            becomes a float.

    Raises:
        json.JSONDecodeError: The text is not JSON; the error names the place.
        MalformedBody: The text is valid JSON but is refused: it is nested too deeply, or contains a number
            with thousands of digits, ``NaN`` or ``Infinity``.
        InvalidRequest: A key is repeated.
    """
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=parse_float
        )
    except json.JSONDecodeError:
        raise
    except RecursionError as error:
        raise _too_deep(what) from error
    except ValueError as error:
        # Python refuses to convert integers with more digits, because the conversion takes time quadratic in
        # their number.
        raise MalformedBody(
            f"{what} holds an integer of thousands of digits",
            hint="Send integers of at most 64 bits; send longer numbers as strings.",
        ) from error


def read_body(body: bytes) -> Any:
    """Return the value of a whole body.

    Raises:
        MalformedBody: The body is not JSON, or is JSON that is not accepted.
        InvalidRequest: A key is repeated in an object, or a text contains half of a surrogate pair.
    """
    text = body_text(body)
    try:
        value = read_json(text)
    except json.JSONDecodeError as error:
        raise malformed_json(text, error.pos, error.msg) from error
    _check_depth(value)
    check_text(body, value)
    return value


def check_text(body: bytes, value: Any) -> None:
    """Refuse halves of surrogate pairs, which neither databases nor answers can represent.

    Args:
        body: The bytes of the body; if they contain no escape of a surrogate, which is usual, the value is
            not searched.
        value: Value of the body.

    Raises:
        InvalidRequest: A text contains half of a surrogate pair; the error names its place.
    """
    if _HALF.search(body) is None:
        return
    for path, text in _texts(value):
        if (found := _SURROGATE.search(text)) is not None:
            half = f"\\u{ord(found[0]):04x}"
            raise InvalidRequest(
                RequestFault(
                    "body",
                    path,
                    f"text holds {half}, which is half of a surrogate pair",
                    "Send whole characters; JSON may hold them as UTF-8.",
                )
            )


def _texts(value: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield all texts of a value with their paths; a key has the path of its object."""
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while waiting:
        path, found = waiting.pop()
        if isinstance(found, str):
            yield path, found
        elif isinstance(found, dict):
            yield from ((path, key) for key in found)
            waiting.extend(((*path, key), inner) for key, inner in found.items())
        elif isinstance(found, list):
            waiting.extend(((*path, index), inner) for index, inner in enumerate(found))


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    raise _too_deep("the body")


def _too_deep(what: str) -> MalformedBody:
    return MalformedBody(
        f"{what} is nested too deeply", hint=f"Send at most {MAX_DEPTH} levels of arrays and objects."
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        shown = (
            repeated.encode("ascii", "backslashreplace").decode() if _SURROGATE.search(repeated) else repeated
        )
        raise InvalidRequest(
            RequestFault("body", (), f'"{shown}" appears twice in one object', "Keep one of them.")
        )
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise MalformedBody(
        f"{name} is not JSON", hint=f'Write "{name}", in quotes, for a column of type double.'
    )
