"""Limits on the state of a stream in a running service: a cap that evicts, and another retain."""

from __future__ import annotations

import pytest

from tests.api.running_service import WAIT_S, RunningService, post, results
from tests.builders import stream_document
from tests.waiting import until

pytestmark = pytest.mark.spark

ROWS, WIDTH = 6000, 400


def test_the_oldest_rows_leave_at_a_cap_and_another_retain_changes_windows(service: RunningService) -> None:
    columns = {"ts": "timestamp", "k": "bigint", "note": "string"}
    capped = stream_document("cap_a", columns) | {"state_cap_mb": 1, "at_cap": "evict"}
    for wrong, told in (({"state_cap_mb": 0}, "must be at least 1"), ({"at_cap": "stop"}, "is missing")):
        bad = service.ok("POST", "/streams", 422, json=stream_document("cap_bad", columns) | wrong)
        assert told in bad["title"] + bad["detail"]
    service.ok("POST", "/streams", 201, json=capped)
    service.ok("POST", "/streams", 201, json=stream_document("cap_b", columns))
    cql = "SELECT a.note, b.k FROM cap_a [RANGE UNBOUNDED] a, cap_b [NOW] b WHERE a.k = b.k"
    service.ok("POST", f"/queries?wait={WAIT_S}", 201, json={"name": "cap", "cql": cql})
    outer = "SELECT a.note FROM cap_b [NOW] b LEFT JOIN cap_a [RANGE UNBOUNDED] a ON a.k = b.k"
    refused = service.ok("POST", "/queries:validate", 422, json={"cql": outer})
    assert "because its oldest rows may be evicted at its cap" in refused["title"] + refused["detail"]

    post(service, "cap_b", (1, -1, "first"))
    post(service, "cap_a", *((1 + n / 10, n, f"{n:0{WIDTH}}") for n in range(ROWS)))

    def horizon() -> int | None:
        streams = service.ok("GET", "/statistics", 200)["streams"]
        (found,) = (s for s in streams if s["stream"] == "cap_a")
        assert found["state_cap_bytes"] == 1_000_000
        return int(found["horizon_us"]) if found["horizon_us"] is not None else None

    until(lambda: horizon() is not None, horizon)
    last = 1 + ROWS / 10
    # Of the newest rows a third is far below the cap, the oldest ones were half a megabyte over it.
    post(service, "cap_b", (last, 0, "oldest"), (last, ROWS - 1, "newest"))
    assert [row[1] for row in results(service, "cap", 1)] == [ROWS - 1]
    shown = service.ok("GET", "/queries/cap", 200)
    assert shown["complete_within"] is not None
    metrics = service.http.get("/metrics").text
    assert 'sluice_horizon_timestamp_seconds{stream="cap_a"}' in metrics

    # Another retain: the query gets its new window with held rows, at one boundary.
    service.ok("PATCH", "/streams/cap_a", 200, json={"retain": "30s"})
    until(
        lambda: service.ok("GET", "/queries/cap", 200)["observed"] == "running",
        lambda: service.ok("GET", "/queries/cap", 200),
    )
    shown = service.ok("GET", "/queries/cap", 200)
    assert {side["window"] for side in shown["streams"]} == {"30s", "1us"}
    assert service.ok("PATCH", "/streams/cap_a", 200, json={"retain": None})["retain"] is None
    shown = service.ok("GET", "/queries/cap", 200)
    assert {side["window"] for side in shown["streams"]} == {"unbounded", "1us"}
    assert len(shown["revisions"]) == 3
    service.ok("DELETE", f"/queries/cap?wait={WAIT_S}", 200)
