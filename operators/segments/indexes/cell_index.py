"""Rows of a segment sorted by cell, then by time; a row's cell is its key modulo the number of cells.

cells      0        1     2
offsets    0        3     3        5          cell 1 is empty
times      4  7  9        2  8                ascend in each cell
rows       6  0  2        5  1                indices in the segment
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from operators.kernels.keys import Int64s


@dataclass(frozen=True, slots=True, eq=False)
class CellIndex:
    """Rows of a segment by cell and time.

    Attributes:
        rows: int64[n], index of each row in the segment.
        keys: int64[n], key of each row.
        times: int64[n], clock of each row, ascending in each cell.
        offsets: int64[cells + 1], index at which each cell begins, and the number of rows.
        oldest: Least of the times.
    """

    rows: Int64s
    keys: Int64s
    times: Int64s
    offsets: Int64s
    oldest: int

    @classmethod
    def of(cls, keys: Int64s, times: Int64s, cells: int) -> CellIndex:
        """Sort rows into cells.

        >>> index = CellIndex.of(np.array([1, 2, 3]), np.array([9, 5, 7]), 2)
        >>> index.rows.tolist(), index.offsets.tolist()
        ([1, 2, 0], [0, 1, 3])

        Args:
            keys: int64[n], keys of the rows.
            times: int64[n], clock of each row.
            cells: Number of cells.
        """
        cell = keys % cells
        order = np.argsort(times, kind="stable")
        if cells > 1:
            order = order[np.argsort(cell[order], kind="stable")]
        offsets = np.zeros(cells + 1, dtype=np.int64)
        np.cumsum(np.bincount(cell, minlength=cells), out=offsets[1:])
        oldest = int(times.min()) if len(times) else 0
        return cls(order, keys[order], times[order], offsets, oldest)
