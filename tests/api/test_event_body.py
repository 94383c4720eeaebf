"""Events in a body: arrays, lines, and what is wrong with them."""

from __future__ import annotations

import pytest

from api.errors import InvalidRequest, MalformedBody, UnsupportedMediaType
from api.streams.event_body import parse_events


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (b'[{"k": 1}, {"k": 2}]', "application/json"),
        (b'[{"k": 1}, {"k": 2}]', "Application/JSON; charset=utf-8"),
        (b'{"k": 1}\n{"k": 2}\n', "application/x-ndjson"),
        (b'{"k": 1}\r\n\n  \n{"k": 2}', "application/jsonl"),
    ],
)
def test_events_come_as_an_array_or_as_lines(body: bytes, media_type: str) -> None:
    assert parse_events(body, media_type) == [{"k": 1}, {"k": 2}]


def test_a_line_separator_inside_a_string_ends_no_line() -> None:
    assert parse_events('{"k": "a\u2028b"}\n'.encode(), "application/x-ndjson") == [{"k": "a\u2028b"}]


def test_a_bad_line_is_named_and_shown() -> None:
    with pytest.raises(MalformedBody) as caught:
        parse_events(b'{"k": 1}\n{"k": }\n', "application/x-ndjson")
    location = caught.value.location
    assert caught.value.primary == "line 2 of the body is not JSON"
    assert location is not None
    assert (location.line, location.column) == (2, 7)
    assert location.underlined() == '{"k": }\n      ^'


def test_bad_json_is_shown_where_it_is() -> None:
    with pytest.raises(MalformedBody) as caught:
        parse_events(b'[{"k": 1},\n {"k" 2}]', "application/json")
    assert caught.value.location is not None
    assert caught.value.location.underlined() == ' {"k" 2}]\n      ^'


@pytest.mark.parametrize("media_type", ["", "text/plain", "application/x-www-form-urlencoded"])
def test_another_media_type_is_refused(media_type: str) -> None:
    with pytest.raises(UnsupportedMediaType):
        parse_events(b"[{}]", media_type)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{}", "the body is not an array of events"),
        (b"[]", "the body holds no event"),
        (b"[{}, 1]", "event 1 is not an object"),
    ],
)
def test_what_is_no_list_of_objects_is_refused(body: bytes, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_events(body, "application/json")
    assert caught.value.primary == message


def test_a_body_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(MalformedBody) as caught:
        parse_events(b'[{"k": "\xff"}]', "application/json")
    assert caught.value.detail == "Byte 8 cannot be decoded."
