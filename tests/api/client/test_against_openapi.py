"""Whatever the client sends and reads is in the service's OpenAPI document."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args, get_origin

import httpx
import msgspec
import pytest
from openapi_schema_validator import OAS31Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

import operators.errors
import planner.errors  # noqa: F401  # classes are found by their base
import service.errors  # noqa: F401
from api import problems
from api.app import create_app
from catalog.errors import SluiceError
from service.config.settings import load_settings
from sluice_client import changes, errors, flows, models, operations
from sluice_client.request import Json, Request
from sluice_client.retry import Retry

CQL = "SELECT A.k FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.k"
FILES = {"type": "files", "path": "alerts"}
BASE = "urn:sluice:openapi"


def first_page(supply: flows.Supply[Any]) -> Request[Any]:
    """Return the request that a collection begins with."""
    step = next(supply)
    assert isinstance(step, flows.Send)
    return step.request


#: A request of every function that describes one, with all its arguments.
REQUESTS: Mapping[str, Request[Any]] = {
    "register_stream": operations.register_stream(
        "A",
        {"ts": "timestamp", "k": "bigint"},
        event_time="ts",
        lateness=timedelta(seconds=5),
        idle_timeout="1 MINUTE",
        start="latest",
    ),
    "stream": operations.stream("A"),
    "change_stream": operations.change_stream("A", constraints={"unique": ["k"]}, order=None),
    "remove_stream": operations.remove_stream("A"),
    "quarantine": operations.quarantine("A", limit=5),
    "reset_watermark": operations.reset_watermark("A"),
    "retry_files": operations.retry_files("A"),
    "append_events": operations.append_events("A", b'{"k": 1}', "key"),
    "punctuate": operations.punctuate("A", [{"k": 1}], key="key"),
    "validate": operations.validate(CQL, backfill="state"),
    "add_query": operations.add_query("q", CQL, backfill="state", sink=FILES, wait_s=1, plan_version=3),
    "put_query": operations.put_query("q", CQL, sink=FILES, wait_s=1, plan_version=3),
    "query": operations.query("q"),
    "update_query": operations.update_query(
        "q", window={"A": timedelta(minutes=5)}, filters={"A": None}, select=["A.k"], sink=None, wait_s=1
    ),
    "remove_query": operations.remove_query("q", wait_s=1, plan_version=3),
    "pause_query": operations.pause_query("q", wait_s=1),
    "propagate": operations.propagate("q"),
    "resume_query": operations.resume_query("q", backfill="none", wait_s=1),
    "change": operations.change(
        [
            changes.add("q1", CQL, sink=FILES),
            changes.update("q2", window=5, sink=FILES),
            changes.remove("q3"),
            changes.pause("q4"),
            changes.resume("q5"),
        ],
        wait_s=1,
        plan_version=3,
    ),
    "preview": operations.preview(add={"q": CQL}, remove=["r"], strategy="cpu-opt", c_sys=2.5),
    "plan": operations.plan(),
    "plan_text": operations.plan_text("dot"),
    "migrate": operations.migrate(strategy="cpu-opt", wait_s=1, plan_version=3),
    "dry_run": operations.dry_run(splits=[{"at": "5s"}]),
    "migration": operations.migration(1),
    "policy": operations.policy(),
    "statistics": operations.statistics(),
    "engine": operations.engine(),
    "last_batches": operations.last_batches(limit=5),
    "pause_engine": operations.pause_engine(),
    "resume_engine": operations.resume_engine(),
    "restart_engine": operations.restart_engine(),
    "streams": first_page(flows.streams(Retry())),
    "queries": first_page(flows.queries(Retry())),
    "plan_versions": first_page(flows.plan_versions(Retry())),
    "migrations": first_page(flows.migrations(Retry())),
    "result_page": flows.result_page("q", "7.2", 10, 20),
    "arrow_page": flows.arrow_page("q", "7.2"),
}
#: Answers for which the document's example is that of another form of the same operation.
OTHER_EXAMPLE = ("dry_run",)


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return create_app(load_settings(data_dir=tmp_path_factory.mktemp("data"))).openapi()


def operation_of(document: dict[str, Any], request: Request[Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["paths"][f"/api/v1{request.path}"][request.method.lower()]
    return found


def answers(operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            yield response.get("content", {})


def test_every_description_is_looked_at() -> None:
    described = {
        name
        for module in (operations, flows)
        for name, found in vars(module).items()
        if inspect.isfunction(found) and found.__module__ == module.__name__ and not name.startswith("_")
        if str(found.__annotations__["return"]).startswith(("Request", "Supply[models"))
    }
    assert described == set(REQUESTS)


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_fits_its_operation(document: dict[str, Any], name: str) -> None:
    request = REQUESTS[name]
    operation = operation_of(document, request)
    known = {(parameter["in"], parameter["name"].lower()) for parameter in operation.get("parameters", ())}
    headers = {header.lower() for header in request.headers()} - {"accept", "content-type"}
    sent = {("path", part) for part in request.names} | {("header", header) for header in headers}
    sent |= {("query", param) for param in request.params}
    assert sent <= known
    assert request.url.count("{") == 0

    if request.body is None:
        assert not operation.get("requestBody", {}).get("required")
        return
    schema = operation["requestBody"]["content"][request.content_type]["schema"]
    if request.content_type == "application/json":
        assert faults(document, schema, json.loads(request.body)) == []


@pytest.mark.parametrize("name", REQUESTS)
def test_an_answer_is_read(document: dict[str, Any], name: str) -> None:
    request = REQUESTS[name]
    examples = 0
    for content in answers(operation_of(document, request)):
        if not isinstance(request.read, Json):
            assert not content or request.accept == "*/*" or request.accept in content
            continue
        missing = set(unknown_fields(document, request.read.kind, content["application/json"]["schema"]))
        assert missing == set()
        if name not in OTHER_EXAMPLE:
            example = content["application/json"]["example"]
            request.read(httpx.Response(200, json=example))
            examples += 1
    assert examples or not isinstance(request.read, Json) or name in OTHER_EXAMPLE


def faults(document: dict[str, Any], schema: dict[str, Any], value: Any) -> list[str]:
    registry = Registry().with_resource(BASE, Resource(document, DRAFT202012))
    own = json.loads(json.dumps(schema).replace('"#/', f'"{BASE}#/'))
    return [error.message for error in OAS31Validator(own, registry=registry).iter_errors(value)]


def unknown_fields(document: dict[str, Any], kind: Any, schema: dict[str, Any]) -> Iterator[str]:
    """Yield the fields of a model, and of the models in it, that no schema of the answer has."""
    choices = [schema, *schema.get("anyOf", ()), *schema.get("oneOf", ())]
    resolved = [
        document["components"]["schemas"][choice["$ref"].rpartition("/")[2]] if "$ref" in choice else choice
        for choice in choices
    ]
    if get_origin(kind) is tuple:
        for choice in resolved:
            if "items" in choice:
                yield from unknown_fields(document, get_args(kind)[0], choice["items"])
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        properties: dict[str, Any] = {}
        for choice in resolved:
            properties |= choice.get("properties", {})
        for field in msgspec.structs.fields(kind):
            if field.name in properties:
                yield from unknown_fields(document, field.type, properties[field.name])
            elif (kind, field.name) != (
                models.Stream,
                "warnings",
            ):  # of a stream that was registered just now
                yield f"{kind.__name__}.{field.name}"


def subclasses(base: type) -> Iterator[type]:
    for kind in base.__subclasses__():
        yield kind
        yield from subclasses(kind)


OURS: Mapping[str, type[SluiceError]] = {kind.__name__: kind for kind in subclasses(SluiceError)}
THEIRS = {kind.__name__: kind for kind in subclasses(errors.Problem)}


@pytest.mark.parametrize("name", THEIRS)
def test_an_error_is_named_as_in_the_service(name: str) -> None:
    ours, theirs = OURS[name], THEIRS[name]
    assert ours.code == theirs.code
    base = theirs.__mro__[1].__name__
    assert base == "Problem" or issubclass(ours, OURS[base])
    raised = errors.problem_of(problems.status_of(ours), "", json.dumps(problems._example(ours)).encode())
    assert type(raised) is theirs


def test_every_problem_that_an_operation_names_has_a_class() -> None:
    root = Path(problems.__file__).parent
    files = [file for file in root.rglob("*.py") if "client" not in file.relative_to(root).parts]
    named = {
        argument.id
        for file in files
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and getattr(call.func, "id", None) == "problem_responses"
        for argument in call.args
        if isinstance(argument, ast.Name)
    }
    assert len(named) > 20
    assert named - set(THEIRS) == set()
    assert operators.errors.__name__  # its classes are among the service's
