"""A client that openapi-python-client generates from the OpenAPI document parses answers into models."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.without_engine import CQL, Service
from tests.builders import stream_document

SINKS = (
    {"type": "files", "path": "out"},
    {"type": "webhook", "url": "http://127.0.0.1:9/x", "headers": {"X-Team": "a"}},
    None,
)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path / "data")
    for name in "AB":
        service.made("POST", "/streams", stream_document(name))
    for number, sink in enumerate(SINKS):
        service.made("POST", "/queries", {"name": f"q{number}", "cql": CQL, "sink": sink})
    yield service
    service.close()


@pytest.mark.slow
def test_a_generated_client_parses_all_models(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document, target = tmp_path / "openapi.json", tmp_path / "made" / "generated_client"
    document.write_text(json.dumps(service.made("GET", "/openapi.json")))
    (tmp_path / "config.yaml").write_text("post_hooks: []\n")
    target.parent.mkdir()
    options = ["--path", document, "--config", tmp_path / "config.yaml", "--meta", "none"]
    generator = [sys.executable, "-m", "openapi_python_client", "generate", *options]
    done = subprocess.run([*generator, "--output-path", target], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    # The one thing that it leaves out: a body of lines, which may be sent as an array instead.
    warnings = [
        line
        for line in (done.stdout + done.stderr).splitlines()
        if line.startswith(("Unable", "Cannot", "Unsupported"))
    ]
    assert set(warnings) == {"Unsupported content type application/x-ndjson"}

    monkeypatch.syspath_prepend(target.parent)
    client = importlib.import_module("generated_client").Client("http://127.0.0.1")
    models = importlib.import_module("generated_client.models")

    def parsed(operation: str, path: str, status: int = 200) -> Any:
        answer = service.request("GET", path)
        assert answer.status_code == status
        module = importlib.import_module(f"generated_client.api.{operation}")
        found = httpx.Response(status, json=answer.json())
        return module._build_response(client=client, response=found).parsed

    page = parsed("queries.list_queries", "/queries")
    assert isinstance(page, models.QueryPage)
    assert [type(query) for query in page.items] == [models.QueryOut] * len(SINKS)
    for number, sink in enumerate(SINKS):
        query = parsed("queries.show_query", f"/queries/q{number}")
        assert (type(query), query.name, query.cql) == (models.QueryOut, f"q{number}", CQL)
        assert (query.sink.to_dict() if sink else query.sink) == service.made("GET", f"/queries/q{number}")[
            "sink"
        ]
    assert isinstance(parsed("queries.show_query", "/queries/nobody", 404), models.Problem)
    assert parsed("streams.list_streams", "/streams").items[0].name == "A"
    for operation, path, model in (
        ("streams.show_stream", "/streams/A", "StreamOut"),
        ("plan.show_plan", "/plan", "PlanOut"),
        ("statistics.show_statistics", "/statistics", "Statistics"),
        ("engine.show_engine", "/engine", "EngineOut"),
        ("results.read_results", "/queries/q0/results", "ResultsOut"),
    ):
        assert type(parsed(operation, path)).__name__ == model
    for name in [name for name in sys.modules if name.startswith("generated_client")]:
        del sys.modules[name]
