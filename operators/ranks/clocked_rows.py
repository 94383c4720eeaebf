"""Rows of a side with the clocks of both directions of its join.

The *own* clock of a row measures its window: it is either the row's rank or its event time. The *cross* clock
of a row is its place on the own clock of the other side. This is either the number of rows of that side up to
the row's event time, or the event time itself. So for either clock: when a row of b arrives, a row of a is in
a window of length n if 0 <= cross(b) - own(a) < n.

    stored      _ts  own        _time  event time    _cross                   stored in this form
    as males    _ts  cross      _time                _cross     _own
    by time     _ts  event time _time                _cross     _own

So code that reads ``_ts``, such as slices and probes, works on the clock of its direction.

A row that probes combinations of rows of several streams also has two numbers for each of these streams that
has a window of rows: the number of the stream's rows up to the probing row's event time (``_upto0``, ...),
and the number before it (``_below0``, ...).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from operators.kernels.keys import Int64s
from operators.segments.encoding.row_codec import TS
from operators.segments.segment import TIME, Segment

CROSS = "_cross"
OWN = "_own"
UP_TO = "_upto"
BELOW = "_below"


def clocked(rows: Segment, own: Int64s, cross: Int64s) -> Segment:
    """Return rows in their stored form.

    Args:
        rows: Rows with event times as ``_ts``.
        own: int64[n], own clock of each row.
        cross: int64[n], cross clock of each row.
    """
    return _under(rows, own, {TIME: rows.ts, CROSS: cross})


def as_males(rows: Segment) -> Segment:
    """Return stored rows in the form in which they probe, as males."""
    return _under(rows, cross_clock(rows), {OWN: own_clock(rows)})


def by_time(rows: Segment) -> Segment:
    """Return stored rows, or males, with event time as their clock."""
    return _under(rows, rows.times, {OWN: own_clock(rows)})


def own_clock(rows: Segment) -> Int64s:
    """Return the own clock of clocked rows, int64[n]."""
    own: Int64s = rows.rows.column(OWN).to_numpy() if OWN in rows.rows.schema.names else rows.ts
    return own


def cross_clock(rows: Segment) -> Int64s:
    """Return the cross clock of clocked rows, int64[n]."""
    cross: Int64s = rows.rows.column(CROSS).to_numpy()
    return cross


def counting(rows: Segment, counts: Sequence[tuple[Int64s, Int64s]]) -> Segment:
    """Add to clocked rows the numbers of rows of other streams.

    Args:
        rows: Clocked rows.
        counts: For each of the other streams: int64[n], number of its rows up to the event time of each
            clocked row, and int64[n], number of its rows before this event time.
    """
    more = {f"{UP_TO}{place}": up_to for place, (up_to, _) in enumerate(counts)}
    more |= {f"{BELOW}{place}": below for place, (_, below) in enumerate(counts)}
    return _under(rows, rows.ts, more)


def rows_up_to(place: int, rows: Segment) -> Int64s:
    """Return the number of another stream's rows up to each event time, int64[n].

    Args:
        place: Index of the stream in ``counts``, the argument of ``counting``.
        rows: Rows returned by ``counting``.
    """
    up_to: Int64s = rows.rows.column(f"{UP_TO}{place}").to_numpy()
    return up_to


def rows_before(place: int, rows: Segment) -> Int64s:
    """Return the number of another stream's rows before each event time, int64[n]."""
    below: Int64s = rows.rows.column(f"{BELOW}{place}").to_numpy()
    return below


def _under(rows: Segment, clock: Int64s, more: dict[str, Int64s]) -> Segment:
    columns = dict(zip(rows.rows.schema.names, rows.rows.columns, strict=True))
    columns[TS] = pa.array(clock)
    columns |= {name: pa.array(values) for name, values in more.items()}
    return Segment(
        pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)), rows.epoch, rows.filters
    )
