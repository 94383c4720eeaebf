"""The load that the scaling model is about: twelve queries over two streams, and how it is varied.

Windows are 1/12, 2/12 ... of the longest, as in many-keys, so that a chain has 24 one-way slices. A batch is
a second of event time; how many batches the longest window spans, how many rows a batch has, into how many
pieces its input is cut and over how many buckets it is spread are what the model's terms are fitted to.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from service.calibrate.workload import Batch, SyntheticWorkload, WindowQuery

#: Event time of a batch, seconds.
BATCH_S = 1.0
#: Bytes that no rows take: all of them go through Spark, as they do on a cluster.
NO_FILES = 1 << 50
QUERIES = 12
#: A measurement, by the names of ``model.Load``, with what it took in seconds.
Case = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Point:
    """What a batch is like.

    Attributes:
        rows: Rows of both streams.
        buckets: Buckets, V.
        cuts: Pieces that the rows of either stream come in: half of P.
        columns: Columns that are carried along, of each stream, and selected by every query.
        matches: Pairs per row in the longest window.
        batches_in_window: Batches that the longest window spans.
    """

    rows: int
    buckets: int = 2
    cuts: int = 1
    columns: int = 0
    matches: float = 0.1
    batches_in_window: int = 6

    @property
    def partitions(self) -> int:
        """Pieces of input, P: each has a payload for every bucket."""
        return 2 * self.cuts

    def facts(self) -> Case:
        """Return what the model knows of it; nothing is shuffled in process."""
        return {
            "name": self.name,
            "rows": self.rows,
            "partitions": self.partitions,
            "buckets": self.buckets,
            "tasks": self.buckets,
            "carried": self.columns,
            "window": self.batches_in_window,
            "shuffled_bytes": 0.0,
        }

    @property
    def name(self) -> str:
        """What it is, in a word."""
        return (
            f"R={self.rows:,} V={self.buckets} P={self.partitions} columns={self.columns} "
            f"matches={self.matches:g} window={self.batches_in_window}"
        )


@dataclass(frozen=True)
class Cut(SyntheticWorkload):
    """A workload whose batches come in several pieces of each stream, one after the other in time.

    Attributes:
        cuts: Pieces of each stream.
    """

    cuts: int = 1

    def batches(self, directory: Path, *, at_once: int) -> Iterator[tuple[Batch, ...]]:
        """Write batches as ``SyntheticWorkload`` does; each is made of so many small ones."""
        pieces = replace(self, batch_s=self.batch_s / self.cuts)
        for turn, small in enumerate(
            SyntheticWorkload.batches(pieces, directory, at_once=at_once * self.cuts)
        ):
            groups = (small[n : n + self.cuts] for n in range(0, len(small), self.cuts))
            yield tuple(
                Batch(turn * at_once + n, tuple(itertools.chain.from_iterable(b.pieces for b in group)))
                for n, group in enumerate(groups)
            )


def workload(point: Point) -> Cut:
    """Return the workload of a point."""
    longest_s = point.batches_in_window * BATCH_S
    rate = point.rows / 2 / BATCH_S
    windows = (longest_s * n / QUERIES for n in range(1, QUERIES + 1))
    return Cut(
        name=point.name,
        queries=tuple(WindowQuery(w, w, columns=point.columns) for w in windows),
        rate_a=rate,
        rate_b=rate,
        batch_s=BATCH_S,
        keys=max(round(rate * longest_s / point.matches), 1),
        columns=point.columns,
        buckets=point.buckets,
        seed=point.rows + point.buckets,
        cuts=point.cuts,
    )


#: What the terms of our own code are fitted to: each quantity by itself, then several at once.
GRID = (
    Point(2_000, 1),
    Point(2_000, 8),
    Point(2_000, 32),
    Point(2_000, 64),
    Point(2_000, 8, cuts=8),
    Point(2_000, 32, cuts=4),
    Point(2_000, 32, cuts=16),
    Point(20_000),
    Point(20_000, 8, cuts=2),
    Point(20_000, 16, cuts=16),
    Point(20_000, 32),
    Point(100_000),
    Point(100_000, 8, cuts=4),
    Point(100_000, 32, cuts=8),
    Point(100_000, columns=6),
    Point(100_000, 8, cuts=2, columns=12),
    Point(100_000, matches=1.0),
    Point(100_000, 8, cuts=2, matches=4.0),
    Point(100_000, columns=6, matches=1.0),
    Point(20_000, 8, columns=12, matches=2.0),
    Point(2_000, columns=12),
    Point(2_000, 8, cuts=4, columns=12),
    Point(20_000, 16, columns=6),
    Point(20_000, 4, columns=3, matches=4.0),
    Point(300_000),
    Point(300_000, 8, cuts=2),
    Point(20_000, batches_in_window=3),
    Point(20_000, 8, batches_in_window=12),
    Point(20_000, 4, batches_in_window=24),
    Point(4_000, 16, cuts=2, batches_in_window=24),
    Point(100_000, 4, cuts=2, batches_in_window=12),
)
QUICK_GRID = (
    Point(2_000, 1),
    Point(2_000, 8),
    Point(2_000, 8, cuts=4),
    Point(10_000),
    Point(10_000, columns=4),
    Point(10_000, matches=2.0),
    Point(10_000, columns=4, matches=2.0),
    Point(4_000, 4, batches_in_window=12),
    Point(20_000, 4, cuts=2),
)
