"""Live streams: a thread that posts rows as their time comes, and threads that read results as they come.

Each row follows from its stream and number alone, so nobody has to keep what was posted; of each request the
time is kept. Latency is from the time the request with the later row of a result was sent until the result
was read.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import httpx
import numpy as np
import pyarrow as pa

from api.results.negotiation import ARROW
from service.results.results import MAX_PAGE_ROWS

STREAMS = ("A", "B")
COLUMNS = {"ts": "timestamp", "id": "bigint", "k": "bigint", "v": "double"}
#: What queries select, so that a result says of which rows it is.
SELECTED = "A.id AS a, B.id AS b"
#: Values are n / VALUES, so that their text is short and read back as the same number.
VALUES = 1_000_000
#: Most rows of a request where the service was slow.
_MOST_ROWS = 5_000
_TIMEOUT_S = 120.0
#: A request: the number of its first row, that after its last, and when it was sent and acknowledged.
POSTED = np.dtype([("first", "<i8"), ("end", "<i8"), ("sent_us", "<i8"), ("acknowledged_us", "<i8")])
#: A result: the numbers of its rows, and when it had been read. The clock is the wall's, µs.
PAIR = np.dtype([("a", "<i8"), ("b", "<i8"), ("read_us", "<i8")])


def now_us() -> int:
    """Return the wall clock."""
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class LiveRows:
    """Rows of both streams.

    Attributes:
        start_us: Event time of the first row, µs UTC, and the wall clock when its time has come.
        rate_per_s: Rows of each stream per second.
        keys: Distinct keys.
        disorder_us: How far rows are out of order at most.
        first: Number of the first row.
    """

    start_us: int
    rate_per_s: float
    keys: int
    disorder_us: int = 0
    first: int = 0

    def due(self, at_us: int) -> int:
        """Return the number after the last row whose time has come."""
        return self.first + max(0, int((at_us - self.start_us) * self.rate_per_s / 1e6))

    def of(self, stream: str, first: int, end: int) -> dict[str, np.ndarray]:
        """Return the columns of rows ``first`` to ``end - 1``.

        >>> LiveRows(0, 10_000, 100).of("A", 3, 5)["id"].tolist()
        [3, 4]
        """
        number = np.arange(first, end, dtype=np.int64)
        seed = np.uint64(STREAMS.index(stream) << 60)
        drawn = [_mixed(number.astype(np.uint64) * np.uint64(3) + seed + np.uint64(n)) for n in range(3)]
        k, v, back_us = (
            (values % np.uint64(most)).astype(np.int64)
            for values, most in zip(drawn, (self.keys, VALUES, self.disorder_us + 1), strict=True)
        )
        ts = self.start_us + ((number - self.first) * 1e6 / self.rate_per_s).astype(np.int64) - back_us
        return {"ts": ts, "id": number, "k": k, "v": v / VALUES}

    def body(self, stream: str, first: int, end: int) -> bytes:
        """Return rows as the JSON array of a request."""
        columns = (column.tolist() for column in self.of(stream, first, end).values())
        rows = (f'{{"ts":{t},"id":{i},"k":{k},"v":{v!r}}}' for t, i, k, v in zip(*columns, strict=True))
        return f"[{','.join(rows)}]".encode()


def _mixed(x: np.ndarray) -> np.ndarray:
    """Mix the bits of numbers (splitmix64)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = x ^ (x >> np.uint64(31))
    return mixed


class Worker(ABC):
    """A thread that works until it is stopped; what it failed with is raised then."""

    def __init__(self, root: str) -> None:
        self._root = root
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
        if error is None:
            self.check()

    def check(self) -> None:
        """Raise what the worker has failed with, if it has."""
        if self._failed:
            raise self._failed[0]

    def _guarded(self) -> None:
        try:
            with httpx.Client(base_url=self._root, timeout=_TIMEOUT_S) as http:
                self._work(http)
        except BaseException as problem:  # raised again where the worker is stopped
            self._failed.append(problem)

    @abstractmethod
    def _work(self, http: httpx.Client) -> None:
        """Work until it is stopped."""


