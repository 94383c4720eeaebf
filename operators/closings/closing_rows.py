"""Closings as rows: the form in which they are sent to a bucket and stored in it.

    _key  c.to  _ts  _pos
      17    17    +   40    sent, for a punctuation: never late
      18    18  900   41    sent, for a row of a unique stream with this event time: closes nothing if late
      20    29    +   42    sent to all buckets, for a range: closes 20 to 29
      17    17  950    0    stored: remembered until no row can match a row of that time

Stored closings of adjacent numbers are merged into one row (an interval) if they are remembered equally long.
So a stream that closes keys in order needs few rows. Intervals are disjoint. If every stored closing closes a
single number, there is no ``c.to``, since it would repeat ``_key``.

If ``_key`` is a hash, equal hashes do not mean equal keys. So rows contain the key columns in place of
``c.to``. These columns have the types in which both sides are compared, so they can be filled from rows of
either side. Rows are sorted by (key, position); ``_pos`` is the position of the punctuation in its stream.

If a stream is declared to be ordered or clustered by the key, its rows close keys:

    ordered, by at most 2       seq  7 4   9         a row of 9 closes all keys below 7
                                closes  ..4     5 6

    clustered                   item 7 7   9   7     a row of 9 closes 7; the last row breaks the promise
                                closes     7   9

Each partition of a batch is packed without knowledge of the others. So each partition sends its first and its
last row (its *edges*) to all buckets, which find the runs that end between two partitions or two batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.columns.arrow_types import arrow_type
from operators.kernels.keys import Bools, Int64s, is_exact, join_key, verify_equal
from operators.segments.encoding.row_codec import KEY, POS, TS
from operators.segments.layout import SideLayout
from operators.segments.segment import COLUMN, Segment

#: Event time of closings that are never late.
NEVER_LATE_US: Final = 2**63 - 1
#: Column with the last key of an interval, in closings of exact keys.
TO: Final = f"{COLUMN}to"
#: Least and greatest key.
LEAST: Final = -(2**63)
GREATEST: Final = 2**63 - 1
_NOWHERE = np.zeros(0, dtype=np.int64)
#: Position of closings that take effect after all rows of their batch.
BEHIND_ALL: Final = 2**63 - 1


def closing_rows(
    layout: SideLayout, table: pa.Table, ts: Int64s | None, pos: Int64s, below: pa.Array | None = None
) -> tuple[pa.RecordBatch, Bools]:
    """Return a closing per key value, unsorted, and which closings close a key: NULL closes no key.

    Args:
        layout: Layout of the side that closes the keys.
        table: Table with the key columns of the side.
        ts: int64[n], event times of rows that close their own keys; None for punctuations, which are never
            late.
        pos: int64[n], positions of the punctuations or rows in their stream.
        below: Ends of ranges, exclusive; None if single keys are closed. Ranges begin at the key values; NULL
            at either end means unbounded. The key must be exact and a whole number.
    """
    key, valid = join_key(table, layout.key, layout.key_types)
    if ts is None:
        ts = np.full(len(key), NEVER_LATE_US, dtype=np.int64)
    if not layout.exact:
        return _rows(layout, key, key, ts, pos, [_combined(table.column(name)) for name in layout.key]), valid
    if below is None:
        return _rows(layout, key, key, ts, pos, ()), valid
    ends, bounded = join_key(pa.table({"below": below}), ("below",), layout.key_types)
    key = np.where(valid, key, LEAST)
    to = np.where(bounded, ends - bounded, GREATEST)
    return _rows(layout, key, to, ts, pos, ()), key <= to


def closings_of(rows: Segment, own: SideLayout, chosen: Bools) -> pa.RecordBatch:
    """Return closings of the rows' keys, with the rows' times, so that the keys are remembered longer.

    Args:
        rows: Rows of one side; the other side has closed the keys of the chosen rows.
        own: Layout of the rows.
        chosen: bool[n], which rows to use.
    """
    index = np.flatnonzero(chosen)
    columns = [] if own.exact else [own.read(rows, name, index) for name in own.key]
    return _rows(own, rows.key[index], rows.key[index], rows.ts[index], rows.pos[index], columns)


def constants(keys: Int64s) -> pa.RecordBatch:
    """Return closings of exact keys, given in ascending order, as if a punctuation had closed the keys."""
    never = pa.array(np.full(len(keys), NEVER_LATE_US, dtype=np.int64))
    behind = pa.array(np.full(len(keys), BEHIND_ALL, dtype=np.int64))
    return pa.RecordBatch.from_arrays(
        [pa.array(keys), never, behind, pa.array(keys)], names=[KEY, TS, POS, TO]
    )


def ends(closings: pa.RecordBatch) -> Int64s:
    """Return the last key that each closing closes, int64[n]."""
    name = TO if TO in closings.schema.names else KEY
    last: Int64s = closings.column(name).to_numpy()
    return last


def folded(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Merge closings of equal keys, keeping the first position and latest time; sort by (key, position)."""
    if not any(name.startswith(COLUMN) and name != TO for name in parts[0].schema.names):
        parts = [p if TO in p.schema.names else p.append_column(TO, p.column(KEY)) for p in parts]
    batch = pa.concat_batches(list(parts))
    if TO in batch.schema.names:
        single = (ends(batch) == batch.column(KEY).to_numpy()).all()
        return _each_key_once(batch) if single else _disjoint(batch)
    names = [name for name in batch.schema.names if name not in (TS, POS)]
    grouped = pa.Table.from_batches([batch]).group_by(names, use_threads=False)
    found = grouped.aggregate([(TS, "max"), (POS, "min")])
    found = found.rename_columns([*names, TS, POS]).select(batch.schema.names)
    return found.sort_by([(KEY, "ascending"), (POS, "ascending")]).combine_chunks().to_batches()[0]


