"""Ranks of the rows of a stream, of all of them or by key, in one bucket.

Rows are ordered by (event time, position) and numbered from 1. A rank is final once the stream's watermark
has passed the row: no row comes before it any more. Only differences of ranks mean something, so rows are
forgotten that nobody will ask about; of each key the last of them stays and keeps the number it had.

    forgotten    kept: anchor |  rows that may be asked about
    1 2 ... 41        42      |  43 44 45
                              ^ no later question is about an earlier time
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from operators.kernels.keys import Int64s
from operators.ranks.rank_kernel import counts_up_to
from operators.ranks.rank_rows import ANY_KEY
from operators.segments.row_codec import KEY, POS, TS
from operators.segments.segment import Segment

RANK = "_rank"
_NAMES = (KEY, TS, POS, RANK)


@dataclass(slots=True, eq=False)
class Ranking:
    """Ranks of the rows of one side.

    Attributes:
        by_key: Whether rows count among those of their key.
        segments: At most one segment: the rows that are kept, sorted by (key, event time, position).
    """

    by_key: bool
    segments: list[Segment] = field(default_factory=list)

    def add(self, parts: Sequence[pa.RecordBatch]) -> None:
        """Take in new rows (``rank_rows``); none of them is late."""
        self.take([part.append_column(RANK, pa.array(np.zeros(part.num_rows, np.int64))) for part in parts])

    def take(self, parts: Sequence[pa.RecordBatch]) -> None:
        """Take in rows with their ranks, 0 where they are unknown, as of another bucket."""
        if not any(part.num_rows for part in parts):
            return
        rows = pa.concat_batches([*(segment.rows for segment in self.segments), *parts])
        key, ts, pos, rank = (rows.column(name).to_numpy() for name in _NAMES)
        order = np.lexsort((pos, ts, key))
        self._put(*(values[order] for values in (key, ts, pos, rank)))

    def of(self, positions: Sequence[Int64s]) -> list[Int64s]:
        """Return the ranks of rows that are kept, int64[n] for each array of their positions."""
        if not positions:
            return []
        (rows,) = (segment.rows for segment in self.segments)
        known, rank = rows.column(POS).to_numpy(), rows.column(RANK).to_numpy()
        order = np.argsort(known, kind="stable")
        return [rank[order[np.searchsorted(known, pos, sorter=order)]] for pos in positions]

    def up_to(self, key: Int64s, times: Int64s) -> Int64s:
        """Return how many rows there are up to some times, int64[n].

        Args:
            key: int64[n], keys; asked only where rows count by key.
            times: int64[n], event times, inclusive, µs.
        """
        if not self.segments:
            return np.zeros(len(times), dtype=np.int64)
        rows = self.segments[0].rows
        keys = key if self.by_key else np.full(len(times), ANY_KEY, dtype=np.int64)
        known, at, rank = (rows.column(name).to_numpy() for name in (KEY, TS, RANK))
        found: Int64s = counts_up_to(known, at, rank, np.ascontiguousarray(keys), np.ascontiguousarray(times))
        return found

    def forget(self, before_us: int) -> None:
        """Forget what no question about this time or a later one needs."""
        if not self.segments or self.segments[0].t_min >= before_us:
            return
        key, ts, pos, rank = (self.segments[0].rows.column(name).to_numpy() for name in _NAMES)
        keep = ts >= before_us
        # The last row of each key before that time.
        keep[:-1] |= (key[1:] != key[:-1]) | (ts[1:] >= before_us)
        keep[-1] = True
        if not keep.all():
            self._put(*(values[keep] for values in (key, ts, pos, rank)))

    def _put(self, key: Int64s, ts: Int64s, pos: Int64s, rank: Int64s) -> None:
        """Number sorted rows on from the first row of each key, whose rank is known or 1."""
        first = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
        lengths = np.diff(np.append(first, len(key)))
        begin = np.maximum(rank[first], 1) - first
        ranks = np.repeat(begin, lengths) + np.arange(len(key))
        arrays = [pa.array(values) for values in (key, ts, pos, ranks)]
        self.segments = [Segment(pa.RecordBatch.from_arrays(arrays, names=list(_NAMES)), 0, ())]
