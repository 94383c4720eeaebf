"""Band of a family without a key: the range in which a column of one side lies in every pair.

The residual of every query must bound the same column by the same columns (``predicates.limits``). The band
uses the widest of their offsets. So it may let in pairs that no query has, and never leaves out a pair of a
query.
"""

from __future__ import annotations

from collections.abc import Sequence

from catalog.values.plan import Band, Bound, PlannedQuery
from planner.families.families import SideName
from planner.predicates.limits import End, Limits, Types, limits
from planner.predicates.read_condition import read_condition


def family_band(queries: Sequence[PlannedQuery], types: Types) -> Band | None:
    """Return the band of the queries of a family without a key.

    Args:
        queries: The queries.
        types: Types of the columns of both sides.

    Returns:
        The narrowest band that is known to hold every pair of every query; None if there is none.
    """
    common: Limits | None = None
    for query in queries:
        own = {} if query.residual is None else limits(read_condition(query.residual), types)
        common = own if common is None else _widest(common, own)
        if not common:
            return None
    bands = [_band(common or {}, side, column) for side, column, _, _ in sorted(common or {})]
    # Closed at both ends before open at one; else the first by name.
    return min(bands, key=lambda band: band.low is None or band.high is None, default=None)


def _band(found: Limits, side: SideName, column: str) -> Band:
    ends: dict[End, Bound] = {}
    for (of, name, end, by), offset in sorted(found.items()):
        if (of, name) == (side, column):
            ends.setdefault(end, Bound(by, offset))
    return Band(side, column, ends.get("low"), ends.get("high"))


def _widest(one: Limits, other: Limits) -> Limits:
    """Return the limits that both have."""
    chosen = {"low": min, "high": max}
    return {key: chosen[key[2]](one[key], other[key]) for key in one.keys() & other.keys()}
