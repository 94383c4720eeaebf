"""Queries with GROUP BY in a running service: posted events, closed groups, and a query that leaves."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.running_service import RunningService, at, post, results, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = {"ts": "timestamp", "k": "bigint", "v": "int"}
FROM = "FROM calls [RANGE 20 SECONDS] a, answers [RANGE 20 SECONDS] b WHERE a.k = b.k"


def page(service: RunningService, query: str) -> dict[str, Any]:
    found = service.ok("GET", f"/queries/{query}/results", 200)
    assert isinstance(found, dict)
    return found


def test_groups_come_out_once_and_open_ones_when_the_query_leaves(service: RunningService) -> None:
    service.register(COLUMNS, "calls", "answers")
    queries = {
        "by_minute": "SELECT k, TUMBLE(1 MINUTE) AS m, COUNT(*) AS n, SUM(b.v) AS total, AVG(a.v) AS mean "
        f"{FROM} GROUP BY k, TUMBLE(1 MINUTE)",
        "frequent": f"SELECT k, COUNT(*) AS n {FROM} AND a.v > 1 "
        "GROUP BY k, TUMBLE(1 MINUTE) HAVING COUNT(*) > 1",
        "pairs": f"SELECT a.k, a.v, b.v AS w {FROM}",
    }
    for name, cql in queries.items():
        added = service.ok("POST", "/queries", 202, json={"name": name, "cql": cql})
        assert ("_closed_by" in [column["name"] for column in added["columns"]]) == (name != "pairs")
    for name in queries:
        wait_for(service, name, "running")

    post(service, "calls", (10, 1, 1), (11, 1, 2), (12, 2, 3), (70, 2, 4))
    post(service, "answers", (15, 1, 10), (16, 1, 20), (17, 2, 30), (75, 2, 40))
    first = [
        (1, at(0), 4, 60, 1.5, "watermark", at(60)),
        (2, at(0), 1, 30, 3.0, "watermark", at(60)),
    ]
    assert results(service, "by_minute", 2) == first
    assert results(service, "frequent", 1) == [(1, 2, "watermark", at(60))]
    assert len(results(service, "pairs", 6)) == 6
    (family,) = (f for f in service.ok("GET", "/statistics", 200)["families"] if f["open_groups"] is not None)
    assert family["open_groups"] == 1

    service.ok("DELETE", "/queries/frequent", 202)
    service.ok("DELETE", "/queries/by_minute", 202)
    wait_for(service, "by_minute", "removed")
    assert page(service, "by_minute")["rows"][2:] == [
        {
            "k": 2,
            "m": at(60),
            "n": 1,
            "total": 40,
            "mean": 4.0,
            "_closed_by": "leave",
            "_event_time": at(120),
        }
    ]
    service.ok("DELETE", "/queries/pairs", 202)
