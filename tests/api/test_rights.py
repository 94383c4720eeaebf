"""Keys for some streams and queries only; cases come from the OpenAPI document, which has each new route."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from api.access.rights import CHECKED_INSIDE
from api.access.scopes import scope_of
from service.access.api_keys import create_key
from service.access.principal import Principal
from service.errors import InvalidKey
from tests.api.without_engine import Service
from tests.builders import stream_document

OURS, THEIRS = "orders_1", "secret_1"
CQL = "SELECT A.k FROM {0} [RANGE 10 SECONDS] A, {1} [RANGE 10 SECONDS] B WHERE A.k = B.k"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with a stream and a query of two teams each."""
    service = Service(tmp_path_factory.mktemp("rights"))
    for name in (OURS, THEIRS, "orders_2", "secret_2"):
        service.made("POST", "/streams", stream_document(name))
    for name, streams in (("orders_q", (OURS, "orders_2")), ("secret_q", (THEIRS, "secret_2"))):
        service.made("POST", "/queries", {"name": name, "cql": CQL.format(*streams)})
    yield service
    service.close()


@pytest.fixture(scope="module")
def ours(service: Service) -> dict[str, str]:
    """A key for everything of one team, and nothing else."""
    scopes = [f"{scope}:orders_*" for scope in ("read", "ingest", "write")]
    return {"Authorization": f"Bearer {create_key(service.store.api_keys, 'team', scopes, 100_000)}"}


def operations(service: Service) -> list[tuple[str, str]]:
    paths: dict[str, dict[str, Any]] = service.made("GET", "/openapi.json")["paths"]
    return [(method.upper(), path) for path, of in paths.items() for method in of if method != "parameters"]


def test_each_route_keeps_to_the_names_of_the_key(service: Service, ours: dict[str, str]) -> None:
    found = operations(service)
    assert len(found) > 30
    for method, path in found:
        scope = scope_of(method, path)
        if scope is None:
            continue
        for name in (THEIRS, "secret_q", "SECRET_Q", "nobody", "orders"):
            at = re.sub(r"{name}", name, path).removeprefix("/api/v1")
            at = re.sub(r"{\w+}", "1", at)
            answer = service.request(method, at, headers=ours)
            refused = answer.status_code == 403 and answer.json()["code"] == "forbidden"
            assert refused == ((method, path.removeprefix("/api/v1")) not in CHECKED_INSIDE), (
                method,
                path,
                answer.text,
            )
            assert "secret_1" not in answer.text.replace(name, ""), (method, path, answer.text)
            assert "secret_q" not in answer.text.replace(name, ""), (method, path, answer.text)
        if "{name}" in path and not path.endswith(("/stream", "results")) and method != "DELETE":
            at = path.replace("{name}", OURS if "/streams" in path else "orders_q").removeprefix("/api/v1")
            assert service.request(method, at, headers=ours).status_code != 403, (method, path)


@pytest.mark.parametrize(
    ("path", "key", "names"),
    [("/streams", "name", ["orders_1", "orders_2"]), ("/queries", "name", ["orders_q"])],
)
def test_lists_show_what_the_key_may_read(
    service: Service, ours: dict[str, str], path: str, key: str, names: list[str]
) -> None:
    found = service.ok("GET", path, 200, headers=ours)
    assert [item[key] for item in found["items"]] == names
    page = service.ok("GET", f"{path}?limit=1", 200, headers=ours)
    assert page["next_cursor"] == (names[0] if len(names) > 1 else None)


@pytest.mark.parametrize("form", ["json", "text", "mermaid", "dot", "svg"])
def test_plan_and_statistics_are_of_the_keys_names(service: Service, ours: dict[str, str], form: str) -> None:
    for path in (f"/plan?format={form}", "/plan?detail=structure", "/statistics"):
        text = service.request("GET", path, headers=ours).text
        assert "secret" not in text
        assert "secret" in service.request("GET", path).text
    assert "orders_q" in service.request("GET", f"/plan?format={form}", headers=ours).text


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/streams", stream_document("other"), 403),
        ("/streams", stream_document("orders_9"), 201),
        ("/queries", {"name": "mine", "cql": CQL.format(OURS, OURS)}, 403),
        ("/queries", {"name": "orders_r", "cql": CQL.format(OURS, THEIRS)}, 422),
        ("/queries", {"name": "orders_r", "cql": CQL.format(OURS, OURS)}, 202),
        ("/queries:validate", {"cql": CQL.format(OURS, THEIRS)}, 422),
        ("/queries:validate", {"cql": CQL.format(OURS, OURS)}, 200),
        ("/changes", {"changes": [{"remove": "secret_q"}]}, 403),
        (
            "/changes",
            {"changes": [{"pause": "orders_q"}, {"pause": "secret_q"}]},
            403,
        ),
    ],
)
def test_bodies_are_about_the_keys_names(
    service: Service, ours: dict[str, str], path: str, body: Any, status: int
) -> None:
    answer = service.request("POST", path, json=body, headers=ours)
    assert answer.status_code == status, answer.text
    if status == 422:  # as if there were no such stream
        nobodys = json.loads(json.dumps(body).replace(THEIRS, "nobody_1"))
        other = service.request("POST", path, json=nobodys, headers=ours)
        assert answer.json()["detail"].replace(THEIRS, "nobody_1") == other.json()["detail"]
        assert "secret" not in str(answer.json().get("hint"))
    assert service.made("GET", "/queries/secret_q")["desired"] == "running"
    assert service.made("GET", "/queries/orders_q")["desired"] == "running"


def test_an_update_cannot_read_another_stream(service: Service, ours: dict[str, str]) -> None:
    body = {"cql": CQL.format(OURS, THEIRS)}
    assert service.request("PATCH", "/queries/orders_q", json=body, headers=ours).status_code == 422


@pytest.mark.parametrize(
    ("scopes", "scope", "name", "allowed"),
    [
        (["read"], "read", "anything", True),
        (["read:*"], "read", "anything", True),
        (["read:orders"], "read", "ORDERS", True),
        (["read:orders"], "read", "orders_1", False),
        (["read:Orders_*"], "read", "orders_", True),
        (["read:orders_*"], "write", "orders_1", False),
        (["read:a*", "read:b*"], "read", "b", True),
        (["read:a*", "read"], "read", "c", True),
        (["read:a*"], "read", "", False),
    ],
)
def test_patterns(scopes: list[str], scope: Any, name: str, allowed: bool) -> None:
    assert Principal("k", frozenset(scopes)).may(scope, name) == allowed


@pytest.mark.parametrize(
    "scope",
    ["read:", "read:orders.*", "read:*x", "read:a*b", "admin:a*", "reads:a", "read:a\n", "READ:a", ""],
)
def test_a_scope_of_another_form_makes_no_key(service: Service, scope: str) -> None:
    with pytest.raises(InvalidKey, match="is not known"):
        create_key(service.store.api_keys, "other", [scope])
