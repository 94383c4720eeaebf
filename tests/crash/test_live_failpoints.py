"""A service under load dies at a failpoint and is started again: each event that it took counts once.

The client sends again whatever was not acknowledged, under the same key.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import httpx
import numpy as np
import pyarrow as pa
import pytest

from api.errors import RequestUnderWay
from catalog.store.store import Store
from tests.api.running_service import WAIT_S, RunningService, free_port
from tests.crash.killing import failpoint

SEED = 23
ROWS, KEYS = 25, 40
STEP_US = 2_000
AT_ONCE = 4
#: The batch that the service dies in, and how many requests there are after it has come back.
BATCH, MORE = 20, 200
CQL = (
    "SELECT A.id AS a, B.id AS b FROM A [RANGE 300 MILLISECONDS], B [RANGE 200 MILLISECONDS] WHERE A.k = B.k"
)
STOPPED_S = 180.0


class Client(threading.Thread):
    """Posts to both streams without a pause, and once more what was not acknowledged.

    Attributes:
        sent: Times (µs), ids and keys of what was acknowledged, by stream.
        requests: How many were.
        until: After so many it stops; None: not yet.
    """

    def __init__(self, root: str) -> None:
        super().__init__(daemon=True)
        self.sent: dict[str, list[tuple[int, int, int]]] = {"A": [], "B": []}
        self.requests = 0
        self.until: int | None = None
        self.failed: BaseException | None = None
        self._root = f"{root}/api/v1"

    def run(self) -> None:
        """Post until it is told to stop."""
        try:
            # Several at a time, so that a batch has requests of both streams.
            with ThreadPoolExecutor(AT_ONCE) as posters:
                while self.until is None or self.requests < self.until:
                    for stream, rows in posters.map(
                        self._post, range(self.requests, self.requests + AT_ONCE)
                    ):
                        self.sent[stream] += rows
                    self.requests += AT_ONCE
        except BaseException as problem:  # raised again by ``finish``
            self.failed = problem

    def finish(self, more: int) -> None:
        """Post so many more requests and stop."""
        self.until = self.requests + more
        self.join(WAIT_S + STOPPED_S)
        assert not self.is_alive(), "the client waits for the service"
        if self.failed is not None:
            raise self.failed

    def _post(self, number: int) -> tuple[str, list[tuple[int, int, int]]]:
        stream, first = "AB"[number % 2], number * ROWS
        keys = np.random.default_rng((SEED, number)).integers(0, KEYS, ROWS).tolist()
        rows = [((first + n) * STEP_US, first + n, k) for n, k in enumerate(keys)]
        body = [{"ts": t, "id": i, "k": k} for t, i, k in rows]
        headers = {"Idempotency-Key": f"request-{number}"}
        deadline = time.monotonic() + STOPPED_S
        while True:
            try:
                answer = httpx.post(f"{self._root}/streams/{stream}/events", json=body, headers=headers)
                # Of a request that was given up while it was served, the service says so.
                if answer.json().get("code") != RequestUnderWay.code:
                    break
            except httpx.TransportError:
                pass
            assert time.monotonic() < deadline, "the service did not come back"
            time.sleep(0.1)
        answer.raise_for_status()
        return stream, rows


def died_and_come_back(directory: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the last batch that was committed when the service died."""
    data_dir, port = directory / "data", free_port()
    monkeypatch.setenv(*environment.popitem())
    service = RunningService(data_dir, directory / "first.log", port)
    with service:
        for name in ("A", "B"):
            columns = {"ts": "timestamp", "id": "bigint", "k": "bigint"}
            stream = {"name": name, "columns": columns, "event_time": "ts", "lateness": "60s"}
            service.ok("POST", "/streams", 201, json=stream | {"source": {"type": "http"}})
        service.ok("POST", f"/queries?wait={WAIT_S}", 201, json={"name": "q", "cql": CQL})
        client = Client(service.root)
        client.start()
        service.process.wait(STOPPED_S)
    monkeypatch.delenv("SLUICE_FAILPOINT")
    with Store.open(f"sqlite:///{data_dir / 'catalog.db'}", migrate=False) as store:
        last = store.batches.last()
    assert last is not None

    with RunningService(data_dir, directory / "second.log", port) as service:
        client.finish(MORE)
        rows = sum(map(len, client.sent.values()))
        deadline = time.monotonic() + STOPPED_S
        while service.ok("GET", "/statistics", 200)["input_rows"] < rows:
            assert time.monotonic() < deadline, service.log.read_text()[-4000:]
            time.sleep(0.1)
        found = _results(service)
    tables = {
        name: pa.table(dict(zip(("ts", "id", "k"), map(list, zip(*sent, strict=True)), strict=True)))
        for name, sent in client.sent.items()
    }
    a, b = tables["A"], tables["B"]  # DuckDB finds them by name
    assert a.num_rows + b.num_rows == rows
    wanted = duckdb.sql(
        """SELECT a.id, b.id FROM a JOIN b ON a.k = b.k
           WHERE (b.ts >= a.ts AND b.ts - a.ts < 300000) OR (a.ts > b.ts AND a.ts - b.ts < 200000)
           ORDER BY ALL"""
    ).fetchall()
    assert len(wanted) > 1000
    assert sorted(found) == wanted
    return last


def _results(service: RunningService) -> list[tuple[int, int]]:
    """Read all results of the query, page by page."""
    rows: list[tuple[int, int]] = []
    cursor = ""
    while True:
        after = f"&after={cursor}" if cursor else ""
        page = service.ok("GET", f"/queries/q/results?limit=10000{after}", 200)
        rows += [(row["a"], row["b"]) for row in page["rows"]]
        if not page["has_more"]:
            return rows
        cursor = page["next_cursor"]


@pytest.mark.spark
def test_a_service_dies_when_its_batch_is_logged_and_nothing_of_it_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = died_and_come_back(tmp_path, failpoint("after-offset-log", BATCH), monkeypatch)
    assert last == BATCH - 1


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    "point",
    [
        "before-offset-log",
        "before-state-commit",
        "before-result-commit",
        "after-result-commit",
        "after-commit-log",
    ],
)
def test_a_service_dies_at_another_point(point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last = died_and_come_back(tmp_path, failpoint(point, BATCH), monkeypatch)
    assert last in (BATCH - 1, BATCH)
