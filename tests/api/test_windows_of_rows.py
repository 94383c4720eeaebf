"""Windows of rows in a running service: an as-of join over posted events, its plan, and a second window."""

from __future__ import annotations

import pytest

from tests.api.running_service import WAIT_S, RunningService, post, selected
from tests.builders import stream_document

pytestmark = pytest.mark.spark

COLUMNS = {"ts": "timestamp", "sym": "string", "v": "int"}


def test_each_trade_meets_the_last_quote_of_its_symbol(service: RunningService) -> None:
    for name in ("asof_quotes", "asof_trades"):
        stream = stream_document(name, COLUMNS)
        answer = service.ok("POST", "/streams", 201, json=stream | {"retain": "30d"})
        assert answer["retain"] == "30d"
    form = (
        "SELECT t.v AS trade, q.v AS quote FROM asof_quotes [{}] q, asof_trades [NOW] t WHERE q.sym = t.sym"
    )
    queries = {"asof": form.format("PARTITION BY sym ROWS 1"), "last_two": form.format("ROWS 2")}
    for name, cql in queries.items():
        service.ok("POST", f"/queries?wait={WAIT_S}", 201, json={"name": name, "cql": cql})
    shown = service.ok("GET", "/queries/asof", 200)
    windows = {shown[side]["stream"]: shown[side]["window"] for side in ("a", "b")}
    assert windows == {"asof_quotes": "1 row of each key", "asof_trades": "1us"}
    plan = service.http.request("GET", "/plan?format=text").text
    assert "asof_quotes by rows of each key" in plan
    assert "slice 1 [0, 2) rows" in plan

    unbounded = queries["last_two"].replace("[NOW]", "[RANGE UNBOUNDED]")
    meant = service.ok("POST", "/queries:validate", 200, json={"cql": unbounded})
    assert {meant[side]["window"] for side in ("a", "b")} == {"2 rows", "30d"}

    post(service, "asof_quotes", (1, "x", 10), (2, "y", 20), (3, "x", 11), (5, None, 0))
    post(service, "asof_trades", (4, "x", 1), (4, "y", 2), (6, "x", 3))
    # Trades before the newest quote are decided, that of 6 s only is when a quote comes behind it.
    assert selected(service, "asof", 2) == [(1, 11), (2, 20)]
    post(service, "asof_quotes", (7, "x", 12))
    assert selected(service, "asof", 3) == [(1, 11), (2, 20), (3, 11)]
    assert selected(service, "last_two", 3) == [(1, 11), (2, 20), (3, 11)]
