"""Closings that the constraints of a stream derive from its rows.

    ordered, by at most 2       seq  7 4   9         a row of 9 closes what is less than 7
                                closes  ..4     5 6

    clustered                   item 7 7   9   7     a row of 9 closes 7, and the last one breaks the promise
                                closes     7   9

In a batch a partition sees its own rows only. Runs that end between two partitions, or two batches, are found
in the buckets: each partition sends its first and its last row (its *edges*) to all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from operators.closings.closing_rows import (
    LEAST,
    NEVER_LATE_US,
    TO,
    key_columns,
)
from operators.kernels.keys import Bools, Int64s, is_exact, verify_equal
from operators.segments.row_codec import KEY, POS, TS


def ordered_closings(rows: pa.RecordBatch, slack: int) -> pa.RecordBatch:
    """Return what the rows of an ordered stream close: each row the keys that no row before it closes.

    Args:
        rows: Rows as closings of their own keys, whole numbers, by position.
        slack: By how much a number may be less than the greatest one before it.
    """
    key = rows.column(KEY).to_numpy()
    best = np.maximum.accumulate(key) if len(key) else key
    rises = np.ones(len(key), dtype=np.bool_)
    rises[1:] = best[1:] > best[:-1]
    rises &= best > LEAST + slack
    index = np.flatnonzero(rises)
    first = np.concatenate(([LEAST], best[index][:-1] - slack)) if len(index) else index
    arrays = {
        KEY: first,
        TS: rows.column(TS).to_numpy()[index],
        POS: rows.column(POS).to_numpy()[index],
        TO: best[index] - slack - 1,
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(arrays[name].astype(np.int64, copy=False)) for name in rows.schema.names], rows.schema.names
    )


def clustered_closings(
    rows: pa.RecordBatch, valid: Bools, key_types: Sequence[str]
) -> tuple[pa.RecordBatch, Bools, pa.RecordBatch]:
    """Return the keys whose runs end among the rows of a partition, and its edges.

    Args:
        rows: Rows as closings of their own keys, by position, at least one.
        valid: bool[n], which rows have a key; NULL is a run, too, and closes nothing.
        key_types: Common type of each key pair.

    Returns:
        The closings, which of them close a key, and the first and last row; ``_ts`` of an edge is 1 if it has
        a key.
    """
    same = _same(rows.slice(0, rows.num_rows - 1), rows.slice(1), key_types)
    same = (same & valid[:-1] & valid[1:]) | (~valid[:-1] & ~valid[1:])
    ended = np.flatnonzero(~same)
    edges = rows.take(pa.array([0, rows.num_rows - 1]))
    edges = _timed(edges, valid[[0, -1]].astype(np.int64))
    closings = rows.take(pa.array(ended))
    return _timed(closings, np.full(len(ended), NEVER_LATE_US, dtype=np.int64)), valid[ended], edges


def between_edges(
    before: pa.RecordBatch | None, edges: Sequence[pa.RecordBatch], key_types: Sequence[str]
) -> tuple[pa.RecordBatch | None, pa.RecordBatch | None]:
    """Return the keys whose runs end between partitions, and the last row of all.

    Args:
        before: Last row of the batches before, as one of the edges; None before the first row.
        edges: Edges of the partitions, in any order.
        key_types: Common type of each key pair.

    Returns:
        Closings, or None; the last row, or None.
    """
    ordered = sorted(edges, key=lambda each: int(each.column(POS)[0].as_py()))
    if not ordered:
        return None, before
    rows = pa.concat_batches([*(() if before is None else (before,)), *ordered])
    skipped = 1 if before is None else 0
    # Of "before, first, last, first, last" the pairs (before, first) and (last, first) are looked at.
    left = np.arange(skipped, rows.num_rows - 1, 2)
    lasts, firsts = rows.take(pa.array(left)), rows.take(pa.array(left + 1))
    valid = lasts.column(TS).to_numpy() == 1
    ended = valid & ~(_same(lasts, firsts, key_types) & (firsts.column(TS).to_numpy() == 1))
    closings = lasts.filter(pa.array(ended))
    last = rows.slice(rows.num_rows - 1)
    if not closings.num_rows:
        return None, last
    return _timed(closings, np.full(closings.num_rows, NEVER_LATE_US, dtype=np.int64)), last


def _same(one: pa.RecordBatch, other: pa.RecordBatch, key_types: Sequence[str]) -> Bools:
    """Return at which places two batches have one key."""
    same: Bools = one.column(KEY).to_numpy() == other.column(KEY).to_numpy()
    if not is_exact(key_types) and same.any():
        index = np.flatnonzero(same)
        same[index] = verify_equal(key_columns(one, index), key_columns(other, index), key_types)
    return same


def _timed(closings: pa.RecordBatch, ts: Int64s) -> pa.RecordBatch:
    return closings.set_column(closings.schema.names.index(TS), TS, pa.array(ts))
