"""Routes: the queries that a joined pair belongs to.

They stand for the per-query unions of State-Slice (VLDB 2006, §5.1) and the routers of merged slices (§5.2).

The physical slice never decides an answer. With d = T_b - T_a a pair with d >= 0 is routed by a's windows,
one with d < 0 by b's, and by the lineage of both rows. A route's number derives from its query ids alone
(``lineage.route_numbers``): it is the same in every bucket, on replay and in every plan version, and never
reused for another set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from catalog.values.plan import FamilyPlan, PlannedQuery
from catalog.values.query import is_rank
from catalog.values.routes.query_sets import QuerySets
from operators.kernels.keys import Bools, Int64s
from operators.lineage.lineage import RowClasses, query_set
from operators.lineage.route_numbers import query_keys, route_numbers

#: Largest table of (distance, class, class) combinations that is indexed directly.
MAX_DIRECT_COMBINATIONS = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class TimeBounds:
    """Bounds of queries on how much later a row may be than one of a combination on the other side.

    They are in time or in rows.

    Attributes:
        ends_us: Distinct bounds, inclusive, ascending, int64.
        within: Queries whose bound is not exceeded, by class: up to each end, and beyond the last one.
    """

    ends_us: Int64s
    within: tuple[int, ...]

    def classes(self, later_us: Int64s) -> RowClasses:
        """Return the classes of pairs by how much later the row is, int64[n] in µs."""
        return RowClasses(np.searchsorted(self.ends_us, later_us, side="left"), self.within)


@dataclass(frozen=True, slots=True, eq=False)
class Activations:
    """Queries that take earlier rows, but only in pairs with a row that came after their activation.

    Two earlier rows meet after the activation of a query only if one of them has waited for its place in the
    order of its stream.

    Attributes:
        versions: Distinct plan versions that activated such queries, ascending, int64.
        entered: Sets of queries that take a pair, by the version of its later row: all other queries, and
            such queries up to each version. The first set is for rows before all versions.
    """

    versions: Int64s
    entered: tuple[int, ...]

    def classes(self, epochs: Int64s) -> RowClasses:
        """Return the classes of pairs by the plan version of their later row, int64[n]."""
        return RowClasses(np.searchsorted(self.versions, epochs, side="right"), self.entered)


@dataclass(frozen=True, slots=True, eq=False)
class Router:
    """Routes of a join under one plan version.

    Attributes:
        query_ids: Query ids of the family in plan order.
        keys: Their keys (``operators.lineage.route_numbers.query_keys``).
        bounds_a: Distinct windows of the join's queries on a, and ends of slices below the largest,
            ascending, int64.
        bounds_b: The same for b.
        within: Queries whose window covers a distance class: first ``len(bounds_a) + 1`` classes for d >= 0,
            then ``len(bounds_b) + 1`` for d < 0.
        expiries: Bounds on rows of an intermediate, by the column of a that has the event time.
        expiries_b: The same by the column of b, for how much later a is.
        ranks: The same by the column of a that has the rank of a row: how many rows of its stream may come
            after it, up to the event time of b.
        ranks_b: The same by the column of b, up to the event time of a.
        activations: Queries that need a later row in each pair; None if every pair has one.
    """

    query_ids: tuple[int, ...]
    keys: Int64s
    bounds_a: Int64s
    bounds_b: Int64s
    within: tuple[int, ...]
    expiries: tuple[tuple[str, TimeBounds], ...] = ()
    ranks: tuple[tuple[str, TimeBounds], ...] = ()
    expiries_b: tuple[tuple[str, TimeBounds], ...] = ()
    ranks_b: tuple[tuple[str, TimeBounds], ...] = ()
    activations: Activations | None = None

    def numbered(self, sets: Sequence[int]) -> tuple[Int64s, QuerySets]:
        """Return the routes of sets of queries, int64[n], 0 for the empty one, and the sets as arrays."""
        found = QuerySets.of(self.query_ids, sets)
        return route_numbers(found, self.keys), found

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
        return self.masks_of(self.distance_classes(distance), self.within, a, b)

    def masks_of(self, codes: Int64s, within: Sequence[int], *parts: RowClasses) -> tuple[Int64s, list[int]]:
        """Find the queries of n candidate pairs with windows of ``within[codes]``.

        Args:
            codes: int64[n].
            within: Sets of queries.
            parts: Classes of n things that belong to the pairs, such as their rows.
        """
        sets = list(within)
        for classes in parts:
            if classes.codes is not None:
                codes, sets = _compact(codes * len(classes.masks) + classes.codes, sets, classes.masks)
            else:
                sets = [s & classes.masks[0] for s in sets]
        return codes, sets

    def distance_classes(self, distance: Int64s) -> Int64s:
        """Return the distance class of pairs, int64[n]: the place in ``within``."""
        ahead = np.searchsorted(self.bounds_a, distance, side="right")
        if len(distance) and distance.min() < 0:
            behind = np.searchsorted(self.bounds_b, -distance, side="right") + len(self.bounds_a) + 1
            ahead = np.where(distance < 0, behind, ahead)
        return ahead.astype(np.int64)

    def one_way(
        self, side: str, ahead: Int64s, behind: Int64s, ties: Bools
    ) -> tuple[Int64s, Int64s, list[int]]:
        """Find the queries whose windows hold pairs, in one direction of a join with a clock per side.

        A pair with equal event times is in both directions and belongs to the queries of either one. The
        direction of b gives it only to queries to which the direction of a does not.

        Args:
            side: Side whose windows count, ``a`` or ``b``; its row is never the newer one.
            ahead: int64[n], distances of the pairs on a's clock.
            behind: int64[n], distances on b's clock.
            ties: bool[n], which pairs have equal event times.

        Returns:
            Distance classes, codes and the set of queries of each code.
        """
        sets, first_b = list(self.within), len(self.bounds_a) + 1
        if side == "a":
            places = np.searchsorted(self.bounds_a, ahead, side="right").astype(np.int64)
            return places, places, sets
        places = (np.searchsorted(self.bounds_b, behind, side="right") + first_b).astype(np.int64)
        if not ties.any():
            return places, places, sets
        in_a = np.searchsorted(self.bounds_a, ahead[ties], side="right")
        both, numbers = np.unique(places[ties] * first_b + in_a, return_inverse=True)
        codes = places.copy()
        codes[ties] = len(sets) + numbers
        sets += [sets[code // first_b] & ~sets[code % first_b] for code in both.tolist()]
        return places, codes, sets


def router(
    family: FamilyPlan,
    members: Sequence[int],
    keys: Int64s | None = None,
    ends_us: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> Router:
    """Compile the routes of one join of a family.

    Args:
        family: The family.
        members: Numbers of the join's queries: its pairs go to none of the others, whoever else they serve.
        keys: Keys of the family's queries where they are known, as of another join.
        ends_us: Ends of the slices of a and of b, so that each distance class lies in one slice.
    """
    query_ids = tuple(q.id for q in family.queries)
    queries = [(number, family.queries[number]) for number in members]
    bounds_a = _bounds([q.w_a_us for _, q in queries], ends_us[0])
    bounds_b = _bounds([q.w_b_us for _, q in queries], ends_us[1])
    within = [
        *_covering([(n, q.w_a_us) for n, q in queries], bounds_a),
        *_covering([(n, q.w_b_us) for n, q in queries], bounds_b),
    ]
    expiries, expiries_b = _expiries(queries, "a"), _expiries(queries, "b")
    return Router(
        query_ids=query_ids,
        keys=query_keys(query_ids) if keys is None else keys,
        bounds_a=np.array(bounds_a, dtype=np.int64),
        bounds_b=np.array(bounds_b, dtype=np.int64),
        within=tuple(within),
        expiries=tuple(each for each in expiries if not is_rank(each[0])),
        ranks=tuple(each for each in expiries if is_rank(each[0])),
        expiries_b=tuple(each for each in expiries_b if not is_rank(each[0])),
        ranks_b=tuple(each for each in expiries_b if is_rank(each[0])),
        activations=_activations(queries) if family.ordered else None,
    )


def _activations(queries: Sequence[tuple[int, PlannedQuery]]) -> Activations | None:
    asking = [(query.since_version, number) for number, query in queries if query.backfill == "state"]
    if not asking:
        return None
    versions = sorted({version for version, _ in asking})
    everyone = query_set([number for number, _ in queries])
    later = [query_set([n for version, n in asking if version > reached]) for reached in versions]
    first = query_set([number for _, number in asking])
    entered = tuple(everyone & ~waiting for waiting in (first, *later))
    return Activations(np.array(versions, dtype=np.int64), entered)


def _expiries(queries: Sequence[tuple[int, PlannedQuery]], side: str) -> tuple[tuple[str, TimeBounds], ...]:
    found: dict[str, dict[int, int]] = {}
    for number, query in queries:
        for name, us in query.expires(side):
            found.setdefault(name, {})[number] = us
    if not found:
        return ()
    all_queries = query_set([number for number, _ in queries])
    bounds = []
    for name, us_of in sorted(found.items()):
        unbounded = all_queries & ~query_set(list(us_of))
        ends_us = sorted(set(us_of.values()))
        within = [query_set([n for n, us in us_of.items() if us >= end]) | unbounded for end in ends_us]
        bounds.append((name, TimeBounds(np.array(ends_us, dtype=np.int64), (*within, unbounded))))
    return tuple(bounds)


def _bounds(windows_us: Sequence[int], ends_us: Sequence[int]) -> list[int]:
    """Return windows and those ends of slices that are below the largest, ascending, each once.

    >>> _bounds([30, 10], [10, 20, 40])
    [10, 20, 30]
    """
    largest = max(windows_us)
    return sorted({*windows_us, *(end for end in ends_us if end < largest)})


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


def _compact(codes: Int64s, sets: Sequence[int], masks: Sequence[int]) -> tuple[Int64s, list[int]]:
    """Number what remains of sets by masks, as far as it occurs; what is equal has the same number.

    Args:
        codes: int64[n], place of the set times the number of masks, plus place of the mask.
        sets: Sets of queries.
        masks: Queries that may remain of one.
    """
    combinations = len(sets) * len(masks)
    direct = combinations <= MAX_DIRECT_COMBINATIONS
    present = np.flatnonzero(np.bincount(codes, minlength=combinations)) if direct else np.unique(codes)
    # Few combinations occur: of 1,000 distances, 20 classes of a and 20 of b there are 400,000.
    of_set, of_mask = (places.tolist() for places in np.divmod(present, len(masks)))
    numbering: dict[int, int] = {}
    new = np.array(
        [
            numbering.setdefault(sets[i] & masks[j], len(numbering))
            for i, j in zip(of_set, of_mask, strict=True)
        ],
        dtype=np.int64,
    )
    if direct:
        table = np.zeros(combinations, dtype=np.int64)
        table[present] = new
        return table[codes], list(numbering)
    return new[np.searchsorted(present, codes)] if len(present) else codes, list(numbering)
