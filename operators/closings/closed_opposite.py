"""Rows whose key the other side has closed: no later row of that side can match them.

    key closed before the batch    resting rows were found in the batch that closed it, new rows are found now
    key closed by the batch        all of its rows are found now

A closing is remembered until the other side's watermark has passed the rows of its key by the longest window.
So while the windows of a row still wait for that watermark, a remembered closing says that the row was found.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from operators.closings.closed_keys import ClosedKeys
from operators.closings.closing_rows import matching
from operators.kernels.keys import Bools, Int64s
from operators.segments.layout import SideLayout
from operators.segments.segment import Segment

_NOTHING = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class ClosedOpposite:
    """Closings of the other side, as the rows of one side meet them in a batch.

    Attributes:
        closed: Keys that the other side has closed before the batch.
        arrived: Closings that came with the batch, or None.
        layout: Layout of the rows.
    """

    closed: ClosedKeys
    arrived: pa.RecordBatch | None
    layout: SideLayout

    def ended(self, rows: Segment, *, fresh: bool) -> Int64s:
        """Return the places of rows that have met their last match by the end of the batch, and not before.

        Args:
            rows: Rows of one segment.
            fresh: Whether they are new in this batch.
        """
        if fresh:
            found = self.closed.closed(rows, self.layout)
            if self.arrived is not None:
                found |= matching(rows, self.layout, self.arrived)
            return np.flatnonzero(found)
        if self.arrived is None:
            return _NOTHING
        places = np.flatnonzero(matching(rows, self.layout, self.arrived))
        return places[~self.ended_before(rows, places)] if len(places) else places

    def ended_before(self, rows: Segment, places: Int64s) -> Bools:
        """Return which of some resting rows had met their last match before the batch, bool[n].

        Args:
            rows: Rows of one segment.
            places: int64[n], ascending, places of the rows in question.
        """
        return self.closed.closed(rows.take(places), self.layout)
