"""Ranks of the rows of a stream in one bucket, among all rows or by key.

Rows are ordered by (event time, position) and numbered from 1. A rank is final once the stream's watermark
has passed the row, because then no row that precedes it can arrive. Only differences of ranks matter. So rows
whose ranks no query needs are dropped, except the last such row of each key: it is the anchor from which the
key's later rows are numbered.

    forgotten    kept: anchor |  rows whose ranks may be needed
    1 2 ... 41        42      |  43 44 45
                              ^ no earlier time will be looked up

There may be millions of keys, but a batch has few of them. The kept rows of the batch's keys are copied from
older segments, numbered together with the new rows, and stored as a new segment, as in a log-structured merge
tree (O'Neil and others, Acta Informatica 1996). Rows of these keys in older segments are then stale, and are
removed when segments are merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from catalog.times.durations import MIN_TIME_US
from operators.kernels.keys import Bools, Int64s
from operators.ranks.rank_kernel import NO_SUCH_KEY, ranks_up_to
from operators.segments.encoding.row_codec import KEY, POS, TS
from operators.segments.segment import Segment

#: Key given to all rows if they are counted regardless of their key.
ANY_KEY = 0
RANK = "_rank"
_NAMES = (KEY, TS, POS, RANK)
_LAST = np.iinfo(np.int64).max
#: Two segments are merged if the older segment has at most this many times the rows of the newer segment.
_MERGED_RATIO = 2
#: Stored rows are searched for expired rows once at least one row in this many may have expired.
_WORTH_A_LOOK = 4


def rank_rows(key: Int64s | None, ts: Int64s, pos: Int64s) -> pa.RecordBatch:
    """Return rows for counting: key, event time and position of each row, as PACK sends them.

    A window of rows counts all rows of its stream, before filters. If rows of all keys count together, every
    bucket gets all rows, under one key. If rows are counted by key, each row goes to the bucket of its key.

    Args:
        key: int64[n], keys of the rows; None if rows of all keys count together.
        ts: int64[n], event times, µs.
        pos: int64[n], positions in the source.
    """
    if key is None:
        key = np.full(len(ts), ANY_KEY, dtype=np.int64)
    return pa.RecordBatch.from_arrays([pa.array(key), pa.array(ts), pa.array(pos)], names=[KEY, TS, POS])


@dataclass(slots=True, eq=False)
class Ranking:
    """Ranks of the rows of one side.

    Attributes:
        by_key: Whether rows are counted by key.
        segments: The kept rows, sorted by (key, event time, position). The newest segment is the last one.
            For each key, only the rows in the newest segment with this key are valid.
        before_us: Event time before which no rank will be looked up.
        added: Number of rows added since the stored rows were last searched for expired rows.
    """

    by_key: bool
    segments: list[Segment] = field(default_factory=list)
    before_us: int = MIN_TIME_US
    added: int = 0

    def add(self, parts: Sequence[pa.RecordBatch]) -> None:
        """Add new rows (``rank_rows``), none of which may be late."""
        new = [part for part in parts if part.num_rows]
        if not new:
            return
        unknown = [part.append_column(RANK, pa.array(np.zeros(part.num_rows, np.int64))) for part in new]
        self.added += sum(part.num_rows for part in new)
        keys = np.unique(np.concatenate([part.column(KEY).to_numpy() for part in new]))
        rows = pa.concat_batches([*self._current(keys), *unknown])
        order = np.lexsort([rows.column(name).to_numpy() for name in (POS, TS, KEY)])
        self._append(_numbered(rows.take(pa.array(order))))

    def take_over(self, rows: pa.RecordBatch) -> None:
        """Add rows of another bucket's ranking; this ranking must not have any of their keys yet."""
        if rows.num_rows:
            self._append(rows)

    def whole(self) -> pa.RecordBatch | None:
        """Return all rows that are not stale, sorted, or None if there are none."""
        merged: Segment | None = None
        for segment in reversed(self.segments):
            merged = segment if merged is None else _merged(segment, merged)
        return None if merged is None else merged.rows

    def of(self, rows: Segment) -> Int64s:
        """Return the ranks of rows that are still kept, int64[n]."""
        return self._ranks(rows.key, rows.ts, rows.pos)

    def up_to(self, key: Int64s, times: Int64s) -> Int64s:
        """Return the number of rows up to given times, int64[n].

        Args:
            key: int64[n], keys; used only if rows count by key.
            times: int64[n], event times, inclusive, µs.
        """
        return self._ranks(key, times, np.full(len(times), _LAST, dtype=np.int64))

    def is_look_due(self, held: int) -> bool:
        """Return whether so many rows were added that a search for expired rows pays; if so, reset the count.

        Args:
            held: Number of stored rows.
        """
        if self.added * _WORTH_A_LOOK < held:
            return False
        self.added = 0
        return True

    def _ranks(self, key: Int64s, times: Int64s, positions: Int64s) -> Int64s:
        keys = np.ascontiguousarray(key) if self.by_key else np.full(len(times), ANY_KEY, dtype=np.int64)
        asked = keys, np.ascontiguousarray(times), np.ascontiguousarray(positions)
        found = np.full(len(keys), NO_SUCH_KEY, dtype=np.int64)
        for segment in reversed(self.segments):
            unknown = np.flatnonzero(found == NO_SUCH_KEY)
            if not len(unknown):
                break
            columns = [segment.rows.column(name).to_numpy() for name in _NAMES]
            found[unknown] = ranks_up_to(*columns, *(values[unknown] for values in asked))
        return np.maximum(found, 0)

    def _current(self, keys: Int64s) -> list[pa.RecordBatch]:
        """Return the valid rows of some keys; ``keys`` are distinct and ascending."""
        found = []
        for segment in reversed(self.segments):
            first = np.searchsorted(segment.key, keys)
            counts = np.searchsorted(segment.key, keys, side="right") - first
            places = np.arange(counts.sum()) + np.repeat(first - np.cumsum(counts) + counts, counts)
            if len(places):
                found.append(segment.rows.take(pa.array(places)))
                keys = keys[counts == 0]
        return found

    def _append(self, rows: pa.RecordBatch) -> None:
        """Append the needed rows as the newest segment, and merge small older segments into it."""
        self.segments.append(Segment(self._needed(rows), 0, ()))
        while len(self.segments) > 1 and len(self.segments[-2]) <= _MERGED_RATIO * len(self.segments[-1]):
            newer = self.segments.pop()
            merged = _merged(self.segments[-1], newer)
            self.segments[-1] = Segment(self._needed(merged.rows), 0, ())

    def _needed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows whose ranks may be needed, and for each key the last row before them."""
        key, ts = rows.column(KEY).to_numpy(), rows.column(TS).to_numpy()
        keep: Bools = ts >= self.before_us
        keep[:-1] |= (key[1:] != key[:-1]) | keep[1:]
        keep[-1:] = True
        return rows if keep.all() else rows.filter(pa.array(keep))


def _merged(older: Segment, newer: Segment) -> Segment:
    """Merge two segments: drop rows of the older segment whose keys are also in the newer segment."""
    place = np.minimum(np.searchsorted(newer.key, older.key), len(newer) - 1)
    stale = newer.key[place] == older.key
    rows = pa.concat_batches([older.rows.filter(pa.array(~stale)), newer.rows])
    order = np.argsort(rows.column(KEY).to_numpy(), kind="stable")
    return Segment(rows.take(pa.array(order)), 0, ())


def _numbered(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Number the rows of each key, from the rank of its first row, or from 1 if that row has no rank."""
    key, rank = rows.column(KEY).to_numpy(), rows.column(RANK).to_numpy()
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
    lengths = np.diff(np.append(first, len(key)))
    ranks = np.repeat(np.maximum(rank[first], 1) - first, lengths) + np.arange(len(key))
    return rows.set_column(rows.schema.names.index(RANK), RANK, pa.array(ranks))
