"""Routes: which queries a joined pair belongs to (the per-query unions of State-Slice, section 4.2).

The physical slice never decides an answer. With d = T_b - T_a a pair with d >= 0 is routed by a's windows,
one with d < 0 by b's, and by the lineage of both rows. A route's number is a hash of its query ids: the same
in every bucket, on replay and in every plan version, and never reused for another set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import compress

import numpy as np

from catalog.values.plan import FamilyPlan
from operators.bounded import keep
from operators.keys import Int64s
from operators.lineage import RowClasses

#: Turns binary digits into what ``compress`` takes.
_TRUTH = bytes.maketrans(b"01", b"\0\1")

#: Largest table of (distance, class, class) combinations that is indexed directly.
MAX_DIRECT_COMBINATIONS = 1 << 20


# A plan version numbers the queries anew, but most sets of ids were there in the one before.
@lru_cache(maxsize=1 << 12)
def route_number(query_ids: tuple[int, ...]) -> int:
    """Return the 63-bit number of a set of query ids (ascending).

    >>> route_number((1, 2)) == route_number((1, 2)) != route_number((1,))
    True
    """
    text = ",".join(map(str, query_ids)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True, slots=True, eq=False)
class Router:
    """Routes of a join under one plan version.

    Attributes:
        query_ids: Query ids of the family in plan order.
        bounds_a: Distinct windows of the join's queries on a, ascending, int64.
        bounds_b: The same for b.
        within: Queries whose window covers a distance class: first ``len(bounds_a) + 1`` classes for d >= 0,
            then ``len(bounds_b) + 1`` for d < 0.
    """

    query_ids: tuple[int, ...]
    bounds_a: Int64s
    bounds_b: Int64s
    within: tuple[int, ...]
    _numbers: dict[int, int] = field(default_factory=dict)
    _ids: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def queries_of(self, mask: int) -> tuple[int, ...]:
        """Return the ids of a set of queries, ascending."""
        ids = self._ids.get(mask)
        if ids is None:
            ids = self._queries_of(mask)
            keep(self._ids, mask, ids)
        return ids

    def _queries_of(self, mask: int) -> tuple[int, ...]:
        first_to_last = format(mask, "b").encode().translate(_TRUTH)[::-1]
        return tuple(sorted(compress(self.query_ids, first_to_last)))

    def number(self, mask: int) -> int:
        """Return the route of a set of queries; 0 for the empty set."""
        if not mask:
            return 0
        number = self._numbers.get(mask)
        if number is None:
            number = route_number(self.queries_of(mask))
            keep(self._numbers, mask, number)
        return number

    def masks(self, distance: Int64s, a: RowClasses, b: RowClasses) -> tuple[Int64s, list[int]]:
        """Find the queries of n candidate pairs.

        Args:
            distance: int64[n], T_b - T_a in µs.
            a: Classes of a's row of each pair.
            b: Classes of b's row of each pair.

        Returns:
            codes: int64[n], index into the sets.
            sets: The set of queries of each code.
        """
        codes, sets = self._distance_codes(distance)
        for classes in (a, b):
            width = len(classes.masks)
            if classes.codes is not None:
                codes = codes * width + classes.codes
                sets = [s & m for s in sets for m in classes.masks]
                codes, sets = _compact(codes, sets)
            else:
                sets = [s & classes.masks[0] for s in sets]
        return codes, sets

    def _distance_codes(self, distance: Int64s) -> tuple[Int64s, list[int]]:
        ahead = np.searchsorted(self.bounds_a, distance, side="right")
        if len(distance) and distance.min() < 0:
            behind = np.searchsorted(self.bounds_b, -distance, side="right") + len(self.bounds_a) + 1
            ahead = np.where(distance < 0, behind, ahead)
        return ahead.astype(np.int64), list(self.within)


def router(family: FamilyPlan, members: Sequence[int]) -> Router:
    """Compile the routes of one join of a family.

    Args:
        family: The family.
        members: Numbers of the join's queries: its pairs go to none of the others, whoever else they serve.
    """
    queries = [(number, family.queries[number]) for number in members]
    bounds_a = sorted({q.w_a_us for _, q in queries})
    bounds_b = sorted({q.w_b_us for _, q in queries})
    within = [
        *_covering([(n, q.w_a_us) for n, q in queries], bounds_a),
        *_covering([(n, q.w_b_us) for n, q in queries], bounds_b),
    ]
    return Router(
        query_ids=tuple(q.id for q in family.queries),
        bounds_a=np.array(bounds_a, dtype=np.int64),
        bounds_b=np.array(bounds_b, dtype=np.int64),
        within=tuple(within),
    )


def _covering(windows_us: Sequence[tuple[int, int]], bounds_us: Sequence[int]) -> list[int]:
    """Return the queries whose window covers each distance class; class i >= 1 starts at bounds[i-1].

    >>> _covering([(0, 10), (1, 30), (2, 10)], [10, 30])
    [7, 2, 0]
    """
    of_window = dict.fromkeys(bounds_us, 0)
    for number, window_us in windows_us:
        of_window[window_us] |= 1 << number
    covering = [0]
    for bound_us in reversed(bounds_us):
        covering.append(covering[-1] | of_window[bound_us])
    return covering[::-1]


def _compact(codes: Int64s, sets: list[int]) -> tuple[Int64s, list[int]]:
    """Renumber so that equal sets share a code and only sets that occur remain."""
    if len(sets) <= MAX_DIRECT_COMBINATIONS:
        present = np.flatnonzero(np.bincount(codes, minlength=len(sets)))
    else:
        present = np.unique(codes)
    numbering: dict[int, int] = {}
    new = np.array([numbering.setdefault(sets[int(c)], len(numbering)) for c in present], dtype=np.int64)
    if len(sets) <= MAX_DIRECT_COMBINATIONS:
        table = np.zeros(len(sets), dtype=np.int64)
        table[present] = new
        return table[codes], list(numbering)
    return new[np.searchsorted(present, codes)] if len(present) else codes, list(numbering)