class Feeder(Worker):
    """Posts the rows of a stream whose time has come.

    Args:
        root: Address of the API.
        rows: The rows.
        stream: The stream.
        every_s: From one request to the next.

    Attributes:
        rows: The rows.
    """

    def __init__(self, root: str, rows: LiveRows, stream: str, every_s: float = 0.1) -> None:
        super().__init__(root)
        self.rows = rows
        self._stream, self._every_s = stream, every_s
        self._requests: list[tuple[int, int, int, int]] = []

    @property
    def posted(self) -> np.ndarray:
        """Requests that were acknowledged, ``POSTED``."""
        return np.array(self._requests, POSTED)

    @property
    def end(self) -> int:
        """Number after the last row that was acknowledged."""
        return self._requests[-1][1] if self._requests else self.rows.first

    def _work(self, http: httpx.Client) -> None:
        pause_s = 0.0
        while not self._stopped.wait(pause_s):
            began_us, first = now_us(), self.end
            end = min(self.rows.due(began_us), first + _MOST_ROWS)
            if end > first:
                body, sent_us = self.rows.body(self._stream, first, end), now_us()
                answer = http.post(
                    f"/streams/{self._stream}/events",
                    content=body,
                    headers={"Content-Type": "application/json"},
                )
                offset = answer.raise_for_status().json()["first_offset"]
                if offset != first:
                    raise RuntimeError(f"row {first} of {self._stream} was acknowledged as {offset}")
                self._requests.append((first, end, sent_us, now_us()))
            pause_s = max(0.0, self._every_s - (now_us() - began_us) / 1e6)


class Reading:
    """Position of a reader in the results of one query, and the results that it has read.

    Attributes:
        name: The query.
        after: Cursor after the last result read; None before the first.
    """

    def __init__(self, name: str, after: str | None = None) -> None:
        self.after = after
        self.name = name
        self._read: list[np.ndarray] = []

    @property
    def pairs(self) -> np.ndarray:
        """All that was read, ``PAIR``, in the order of reading."""
        return np.concatenate([np.empty(0, PAIR), *self._read])

    def page(self, http: httpx.Client, *, wait_s: int = 0) -> int | None:
        """Read a page and return its rows; None: the query is not known any more."""
        asked = {"limit": str(MAX_PAGE_ROWS), "wait": str(wait_s)}
        asked |= {} if self.after is None else {"after": self.after}
        answer = http.get(f"/queries/{self.name}/results", params=asked, headers={"Accept": ARROW})
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        answer.raise_for_status()
        if "Sluice-Dropped" in answer.headers:
            raise RuntimeError(f"results of {self.name} were dropped before they were read")
        self.after = answer.headers.get("Sluice-Next-Cursor", self.after)
        table = pa.ipc.open_stream(answer.content).read_all()
        self.keep(table["a"].to_numpy(), table["b"].to_numpy())
        return int(table.num_rows)

    def rest(self, http: httpx.Client) -> int | None:
        """Read until a page is empty and return the rows read; None: the query is not known any more."""
        found = 0
        while rows := self.page(http):
            found += rows
        return None if rows is None else found

    def keep(self, a: Sequence[int] | np.ndarray, b: Sequence[int] | np.ndarray) -> None:
        """Keep pairs read just now."""
        pairs = np.empty(len(a), PAIR)
        pairs["a"], pairs["b"], pairs["read_us"] = a, b, now_us()
        self._read.append(pairs)


class Follower(Worker):
    """Follows a query by requests that wait for the next results, to the last one.

    Attributes:
        reading: What it reads.
    """

    def __init__(self, root: str, name: str, after: str | None = None) -> None:
        super().__init__(root)
        self.reading = Reading(name, after)

    def _work(self, http: httpx.Client) -> None:
        while not self._stopped.is_set():
            self.reading.page(http, wait_s=1)
        self.reading.rest(http)


def latencies_s(pairs: np.ndarray, posted: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the latency of results.

    Args:
        pairs: ``PAIR``.
        posted: Requests of each stream, ``POSTED``, from the first row on.
    """
    sent_us = [
        posted[stream]["sent_us"][np.searchsorted(posted[stream]["end"], pairs[column], side="right")]
        for stream, column in zip(STREAMS, ("a", "b"), strict=True)
    ]
    return (pairs["read_us"] - np.maximum(*sent_us)) / 1e6
