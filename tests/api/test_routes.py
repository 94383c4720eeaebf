"""What holds of every route, with cases from the OpenAPI document: a new route is tested unasked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.running_service import RunningService

pytestmark = pytest.mark.spark

METHODS = ("get", "post", "put", "patch", "delete")

#: Values for path parameters that name nothing.
NOTHING = {"name": "no_such_thing", "version": "999999", "id": "999999"}

Operation = tuple[str, str, dict[str, Any]]


@pytest.fixture(scope="module")
def document(service: RunningService) -> dict[str, Any]:
    found: dict[str, Any] = service.http.get("/openapi.json").json()
    return found


def operations(document: dict[str, Any]) -> Iterator[Operation]:
    """Method, path and description of every operation; paths start below the base URL."""
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield method.upper(), path.removeprefix("/api/v1"), item[method]


def filled(path: str) -> str:
    return path.format(**NOTHING)


def json_schema(operation: dict[str, Any]) -> dict[str, Any] | None:
    content = operation.get("requestBody", {}).get("content", {})
    found: dict[str, Any] | None = content.get("application/json")
    return found


def example(document: dict[str, Any], operation: dict[str, Any]) -> Any:
    """A body that fits the route's schema, where the document shows one."""
    name = (json_schema(operation) or {}).get("schema", {}).get("$ref", "").rpartition("/")[2]
    examples = document["components"]["schemas"].get(name, {}).get("examples")
    return examples[0] if examples else [{}]


def check_problem(
    service: RunningService, method: str, path: str, status: int, **request: Any
) -> dict[str, Any]:
    """The request must be answered with a whole problem of that status, for which the route is documented."""
    response = service.http.request(method, path, **request)
    where = f"{method} {path}: {response.status_code} {response.text}"
    assert response.status_code == status, where
    assert response.headers["content-type"] == "application/problem+json", where
    problem: dict[str, Any] = response.json()
    assert problem["status"] == status, where
    assert problem["type"] == f"urn:sluice:problem:{problem['code']}", where
    assert problem["title"], where
    assert problem["detail"][0].islower() or not problem["detail"][0].isalpha(), where
    assert not problem["detail"].endswith("."), where
    assert problem["instance"] == f"/api/v1{path.split('?')[0]}", where
    return problem


def test_every_route_answers_an_unknown_name_with_a_problem(
    service: RunningService, document: dict[str, Any]
) -> None:
    tested = 0
    for method, path, operation in operations(document):
        if "{" not in path or method == "PUT":
            continue  # PUT makes what the path names.
        body = {"json": example(document, operation)} if "requestBody" in operation else {}
        problem = check_problem(service, method, filled(path), 404, **body)
        assert problem["code"].endswith("-not-found")
        assert "404" in operation["responses"], f"{method} {path} does not document 404"
        tested += 1
    assert tested >= 7


def test_every_route_refuses_an_unknown_parameter(service: RunningService, document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        problem = check_problem(service, method, f"{filled(path)}?no_such_parameter=1", 422)
        assert problem["errors"][0]["parameter"] == "no_such_parameter"
        assert "422" in operation["responses"], f"{method} {path} does not document 422"


def test_every_parameter_refuses_a_value_out_of_its_range(
    service: RunningService, document: dict[str, Any]
) -> None:
    tested = 0
    for method, path, operation in operations(document):
        for parameter in operation.get("parameters", []):
            schema = parameter["schema"]
            if parameter["in"] != "query" or not ({"maximum", "enum"} & set(schema)):
                continue
            bad = [schema["maximum"] + 1, "x"] if "maximum" in schema else ["x"]
            for value in bad:
                problem = check_problem(service, method, f"{filled(path)}?{parameter['name']}={value}", 422)
                assert problem["errors"][0]["parameter"] == parameter["name"]
                tested += 1
    assert tested >= 10


@pytest.mark.parametrize(
    ("content", "media_type", "status"),
    [
        (b"{", "application/json", 400),
        (b"\xff", "application/json", 400),
        (b"[1, 2]", "application/json", 422),
        (b"null", "application/json", 422),
        (b'{"no_such_field": 1}', "application/json", 422),
        (b"x=1", "application/x-www-form-urlencoded", 415),
    ],
)
def test_every_route_with_a_body_refuses_a_bad_one(
    service: RunningService, document: dict[str, Any], content: bytes, media_type: str, status: int
) -> None:
    name = "rt_bodies"
    columns = {"ts": "timestamp"}
    service.http.post(
        "/streams",
        json={"name": name, "columns": columns, "event_time": "ts", "source": {"type": "http"}},
        headers={"Idempotency-Key": "rt-bodies"},
    )
    tested = 0
    for method, path, operation in operations(document):
        if "requestBody" in operation:
            filled_path = path.format(name=name)
            check_problem(
                service, method, filled_path, status, content=content, headers={"Content-Type": media_type}
            )
            tested += 1
    assert tested >= 4


def test_every_body_is_required(service: RunningService, document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        if json_schema(operation) is not None:
            response = service.http.request(method, filled(path))
            assert response.status_code in (404, 415, 422), f"{method} {path}: {response.text}"
            assert response.headers["content-type"] == "application/problem+json"


def test_every_mutation_documents_the_idempotency_key(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        names = [parameter["name"] for parameter in operation.get("parameters", [])]
        assert ("Idempotency-Key" in names) == (method != "GET"), f"{method} {path}"


def test_every_route_and_field_is_described(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        assert operation["summary"], f"{method} {path}"
        assert operation["description"], f"{method} {path}"
        for parameter in operation.get("parameters", []):
            assert parameter["in"] == "path" or parameter["description"], (
                f"{method} {path} {parameter['name']}"
            )
    assert "HTTPValidationError" not in json.dumps(document)


def test_other_methods_and_paths_are_problems_too(service: RunningService) -> None:
    assert check_problem(service, "PATCH", "/plan", 405)["code"] == "method-not-allowed"
    assert check_problem(service, "GET", "/no/such/path", 404)["code"] == "route-not-found"
    assert check_problem(service, "GET", "/streams/", 404)["code"] == "route-not-found"
