"""Punctuations among the rows of a partition, and the keys that they close.

Rows in which the contract's column is true, and events that carry a pattern (``PUNCTUATION_COLUMN``), are
punctuations only. They are separated before rows are processed, so they need no event time, advance no
watermark and join nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.arrow_types import POSITION_COLUMN, PUNCTUATION_COLUMN
from catalog.punctuation_marks import Promise, promises_in
from catalog.values.stream import Punctuations, Stream
from operators.closings.closing_rows import closing_rows
from operators.closings.contract import SideContract
from operators.closings.derived import clustered_closings, ordered_closings
from operators.kernels.keys import Bools, Int64s
from operators.segments.layout import SideLayout
from operators.segments.row_codec import POS


def parted(stream: Stream, contract: Punctuations, table: pa.Table) -> tuple[pa.Table, list[Promise]]:
    """Separate the rows of a partition from its punctuations.

    Args:
        stream: The stream.
        contract: Its contract.
        table: All that was read, in one chunk.

    Returns:
        The rows, without the column of patterns, and the punctuations.
    """
    if PUNCTUATION_COLUMN in table.column_names:
        patterns = table.column(PUNCTUATION_COLUMN)
        table = table.drop_columns(PUNCTUATION_COLUMN)
        if patterns.null_count == len(patterns):
            return table, []
        return table.filter(pc.is_null(patterns)).combine_chunks(), promises_in(stream, table, patterns)
    if contract.column is None:
        return table, []
    closes = pc.fill_null(table.column(contract.column), False)
    if not pc.any(closes).as_py():
        return table, []
    promise = Promise(frozenset(contract.on[0]), table.filter(closes))
    return table.filter(pc.invert(closes)).combine_chunks(), [promise]


def closings_of_side(
    layout: SideLayout, contract: SideContract, rows: pa.Table, ts: Int64s, promises: Sequence[Promise]
) -> tuple[pa.RecordBatch, Bools, pa.RecordBatch | None]:
    """Return the closings of a side, by position, which of them close a key, and the edges of its rows.

    Args:
        layout: Layout of the side.
        contract: Rules by which its keys are closed.
        rows: Rows of the partition.
        ts: int64[n], their event times.
        promises: Its punctuations.

    Returns:
        Closings and whether they close; the first and last row if the side is clustered and has rows
        (``closings.derived``).
    """
    parts = [
        closing_rows(layout, promise.table, None, _positions(promise.table), promise.below)
        for promise in promises
        if promise.on == contract.on
    ]
    edges = None
    derives = contract.clustered or contract.slack is not None
    own, valid = _rows_by_position(layout, rows if contract.unique or derives else rows.slice(0, 0), ts)
    parts.append((own, valid) if contract.unique else (own.slice(0, 0), valid[:0]))
    if contract.slack is not None:
        found = ordered_closings(own.filter(pa.array(valid)), contract.slack)
        parts.append((found, np.ones(found.num_rows, dtype=np.bool_)))
    if contract.clustered and own.num_rows:
        found, closes, edges = clustered_closings(own, valid, layout.key_types)
        parts.append((found, closes))
    closings = pa.concat_batches([part for part, _ in parts])
    closes = np.concatenate([valid for _, valid in parts])
    if len(parts) == 1:
        return closings, closes, edges
    order = np.argsort(closings.column(POS).to_numpy(), kind="stable")
    return closings.take(pa.array(order)), closes[order], edges


def _rows_by_position(layout: SideLayout, rows: pa.Table, ts: Int64s) -> tuple[pa.RecordBatch, Bools]:
    """Return rows as closings of their own keys, by position, and which have a key."""
    pos = _positions(rows)
    own, valid = closing_rows(layout, rows, ts[: rows.num_rows], pos)
    if (pos[1:] >= pos[:-1]).all():
        return own, valid
    order = np.argsort(pos, kind="stable")
    return own.take(pa.array(order)), valid[order]


def _positions(table: pa.Table) -> Int64s:
    positions: Int64s = np.ascontiguousarray(table.column(POSITION_COLUMN).to_numpy())
    return positions
