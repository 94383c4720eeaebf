"""How slices are searched, over HTTP: a migration to rings, their counters, and what is refused."""

from __future__ import annotations

import time

import pytest

from tests.api.running_service import WAIT_S, RunningService

pytestmark = pytest.mark.spark

CQL = (
    "SELECT a.k AS k, a.v AS v, b.v AS w FROM pr_left [RANGE 10 SECONDS] a, pr_right [RANGE 10 SECONDS] b "
    "WHERE a.k = b.k"
)
FAMILY = "pr_left.k = pr_right.k"


def test_rings_give_the_results_of_merging_and_count_their_work(service: RunningService) -> None:
    for name in ("pr_left", "pr_right"):
        columns = {"ts": "timestamp", "k": "bigint", "v": "int"}
        document = {"name": name, "columns": columns, "event_time": "ts", "lateness": "0s"}
        service.ok("POST", "/streams", 201, json=document | {"source": {"type": "http"}})
    service.ok("POST", f"/queries?wait={WAIT_S}", 201, json={"name": "pr_q", "cql": CQL})

    def post(stream: str, *rows: tuple[int, int]) -> None:
        events = [{"ts": f"2026-01-01T00:00:{second:02d}Z", "k": k, "v": second} for second, k in rows]
        service.ok("POST", f"/streams/{stream}/events", 202, json=events)

    def results(count: int) -> list[tuple[int, int, int]]:
        deadline = time.monotonic() + WAIT_S
        while True:
            rows = service.ok("GET", "/queries/pr_q/results", 200)["rows"]
            if len(rows) >= count or time.monotonic() > deadline:
                return sorted((row["k"], row["v"], row["w"]) for row in rows)

    post("pr_left", (1, 1), (2, 2))
    post("pr_right", (3, 1))
    assert results(1) == [(1, 1, 3)]
    body = {"family_probes": {FAMILY: {"probe": "hash(2)", "invalidation": "optimal"}}}
    service.ok("POST", f"/migrations?wait={WAIT_S}", 200, json=body)
    assert service.ok("GET", "/migrations/policy", 200)["family_probes"] == {
        FAMILY: "hash(2), invalidation optimal"
    }
    (family,) = [f for f in service.ok("GET", "/plan", 200)["families"] if f["title"] == FAMILY]
    assert family["probe"] == "hash(2), invalidation optimal"
    post("pr_right", (4, 2), (20, 1))
    post("pr_left", (21, 1), (22, 3))
    assert results(3) == [(1, 1, 3), (1, 21, 20), (2, 2, 4)]
    (counted,) = [f for f in service.ok("GET", "/statistics", 200)["families"] if f["family"] == family["id"]]
    assert {ring["side"] for ring in counted["rings"]} == {"a", "b"}
    assert sum(ring["probes"] for ring in counted["rings"]) == 4
    assert all(ring["expired_held"] == 0 for ring in counted["rings"])

    problem = service.ok("POST", "/migrations", 422, json={"probe": "hash(0)"})
    assert (problem["code"], problem["detail"]) == ("invalid-probe", "hash(0) is out of range")
