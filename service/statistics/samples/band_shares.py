"""Fraction of the row pairs of two samples that fall into a band, for joins without a key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.values.plan import Band, Bound
from operators.slices.overlaps import Doubles


def band_share(band: Band, a: pa.Table, b: pa.Table) -> float:
    """Return the fraction of all row pairs in which the band's column is within the band's range.

    Args:
        band: The band.
        a: Rows of a, with the band's columns; at least one.
        b: Rows of b.
    """
    own, other = (a, b) if band.side == "a" else (b, a)
    points = np.sort(_values(own, Bound(band.column)))
    known = points[: np.count_nonzero(~np.isnan(points))]
    low = np.full(other.num_rows, -np.inf) if band.low is None else _values(other, band.low)
    high = np.full(other.num_rows, np.inf) if band.high is None else _values(other, band.high)
    inside = np.searchsorted(known, high, side="right") - np.searchsorted(known, low, side="left")
    inside[np.isnan(low) | np.isnan(high)] = 0
    return float(np.maximum(inside, 0).sum() / (own.num_rows * other.num_rows))


def _values(rows: pa.Table, bound: Bound) -> Doubles:
    """Return a column plus an offset, float64[n], with NaN for NULL."""
    column = rows.column(bound.column)
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values: Doubles = pc.fill_null(column.cast(pa.float64(), safe=False), np.nan).to_numpy()
    return values + bound.offset
