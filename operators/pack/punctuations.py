"""Punctuations among the rows of a partition, and the keys that they close.

A row in which the contract's column is true, or an event with a pattern (``PUNCTUATION_COLUMN``), is a
punctuation and is not treated as a row. Punctuations are separated before rows are processed, so they need no
event time, do not advance the watermark and are not joined.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.columns.arrow_types import POSITION_COLUMN, PUNCTUATION_COLUMN
from catalog.columns.punctuation_marks import Promise, marks_of, promises_in
from catalog.values.stream import Punctuations, Stream
from operators.closings.closing_rows import closing_rows, clustered_closings, ordered_closings
from operators.closings.contract import SideContract
from operators.kernels.keys import Bools, Int64s, unpacked
from operators.segments.encoding.row_codec import POS
from operators.segments.layout import SideLayout


class Parted(NamedTuple):
    """A partition, separated into rows and punctuations.

    Attributes:
        table: Rows and punctuations, without the pattern column.
        rows: bool[n], which entries of the table are rows; None if all are rows.
        promises: The punctuations; empty if no family uses any of them.
        received: Number of punctuations in the partition.
        ignored: Number of punctuations that no family uses.
    """

    table: pa.Table
    rows: Bools | None = None
    promises: Sequence[Promise] = ()
    received: int = 0
    ignored: int = 0


def parted(
    stream: Stream, contract: Punctuations, table: pa.Table, used: Collection[frozenset[str]]
) -> Parted:
    """Separate the rows of a partition from its punctuations.

    Args:
        stream: The stream.
        contract: Contract of the stream.
        table: All rows that were read, in one chunk.
        used: Column sets of the punctuations that some family uses.
    """
    if PUNCTUATION_COLUMN in table.column_names:
        patterns = table.column(PUNCTUATION_COLUMN)
        table = table.drop_columns(PUNCTUATION_COLUMN)
        received = len(patterns) - patterns.null_count
        if not received:
            return Parted(table)
        rows = _bools(pc.is_null(patterns))
        places = pa.array(np.flatnonzero(~rows))
        marks = patterns.take(places)
        counted = sum(marks_of(on, marks) for on in used)
        promises = promises_in(stream, table.take(places), marks) if counted else ()
        return Parted(table, rows, promises, received, received - counted)
    if contract.column is None:
        return Parted(table)
    closes = pc.fill_null(table.column(contract.column), False)
    if not pc.any(closes).as_py():
        return Parted(table)
    promise = Promise(frozenset(contract.on[0]), table.filter(closes))
    ignored = 0 if promise.on in used else len(promise)
    return Parted(table, ~_bools(closes), [promise], len(promise), ignored)


def closings_of_side(
    layout: SideLayout, contract: SideContract, rows: pa.Table, ts: Int64s, promises: Sequence[Promise]
) -> tuple[pa.RecordBatch, Bools, pa.RecordBatch | None]:
    """Return a side's closings by position, which of them close a key, and the rows' edges.

    Args:
        layout: Layout of the side.
        contract: Rules by which the keys of the side are closed.
        rows: Rows of the partition.
        ts: int64[n], event times of the rows.
        promises: Punctuations in the partition; the side uses only punctuations that fix its key columns.
            There may be no punctuation if the rows themselves close keys.

    Returns:
        The closings; which of them close a key; and the first and last row, if the side is clustered and has
        rows (``closings.closing_rows``).
    """
    parts = [
        closing_rows(layout, promise.table, None, _positions(promise.table), promise.below)
        for promise in promises
        if promise.on == contract.on
    ]
    edges = None
    if contract.derives:
        own, valid = _rows_by_position(layout, rows, ts)
        parts.append((own, valid) if contract.unique else (own.slice(0, 0), valid[:0]))
        if contract.slack is not None:
            found = ordered_closings(own.filter(pa.array(valid)), contract.slack)
            parts.append((found, np.ones(found.num_rows, dtype=np.bool_)))
        if contract.clustered and own.num_rows:
            found, closes, edges = clustered_closings(own, valid, layout.key_types)
            parts.append((found, closes))
    if len(parts) == 1:
        return *parts[0], edges
    closings = pa.concat_batches([part for part, _ in parts])
    closes = np.concatenate([valid for _, valid in parts])
    order = np.argsort(closings.column(POS).to_numpy(), kind="stable")
    return closings.take(pa.array(order)), closes[order], edges


def _rows_by_position(layout: SideLayout, rows: pa.Table, ts: Int64s) -> tuple[pa.RecordBatch, Bools]:
    """Return rows as closings of their own keys, by position, and which rows have a key."""
    pos = _positions(rows)
    own, valid = closing_rows(layout, rows, ts[: rows.num_rows], pos)
    if (pos[1:] >= pos[:-1]).all():
        return own, valid
    order = np.argsort(pos, kind="stable")
    return own.take(pa.array(order)), valid[order]


def _positions(table: pa.Table) -> Int64s:
    positions: Int64s = np.ascontiguousarray(table.column(POSITION_COLUMN).to_numpy())
    return positions


def _bools(column: pa.ChunkedArray) -> Bools:
    return unpacked(pa.concat_arrays(column.chunks)) if len(column) else np.zeros(0, dtype=np.bool_)
