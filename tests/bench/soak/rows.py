"""Rows of the soak: each follows from its stream and number alone, so nobody has to keep what was posted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

STREAMS = ("A", "B")
COLUMNS = {"ts": "timestamp", "id": "bigint", "k": "bigint", "v": "double"}
#: Rows are up to so much out of order, which is less than the lateness of their stream.
DISORDER_US = 300_000
LATENESS = "1s"
#: Values are n / VALUES, so that their text is short and read back as the same number.
VALUES = 1_000_000
#: Keys per row a second and stream: rates of results then do not depend on how much the machine can take.
KEYS_PER_RATE = 200


@dataclass(frozen=True, slots=True)
class SoakRows:
    """Rows of both streams.

    Attributes:
        start_us: Event time of the first row, µs UTC.
        rate_per_s: Rows of each stream per second of event time.
    """

    start_us: int
    rate_per_s: int

    def of(self, stream: str, first: int, end: int) -> dict[str, np.ndarray]:
        """Return the columns of rows ``first`` to ``end - 1``.

        >>> SoakRows(0, 10_000).of("A", 3, 5)["id"].tolist()
        [3, 4]
        """
        number = np.arange(first, end, dtype=np.int64)
        seed = np.uint64(STREAMS.index(stream) << 60)
        drawn = [_mixed(number.astype(np.uint64) * np.uint64(3) + seed + np.uint64(n)) for n in range(3)]
        k, v, back_us = (
            (values % np.uint64(most)).astype(np.int64)
            for values, most in zip(
                drawn, (self.rate_per_s * KEYS_PER_RATE, VALUES, DISORDER_US), strict=True
            )
        )
        ts = self.start_us + number * 1_000_000 // self.rate_per_s - back_us
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
