"""Contracts and punctuations over HTTP: declared, posted, changed, and seen in results and statistics."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.api.running_service import WAIT_S, RunningService, at, selected
from tests.waiting import until

pytestmark = pytest.mark.spark

COLUMNS = {"ts": "timestamp", "item": "bigint", "v": "int"}
NDJSON = {"Content-Type": "application/x-ndjson"}


def post_events(service: RunningService, stream: str, *events: dict[str, Any]) -> dict[str, Any]:
    body = "\n".join(json.dumps(event) for event in events)
    answer = service.ok("POST", f"/streams/{stream}/events", 202, content=body, headers=NDJSON)
    assert isinstance(answer, dict)
    return answer


def counters(service: RunningService, stream: str) -> dict[str, Any]:
    found = service.ok("GET", "/statistics", 200)["punctuations"]
    (own,) = [each for each in found if each["stream"] == stream]
    return dict(own)


def test_posted_punctuations_close_keys_and_a_patch_ends_the_contract(service: RunningService) -> None:
    for name in ("punc_bids", "punc_items"):
        document: dict[str, Any] = {"name": name, "columns": COLUMNS, "event_time": "ts"}
        document |= {"lateness": "60s", "source": {"type": "http"}}
        if name == "punc_items":
            document["punctuations"] = {"on": [["item"]]}
        answer = service.ok("POST", "/streams", 201, json=document)
    assert answer["punctuations"] == {
        "on": [["item"]],
        "violation": "drop",
        "remember": "window",
        "column": None,
        "open_time": None,
    }
    cql = (
        "SELECT a.v AS bid, b.v AS offer "
        "FROM punc_bids [RANGE 10 SECONDS] a, punc_items [RANGE 10 SECONDS] b WHERE a.item = b.item"
    )
    service.ok("POST", f"/queries?wait={WAIT_S}", 201, json={"name": "punc_q", "cql": cql})

    post_events(service, "punc_bids", {"ts": at(1), "item": 180, "v": 1}, {"ts": at(1), "item": 181, "v": 2})
    # In one request: the second item of 180 stands behind the promise that there is none.
    taken = post_events(
        service,
        "punc_items",
        {"ts": at(2), "item": 180, "v": 10},
        {"_punctuation": {"item": [180, 199]}},
        {"ts": at(3), "item": 180, "v": 11},
        {"ts": at(3), "item": 181, "v": 20},
    )
    assert (taken["accepted"], taken["first_offset"], taken["last_offset"]) == (5, 0, 4)
    assert selected(service, "punc_q", 2) == [(1, 10), (2, 20)]
    found = counters(service, "punc_items")
    assert (found["closed"], found["violating"]) == (2, 1)

    # A bid on a closed item probes and is not stored.
    post_events(service, "punc_bids", {"ts": at(4), "item": 180, "v": 3})
    assert selected(service, "punc_q", 3) == [(1, 10), (2, 20), (3, 10)]
    assert counters(service, "punc_items")["discarded"] == 1

    closed = service.ok("POST", "/streams/punc_items/punctuations", 202, json=[{"item": 181}])
    assert closed["accepted"] == 1
    post_events(
        service, "punc_items", {"ts": at(5), "item": 181, "v": 21}, {"ts": at(5), "item": 182, "v": 30}
    )
    post_events(service, "punc_bids", {"ts": at(5), "item": 182, "v": 4})
    assert selected(service, "punc_q", 4) == [(1, 10), (2, 20), (3, 10), (4, 30)]
    assert counters(service, "punc_items")["violating"] == 2

    # From the plan version without the contract on, nothing is promised.
    before = service.ok("GET", "/plan", 200)["version"]
    changed = service.ok("PATCH", "/streams/punc_items", 200, json={"punctuations": None})
    assert changed["punctuations"] is None
    assert service.ok("GET", "/plan", 200)["version"] == before + 1
    post_events(service, "punc_items", {"ts": at(6), "item": 182, "v": 31})
    assert selected(service, "punc_q", 5)[-1] == (4, 31)
    refused = service.http.request("POST", "/streams/punc_items/punctuations", json=[{"item": 181}])
    assert refused.status_code == 422
    assert "no contract" in refused.text


def test_finished_keys_leave_as_result_punctuations(service: RunningService) -> None:
    for name in ("done_bids", "done_items"):
        document: dict[str, Any] = {"name": name, "columns": COLUMNS, "event_time": "ts"}
        document |= {"source": {"type": "http"}, "punctuations": {"on": [["item"]], "remember": "forever"}}
        service.ok("POST", "/streams", 201, json=document)
    cql = (
        "SELECT b.v, a.item AS number, _punctuation "
        "FROM done_bids [RANGE 10 SECONDS] a, done_items [RANGE 10 SECONDS] b WHERE a.item = b.item"
    )
    added = service.ok("POST", f"/queries?wait={WAIT_S}", 201, json={"name": "done_q", "cql": cql})
    assert added["warnings"] == []
    post_events(service, "done_items", {"ts": at(1), "item": 7, "v": 1}, {"_punctuation": {"item": 7}})
    post_events(service, "done_bids", {"ts": at(2), "item": 7, "v": 2}, {"_punctuation": {"item": 7}})
    with service.events("/queries/done_q/results/stream") as events:
        result, done = next(events), next(events)
    assert (result.event, done.event) == ("result", "punctuation")
    assert result.data["number"] == 7
    assert done.data == {"_punctuation": {"number": 7}}
    page = service.http.get("/queries/done_q/results", headers={"Accept": "application/x-ndjson"})
    assert page.text.splitlines()[1] == '{"_punctuation":{"number":7}}'
    exported = service.http.get("/queries/done_q/results:export?format=ndjson")
    assert exported.text == page.text
    rows = service.ok("GET", "/queries/done_q/results", 200)["rows"]
    told = {"v": None, "number": None, "_punctuation": '{"number":7}', "_event_time": None}
    assert rows[1] == told
    # Whoever goes on from there gets each of them once.
    after = service.ok("GET", "/queries/done_q/results?limit=1", 200)["next_cursor"]
    assert service.ok("GET", f"/queries/done_q/results?after={after}", 200)["rows"] == [told]

    # With another policy they wait until somebody asks.
    family = "done_bids.item = done_items.item"
    policy = {"purge": "eager", "propagate": "pull"}
    service.ok("POST", f"/migrations?wait={WAIT_S}", 200, json={"family_punctuations": {family: policy}})
    (planned,) = [f for f in service.ok("GET", "/plan", 200)["families"] if f["title"] == family]
    assert planned["punctuations"] == policy | {"closed_by": ["done_bids", "done_items"], "decided_early": []}
    assert service.ok("GET", "/migrations/policy", 200)["family_punctuations"][family] == policy
    post_events(service, "done_items", {"ts": at(3), "item": 8, "v": 1}, {"_punctuation": {"item": 8}})
    post_events(service, "done_bids", {"ts": at(3), "item": 8, "v": 2}, {"_punctuation": {"item": 8}})
    post_events(service, "done_items", {"ts": at(4), "item": 9, "v": 1})
    post_events(service, "done_bids", {"ts": at(4), "item": 9, "v": 2})

    def found() -> list[str]:
        rows = service.ok("GET", f"/queries/done_q/results?after={after}", 200)["rows"]
        return sorted(str(row["number"] or row["_punctuation"]) for row in rows)

    until(lambda: found() == ["8", "9", '{"number":7}'], found)
    service.ok("POST", "/queries/done_q:propagate", 202)
    until(lambda: found() == ["8", "9", '{"number":7}', '{"number":8}'], found)


def test_punctuations_of_other_streams_stand_behind_the_rows_of_the_next_batch(
    service: RunningService,
) -> None:
    for name in ("punc_left", "punc_right"):
        columns = {"item": {"distribution": "uniform", "low": 0, "high": 5}}
        source = {"type": "generator", "rate_per_s": 20, "rows": 100, "seed": 3, "start": at(0)}
        document = {
            "name": name,
            "columns": COLUMNS,
            "event_time": "ts",
            "source": source | {"columns": columns},
        }
        service.ok("POST", "/streams", 201, json=document | {"punctuations": {"on": [["item"]]}})
    cql = (
        "SELECT a.v FROM punc_left [RANGE 9 SECONDS] a, punc_right [RANGE 9 SECONDS] b WHERE a.item = b.item"
    )
    service.ok("POST", f"/queries?wait={WAIT_S}", 201, json={"name": "punc_g", "cql": cql})
    headers = {"Idempotency-Key": "pu-right-1"}
    patterns = [{"item": [1, 2]}, {"item": 3}]
    for _ in range(2):
        taken = service.ok("POST", "/streams/punc_right/punctuations", 202, json=patterns, headers=headers)
        assert taken == {"accepted": 3, "first_offset": None, "last_offset": None}
    until(lambda: counters(service, "punc_right")["closed"] == 3, lambda: counters(service, "punc_right"))
    received = service.ok("GET", "/statistics", 200)["received_punctuations"]
    assert {"stream": "punc_right", "received": 3, "ignored": 0} in received


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ({"ts": at(1)}, "does not declare the set of columns {ts}"),
        ({"itm": 1}, '"itm" is not a column'),
        ({"item": "x"}, '"x" is not a bigint'),
        ({"item": None}, 'column "item" is NULL'),
        ({"item": []}, 'the list of column "item" is empty'),
        ({"item": {"from": 9, "below": 9}}, 'the range of column "item" is empty'),
        ({"item": {"from": 1, "to": 9}}, 'the range of column "item" has the field "to"'),
        ({"item": {}}, 'the range of column "item" has no bound'),
        ({}, "does not declare the set of columns {}"),
    ],
)
def test_a_punctuation_that_does_not_fit_is_refused_with_its_whole_request(
    service: RunningService, pattern: dict[str, Any], told: str
) -> None:
    document: dict[str, Any] = {"name": "punc_refused", "columns": COLUMNS, "event_time": "ts"}
    document |= {"source": {"type": "http"}, "punctuations": {"on": [["item"]]}}
    if service.http.request("GET", "/streams/punc_refused").status_code == 404:
        service.ok("POST", "/streams", 201, json=document)
    events = [{"ts": at(1), "item": 1, "v": 1}, {"_punctuation": pattern}]
    body = "\n".join(map(json.dumps, events))
    refused = service.http.request("POST", "/streams/punc_refused/events", content=body, headers=NDJSON)
    assert refused.status_code == 422
    assert told in refused.json()["title"] or told in refused.json()["detail"], refused.text
    taken = post_events(service, "punc_refused", {"ts": at(1), "item": 1, "v": 1})
    assert taken["accepted"] == 1