def _each_key_once(closings: pa.RecordBatch) -> pa.RecordBatch:
    """Merge closings of single keys, so that each key occurs once; sort them by key."""
    key = closings.column(KEY).to_numpy()
    if (key[1:] > key[:-1]).all():
        return closings
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.concatenate(([0], np.flatnonzero(key[1:] != key[:-1]) + 1))
    arrays = {KEY: key[first], TO: key[first]}
    arrays[TS] = np.maximum.reduceat(closings.column(TS).to_numpy()[order], first)
    arrays[POS] = np.minimum.reduceat(closings.column(POS).to_numpy()[order], first)
    return _with_columns(closings, arrays)


def _with_columns(closings: pa.RecordBatch, arrays: Mapping[str, Int64s]) -> pa.RecordBatch:
    names = closings.schema.names
    return pa.RecordBatch.from_arrays([pa.array(arrays[name]) for name in names], names=names)


def collapsed(closings: pa.RecordBatch, *, whenever: bool) -> pa.RecordBatch:
    """Return closings with adjacent keys merged into one row if they are remembered equally long.

    Args:
        closings: Closings returned by ``folded``; their positions are no longer needed.
        whenever: Whether all closings are remembered forever.
    """
    if TO not in closings.schema.names or closings.num_rows < 2:
        return closings
    key, to, ts = closings.column(KEY).to_numpy(), ends(closings), closings.column(TS).to_numpy()
    # Only the last interval can end at the greatest number, so adding 1 to the other ends cannot overflow.
    apart = to[:-1] + 1 != key[1:]
    if not whenever:
        apart |= ts[:-1] != ts[1:]
    if apart.all():
        return closings
    first = np.concatenate(([0], np.flatnonzero(apart) + 1))
    last = np.concatenate((first[1:], [len(key)])) - 1
    arrays = {KEY: key[first], TS: np.maximum.reduceat(ts, first), TO: to[last]}
    arrays[POS] = np.minimum.reduceat(closings.column(POS).to_numpy(), first)
    return _with_columns(closings, arrays)


def as_stored(closings: pa.RecordBatch) -> pa.RecordBatch:
    """Return closings in stored form: positions are 0, and ``TO`` is dropped if each closes a single key."""
    names = closings.schema.names
    closings = closings.set_column(
        names.index(POS), POS, pa.array(np.zeros(closings.num_rows, dtype=np.int64))
    )
    if TO in names and (ends(closings) == closings.column(KEY).to_numpy()).all():
        return closings.drop_columns(TO)
    return closings


