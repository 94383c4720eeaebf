"""Readers: each result of each query is read once, by cursors, and put on disk with the time it was read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa

from api.queries.negotiation import ARROW
from service.results.results import MAX_PAGE_ROWS
from tests.bench.peers.feeding import Worker

#: A pair of row numbers, and the wall clock, µs, when it had been read.
PAIR = np.dtype([("a", "<i8"), ("b", "<i8"), ("read_us", "<i8")])
_TIMEOUT_S = 120.0
_WAIT_S = 1
#: Between two looks at the queries whose latency is not measured.
_SWEEP_S = 5.0
#: How long the results of a query are looked for after it has gone.
_AFTERWARDS_S = 120.0


class _Reading:
    """Position of a reader in the results of one query.

    Attributes:
        after: Cursor after the last result read; None before the first.
    """

    def __init__(self, http: httpx.Client, directory: Path, name: str, after: str | None = None) -> None:
        self.after = after
        self._http, self._name = http, name
        self._file = pairs_file(directory, name)

    def page(self, *, wait_s: int = 0) -> int | None:
        """Read a page and return its rows; None: the query is not known any more."""
        asked = {"limit": str(MAX_PAGE_ROWS), "wait": str(wait_s)}
        asked |= {} if self.after is None else {"after": self.after}
        answer = self._http.get(f"/queries/{self._name}/results", params=asked, headers={"Accept": ARROW})
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        answer.raise_for_status()
        if "Sluice-Dropped" in answer.headers:
            raise RuntimeError(f"results of {self._name} were dropped before they were read")
        self.after = answer.headers.get("Sluice-Next-Cursor", self.after)
        table = pa.ipc.open_stream(answer.content).read_all()
        self.keep(table["a"].to_numpy(), table["b"].to_numpy())
        return int(table.num_rows)

    def rest(self) -> int | None:
        """Read until a page is empty and return the rows read; None: the query is not known any more."""
        found = 0
        while rows := self.page():
            found += rows
        return None if rows is None else found

    def keep(self, a: Sequence[int] | np.ndarray, b: Sequence[int] | np.ndarray) -> None:
        """Put pairs read just now on disk."""
        pairs = np.empty(len(a), PAIR)
        pairs["a"], pairs["b"], pairs["read_us"] = a, b, time.time_ns() // 1000
        with self._file.open("ab") as out:
            pairs.tofile(out)


class _Follower(Worker):
    """Follows one query, over a connection of its own."""

    def __init__(self, root: str, directory: Path, name: str) -> None:
        super().__init__()
        self._root, self._directory, self._name = root, directory, name

    def _work(self) -> None:
        with httpx.Client(base_url=self._root, timeout=_TIMEOUT_S) as http:
            self._follow(http, _Reading(http, self._directory, self._name))

    def _follow(self, http: httpx.Client, reading: _Reading) -> None:
        raise NotImplementedError


class PageFollower(_Follower):
    """Follows a query by requests that wait for the next results."""

    def _follow(self, http: httpx.Client, reading: _Reading) -> None:
        while not self._stopped.is_set():
            reading.page(wait_s=_WAIT_S)
        reading.rest()


class EventFollower(_Follower):
    """Follows a query by server-sent events."""

    def _follow(self, http: httpx.Client, reading: _Reading) -> None:
        with http.stream("GET", f"/queries/{self._name}/results/stream") as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                field, _, value = line.partition(": ")
                if field == "data":
                    row = json.loads(value)
                    reading.keep([row["a"]], [row["b"]])
                elif field == "id":
                    reading.after = value
                elif field == "event" and value != "result":
                    raise RuntimeError(f"event {value} of {self._name}")
                # A ping comes every 15 s; after an empty line no event is half read.
                elif not line and self._stopped.is_set():
                    break
        reading.rest()


class Sweeper(Worker):
    """Reads what has come of all other queries, every few seconds.

    Args:
        root: Address of the API.
        directory: Of the pairs.
        standing: Names of queries that stay.
        visitors: Returns the names of visitors that are here, and of those that have gone.
    """

    def __init__(
        self,
        root: str,
        directory: Path,
        standing: Sequence[str],
        visitors: Callable[[], tuple[list[str], list[str]]],
    ) -> None:
        super().__init__()
        self._root, self._directory = root, directory
        self._standing, self._visitors = standing, visitors
        self._readings: dict[str, _Reading] = {}
        self._gone_s: dict[str, float] = {}
        self._done: set[str] = set()

    def _work(self) -> None:
        with httpx.Client(base_url=self._root, timeout=_TIMEOUT_S) as http:
            while not self._stopped.wait(_SWEEP_S):
                self._sweep(http)
            self._sweep(http)

    def _sweep(self, http: httpx.Client) -> None:
        present, gone = self._visitors()
        now_s = time.monotonic()
        for name in (*self._standing, *present, *(set(gone) - self._done)):
            reading = self._readings.setdefault(name, _Reading(http, self._directory, name))
            found = reading.rest()
            if name in gone:
                since_s = self._gone_s.setdefault(name, now_s)
                # A query without results is forgotten soon after it has gone.
                if found is None or (not found and now_s - since_s > _AFTERWARDS_S):
                    self._done.add(name)
                    del self._readings[name]
            elif found is None:
                raise RuntimeError(f"query {name} is not found")


def pairs_file(directory: Path, name: str) -> Path:
    """Return the file of a query's pairs."""
    return directory / f"pairs-{name}.bin"


def read_pairs(directory: Path, name: str) -> np.ndarray:
    """Return the pairs that were read of a query, in the order of reading; none if there is no file."""
    path = pairs_file(directory, name)
    return np.fromfile(path, PAIR) if path.exists() else np.empty(0, PAIR)
