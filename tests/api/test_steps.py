"""A join of three streams in a running service: results, plan, statistics, changes, refusals."""

from __future__ import annotations

import io

import pyarrow.parquet as pq
import pytest

from tests.api.running_service import RunningService, at, post, results

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = {"ts": "timestamp", "k": "bigint", "v": "int"}
THREE = (
    "SELECT a.v AS a, b.v AS b, c.v AS c FROM st_a {0} a JOIN st_b {0} b USING (k) JOIN st_c {0} c USING (k)"
).format("[RANGE 10 SECONDS]")


def test_three_streams_are_joined_beside_two(service: RunningService) -> None:
    service.register(COLUMNS, "st_a", "st_b", "st_c")
    found = service.ok("POST", "/queries:validate", 200, json={"cql": THREE})
    assert [side["stream"] for side in found["streams"]] == ["st_a", "st_b", "st_c"]
    assert (found["a"]["stream"], found["b"]["stream"]) == ("(st_a, st_b)", "st_c")
    preview = service.ok("POST", "/plan:preview", 200, json={"add": [{"name": "st_three", "cql": THREE}]})
    assert "(st_a, st_b).a.k = st_c.k" in {family["title"] for family in preview["plan"]["families"]}

    service.ok("POST", "/queries?wait=60", 201, json={"name": "st_three", "cql": THREE})
    two = "SELECT a.v AS a, b.v AS b FROM st_a [RANGE 4 SECONDS] a, st_b [RANGE 4 SECONDS] b WHERE a.k = b.k"
    service.ok("POST", "/queries?wait=60", 201, json={"name": "st_two", "cql": two})
    post(service, "st_a", (0, 1, 10), (4, 1, 11), (5, 2, 12))
    post(service, "st_b", (3, 1, 20), (8, 1, 21))
    post(service, "st_c", (6, 1, 30), (12, 1, 31), (7, 3, 32))
    expected = [
        (10, 20, 30, at(6)),
        (11, 20, 30, at(6)),
        (10, 21, 30, at(8)),
        (11, 21, 30, at(8)),
        (11, 20, 31, at(12)),
        (11, 21, 31, at(12)),
    ]
    assert sorted(results(service, "st_three", 6)) == sorted(expected)
    assert sorted(results(service, "st_two", 2)) == [(10, 20, at(3)), (11, 20, at(4))]

    statistics = {f["family"]: f for f in service.ok("GET", "/statistics", 200)["families"]}
    titles = {f["title"]: f["id"] for f in service.ok("GET", "/plan", 200)["families"]}
    assert {titles["st_a.k = st_b.k"], titles["(st_a, st_b).a.k = st_c.k"]} <= statistics.keys()
    with service.events("/queries/st_three/results/stream") as events:
        assert {"a", "b", "c", "_event_time"} <= next(events).data.keys()
    export = service.http.get(
        "/queries/st_three/results", headers={"Accept": "application/vnd.apache.parquet"}
    )
    assert export.status_code == 200
    assert pq.read_table(io.BytesIO(export.content)).num_rows == len(expected)

    assert service.ok("DELETE", "/streams/st_c", 409)["code"] == "stream-in-use"
    refused = service.ok("POST", "/queries", 422, json={"name": "st_back", "cql": THREE, "backfill": "state"})
    assert "more than two streams" in refused["title"] + refused["detail"]
    service.ok("PATCH", "/queries/st_three", 422, json={"window": "5 SECONDS"})
    shorter = THREE.replace("10 SECONDS", "3 SECONDS")
    changed = service.ok("PATCH", "/queries/st_three?wait=60", 200, json={"cql": shorter})
    assert changed["missing_columns"] == []
    post(service, "st_a", (20, 5, 13))
    post(service, "st_b", (21, 5, 22))
    post(service, "st_c", (22, 5, 33), (23, 5, 34))
    # Earlier rows take no part: they came before the update.
    assert results(service, "st_three", 7)[6:] == [(13, 22, 33, at(22))]
    for query in ("st_three", "st_two"):
        service.ok("DELETE", f"/queries/{query}?wait=60", 200)
    service.ok("DELETE", "/streams/st_c", 204)


def test_streams_of_two_keys_are_joined_though_nothing_more_comes(service: RunningService) -> None:
    for name in ("sk_a", "sk_b", "sk_c"):
        stream = {"name": name, "columns": COLUMNS, "event_time": "ts", "source": {"type": "http"}}
        service.ok("POST", "/streams", 201, json=stream)
    cql = (
        "SELECT a.v AS a, b.v AS b, c.k AS c FROM sk_a {0} a JOIN sk_b {0} b USING (k) "
        "JOIN sk_c {0} c USING (v)"
    ).format("[RANGE 10 SECONDS]")
    refused = service.ok("POST", "/queries:validate", 422, json={"cql": cql})
    assert refused["code"] == "ambiguous-column"
    cql = cql.replace("USING (v)", "ON b.v = c.v")
    service.ok("POST", "/queries?wait=60", 201, json={"name": "sk_three", "cql": cql})
    post(service, "sk_c", (5, 100, 20), (6, 101, 21), (7, 102, 29))
    post(service, "sk_b", (3, 1, 20), (8, 2, 21))
    # The last rows that come; their pairs take a batch more.
    post(service, "sk_a", (4, 1, 10), (9, 2, 11), (19, 2, 12))
    assert sorted(results(service, "sk_three", 2)) == [(10, 20, 100, at(5)), (11, 21, 101, at(9))]

    titles = {f["title"]: f["id"] for f in service.ok("GET", "/plan", 200)["families"]}
    statistics = {f["family"]: f for f in service.ok("GET", "/statistics", 200)["families"]}
    first, second = titles["sk_a.k = sk_b.k"], titles["(sk_a, sk_b).b.v = sk_c.v"]
    assert (statistics[first]["exchange_rows"], statistics[second]["exchange_rows"]) == (None, 2)
    assert statistics[second]["exchange_seconds"] > 0
    assert "exchange, one batch later" in service.http.get("/plan?format=mermaid").text
    service.ok("DELETE", "/queries/sk_three?wait=60", 200)