def _disjoint(closings: pa.RecordBatch) -> pa.RecordBatch:
    """Cut intervals where other intervals begin or end, and merge equal pieces as ``folded`` does."""
    key, to = closings.column(KEY).to_numpy(), ends(closings)
    starts = np.unique(np.concatenate((key, to[to < GREATEST] + 1)))
    first, last = np.searchsorted(starts, key), np.searchsorted(starts, to, side="right")
    piece = np.arange(int((last - first).sum())) - np.repeat(np.cumsum(last - first) - last, last - first)
    ts = np.full(len(starts), LEAST, dtype=np.int64)
    pos = np.full(len(starts), GREATEST, dtype=np.int64)
    covered = np.zeros(len(starts), dtype=np.bool_)
    np.maximum.at(ts, piece, np.repeat(closings.column(TS).to_numpy(), last - first))
    np.minimum.at(pos, piece, np.repeat(closings.column(POS).to_numpy(), last - first))
    covered[piece] = True
    until = np.concatenate((starts[1:] - 1, [GREATEST]))
    arrays = {KEY: starts[covered], TS: ts[covered], POS: pos[covered], TO: until[covered]}
    return _with_columns(closings, arrays)


def matching(rows: Segment, own: SideLayout, closings: pa.RecordBatch, *, behind: bool = False) -> Bools:
    """Return which rows have a closed key, bool[n].

    Args:
        rows: Rows of either side of a family, sorted by key.
        own: Layout of the rows.
        closings: Closings, sorted by (key, position).
        behind: True: a row matches only closings with lower positions; False: positions do not matter.
    """
    row, entry = _meeting(rows.key, closings)
    if behind:
        later = closings.column(POS).to_numpy()[entry] < rows.pos[row]
        row, entry = row[later], entry[later]
    if len(row) and not own.exact:
        left = [own.read(rows, name, row) for name in own.key]
        row = row[verify_equal(left, key_columns(closings, entry), own.key_types)]
    found = np.zeros(len(rows), dtype=np.bool_)
    found[row] = True
    return found


def known(closings: pa.RecordBatch, others: pa.RecordBatch, key_types: Sequence[str]) -> Bools:
    """Return which closings have a key that is also in the other closings, bool[n].

    Args:
        closings: Closings, sorted by key.
        others: Other closings, sorted by key.
        key_types: Common type of each key pair.
    """
    row, entry = _meeting(closings.column(KEY).to_numpy(), others)
    found = np.zeros(closings.num_rows, dtype=np.bool_)
    if len(row) and not is_exact(key_types):
        same = verify_equal(key_columns(closings, row), key_columns(others, entry), key_types)
        row = row[same]
    found[row] = True
    return found


def closed_numbers(keys: Int64s, closings: pa.RecordBatch) -> Bools:
    """Return which key numbers are closed, bool[n]; a number with the hash of a closed key counts as closed.

    Args:
        keys: int64[n], ascending, keys as numbers: their values if exact, else their hashes.
        closings: Closings, sorted by key; intervals are disjoint.
    """
    found = np.zeros(len(keys), dtype=np.bool_)
    found[_meeting(keys, closings)[0]] = True
    return found


def _meeting(keys: Int64s, closings: pa.RecordBatch) -> tuple[Int64s, Int64s]:
    """Return all pairs of a number and a closing that contains it, as indices into both.

    Each element of the shorter array is looked up in the longer one.

    Args:
        keys: int64[n], ascending, keys as numbers.
        closings: Closings, sorted by key; intervals are disjoint.
    """
    low, high = closings.column(KEY).to_numpy(), ends(closings)
    if not len(keys) or not len(low) or low[0] > keys[-1] or high[-1] < keys[0]:
        return _NOWHERE, _NOWHERE
    if len(low) <= len(keys):
        first = np.searchsorted(keys, low)
        counts = np.searchsorted(keys, high, side="right") - first
        entry, row = _repeated(first, counts)
        return row, entry
    if TO not in closings.schema.names:
        return equal_numbers(keys, low)
    entry = np.searchsorted(low, keys, side="right") - 1
    row = np.flatnonzero((entry >= 0) & (high[entry] >= keys))
    return row, entry[row]


