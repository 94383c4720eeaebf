"""Input of the paper's experiments: Poisson arrivals of two streams, keys of a given join selectivity.

Every row has an event time, a key whose shares give S_1, and a value uniform in [0, 1), so that ``v < S`` has
selectivity S. Key, value and time of a row are independent, as are the streams.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tests.bench.paper.setting import key_shares

START_US = 1_700_000_000_000_000
STREAMS = ("A", "B")
SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Arrivals:
    """Rows of one stream.

    Attributes:
        ts: int64[n], µs after ``START_US``, ascending.
        k: int64[n], key.
        v: float64[n].
    """

    ts: np.ndarray[tuple[int], np.dtype[np.int64]]
    k: np.ndarray[tuple[int], np.dtype[np.int64]]
    v: np.ndarray[tuple[int], np.dtype[np.float64]]

    def table(self, from_s: float, to_s: float, *, positions: bool = True) -> pa.Table:
        """Return the rows that arrive in [from_s, to_s)."""
        low, high = np.searchsorted(self.ts, [round(from_s * SECOND_US), round(to_s * SECOND_US)])
        columns = {
            "ts": pa.array(START_US + self.ts[low:high], pa.timestamp("us")),
            "k": pa.array(self.k[low:high]),
            "v": pa.array(self.v[low:high]),
        }
        if positions:
            columns["_pos"] = pa.array(np.arange(low, high))
        return pa.table(columns)


def arrivals(stream: str, rate_per_s: float, join_selectivity: float, seconds: float, seed: int) -> Arrivals:
    """Draw the rows of a stream: the same for the same arguments, whatever the plan is that joins them."""
    rng = np.random.default_rng(
        [seed, zlib.crc32(stream.encode()), round(rate_per_s * 1000), round(join_selectivity * 1000)]
    )
    times = np.empty(0)
    while not len(times) or times[-1] < seconds:
        gaps = rng.exponential(1 / rate_per_s, max(16, round(rate_per_s * seconds)))
        times = np.concatenate([times, (times[-1] if len(times) else 0.0) + gaps.cumsum()])
    times = times[times < seconds]
    shares = key_shares(join_selectivity)
    keys = rng.choice(len(shares), len(times), p=shares).astype(np.int64)
    return Arrivals((times * SECOND_US).astype(np.int64), keys, rng.random(len(times)))
