"""Outer, semi and anti joins in a running service: posted events, verdicts, and queries that come and go."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.api.running_service import WAIT_S, RunningService

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = {"ts": "timestamp", "k": "bigint", "v": "int"}


def at(second: int) -> str:
    """Event time, in seconds after a fixed start."""
    return f"2026-01-01T00:{second // 60:02}:{second % 60:02}.000000Z"


def post(service: RunningService, stream: str, *rows: tuple[int, int | None, int]) -> None:
    events = [{"ts": at(second), "k": k, "v": v} for second, k, v in rows]
    service.ok("POST", f"/streams/{stream}/events", 202, json=events)


def results(service: RunningService, query: str, count: int) -> list[tuple[Any, ...]]:
    """Wait until a query has as many results, and return key, value of b and event time of each, in order."""
    deadline = time.monotonic() + WAIT_S
    while True:
        rows = service.ok("GET", f"/queries/{query}/results", 200)["rows"]
        if len(rows) >= count or time.monotonic() > deadline:
            return [tuple(row.values()) for row in rows]
        time.sleep(0.1)


def wait_for(service: RunningService, query: str, state: str) -> dict[str, Any]:
    deadline = time.monotonic() + WAIT_S
    while (found := service.ok("GET", f"/queries/{query}", 200))["observed"] != state:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    assert isinstance(found, dict)
    return found


def test_rows_without_a_partner_are_results_once_it_is_decided(service: RunningService) -> None:
    for name in ("placed", "settled"):
        stream = {"name": name, "columns": COLUMNS, "event_time": "ts", "source": {"type": "http"}}
        service.ok("POST", "/streams", 201, json=stream)
    joined = "FROM placed [RANGE 10 SECONDS] a {} settled [RANGE 1 SECOND] b ON a.k = b.k"
    queries = {
        "either": f"SELECT a.k, b.v {joined.format('LEFT JOIN')}",
        "unsettled": f"SELECT a.k, a.v {joined.format('ANTI JOIN')}",
        "settled_once": f"SELECT a.k, a.v {joined.format('SEMI JOIN')}",
    }
    for name, cql in queries.items():
        service.ok("POST", "/queries", 202, json={"name": name, "cql": cql})
    for name in queries:
        wait_for(service, name, "running")

    post(service, "placed", (0, 1, 10), (1, 2, 20), (2, None, 30), (3, 3, 40))
    post(service, "settled", (4, 1, 7), (5, 1, 8), (12, 9, 9))
    # The watermark of 12 s decides up to 2 s: orders 1 (settled twice), 2, and the one without a key.
    assert results(service, "either", 4) == [
        (1, 7, at(4)),
        (1, 8, at(5)),
        (2, None, at(11)),
        (None, None, at(12)),
    ]
    assert results(service, "unsettled", 2) == [(2, 20, at(11)), (None, 30, at(12))]
    assert results(service, "settled_once", 1) == [(1, 10, at(4))]
    assert service.ok("GET", "/queries/either", 200)["decided_until"] == at(2)

    (family,) = (f for f in service.ok("GET", "/statistics", 200)["families"] if f["absent_a"] is not None)
    # Order 3 waits; two orders without a partner are results of two queries each.
    assert (family["undecided_a"], family["absent_a"]) == (1, 4)
    assert (family["undecided_b"], family["absent_b"]) == (None, None)

    # A window of another length: leave and enter. The order of 3 s is judged by neither; later ones are.
    service.ok(
        "PATCH",
        "/queries/unsettled",
        202,
        json={"cql": queries["unsettled"].replace("10 SECONDS", "5 SECONDS")},
    )
    wait_for(service, "unsettled", "running")
    post(service, "placed", (13, 4, 50), (14, 5, 60))
    post(service, "settled", (15, 5, 1), (40, 9, 9))
    assert results(service, "unsettled", 3)[2:] == [(4, 50, at(18))]
    assert results(service, "either", 7)[4:] == [(3, None, at(13)), (5, 1, at(15)), (4, None, at(23))]
    for name in queries:
        service.ok("DELETE", f"/queries/{name}", 202)