def _repeated(first: Int64s, counts: Int64s) -> tuple[Int64s, Int64s]:
    """Return the run number and the index of each element of runs, given each run's start and length."""
    run = np.repeat(np.arange(len(counts)), counts)
    return run, np.arange(len(run)) + np.repeat(first - np.cumsum(counts) + counts, counts)


def equal_numbers(keys: Int64s, ascending: Int64s) -> tuple[Int64s, Int64s]:
    """Return all pairs of equal numbers, as indices into both arrays; the second array is sorted."""
    first = np.searchsorted(ascending, keys)
    return _repeated(first, np.searchsorted(ascending, keys, side="right") - first)


def key_columns(closings: pa.RecordBatch, rows: Int64s) -> list[pa.Array]:
    """Return the stored key columns of some closings, or an empty list if keys are exact."""
    names = [name for name in closings.schema.names if name.startswith(COLUMN)]
    return [closings.column(name).take(pa.array(rows)) for name in names]


def _rows(
    layout: SideLayout, key: Int64s, to: Int64s, ts: Int64s, pos: Int64s, columns: Sequence[pa.Array]
) -> pa.RecordBatch:
    if layout.exact:
        names = [KEY, TS, POS, TO]
        return pa.RecordBatch.from_arrays([pa.array(each) for each in (key, ts, pos, to)], names=names)
    kinds = [arrow_type(kind) for kind in layout.key_types]
    values = [pc.cast(column, kind) for kind, column in zip(kinds, columns, strict=False)]
    names = [KEY, TS, POS, *(f"{COLUMN}{n}" for n in range(len(values)))]
    return pa.RecordBatch.from_arrays([pa.array(key), pa.array(ts), pa.array(pos), *values], names=names)


def _combined(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


def ordered_closings(rows: pa.RecordBatch, slack: int) -> pa.RecordBatch:
    """Return the closings of an ordered stream: a new greatest key closes keys more than ``slack`` below it.

    Args:
        rows: Rows in the form of closings of their own keys, which are whole numbers, sorted by position.
        slack: Maximum amount by which a key may be less than the greatest key before it.
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
    """Return closings of the keys whose runs end within a partition, and the edges of the partition.

    Args:
        rows: Rows in the form of closings of their own keys, sorted by position; at least one.
        valid: bool[n], which rows have a key; rows with a NULL key also form a run, but close nothing.
        key_types: Common type of each key pair.

    Returns:
        The closings; which closings close a key, bool[]; and the edges, which are the first and the last row.
        ``_ts`` of an edge is 1 if the row has a key, else 0.
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
    """Return closings of the keys whose runs end between partitions, and the last row of the batch.

    Args:
        before: Last row of the previous batches, in the form of an edge; None before the first row.
        edges: Edges of the partitions, in any order.
        key_types: Common type of each key pair.

    Returns:
        The closings, or None if no run ends between partitions; and the last row, or None if there is none.
    """
    ordered = sorted(edges, key=lambda each: int(each.column(POS)[0].as_py()))
    if not ordered:
        return None, before
    rows = pa.concat_batches([*(() if before is None else (before,)), *ordered])
    skipped = 1 if before is None else 0
    # In the sequence "before, first, last, first, last", the pairs (before, first) and (last, first) are
    # compared, because a run ends between partitions if the two rows of such a pair differ in their keys.
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
    """Return at which indices two batches of equal length have equal keys, bool[n]."""
    same: Bools = one.column(KEY).to_numpy() == other.column(KEY).to_numpy()
    if not is_exact(key_types) and same.any():
        index = np.flatnonzero(same)
        same[index] = verify_equal(key_columns(one, index), key_columns(other, index), key_types)
    return same


def _timed(closings: pa.RecordBatch, ts: Int64s) -> pa.RecordBatch:
    return closings.set_column(closings.schema.names.index(TS), TS, pa.array(ts))
