"""Fields that people look for in vain: what is wrong, and what to do instead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.without_engine import CQL, Service, a_stream


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    opened = Service(tmp_path / "data")
    for name in ("A", "B"):
        opened.made("POST", "/streams", a_stream(name))
    opened.made("POST", "/queries", {"name": "q", "cql": CQL})
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("method", "path", "body", "pointer"),
    [
        ("PATCH", "/queries/q", {"sink": {"type": "kafka"}}, "#/sink"),
        ("PATCH", "/queries/q", {"window": "5s", "sink": "s3"}, "#/sink"),
        ("POST", "/queries", {"name": "q2", "cql": CQL, "sink": "s3"}, "#/sink"),
        (
            "POST",
            "/changes",
            {"changes": [{"update": {"name": "q", "sink": "s3"}}]},
            "#/changes/0/update/sink",
        ),
    ],
)
def test_a_sink_is_refused_with_the_ways_to_read_results(
    service: Service, method: str, path: str, body: Any, pointer: str
) -> None:
    before = service.store.all_queries()
    answer = service.send(method, path, body)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "invalid-request")
    assert problem["detail"] == 'field "sink" is not known'
    for way in ("GET /api/v1/queries/{name}/results", "results/stream", "sluice run --results per-query"):
        assert way in problem["hint"]
    assert [fault["pointer"] for fault in problem["errors"]] == [pointer]
    assert service.store.all_queries() == before
