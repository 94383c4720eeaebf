"""Rows for counting: key, event time and position of every row of a stream, as PACK sends them.

A window of rows counts the rows of its stream before filters. If it counts all rows, every bucket gets them
under one key. If it counts rows of equal key, each row goes to the bucket of its key.

    _key  _ts  _pos
       0  900    41      all rows count
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from operators.kernels.keys import Int64s
from operators.segments.row_codec import KEY, POS, TS

#: Key of all rows if they are counted whatever their key.
ANY_KEY = 0


def rank_rows(key: Int64s | None, ts: Int64s, pos: Int64s) -> pa.RecordBatch:
    """Return rows for counting.

    Args:
        key: int64[n], their keys; None: all rows count under one.
        ts: int64[n], event times, µs.
        pos: int64[n], positions in the source.
    """
    if key is None:
        key = np.full(len(ts), ANY_KEY, dtype=np.int64)
    return pa.RecordBatch.from_arrays([pa.array(key), pa.array(ts), pa.array(pos)], names=[KEY, TS, POS])
