"""The column that orders a stream, as an int64 clock in place of event time.

An ordered family (a join without windows, WO-Join, §2) runs on the same kind of chain as a family with time
windows. Its clock is the ordering column instead of event time. A join on equal values of the column, for
example, has the window ``[NOW]``. Descending values are negated, so every clock is ascending.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from catalog.values.stream import Stream
from operators.kernels.keys import Bools, Int64s, join_key

#: Clocks are between -MOST and MOST, so that the difference of two clocks, and the sum of a clock and a
#: window, fit into int64.
MOST: Final = 2**61


def order_clock(stream: Stream, table: pa.Table) -> tuple[Int64s, Bools]:
    """Return the clock of every row of a stream that has an order.

    Args:
        stream: The stream.
        table: Rows of the stream.

    Returns:
        clock: int64[n], undefined for rows that are not valid.
        valid: bool[n], False if the column is NULL.
    """
    order = stream.order
    column = None if order is None else stream.column(order.column)
    if order is None or column is None:
        raise LookupError(f'stream "{stream.name}" has no order')
    values, valid = join_key(table, [column.name], [column.type])
    clock: Int64s = np.clip(values, -MOST, MOST)
    return (-clock if order.descending else clock), valid
