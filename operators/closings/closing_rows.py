"""Closings as rows: the form in which they are sent to a bucket and stored in it.

    _key  _ts  _pos  c.0
      17    +   40   "x"    sent, for a punctuation: never late
      17  900   41   "x"    sent, for a row of a unique stream with this event time: closes nothing if late
      17  950   40   "x"    stored: remembered until no row can match one of that time

If ``_key`` is a hash, the key columns follow it, because equal hashes do not mean equal keys. These columns
have the types in which both sides are compared, so the rows of either side can supply them. Rows are sorted
by (key, position); ``_pos`` is the position of the punctuation in its stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.arrow_types import arrow_type
from operators.kernels.keys import Bools, Int64s, is_exact, join_key, verify_equal
from operators.segments.layout import SideLayout
from operators.segments.row_codec import KEY, POS, TS
from operators.segments.segment import COLUMN, Segment

#: Event time of closings that are never late.
NEVER_LATE_US: Final = 2**63 - 1
#: Position of closings behind all rows of their batch.
BEHIND_ALL: Final = 2**63 - 1


def closing_rows(
    layout: SideLayout, table: pa.Table, ts: Int64s | None, pos: Int64s
) -> tuple[pa.RecordBatch, Bools]:
    """Return the closings of key values, unsorted, and which of them close a key: NULL closes none.

    Args:
        layout: Layout of the side that closes them.
        table: Table with the key columns of the side.
        ts: int64[n], event times of rows that close their own keys; None for punctuations.
        pos: int64[n], positions.
    """
    key, valid = join_key(table, layout.key, layout.key_types)
    if ts is None:
        ts = np.full(len(key), NEVER_LATE_US, dtype=np.int64)
    columns = [] if layout.exact else [_combined(table.column(name)) for name in layout.key]
    return _rows(layout, key, ts, pos, columns), valid


def closings_of(rows: Segment, own: SideLayout, chosen: Bools) -> pa.RecordBatch:
    """Return closings for rows, to be remembered beyond the times of these rows.

    Args:
        rows: Rows of one side whose keys the other side has closed.
        own: Their layout.
        chosen: bool[n], which of the rows.
    """
    index = np.flatnonzero(chosen)
    columns = [] if own.exact else [own.read(rows, name, index) for name in own.key]
    return _rows(own, rows.key[index], rows.ts[index], rows.pos[index], columns)


def folded(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return closings merged by key, with first position and latest time, sorted by (key, position)."""
    batch = pa.concat_batches(list(parts))
    names = [name for name in batch.schema.names if name not in (TS, POS)]
    grouped = pa.Table.from_batches([batch]).group_by(names, use_threads=False)
    found = grouped.aggregate([(TS, "max"), (POS, "min")])
    found = found.rename_columns([*names, TS, POS]).select(batch.schema.names)
    return found.sort_by([(KEY, "ascending"), (POS, "ascending")]).combine_chunks().to_batches()[0]


def matching(rows: Segment, own: SideLayout, closings: pa.RecordBatch, *, behind: bool = False) -> Bools:
    """Return which rows have a closed key, bool[n].

    Args:
        rows: Rows of either side of a family.
        own: Their layout.
        closings: Sorted by (key, position).
        behind: Count only rows whose position is behind the closing.
    """
    keys = closings.column(KEY).to_numpy()
    if own.exact:
        first = np.searchsorted(keys, rows.key)
        # The first of equal keys has the smallest position.
        place = np.minimum(first, len(keys) - 1)
        same = keys[place] == rows.key if len(keys) else np.zeros(len(rows), dtype=np.bool_)
        return same & (closings.column(POS).to_numpy()[place] < rows.pos) if behind and len(keys) else same
    row, entry = equal_numbers(rows.key, keys)
    if behind:
        later = closings.column(POS).to_numpy()[entry] < rows.pos[row]
        row, entry = row[later], entry[later]
    found = np.zeros(len(rows), dtype=np.bool_)
    if len(row):
        left = [own.read(rows, name, row) for name in own.key]
        found[row[verify_equal(left, key_columns(closings, entry), own.key_types)]] = True
    return found


def known(closings: pa.RecordBatch, others: pa.RecordBatch, key_types: Sequence[str]) -> Bools:
    """Return which closings have a key that one of the others has, too, bool[n].

    Args:
        closings: Closings.
        others: Closings, sorted by key.
        key_types: Common type of each key pair.
    """
    row, entry = equal_numbers(closings.column(KEY).to_numpy(), others.column(KEY).to_numpy())
    found = np.zeros(closings.num_rows, dtype=np.bool_)
    if len(row) and not is_exact(key_types):
        same = verify_equal(key_columns(closings, row), key_columns(others, entry), key_types)
        row = row[same]
    found[row] = True
    return found


def equal_numbers(keys: Int64s, ascending: Int64s) -> tuple[Int64s, Int64s]:
    """Return all pairs of equal numbers: places in both arrays, the latter sorted."""
    first = np.searchsorted(ascending, keys)
    counts = np.searchsorted(ascending, keys, side="right") - first
    row = np.repeat(np.arange(len(keys)), counts)
    entry = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
    return row, entry


def key_columns(closings: pa.RecordBatch, rows: Int64s) -> list[pa.Array]:
    """Return the stored key columns of some closings; none if keys are exact."""
    names = [name for name in closings.schema.names if name.startswith(COLUMN)]
    return [closings.column(name).take(pa.array(rows)) for name in names]


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
