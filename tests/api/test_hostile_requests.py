"""Requests that ended in a status of 5xx, or that were taken though they are wrong.

The application is the real one; an error that no handler knows fails the test by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.without_engine import CQL, Service
from tests.builders import stream_document

TYPED = {
    "ts": "timestamp",
    "k": "bigint",
    "x": "double",
    "s": "string",
    "m": "decimal(10,2)",
    "d": "date",
}
BODY_PATHS = (
    "/streams",
    "/queries",
    "/queries:validate",
    "/changes",
    "/plan:preview",
    "/migrations",
    "/streams/A/events",
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service(tmp_path_factory.mktemp("hostile"))
    for name in ("A", "B"):
        service.made("POST", "/streams", stream_document(name))
    service.made("POST", "/streams", stream_document("T") | {"columns": TYPED})
    yield service
    service.close()


def refused(service: Service, path: str, body: str | bytes, status: int) -> dict[str, Any]:
    """Send a body that must be refused, and return the problem."""
    answer = service.send_text("POST", path, body)
    assert answer.status_code == status, answer.text
    problem: dict[str, Any] = answer.json()
    return problem


@pytest.mark.parametrize("path", BODY_PATHS)
@pytest.mark.parametrize(
    "body", ["[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000], ids=["array", "object"]
)
def test_deep_json_is_refused(service: Service, path: str, body: str) -> None:
    problem = refused(service, path, body, 400)
    assert problem["detail"] == "the body is nested too deeply"
    assert problem["hint"] == "Send at most 64 levels of arrays and objects."


@pytest.mark.parametrize("path", BODY_PATHS)
@pytest.mark.parametrize("body", ["9" * 5000, '{"name": ' + "9" * 5000 + "}"], ids=["alone", "inside"])
def test_an_integer_of_5000_digits_is_refused(service: Service, path: str, body: str) -> None:
    problem = refused(service, path, body, 400)
    assert problem["detail"] == "the body holds an integer of thousands of digits"


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("/streams", stream_document("X") | {"name": "\ud800"}, "#/name"),
        ("/streams", stream_document("X") | {"columns": {"ts": "timestamp", "a\ud800": "int"}}, "#/columns"),
        ("/streams", stream_document("X", type="files", path="\udfff"), "#/source/path"),
        ("/queries", {"name": "q\ud800", "cql": CQL}, "#/name"),
        ("/queries:validate", {"cql": CQL + "\ud800"}, "#/cql"),
        ("/plan:preview", {"remove": ["\ud800"]}, "#/remove/0"),
        ("/streams/A/events", [{"ts": 1}, {"ts": 1, "\ud800": 1}], "#/1"),
        ("/streams/T/events", [{"ts": 1, "s": "\ud800"}], "#/0/s"),
    ],
)
def test_half_a_surrogate_pair_is_refused_with_its_place(
    service: Service, path: str, body: Any, pointer: str
) -> None:
    problem = refused(service, path, json.dumps(body), 422)
    assert "half of a surrogate pair" in problem["detail"]
    assert problem["errors"][0]["pointer"] == pointer


def test_a_whole_surrogate_pair_is_a_character(service: Service) -> None:
    assert "\\ud83d" in (body := json.dumps([{"ts": 1, "s": "😀"}]))
    assert service.send_text("POST", "/streams/T/events", body).status_code == 202


@pytest.mark.parametrize("name", ["日本", "a b", "a\nb", "", "\0", "a/b"])
def test_a_name_that_no_header_can_hold_is_refused(service: Service, name: str) -> None:
    problem = refused(service, "/queries", json.dumps({"name": name, "cql": CQL}), 422)
    assert problem["code"] == "invalid-name"


@pytest.mark.parametrize("path", ["/plan/versions", "/migrations"])
@pytest.mark.parametrize("after", [2**63, 10**30])
def test_a_page_beyond_64_bits_is_refused(service: Service, path: str, after: int) -> None:
    answer = service.send("GET", f"{path}?after={after}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["parameter"] == "after"


def test_the_last_page_of_64_bits_is_empty(service: Service) -> None:
    assert service.made("GET", f"/plan/versions?after={2**63 - 1}")["items"] == []


def test_a_plan_version_is_shown_after_its_stream_was_removed(tmp_path: Path) -> None:
    service = Service(tmp_path)
    try:
        for name in ("A", "B"):
            service.made("POST", "/streams", stream_document(name))
        service.made("POST", "/queries", {"name": "q", "cql": CQL})
        service.made("DELETE", "/queries/q")
        service.made("DELETE", "/streams/A")
        (family,) = service.made("GET", "/plan/versions/1")["families"]
        assert family["id"]
    finally:
        service.close()


@pytest.mark.parametrize("path", ["~nosuch/x", "a\0b"])
def test_a_path_that_cannot_be_made_absolute_is_refused(service: Service, path: str) -> None:
    problem = refused(service, "/streams", json.dumps(stream_document("F", type="files", path=path)), 422)
    assert problem["code"] == "source-not-found"
    assert problem["errors"][0]["pointer"] == "#/source/path"


@pytest.mark.parametrize("column", ["a\0b", "a\nb", "\u202e", "\x7f"])
def test_a_column_name_that_cannot_be_printed_is_refused(service: Service, column: str) -> None:
    stream = stream_document("X") | {"columns": {"ts": "timestamp", column: "int"}}
    problem = refused(service, "/streams", json.dumps(stream), 422)
    assert problem["detail"] == f"column name {column!a} contains a character that cannot be printed"


@pytest.mark.parametrize(
    "event",
    [
        '{"ts": 1, "x": 1e999}',
        '{"ts": 1, "x": -1e999}',
        '{"ts": 1, "m": 1e999}',
        '{"ts": "0000-01-01T00:00:00Z"}',
        '{"ts": "0000-06-01T00:00:00"}',
        '{"ts": "0001-01-01T00:00:00+05:00"}',
        '{"ts": "9999-12-31T23:59:59-05:00"}',
        '{"ts": 1, "d": "0000-01-01"}',
        '{"ts": 1, "m": "1_0"}',
        '{"ts": 1, "m": "١"}',
        '{"ts": 1, "m": " 1"}',
    ],
)
@pytest.mark.parametrize("others", ["", '{"ts": 0, "x": 1.5, "m": "1", "d": "2020-01-01"}, '])
def test_a_value_that_was_taken_for_another_is_refused(service: Service, event: str, others: str) -> None:
    problem = refused(service, "/streams/T/events", f"[{others}{event}]", 422)
    assert problem["code"] == "event-rejected"
    assert problem["detail"].startswith(f"event {1 if others else 0}, field ")


def test_a_time_before_the_year_1_is_refused_also_beside_times_of_another_form(service: Service) -> None:
    # Columns whose values are not all of one form are read one by one.
    column = stream_document("O") | {"columns": {"ts": "timestamp", "t": "timestamp"}}
    service.made("POST", "/streams", column)
    events = [{"ts": 1, "t": "2013-01-31T05:15:00.123456789Z"}, {"ts": 1, "t": "0001-01-01T00:00:00+14:00"}]
    problem = refused(service, "/streams/O/events", json.dumps(events), 422)
    assert problem["detail"].startswith("event 1, field ")


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_a_constant_that_json_lacks_is_refused(service: Service, constant: str) -> None:
    problem = refused(service, "/streams/T/events", f'[{{"ts": 1, "x": {constant}}}]', 400)
    assert problem["hint"] == f'Write "{constant}", in quotes, for a column of type double.'


def test_a_repeated_key_of_an_event_is_refused(service: Service) -> None:
    problem = refused(service, "/streams/A/events", '[{"ts": 1}, {"ts": 1, "k": 1, "k": 2}]', 422)
    assert problem["detail"] == '"k" appears twice in one object'


@pytest.mark.parametrize(
    "cql",
    [
        CQL,
        "SELECT A.k FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.nope",
        "SELECT A.k FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.k AND 1/0 = A.k",
        "SELECT A.k FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.k AND A.k > 'x'",
        "SELECT A.k FROM A [RANGE 10 SECONDS], A [RANGE 10 SECONDS] WHERE A.k = B.k",
    ],
)
def test_validate_says_what_adding_says(service: Service, cql: str) -> None:
    said = service.send("POST", "/queries:validate", {"cql": cql})
    added = service.send("POST", "/queries", {"name": "agreed", "cql": cql})
    assert said.is_success == added.is_success, (said.text, added.text)
    if said.is_success:
        answer = added.json()
        assert said.json() == {name: answer[name] for name in said.json()}
        service.made("DELETE", "/queries/agreed")
    else:
        problem, other = said.json(), added.json()
        assert (problem["code"], problem["detail"]) == (other["code"], other["detail"])


def test_validate_changes_nothing(service: Service) -> None:
    before = [service.made("GET", path) for path in ("/plan", "/plan/versions", "/queries")]
    service.made("POST", "/queries:validate", {"cql": CQL})
    assert [service.made("GET", path) for path in ("/plan", "/plan/versions", "/queries")] == before


def test_an_error_in_a_very_long_line_shows_a_part_of_it(service: Service) -> None:
    problem = refused(service, "/streams", '{"name": "' + "x" * 1_000_000 + '", }', 400)
    underline = problem["errors"][0]["underline"]
    assert len(underline) < 3_000
    assert underline.splitlines()[1].strip() == "^"
