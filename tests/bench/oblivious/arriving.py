"""Streams of WO-Join's experiments, and what an optimal join would have held of them.

Streams are Poisson, a row each 20 ms. Each value comes twice (Mul 2), rows come up to 500 places late (SF).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from catalog.values.stream import Stream
from operators.kernels.keys import Bools, Int64s
from tests.builders import SECOND_US

Doubles = np.ndarray[tuple[int], np.dtype[np.float64]]
GAP_S = 0.02


@dataclass(frozen=True, slots=True)
class Arriving:
    """A stream: values and times in order of arrival."""

    values: Int64s
    times_s: Doubles

    def before(self, at_s: float) -> int:
        """Return how many rows have come before a moment."""
        return int(np.searchsorted(self.times_s, at_s))


def arriving(random: np.random.Generator, scramble: int, slow: bool, burst: bool, end_s: float) -> Arriving:
    """Draw a stream.

    Args:
        random: Source of randomness.
        scramble: Places by which a row may come late.
        slow: Whether it is ``held_back``.
        burst: Whether it comes at eight times its rate from 80 s to 90 s.
        end_s: Its end.
    """
    made = np.cumsum(random.exponential(GAP_S, round(end_s / GAP_S * (2 if burst else 1))))
    if burst:
        # In the burst the clock of the source runs eight times as fast.
        made = np.where(made < 80, made, np.where(made < 160, 80 + (made - 80) / 8, made - 70))
    if slow:
        made = held_back(made, GAP_S)
    order = np.argsort(np.arange(len(made)) + random.uniform(0, scramble, len(made)), kind="stable")
    made = made[made < end_s]
    return Arriving((order // 2).astype(np.int64)[: len(made)], made)


def held_back(times_s: Doubles, gap_s: float) -> Doubles:
    """Return when rows come behind a queue that is slow from 10 s to 40 s.

    It lets an eighth of the rows pass then, and before and later at most four times as many as come.

    Args:
        times_s: When they come to it.
        gap_s: Mean time between two of them.
    """
    served, times = 0.0, []
    for moment in times_s.tolist():
        served = max(moment, served + (8 * gap_s if 10 <= max(served, moment) < 40 else gap_s / 4))
        times.append(served)
    return np.array(times)


@dataclass(frozen=True, slots=True)
class LookedBack:
    """Results of an equality join, and which rows they asked for.

    Attributes:
        values: int64[n], value of each result.
        times_s: float64[n], when its last row came; ascending.
        asked: int64[n, streams], how many rows back in its stream each row of a result lay then; 0 for the
            last one.
        waited_s: float64[n, streams], how long ago it had come.
    """

    values: Int64s
    times_s: Doubles
    asked: Int64s
    waited_s: Doubles

    def peaks(self, end_s: float) -> Int64s:
        """Return the most rows of each stream that the results of each second asked for.

        Returns:
            int64[seconds, streams].
        """
        most = np.zeros((round(end_s) + 1, self.asked.shape[1]), dtype=np.int64)
        np.maximum.at(most, self.times_s.astype(np.int64), self.asked)
        return most

    def within(self, kept: Sequence[float]) -> Bools:
        """Return which results are found if so many rows of each stream are kept, bool[n]."""
        found: Bools = (self.asked <= np.array(kept)).all(axis=1)
        return found

    def within_s(self, window_s: float) -> Bools:
        """Return which results are found if all streams have a window of so many seconds, bool[n]."""
        found: Bools = (self.waited_s < window_s).all(axis=1)
        return found


def looked_back(streams: Sequence[Arriving]) -> LookedBack:
    """Look back from all results of streams joined by their values."""
    found = pd.DataFrame({"value": streams[0].values, 0: np.arange(len(streams[0].values))})
    for number, stream in enumerate(streams[1:], 1):
        rows = pd.DataFrame({"value": stream.values, number: np.arange(len(stream.values))})
        found = found.merge(rows, on="value")
    places = found[list(range(len(streams)))].to_numpy()
    times = np.stack([stream.times_s[places[:, n]] for n, stream in enumerate(streams)], axis=1)
    last = times.max(axis=1)
    values = found["value"].to_numpy()
    order = np.lexsort((values, last))
    values, places, times, last = values[order], places[order], times[order], last[order]
    came = np.stack([np.searchsorted(s.times_s, last, side="right") for s in streams], axis=1)
    asked = np.where(times < last[:, None], came - places, 0)
    return LookedBack(values, last, asked, last[:, None] - times)


def rows_of(stream: Stream, arrived: Arriving, begin: int, end: int) -> pa.Table:
    """Return some rows of a stream, as the harness takes them."""
    count = end - begin
    columns = [
        pa.array((arrived.times_s[begin:end] * SECOND_US).astype(np.int64)).cast(pa.timestamp("us")),
        pa.array(arrived.values[begin:end]),
        pa.nulls(count, pa.int32()),
        pa.nulls(count, pa.int32()),
        pa.array(np.arange(begin, end)),
    ]
    return pa.table(columns, names=[*(c.name for c in stream.columns), "_pos"])
