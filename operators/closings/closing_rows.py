"""Closings as rows: the form in which they travel to a bucket and rest in it.

    _key  _ts  _pos  c.0
      17    +   40   "x"    on the way, by a punctuation: never late
      17  900   41   "x"    on the way, by a row of a unique stream with this event time: nothing if late
      17  950   40   "x"    at rest: to be remembered until no later row can be in a window of that time

Columns of the key stand beside it where it is a hash: equal hashes are not taken for equal keys. They have
the types in which both sides are compared, so that either side's rows give them. Rows are sorted by
(key, position), and ``_pos`` is the position of the punctuation in its stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.arrow_types import arrow_type
from operators.kernels.keys import Bools, Int64s, join_key, verify_equal
from operators.segments.layout import SideLayout
from operators.segments.row_codec import KEY, POS, TS
from operators.segments.segment import COLUMN, Segment

#: Event time of what is never late.
NEVER_LATE_US: Final = 2**63 - 1
#: Position of what comes behind all rows of its batch.
BEHIND_ALL: Final = 2**63 - 1


def closing_rows(
    layout: SideLayout, table: pa.Table, ts: Int64s | None, pos: Int64s
) -> tuple[pa.RecordBatch, Bools]:
    """Return the closings of key values, not sorted yet, and which of them close a key: NULL is none.

    Args:
        layout: Layout of the side that closes them.
        table: Has its key columns.
        ts: int64[n], event times of rows that close their own keys; None for punctuations.
        pos: int64[n], positions.
    """
    key, valid = join_key(table, layout.key, layout.key_types)
    if ts is None:
        ts = np.full(len(key), NEVER_LATE_US, dtype=np.int64)
    columns = [] if layout.exact else [_combined(table.column(name)) for name in layout.key]
    return _rows(layout, key, ts, pos, columns), valid


def closings_of(rows: Segment, own: SideLayout, chosen: Bools) -> pa.RecordBatch:
    """Return closings that must be remembered beyond the times of rows.

    Args:
        rows: Rows of the one side, whose keys the other side has closed.
        own: Their layout.
        chosen: bool[n], which of the rows.
    """
    index = np.flatnonzero(chosen)
    columns = [] if own.exact else [own.read(rows, name, index) for name in own.key]
    return _rows(own, rows.key[index], rows.ts[index], rows.pos[index], columns)


def folded(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return closings with each key once, its first position and latest time, sorted by (key, position)."""
    batch = pa.concat_batches(list(parts))
    names = [name for name in batch.schema.names if name not in (TS, POS)]
    grouped = pa.Table.from_batches([batch]).group_by(names, use_threads=False)
    found = grouped.aggregate([(TS, "max"), (POS, "min")])
    found = found.rename_columns([*names, TS, POS]).select(batch.schema.names)
    return found.sort_by([(KEY, "ascending"), (POS, "ascending")]).combine_chunks().to_batches()[0]


def matching(rows: Segment, own: SideLayout, closings: pa.RecordBatch, *, behind: bool = False) -> Bools:
    """Tell which rows have a key that is closed, bool[n].

    Args:
        rows: Rows of either side of a family.
        own: Their layout.
        closings: Sorted by (key, position).
        behind: Whether only rows positioned behind the closing count.
    """
    keys = closings.column(KEY).to_numpy()
    first = np.searchsorted(keys, rows.key)
    if own.exact:
        # The first of equal keys has the smallest position.
        place = np.minimum(first, len(keys) - 1)
        same = keys[place] == rows.key if len(keys) else np.zeros(len(rows), dtype=np.bool_)
        return same & (closings.column(POS).to_numpy()[place] < rows.pos) if behind and len(keys) else same
    counts = np.searchsorted(keys, rows.key, side="right") - first
    row = np.repeat(np.arange(len(rows)), counts)
    entry = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
    if behind:
        later = closings.column(POS).to_numpy()[entry] < rows.pos[row]
        row, entry = row[later], entry[later]
    found = np.zeros(len(rows), dtype=np.bool_)
    if len(row):
        left = [own.read(rows, name, row) for name in own.key]
        right = [closings.column(f"{COLUMN}{n}").take(pa.array(entry)) for n in range(len(own.key))]
        found[row[verify_equal(left, right, own.key_types)]] = True
    return found


def _rows(
    layout: SideLayout, key: Int64s, ts: Int64s, pos: Int64s, columns: Sequence[pa.Array]
) -> pa.RecordBatch:
    kinds = [arrow_type(kind) for kind in layout.key_types]
    values = [pc.cast(column, kind) for kind, column in zip(kinds, columns, strict=False)]
    names = [KEY, TS, POS, *(f"{COLUMN}{n}" for n in range(len(values)))]
    return pa.RecordBatch.from_arrays([pa.array(key), pa.array(ts), pa.array(pos), *values], names=names)


def _combined(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined
