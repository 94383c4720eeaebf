"""Every error of every package as a problem: a code of its own, a status, a title."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import api
import catalog
import operators
import planner
import service
from api.errors import InvalidRequest, RequestFault
from api.problems import STATUS, Fault, problem, problem_response, problem_responses, status_of, titles
from catalog.errors import (
    Conflict,
    InternalError,
    InvalidInput,
    Location,
    NameTaken,
    NotFound,
    Overloaded,
    SluiceError,
    StalePlanVersion,
    Unavailable,
)


def subclasses(error: type[SluiceError]) -> Iterator[type[SluiceError]]:
    for inner in error.__subclasses__():
        yield inner
        yield from subclasses(inner)


def all_errors() -> list[type[SluiceError]]:
    """Every error class, once every module of ours is imported."""
    for package in (catalog, planner, operators, service, api):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if ".migrations" not in module.name and not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    ours = ("catalog", "planner", "operators", "service", "api")
    return [error for error in subclasses(SluiceError) if error.__module__.split(".")[0] in ours]


def test_every_error_has_a_code_of_its_own_a_status_and_a_title() -> None:
    errors = all_errors()
    assert len(errors) > 30
    codes = Counter(error.code for error in errors)
    assert [code for code, count in codes.items() if count > 1] == []
    for error in errors:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", error.code), error
        assert 400 <= status_of(error) < 600
    assert titles().keys() == codes.keys() | {SluiceError.code}
    assert [title for title, count in Counter(titles().values()).items() if count > 1] == []


def test_errors_live_in_the_errors_module_of_their_package() -> None:
    elsewhere = [e for e in all_errors() if e.__module__ != f"{e.__module__.split('.')[0]}.errors"]

    assert elsewhere == []


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (InvalidInput, 422),
        (NotFound, 404),
        (Conflict, 409),
        (NameTaken, 409),
        (StalePlanVersion, 412),
        (Overloaded, 429),
        (Unavailable, 503),
        (InternalError, 500),
    ],
)
def test_a_class_of_errors_has_the_status_of_its_nearest_base(kind: type[SluiceError], status: int) -> None:
    assert status_of(kind) == status


def test_every_status_is_a_class_of_its_own() -> None:
    assert set(STATUS.values()) == {
        400,
        401,
        403,
        404,
        405,
        406,
        408,
        409,
        410,
        412,
        413,
        415,
        421,
        422,
        429,
        431,
        500,
        503,
    }


def test_a_problem_carries_place_detail_and_hint() -> None:
    location = Location(2, 3, "SELECT\n  x", 1, None)
    error = InvalidInput("no x", detail="There is none.", hint="Write y.", location=location)
    assert problem(error, "/here").model_dump(exclude_none=True) == {
        "type": "urn:sluice:problem:invalid-input",
        "code": "invalid-input",
        "title": "The request is invalid",
        "status": 422,
        "detail": "no x",
        "explanation": "There is none.",
        "hint": "Write y.",
        "instance": "/here",
        "errors": [
            {
                "detail": "no x",
                "explanation": "There is none.",
                "hint": "Write y.",
                "line": 2,
                "column": 3,
                "underline": "  x\n  ^",
            }
        ],
    }


def test_a_path_becomes_a_json_pointer() -> None:
    error = InvalidInput("bad", path=("columns", "a/b~c", 0, "A.v < 1"))
    assert [fault.pointer for fault in problem(error, "/").errors] == ["#/columns/a~1b~0c/0/A.v%20%3C%201"]


def test_every_fault_of_a_request_is_listed() -> None:
    error = InvalidRequest(
        RequestFault("body", ("a",), "first", "Do."), RequestFault("query", ("limit",), "second")
    )
    found = problem(error, "/")
    assert (found.detail, found.hint) == ("first (and 1 more)", "Do.")
    assert found.errors == [
        Fault(detail="first", hint="Do.", pointer="#/a"),
        Fault(detail="second", parameter="limit"),
    ]


def test_a_client_is_told_when_to_come_back() -> None:
    assert problem_response(Overloaded("full"), "/").headers["retry-after"] == "1"
    assert "retry-after" not in problem_response(NotFound("none"), "/").headers


def test_responses_of_one_status_are_documented_together() -> None:
    found = problem_responses(Conflict, NameTaken, NotFound)
    assert list(found) == [404, 409]
    assert found[409]["description"] == "The request conflicts with what exists; The name is taken"


def test_the_page_of_errors_says_what_to_do_about_each() -> None:
    page = (Path(__file__).parents[2] / "docs" / "errors.md").read_text(encoding="utf-8")
    told = Counter(
        code
        for line in page.splitlines()
        if line.startswith("| `")
        for code in re.findall(r"`([a-z-]+)`", line.split("|")[1])
    )
    assert told == Counter(error.code for error in all_errors())
