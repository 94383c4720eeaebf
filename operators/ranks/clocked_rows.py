"""Rows of a side under the clocks of its join's two directions.

A row has an *own* clock, by which its window is measured: its rank, or its event time. And it has a *cross*
clock, which says where it stands on the own clock of the other side: how many rows of that side there are up
to its event time, or its event time again. With these, 0 <= cross(b) - own(a) < n says that a is in its
window of n when b comes, whatever the clock is.

    resting     _ts  own        _time  event time    _cross                   stored in this form
    as males    _ts  cross      _time                _cross     _own
    by time     _ts  event time _time                _cross     _own

What works with ``_ts``, such as slices and probes, so works with the clock that is meant.
"""

from __future__ import annotations

import pyarrow as pa

from operators.kernels.keys import Int64s
from operators.segments.row_codec import TS
from operators.segments.segment import TIME, Segment

CROSS = "_cross"
OWN = "_own"


def clocked(rows: Segment, own: Int64s, cross: Int64s) -> Segment:
    """Return rows as they rest.

    Args:
        rows: Rows under their event times.
        own: int64[n], their own clock.
        cross: int64[n], their cross clock.
    """
    return _under(rows, own, {TIME: rows.ts, CROSS: cross})


def as_males(rows: Segment) -> Segment:
    """Return resting rows as they probe the other side."""
    return _under(rows, cross_clock(rows), {OWN: own_clock(rows)})


def by_time(rows: Segment) -> Segment:
    """Return resting rows, or males, under their event times."""
    return _under(rows, rows.times, {OWN: own_clock(rows)})


def own_clock(rows: Segment) -> Int64s:
    """Return the own clock of clocked rows, int64[n]."""
    own: Int64s = rows.rows.column(OWN).to_numpy() if OWN in rows.rows.schema.names else rows.ts
    return own


def cross_clock(rows: Segment) -> Int64s:
    """Return the cross clock of clocked rows, int64[n]."""
    cross: Int64s = rows.rows.column(CROSS).to_numpy()
    return cross


def _under(rows: Segment, clock: Int64s, more: dict[str, Int64s]) -> Segment:
    columns = dict(zip(rows.rows.schema.names, rows.rows.columns, strict=True))
    columns[TS] = pa.array(clock)
    columns |= {name: pa.array(values) for name, values in more.items()}
    return Segment(
        pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)), rows.epoch, rows.filters
    )
