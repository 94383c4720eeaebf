"""Bad requests and the whole problems that answer them, as text. A question is:

METHOD /path
Header: value            any number of lines
body                     JSON, on one line; {tmp} stands for a directory that exists
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.api.running_service import RunningService
from tests.planner.goldens import check_golden, readable

pytestmark = pytest.mark.spark

GOLDEN = Path(__file__).parent / "golden" / "bad_requests.txt"

COLUMNS = {"ts": "timestamp", "k": "bigint", "delay": "double", "name": "string"}
CQL = "SELECT a.k FROM bad_a [RANGE 10 SECONDS] a, bad_b [RANGE 10 SECONDS] b WHERE a.k = b.k"


@pytest.fixture(scope="module")
def directory(service: RunningService, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Set up two streams of events, one of files, and a query; return the directory of {tmp}."""
    directory = tmp_path_factory.mktemp("bad")
    (directory / "flights").mkdir()
    files = {"type": "files", "path": str(directory / "flights")}
    for name, source in (("bad_a", {"type": "http"}), ("bad_b", {"type": "http"}), ("bad_files", files)):
        body = {"name": name, "columns": COLUMNS, "event_time": "ts", "source": source}
        service.ok("POST", "/streams", 201, json=body)
    service.ok("POST", "/queries", 202, json={"name": "bad_q", "cql": CQL})
    return directory


def test_bad_requests_are_answered_with_whole_problems(
    service: RunningService, directory: Path, request: pytest.FixtureRequest
) -> None:
    def answer(lines: list[str]) -> str:
        method, path = lines[0].split(" ", 1)
        headers = dict(line.split(": ", 1) for line in lines[1:] if line[0].isalpha())
        bodies = [line.replace("{tmp}", str(directory)) for line in lines[1:] if not line[0].isalpha()]
        if bodies:
            headers["Content-Type"] = "application/json"
        response = service.http.request(method, path, headers=headers, content="".join(bodies) or None)
        assert response.is_error, f"{lines[0]}: {response.text}"
        assert response.headers["content-type"] == "application/problem+json"
        # Before it is broken into lines. Other tests on the same service may have made versions before.
        text = response.text.replace(str(directory), "{tmp}")
        text = text.replace(f"plan version is {before['plan']},", "plan version is {version},")
        text = re.sub(rf'"plan_version": ?{before["plan"]}\b', '"plan_version": "{version}"', text)
        return readable(json.loads(text))

    before = state(service)
    check_golden(GOLDEN, answer, rewrite=bool(request.config.getoption("--rewrite-goldens", default=False)))
    assert state(service) == before, "a refused request changed something"


def state(service: RunningService) -> Any:
    """What a refused request must not change."""
    names = {
        path: [item["name"] for item in service.ok("GET", path, 200, params={"limit": 1000})["items"]]
        for path in ("/streams", "/queries")
    }
    return names | {"plan": service.ok("GET", "/plan", 200)["version"]}


def test_a_refused_event_leaves_no_gap(service: RunningService, directory: Path) -> None:
    service.ok("POST", "/streams/bad_b/events", 422, json=[{"ts": 1, "k": 1}, {"ts": 2, "k": "x"}])
    receipt = service.ok("POST", "/streams/bad_b/events", 202, json=[{"ts": 3, "k": 1}])
    assert receipt == {"accepted": 1, "first_offset": 0, "last_offset": 0, "quarantined": 0}
