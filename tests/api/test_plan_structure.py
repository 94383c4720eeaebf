"""The plan as a structure: all that is left out can be derived, and it is sent only where it changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.without_engine import Service
from tests.builders import stream_document

SIDES = ("a", "b")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    opened = Service(tmp_path / "data")
    for name in ("A", "B"):
        opened.made("POST", "/streams", stream_document(name))
    for name, a, b, more in (
        ("q1", "10 SECONDS", "20 SECONDS", ""),
        ("q2", "30 SECONDS", "5 SECONDS", " AND A.k > 3"),
        ("q3", "UNBOUNDED", "20 SECONDS", " AND B.k < 9"),
    ):
        opened.made("POST", "/queries", {"name": name, "cql": cql(a, b, more)})
    yield opened
    opened.close()


def cql(a: str, b: str, more: str = "") -> str:
    windows = [w if w == "UNBOUNDED" else f"RANGE {w}" for w in (a, b)]
    return f"SELECT A.k FROM A [{windows[0]}], B [{windows[1]}] WHERE A.k = B.k{more}"


def reach(family: dict[str, Any], join: dict[str, Any], side: str, w_start_us: int) -> list[str]:
    """Names of the queries whose windows reach into a slice, as a reader of the structure finds them."""
    return [
        q["name"]
        for q in family["queries"]
        if q["name"] in join["queries"]
        and (q["window_us"][side] is None or q["window_us"][side] > w_start_us)
    ]


@pytest.mark.parametrize("strategy", ["mem-opt", "unshared", "pushdown", "pullup"])
def test_all_that_the_structure_leaves_out_follows_from_it(service: Service, strategy: str) -> None:
    service.made("POST", "/migrations", {"strategy": strategy})

    full = service.made("GET", "/plan")
    structure = service.made("GET", "/plan?detail=structure")

    (whole,), (small,) = full["families"], structure["families"]
    assert (structure["version"], structure["strategy"]) == (full["version"], strategy)
    for key in ("id", "title", "strategy"):
        assert small[key] == whole[key]
    assert [q["filter"] for q in small["queries"]] == [q["filter"] for q in whole["queries"]]
    assert [j["id"] for j in small["joins"]] == [j["id"] for j in whole["joins"]]
    for join, of_whole in zip(small["joins"], whole["joins"], strict=True):
        for side in SIDES:
            for piece, other in zip(join["chains"][side], of_whole["chains"][side], strict=True):
                assert {name: other[name] for name in piece} == piece
                assert reach(small, join, side, piece["w_start_us"]) == other["queries"]


def test_a_structure_that_is_known_is_not_sent_again(service: Service) -> None:
    first = service.request("GET", "/plan?detail=structure")
    known = {"If-None-Match": first.headers["etag"]}

    again = service.request("GET", "/plan?detail=structure", headers=known)
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]

    service.made("POST", "/queries", {"name": "q4", "cql": cql("1 SECOND", "1 SECOND")})
    changed = service.request("GET", "/plan?detail=structure", headers=known)
    assert changed.status_code == 200
    assert changed.json()["version"] == first.json()["version"] + 1


def test_a_whole_plan_that_is_known_is_not_sent_again(service: Service) -> None:
    paths = [f"/plan?format={form}" for form in ("json", "text", "mermaid", "dot", "svg")]
    for path in paths:
        first = service.request("GET", path)
        assert first.headers["cache-control"] == "no-store", "a browser would take costs for those of now"
        tag = first.headers["etag"]
        for known in (tag, f"W/{tag}", f'"0", {tag}', "*"):
            again = service.request("GET", path, headers={"If-None-Match": known})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    service.made("POST", "/queries", {"name": "q4", "cql": cql("1 SECOND", "1 SECOND")})
    for path in paths:
        assert service.request("GET", path, headers={"If-None-Match": tag}).status_code == 200


def test_the_plan_is_sent_as_the_command_line_prints_it(service: Service) -> None:
    answer = service.request("GET", "/plan?format=text")

    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    lines = answer.text.splitlines()
    assert lines[:2] == ["family A.k = B.k", "  chain of A"]
    assert [line.split()[0] for line in lines if line.endswith("  chosen")] == ["mem-opt"]
    assert max(map(len, lines)) <= 100


def test_a_method_that_a_path_does_not_take_gets_those_that_it_takes(service: Service) -> None:
    for method, path, allowed in (
        ("PUT", "/queries", "GET, POST"),
        ("POST", "/queries/q1", "GET, PUT, PATCH, DELETE"),
        ("GET", "/plan:preview", "POST"),
        ("POST", "/openapi.json", "GET, HEAD"),
        ("POST", "http://127.0.0.1/console/", "GET, HEAD"),
    ):
        answer = service.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
        assert answer.json()["hint"] == f"Use one of: {allowed}."
