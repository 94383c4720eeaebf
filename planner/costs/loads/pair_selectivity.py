"""Selectivity of pairs: the fraction of pairs that pass the filters of both sides of some query.

    P(some q: a passes σ_a(q) and b passes σ_b(q))

is exact if one side has few filters. The rows of this side are divided into kinds by the filters that they
pass. The kind of a row determines a set of filters of the other side, and a partner must pass at least one of
these. If there would be too many kinds, the calculation assumes that queries with different filters of this
side are independent. If such queries share filters of the other side, some pairs are counted twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from catalog.values.plan import PlannedQuery
from planner.costs.loads.row_classes import Bits, RowClass
from planner.costs.rates import Floats
from planner.families.families import SideName, other_side, side_filter, side_window_us

#: Most filters of a side for which its rows are divided into kinds (2^6 kinds at most).
_MOST_FILTERS = 6


def pair_selectivities(
    queries: Sequence[PlannedQuery],
    side: SideName,
    boundaries: Sequence[int],
    own: RowClass,
    other: RowClass,
) -> Floats:
    """Return, per boundary, the fraction of pairs that serve a query whose window ends beyond the boundary.

    Args:
        queries: Queries of the join.
        side: Side whose windows count.
        boundaries: Distances, µs, ascending.
        own: Rows of the side.
        other: Rows of the other side.

    Returns:
        float64, one per boundary: fraction of all pairs of rows of both streams, not only of the row classes.
    """
    mate_side = other_side(side)
    filters = [{side_filter(q, s) for q in queries} - {None} for s in (side, mate_side)]
    swapped = len(filters[1]) < len(filters[0])
    first, second = (other, own) if swapped else (own, other)
    told_apart = _kinds(first, filters[swapped]) if len(filters[swapped]) <= _MOST_FILTERS else None
    waiting = sorted(queries, key=lambda q: side_window_us(q, side))
    found = _Served(first, second, told_apart)
    fraction, fractions = 0.0, []
    for boundary in reversed(boundaries):
        arrived = []
        while waiting and side_window_us(waiting[-1], side) > boundary:
            query = waiting.pop()
            pair = (side_filter(query, side), side_filter(query, mate_side))
            arrived.append(pair[::-1] if swapped else pair)
        if found.add(arrived):
            fraction = found.fraction()
        fractions.append(fraction)
    return np.array(fractions[::-1], dtype=np.float64)


class _Served:
    """Pairs of filters added so far, and the fraction of row pairs that pass at least one of them."""

    def __init__(
        self, first: RowClass, second: RowClass, kinds: Mapping[frozenset[int], float] | None
    ) -> None:
        self._first, self._second, self._kinds = first, second, kinds
        self._mates: dict[int | None, Bits] = {}
        #: Fraction of pairs that pass, by filter of the first side.
        self._shares: dict[int | None, float] = {}

    def add(self, pairs: Iterable[tuple[int | None, int | None]]) -> bool:
        """Add pairs of filters; return whether any of them is new."""
        changed: dict[int | None, None] = {}  # ordered, so that sums are rounded alike in every process
        for bit, mate in pairs:
            known = self._mates.get(bit, frozenset())
            if mate not in known:
                self._mates[bit] = known | {mate}
                changed[bit] = None
        if self._kinds is None:
            for bit in changed:
                of_first, of_second = frozenset({bit}), self._mates[bit]
                self._shares[bit] = _share(self._first, of_first) * _share(self._second, of_second)
        return bool(changed)

    def fraction(self) -> float:
        """Return the fraction of pairs of rows that pass some pair of filters."""
        mates = self._mates
        all_mates: Bits = frozenset().union(*mates.values())
        most = _share(self._first, frozenset(mates)) * _share(self._second, all_mates)
        if len(set(mates.values())) == 1:
            return most
        if self._kinds is None:
            return min(1.0 - math.prod(1.0 - share for share in self._shares.values()), most)
        return sum(
            fraction
            * _share(self._second, frozenset().union(*(mates[b] for b in mates if b is None or b in kind)))
            for kind, fraction in self._kinds.items()
            if fraction > 0.0
        )


def _share(rows: RowClass, bits: Bits) -> float:
    return rows.share(bits, whole=False)


def _kinds(rows: RowClass, filters: Iterable[int | None]) -> dict[frozenset[int], float]:
    """Return, for each subset of the given filters, the fraction of rows that pass exactly this subset.

    P(a row passes the filters S of the set U and no others) is the sum over subsets T of S of (-1)^|T|
    P(passes none of (U - S) + T).
    """
    bits = sorted(bit for bit in filters if bit is not None)
    everyone = rows.share(frozenset({None}), whole=False)
    sets = [
        frozenset(bit for place, bit in enumerate(bits) if number >> place & 1)
        for number in range(1 << len(bits))
    ]
    # Start with the rows that pass no filter outside S. Then, for each filter in S, subtract the rows that
    # fail it.
    passing = [everyone - rows.share(frozenset(bits) - kind, whole=False) for kind in sets]
    for place in range(len(bits)):
        for number in range(len(sets)):
            if number >> place & 1:
                passing[number] -= passing[number ^ 1 << place]
    return dict(zip(sets, passing, strict=True))
