"""Punctuations among the rows of a partition, and the keys that they close.

Rows in which the contract's column is true, and events that carry a pattern (``PUNCTUATION_COLUMN``), are
punctuations only. They are separated before rows are processed, so they need no event time, advance no
watermark and join nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.arrow_types import POSITION_COLUMN, PUNCTUATION_COLUMN
from catalog.values.stream import Punctuations, Stream
from operators.closings.closing_rows import closing_rows
from operators.closings.contract import SideContract
from operators.kernels.keys import Bools, Int64s
from operators.segments.layout import SideLayout
from operators.segments.row_codec import POS


@dataclass(frozen=True, slots=True, eq=False)
class Promise:
    """Punctuations that fix the same columns.

    Attributes:
        on: The columns.
        table: The values, with ``_pos``.
    """

    on: frozenset[str]
    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)


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
        promises = [
            Promise(frozenset(json.loads(text)), table.filter(pc.fill_null(pc.equal(patterns, text), False)))
            for text in sorted(pc.unique(patterns.drop_null()).to_pylist())
        ]
        return table.filter(pc.is_null(patterns)).combine_chunks(), promises
    if contract.column is None:
        return table, []
    closes = pc.fill_null(table.column(contract.column), False)
    if not pc.any(closes).as_py():
        return table, []
    promise = Promise(frozenset(contract.on[0]), table.filter(closes))
    return table.filter(pc.invert(closes)).combine_chunks(), [promise]


def closings_of_side(
    layout: SideLayout, contract: SideContract, rows: pa.Table, ts: Int64s, promises: Sequence[Promise]
) -> tuple[pa.RecordBatch, Bools]:
    """Return the closings of a side, by position, and which of them close a key.

    Args:
        layout: Layout of the side.
        contract: Rules by which its keys are closed.
        rows: Rows of the partition.
        ts: int64[n], their event times.
        promises: Its punctuations.
    """
    parts = [
        closing_rows(layout, promise.table, None, _positions(promise.table))
        for promise in promises
        if promise.on == contract.on
    ]
    if contract.unique or not parts:
        rows = rows if contract.unique else rows.slice(0, 0)
        parts.append(closing_rows(layout, rows, ts[: rows.num_rows], _positions(rows)))
    found = pa.concat_batches([part for part, _ in parts])
    valid = np.concatenate([valid for _, valid in parts])
    if len(parts) == 1:
        return found, valid
    order = np.argsort(found.column(POS).to_numpy(), kind="stable")
    return found.take(pa.array(order)), valid[order]


def _positions(table: pa.Table) -> Int64s:
    positions: Int64s = np.ascontiguousarray(table.column(POSITION_COLUMN).to_numpy())
    return positions
