from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.api.running_service import WAIT_S, RunningService, free_port
from tests.browser import launched

#: What is waited for: a batch or two, on a busy machine.
TIMEOUT_MS = WAIT_S * 1000

ORDERS = {
    "name": "orders",
    "columns": {"ts": "timestamp", "id": "bigint", "total": "double"},
    "event_time": "ts",
    "lateness": "5s",
    "source": {"type": "http"},
}
PAYMENTS = {
    "name": "payments",
    "columns": {"ts": "timestamp", "order_id": "bigint", "amount": "double"},
    "event_time": "ts",
    "lateness": "5s",
    "source": {"type": "http"},
}
JOIN = "FROM orders [RANGE {0} MINUTES] o, payments [RANGE {1} MINUTES] p WHERE o.id = p.order_id"


class Running(RunningService):
    """A service with two streams of posts, for pages that are looked at."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._next = 0

    def add(self, name: str, a: int = 10, b: int = 1, more: str = "") -> None:
        """Add a query with windows in minutes and wait until it runs."""
        cql = f"SELECT o.id, p.amount {JOIN.format(a, b)}{more}"
        self.ok("POST", f"/queries?wait={WAIT_S}", 201, json={"name": name, "cql": cql})

    @contextmanager
    def also(self, name: str, selected: str, joined: str) -> Iterator[None]:
        """Run one more query while the block lasts."""
        cql = f"SELECT {selected} {joined}"
        self.ok("POST", f"/queries?wait={WAIT_S}", 201, json={"name": name, "cql": cql})
        yield
        self.ok("DELETE", f"/queries/{name}?wait={WAIT_S}", 200)

    def post_pairs(self, pairs: int) -> None:
        """Post orders with a payment each, a second apart."""
        began = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
        moments = [
            (n, (began + datetime.timedelta(seconds=n)).isoformat())
            for n in range(self._next, self._next + pairs)
        ]
        self._next += pairs
        orders = [{"ts": ts, "id": n, "total": float(n)} for n, ts in moments]
        payments = [{"ts": ts, "order_id": n, "amount": float(n)} for n, ts in moments]
        self.ok("POST", "/streams/orders/events", 202, json=orders)
        self.ok("POST", "/streams/payments/events", 202, json=payments)


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    directory = tmp_path_factory.mktemp("console")
    with Running(directory / "data", directory / "log.txt", free_port()) as service:
        for stream in (ORDERS, PAYMENTS):
            service.ok("POST", "/streams", 201, json=stream)
        service.add("paid")
        service.add("large", 60, 5, " AND o.total > 100")
        service.post_pairs(200)
        yield service


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Not for the session: Playwright has an event loop run in this thread, and other tests run their own.
    expect.set_options(timeout=TIMEOUT_MS)
    with launched() as started:
        yield started


@pytest.fixture
def page(browser: Browser, running: Running) -> Iterator[Page]:
    """A page that must not fail: no error in a script, nothing that the policy forbids."""
    context = browser.new_context(base_url=running.root, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(TIMEOUT_MS)
    opened = context.new_page()
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on(
        "console",
        lambda message: (
            faults.append(message.text)
            if message.type == "error" and "Failed to load resource" not in message.text
            else None
        ),
    )
    yield opened
    context.close()
    assert faults == []
