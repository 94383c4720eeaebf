"""Band of a family without a key: limits on a column of one side that hold in every pair.

The residual of a query is its condition on both rows of a pair. The residuals of all queries must limit the
same column by the same columns of the other side (``logic.limits``). The band uses the widest offsets of all
queries. So the band may contain pairs that belong to no query, but it never misses a pair of a query.

    a.x BETWEEN b.lo AND b.hi AND abs(a.y - b.y) <= 1      two bands; the one with fewer pairs leads

Segments are not sorted by the band, so each plan version may choose another leading band.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from catalog.values.plan import Band, Bound
from planner.families.families import SideName
from planner.predicates.logic.limits import End, Limits, Types, limits
from planner.predicates.read_condition import read_condition


def candidate_bands(residuals: Iterable[str | None], types: Types) -> list[Band]:
    """Return the bands of the queries of a family without a key.

    Args:
        residuals: Residuals of the queries.
        types: Types of the columns of both sides.

    Returns:
        The bands that contain every pair of every query. Bands with two bounds come before bands with one
        bound; bands with equally many bounds are sorted by side and column.
    """
    common: Limits | None = None
    for residual in residuals:
        own = {} if residual is None else limits(read_condition(residual), types)
        common = own if common is None else _widest(common, own)
        if not common:
            return []
    columns = sorted({(side, column) for side, column, _, _ in common or {}})
    bands = [_band(common or {}, side, column) for side, column in columns]
    return sorted(bands, key=lambda band: band.low is None or band.high is None)


def leading_band(
    bands: Sequence[Band],
    shares: Mapping[Band, float],
    former: Band | None = None,
    *,
    choose: bool = True,
) -> Band | None:
    """Return the band by which the join finds pairs.

    Args:
        bands: Result of ``candidate_bands``.
        shares: Fraction of all pairs that a band contains, for the bands for which it is known.
        former: Band of the previous plan version, or None if it had no band.
        choose: Whether another band may replace ``former``.

    Returns:
        If ``choose`` is false and a band is on the columns of ``former``, this band. Otherwise the band with
        the fewest pairs, or, if no fraction is known, the band on the columns of ``former``, else the first
        band. None without bands.
    """
    kept = [band for band in bands if former is not None and _columns(band) == _columns(former)]
    if any(band in shares for band in bands) and (choose or not kept):
        return min(bands, key=lambda band: shares.get(band, 1.0))
    return next(iter(kept or bands), None)


def _columns(band: Band) -> tuple[str | None, ...]:
    ends = (None if end is None else end.column for end in (band.low, band.high))
    return (band.side, band.column, *ends)


def _band(found: Limits, side: SideName, column: str) -> Band:
    ends: dict[End, Bound] = {}
    for (of, name, end, by), offset in sorted(found.items()):
        if (of, name) == (side, column):
            ends.setdefault(end, Bound(by, offset))
    return Band(side, column, ends.get("low"), ends.get("high"))


def _widest(one: Limits, other: Limits) -> Limits:
    """Return the limits that are in both ``one`` and ``other``, each with the wider of its two offsets."""
    chosen = {"low": min, "high": max}
    return {key: chosen[key[2]](one[key], other[key]) for key in one.keys() & other.keys()}
