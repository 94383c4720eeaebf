"""Readers beside those of ``tests.bench.feeding``: by server-sent events, and of many queries in turn."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import httpx

from tests.bench.feeding import Follower, Reading, Worker
from tests.bench.soak.visitors import Visitors

#: Between two looks at the queries whose latency is not measured.
_SWEEP_S = 5.0
#: How long the results of a query are looked for after it has gone.
_AFTERWARDS_S = 120.0


class EventFollower(Follower):
    """Follows a query by server-sent events."""

    def _work(self, http: httpx.Client) -> None:
        with http.stream("GET", f"/queries/{self.reading.name}/results/stream") as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                field, _, value = line.partition(": ")
                if field == "data":
                    row = json.loads(value)
                    self.reading.keep([row["a"]], [row["b"]])
                elif field == "id":
                    self.reading.after = value
                elif field == "event" and value != "result":
                    raise RuntimeError(f"event {value} of {self.reading.name}")
                # A ping comes every 15 s; after an empty line no event is half read.
                elif not line and self._stopped.is_set():
                    break
        self.reading.rest(http)


class Sweeper(Worker):
    """Reads what has come of standing queries and of visitors, every few seconds.

    Args:
        root: Address of the API.
        standing: Names of queries that stay.
        visitors: The visitors.

    Attributes:
        readings: What was read, by query.
    """

    def __init__(self, root: str, standing: Sequence[str], visitors: Visitors) -> None:
        super().__init__(root)
        self.readings = {name: Reading(name) for name in standing}
        self._visitors = visitors
        self._gone_s: dict[str, float] = {}
        self._done: set[str] = set()

    def _work(self, http: httpx.Client) -> None:
        while not self._stopped.wait(_SWEEP_S):
            self._sweep(http)
        self._sweep(http)

    def _sweep(self, http: httpx.Client) -> None:
        now_s, present = time.monotonic(), set(self._visitors.present)
        visitors = list(self._visitors.phases)
        self.readings |= {name: Reading(name) for name in visitors if name not in self.readings}
        for name in self.readings.keys() - self._done:
            found = self.readings[name].rest(http)
            if name in visitors and name not in present:
                since_s = self._gone_s.setdefault(name, now_s)
                # A query without results is forgotten soon after it has gone.
                if found is None or (not found and now_s - since_s > _AFTERWARDS_S):
                    self._done.add(name)
            elif found is None and name in self._visitors.present:
                raise RuntimeError(f"query {name} is not found")
