"""Joins without windows over HTTP: streams in the order of their key."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.running_service import WAIT_S, RunningService, post, selected
from tests.waiting import until

pytestmark = pytest.mark.spark

CQL = "SELECT a.epoch AS epoch, a.v AS v, b.v AS w FROM or_left a JOIN or_right b ON a.epoch = b.epoch"


def post_epochs(service: RunningService, stream: str, *rows: tuple[int, int]) -> None:
    post(service, stream, *((v, epoch, v) for epoch, v in rows))


def test_streams_in_order_are_joined_without_windows(service: RunningService) -> None:
    for name in ("or_left", "or_right", "or_third", "or_none"):
        columns = {"ts": "timestamp", "epoch": "bigint", "v": "int"}
        document: dict[str, Any] = {"name": name, "columns": columns, "event_time": "ts"}
        document |= {"lateness": "0s", "source": {"type": "http"}}
        if name != "or_none":
            scramble = 2 if name == "or_left" else "monitor"
            document["order"] = {"column": "Epoch", "scramble": scramble}
            expected = {"column": "epoch", "scramble": scramble, "descending": False}
        answer = service.ok("POST", "/streams", 201, json=document)
        assert answer["order"] == (None if name == "or_none" else expected)
    added = service.ok("POST", f"/queries?wait={WAIT_S}", 201, json={"name": "or_q", "cql": CQL})
    assert (added["a"]["window"], added["b"]["window"]) == ("none", "none")

    three = (
        "SELECT a.v AS v, b.v AS w, c.v AS x FROM or_left a, or_right b, or_third c WHERE a.epoch = b.epoch"
    )
    body = {"name": "or_3", "cql": f"{three} AND b.epoch = c.epoch"}
    service.ok("POST", f"/queries?wait={WAIT_S}", 201, json=body)

    # Event times are in no order, and far apart; nothing is late.
    post_epochs(service, "or_left", (1, 50), (2, 3), (4, 1), (3, 2))
    post_epochs(service, "or_right", (1, 1), (3, 59))
    assert selected(service, "or_q", 2) == [(1, 50, 1), (3, 2, 59)]
    shown = service.ok("GET", "/queries/or_q/results", 200)["rows"]
    assert {row["_event_time"][:19] for row in shown} == {"2026-01-01T00:00:50", "2026-01-01T00:00:59"}

    # Of the left stream all but the last two rows have come up to 4, so that 2 breaks its order.
    post_epochs(service, "or_left", (5, 4), (6, 5))
    post_epochs(service, "or_left", (2, 9), (7, 6))
    post_epochs(service, "or_right", (2, 7), (7, 8), (6, 9))
    assert selected(service, "or_q", 5) == [(1, 50, 1), (2, 3, 7), (3, 2, 59), (6, 5, 9), (7, 6, 8)]
    post_epochs(service, "or_third", (3, 11), (6, 12), (8, 13))
    assert selected(service, "or_3", 2) == [(2, 59, 11), (5, 9, 12)]
    counters = service.ok("GET", "/statistics", 200)["punctuations"]
    (left,) = [each for each in counters if each["stream"] == "or_left"]
    assert left["violating"] == 1
    streams = service.ok("GET", "/statistics", 200)["streams"]
    scrambles = {each["stream"]: each["scramble"] for each in streams if each["stream"][:3] == "or_"}
    assert scrambles == {"or_left": 2, "or_right": 64, "or_third": 64, "or_none": None}

    refused = service.http.request(
        "POST", "/queries:validate", json={"cql": CQL.replace("or_right", "or_none")}
    )
    assert "declare the key as the order of both streams (or_left: epoch, or_none: epoch)" in refused.text
    families = service.ok("GET", "/statistics", 200)["families"]
    (ordered,) = [
        f["ordered"] for f in families if [o["stream"] for o in f["ordered"]] == ["or_left", "or_right"]
    ]
    assert [(side["scramble"], side["held_rows"] > 0) for side in ordered] == [(2, True), (64, True)]
    assert ordered[0]["disordered_share"] > 0
    plan = service.ok("GET", "/plan", 200)["families"]
    (predicted,) = [
        f["predicted_rows"] for f in plan if f["title"].startswith("or_left.epoch = or_right.epoch")
    ]
    assert predicted["a"]["scramble"] == 2

    # Rows of the left stream, which leads, wait for the right one, and nothing else changes.
    service.ok("POST", f"/migrations?wait={WAIT_S}", 200, json={"oblivious_memory": "dbf"})
    assert service.ok("GET", "/migrations/policy", 200)["oblivious_memory"] == "dbf"
    families = service.ok("GET", "/plan", 200)["families"]
    assert {f["memory"] for f in families if "or_left" in f["title"]} == {"dbf"}
    post_epochs(service, "or_left", (21, 31), (23, 32))
    post_epochs(service, "or_right", (21, 30), (22, 31))
    assert selected(service, "or_q", 6)[-1] == (21, 31, 30)
    families = service.ok("GET", "/statistics", 200)["families"]
    (ordered,) = [
        f["ordered"] for f in families if [o["stream"] for o in f["ordered"]] == ["or_left", "or_right"]
    ]
    assert [(side["waiting_rows"], side["parked_rows"]) for side in ordered] == [(1, 0), (0, 0)]
    # Sorted first, a result waits for rows of both streams behind it, or until they are not sorted any more.
    service.ok("POST", f"/migrations?wait={WAIT_S}", 200, json={"oblivious_memory": "msf"})
    families = service.ok("GET", "/plan", 200)["families"]
    (predicted,) = [
        f["predicted_rows"] for f in families if f["title"].startswith("or_left.epoch = or_right.epoch")
    ]
    assert predicted["a"]["latency_s"] > 0
    post_epochs(service, "or_left", (23, 34))

    def sorted_rows() -> list[dict[str, Any]]:
        families = service.ok("GET", "/statistics", 200)["families"]
        return [o for f in families for o in f["ordered"] if o["memory"] == "msf" and o["waiting_rows"]]

    until(lambda: bool(sorted_rows()))
    waiting = sorted_rows()[0]
    assert (waiting["stream"], waiting["waiting_rows"]) == ("or_left", 1)
    assert waiting["predicted_latency_s"] > 0
    service.ok("POST", f"/migrations?wait={WAIT_S}", 200, json={"oblivious_memory": "auto"})
    assert {f["memory"] for f in service.ok("GET", "/plan", 200)["families"]} == {"plain"}
    post_epochs(service, "or_right", (23, 33))
    assert sorted(selected(service, "or_q", 8)[-2:]) == [(23, 32, 33), (23, 34, 33)]

    # Another factor is another plan version; another column would be another clock of the queries.
    before = service.ok("GET", "/plan", 200)["version"]
    order: dict[str, Any] = {"column": "epoch", "scramble": 5}
    changed = service.ok("PATCH", "/streams/or_left", 200, json={"order": order})
    assert changed["order"] == order | {"descending": False}
    assert service.ok("GET", "/plan", 200)["version"] == before + 1
    refused = service.ok("PATCH", "/streams/or_left", 409, json={"order": None})
    assert (refused["code"], "or_3, or_q" in refused["explanation"]) == ("stream-in-use", True)
    for bad, said in (
        ({"column": "epoch", "scramble": -1}, "scramble"),
        ({"column": "epok", "scramble": 1}, 'column "epok" does not exist in stream "or_left"'),
        ({"column": "ts", "scramble": 1, "descending": 3}, "descending"),
    ):
        assert said in str(service.ok("PATCH", "/streams/or_left", 422, json={"order": bad}))
    # With the former factor of 2, all rows up to 24 would be out of order now.
    post_epochs(service, "or_left", (24, 60), (25, 61), (26, 62))
    post_epochs(service, "or_left", (22, 20), (8, 21))
    assert (22, 20, 31) in selected(service, "or_q", 9)
    service.ok("DELETE", "/queries/or_q", 202)
    service.ok("DELETE", "/queries/or_3", 202)
