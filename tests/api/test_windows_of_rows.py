"""Windows of rows in a running service: an as-of join over posted events, its plan, and a second window."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.api.running_service import WAIT_S, RunningService

pytestmark = pytest.mark.spark

COLUMNS = {"ts": "timestamp", "sym": "string", "v": "int"}


def at(second: int) -> str:
    """Event time, in seconds after a fixed start."""
    return f"2026-01-01T00:00:{second:02}.000000Z"


def post(service: RunningService, stream: str, *rows: tuple[int, str | None, int]) -> None:
    events = [{"ts": at(second), "sym": sym, "v": v} for second, sym, v in rows]
    service.ok("POST", f"/streams/{stream}/events", 202, json=events)


def results(service: RunningService, query: str, count: int) -> list[tuple[Any, ...]]:
    """Wait until a query has as many results, and return its columns without the event time, sorted."""
    deadline = time.monotonic() + WAIT_S
    while True:
        rows = service.ok("GET", f"/queries/{query}/results", 200)["rows"]
        if len(rows) >= count or time.monotonic() > deadline:
            return sorted(tuple(row.values())[:-1] for row in rows)
        time.sleep(0.1)


def test_each_trade_meets_the_last_quote_of_its_symbol(service: RunningService) -> None:
    for name in ("asof_quotes", "asof_trades"):
        stream = {"name": name, "columns": COLUMNS, "event_time": "ts", "source": {"type": "http"}}
        service.ok("POST", "/streams", 201, json=stream)
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

    post(service, "asof_quotes", (1, "x", 10), (2, "y", 20), (3, "x", 11), (5, None, 0))
    post(service, "asof_trades", (4, "x", 1), (4, "y", 2), (6, "x", 3))
    # Trades before the newest quote are decided, that of 6 s only is when a quote comes behind it.
    assert results(service, "asof", 2) == [(1, 11), (2, 20)]
    post(service, "asof_quotes", (7, "x", 12))
    assert results(service, "asof", 3) == [(1, 11), (2, 20), (3, 11)]
    assert results(service, "last_two", 3) == [(1, 11), (2, 20), (3, 11)]
