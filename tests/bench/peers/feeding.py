"""Live streams: a thread that posts events at a rate, and one that reads a query's results as they come.

All events of a request carry the time at which it was written, so a result says itself when the later of its
events was written: latency is the clock when it was read, less that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from api.queries.negotiation import ARROW, NDJSON
from tests.bench.peers.workloads import STREAMS

#: How long a request for results waits for one.
_WAIT_S = 1
_TIMEOUT_S = 60.0


class Worker:
    """A thread that works until it is stopped; what it failed with is raised then."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()
        if self._failed and error is None:
            raise self._failed[0]

    def check(self) -> None:
        """Raise what the worker has failed with, if it has."""
        if self._failed:
            raise self._failed[0]

    def _guarded(self) -> None:
        try:
            self._work()
        except BaseException as problem:  # raised again where the worker is stopped
            self._failed.append(problem)

    def _work(self) -> None:
        raise NotImplementedError


class Feeder(Worker):
    """Posts events to both streams in turn, each request a while after the one before.

    Args:
        root: Address of the API.
        rows: Events of a request.
        every_s: From one request to the next.
        keys: Distinct keys.
        seed: Of keys and values.

    Attributes:
        written: By stream, times (µs), keys and values of each request.
        late_s: How far the last request was behind its time.
    """

    def __init__(self, root: str, rows: int, every_s: float, keys: int, seed: int) -> None:
        super().__init__()
        self.written: dict[str, list[tuple[int, np.ndarray, np.ndarray]]] = {name: [] for name in STREAMS}
        self.late_s = 0.0
        self._root, self._rows, self._every_s, self._keys = root, rows, every_s, keys
        self._rng = np.random.default_rng(seed)

    @property
    def sent(self) -> int:
        """Events posted so far."""
        return sum(len(keys) for requests in self.written.values() for _, keys, _ in requests)

    def _work(self) -> None:
        with httpx.Client(base_url=self._root, timeout=_TIMEOUT_S, headers={"Content-Type": NDJSON}) as http:
            number, began_s = 0, time.monotonic()
            while not self._stopped.is_set():
                due_s = began_s + number * self._every_s
                self.late_s = time.monotonic() - due_s
                if self.late_s < 0 and self._stopped.wait(-self.late_s):
                    return
                self._post(http, STREAMS[number % len(STREAMS)])
                number += 1

    def _post(self, http: httpx.Client, stream: str) -> None:
        keys = self._rng.integers(0, self._keys, self._rows)
        values = self._rng.random(self._rows)
        now_us = time.time_ns() // 1000
        lines = "\n".join(
            f'{{"ts":{now_us},"k":{k},"v":{v!r}}}'
            for k, v in zip(keys.tolist(), values.tolist(), strict=True)
        )
        answer = http.post(f"/streams/{stream}/events", content=lines.encode())
        answer.raise_for_status()
        self.written[stream].append((now_us, keys, values))


class Reader(Worker):
    """Reads the results of a query as they come.

    Args:
        root: Address of the API.
        query: Name of the query.
        after: Cursor to start at; None: the first result of all.

    Attributes:
        latencies_s: With the clock of reading each, latency of every result read.
        after: Cursor after the last one.
    """

    def __init__(self, root: str, query: str, after: str | None = None) -> None:
        super().__init__()
        self.latencies_s: list[tuple[float, np.ndarray]] = []
        self.after = after
        self._root, self._query = root, query

    def between(self, from_s: float, to_s: float) -> np.ndarray:
        """Return latencies of results read in a stretch of time, ascending."""
        found = [latencies for read_s, latencies in self.latencies_s if from_s <= read_s < to_s]
        return np.sort(np.concatenate(found)) if found else np.empty(0)

    def _work(self) -> None:
        with httpx.Client(base_url=self._root, timeout=_TIMEOUT_S, headers={"Accept": ARROW}) as http:
            while not self._stopped.is_set():
                asked = {"limit": "10000", "wait": str(_WAIT_S)}
                asked |= {} if self.after is None else {"after": self.after}
                answer = http.get(f"/queries/{self._query}/results", params=asked)
                answer.raise_for_status()
                self.after = answer.headers.get("Sluice-Next-Cursor", self.after)
                table = pa.ipc.open_stream(answer.content).read_all()
                read_s = time.time()
                if table.num_rows:
                    later_us = table["_event_time"].cast(pa.int64()).to_numpy()
                    self.latencies_s.append((read_s, read_s - later_us / 1e6))


def write_files(directory: Path, written: Mapping[str, list[tuple[int, np.ndarray, np.ndarray]]]) -> None:
    """Write what was posted as files that DuckDB can join."""
    for name, requests in written.items():
        (directory / name).mkdir(parents=True)
        times = np.concatenate([np.full(len(keys), us) for us, keys, _ in requests])
        columns = {
            "ts": pa.array(times, pa.int64()).view(pa.timestamp("us")),
            "k": np.concatenate([keys for _, keys, _ in requests]),
            "v": np.concatenate([values for _, _, values in requests]),
        }
        pq.write_table(pa.table(columns), directory / name / "part-00000.parquet")
