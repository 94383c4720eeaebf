"""Outer, semi and anti joins in a running service: posted events, verdicts, and queries that come and go."""

from __future__ import annotations

import pytest

from tests.api.running_service import RunningService, at, post, results, wait_for

pytestmark = pytest.mark.spark

COLUMNS = {"ts": "timestamp", "k": "bigint", "v": "int"}


def test_rows_without_a_partner_are_results_once_it_is_decided(service: RunningService) -> None:
    service.register(COLUMNS, "placed", "settled")
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

    (own,) = (f["id"] for f in service.ok("GET", "/plan", 200)["families"] if "placed" in f["title"])
    statistics = service.ok("GET", "/statistics", 200)
    (family,) = (f for f in statistics["families"] if f["family"] == own)
    assert {q["query"]: q["absent"] for q in statistics["queries"] if q["query"] in queries} == {
        "either": 2,
        "unsettled": None,
        "settled_once": None,
    }
    # Order 3 waits; two orders without a partner are results of two queries each.
    assert (family["undecided_a"], family["absent_a"]) == (1, 4)
    assert (family["undecided_b"], family["absent_b"]) == (None, None)
    # Order 1 has a partner for each query; they entered one by one, so each is a condition group. The left
    # join needed the order to the end of its window, and its marks went with that.
    assert (family["matched_a"], family["marks_a"], family["left_a"]) == (3, 0, 0)

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
