"""A client under load, and the results that its events must have."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import duckdb
import httpx
import numpy as np
import pyarrow as pa

from api.errors import RequestUnderWay
from tests.api.running_service import WAIT_S, RunningService
from tests.waiting import until

SEED = 23
ROWS, KEYS = 25, 40
STEP_US = 2_000
AT_ONCE = 4
CQL = (
    "SELECT A.id AS a, B.id AS b FROM A [RANGE 300 MILLISECONDS], B [RANGE 200 MILLISECONDS] WHERE A.k = B.k"
)
STOPPED_S = 180.0

#: Times (µs), ids and keys of events by stream.
Sent = dict[str, list[tuple[int, int, int]]]


def add_streams_and_query(service: RunningService, *, wait_s: float = WAIT_S) -> None:
    """Register the streams that the client posts to, and the query over them.

    Args:
        service: The service.
        wait_s: How long to wait until the query is active, which it must be then; 0 does not wait.
    """
    add_streams(service)
    status = 201 if wait_s else 202
    service.ok("POST", f"/queries?wait={wait_s}", status, json={"name": "q", "cql": CQL})


def add_streams(service: RunningService) -> None:
    """Register the streams that the client posts to."""
    for name in ("A", "B"):
        columns = {"ts": "timestamp", "id": "bigint", "k": "bigint"}
        stream = {"name": name, "columns": columns, "event_time": "ts", "lateness": "60s"}
        service.ok("POST", "/streams", 201, json=stream | {"source": {"type": "http"}})


class Client(threading.Thread):
    """Posts to both streams, and once more what was not acknowledged.

    Args:
        root: Address of the service.
        bears: Statuses after which it sends a request again.
        pause_s: Pause after every ``AT_ONCE`` requests, for some 1,000 rows a second.

    Attributes:
        sent: Times (µs), ids and keys of what was acknowledged, by stream.
        requests: How many were.
        refused: How often each status and code was answered that it bears.
        until: After so many it stops; None: not yet.
    """

    def __init__(self, root: str, bears: frozenset[int] = frozenset(), *, pause_s: float = 0.1) -> None:
        super().__init__(daemon=True)
        self.refused: Counter[tuple[int, str]] = Counter()
        self._bears = bears
        self._pause_s = pause_s
        self.sent: Sent = {"A": [], "B": []}
        self.requests = 0
        self.until: int | None = None
        self.failed: BaseException | None = None
        self._root = f"{root}/api/v1"

    def run(self) -> None:
        """Post until it is told to stop."""
        try:
            # Several at a time, so that a batch has requests of both streams.
            with httpx.Client(base_url=self._root) as http, ThreadPoolExecutor(AT_ONCE) as posters:
                post = partial(self._post, http)
                while self.until is None or self.requests < self.until:
                    for stream, rows in posters.map(post, range(self.requests, self.requests + AT_ONCE)):
                        self.sent[stream] += rows
                    self.requests += AT_ONCE
                    time.sleep(self._pause_s)
        except BaseException as problem:  # raised again by ``finish``
            self.failed = problem

    def finish(self, more: int) -> None:
        """Post so many more requests and stop."""
        self.until = self.requests + more
        self.join(WAIT_S + STOPPED_S)
        assert not self.is_alive(), "the client waits for the service"
        if self.failed is not None:
            raise self.failed

    def _post(self, http: httpx.Client, number: int) -> tuple[str, list[tuple[int, int, int]]]:
        stream, first = "AB"[number % 2], number * ROWS
        keys = np.random.default_rng((SEED, number)).integers(0, KEYS, ROWS).tolist()
        rows = [((first + n) * STEP_US, first + n, k) for n, k in enumerate(keys)]
        body = [{"ts": t, "id": i, "k": k} for t, i, k in rows]
        headers = {"Idempotency-Key": f"request-{number}"}
        deadline = time.monotonic() + STOPPED_S
        while True:
            try:
                answer = http.post(f"/streams/{stream}/events", json=body, headers=headers)
                # A part is down, or a request that was given up is still served.
                code = answer.json().get("code")
                if answer.status_code in self._bears:
                    self.refused[answer.status_code, code] += 1
                elif answer.status_code != 503 and code != RequestUnderWay.code:
                    break
            except httpx.TransportError:
                pass
            assert time.monotonic() < deadline, "the service did not come back"
            time.sleep(0.1)
        answer.raise_for_status()
        return stream, rows


def wait_for_rows(service: RunningService, rows: int) -> None:
    """Wait until batches with so many rows are committed."""
    until(
        lambda: service.ok("GET", "/statistics", 200)["input_rows"] >= rows,
        lambda: service.log.read_text()[-4000:],
        STOPPED_S,
    )


def expected(sent: Sent) -> list[tuple[int, int]]:
    """Return the pairs of the query over all that was sent, sorted."""
    wanted = pairs(sent, 300, 200)
    assert len(wanted) > 1000
    return wanted


def pairs(sent: Sent, w_a_ms: int, w_b_ms: int, condition: str = "true") -> list[tuple[int, int]]:
    """Return the pairs that DuckDB finds over all that was sent, sorted.

    Args:
        sent: The rows.
        w_a_ms: Window of A, ms.
        w_b_ms: Window of B, ms.
        condition: On ``a`` and ``b``, in SQL.
    """
    tables = {
        name: pa.table(dict(zip(("ts", "id", "k"), map(list, zip(*rows, strict=True)), strict=True)))
        for name, rows in sent.items()
    }
    a, b = tables["A"], tables["B"]  # DuckDB finds them by name
    assert a.num_rows + b.num_rows == sum(map(len, sent.values()))
    return duckdb.sql(
        f"""SELECT a.id, b.id FROM a JOIN b ON a.k = b.k AND ({condition})
            WHERE (b.ts >= a.ts AND b.ts - a.ts < {w_a_ms * 1000})
               OR (a.ts > b.ts AND a.ts - b.ts < {w_b_ms * 1000})
            ORDER BY ALL"""
    ).fetchall()


def results(service: RunningService, query: str = "q") -> list[tuple[int, int]]:
    """Read all results of a query, page by page."""
    rows: list[tuple[int, int]] = []
    cursor = ""
    while True:
        after = f"&after={cursor}" if cursor else ""
        page = service.ok("GET", f"/queries/{query}/results?limit=10000{after}", 200)
        rows += [(row["a"], row["b"]) for row in page["rows"]]
        if not page["has_more"]:
            return rows
        cursor = page["next_cursor"]
