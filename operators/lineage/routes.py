"""Routes: the queries that a joined pair belongs to.

Routes replace the per-query unions of State-Slice (VLDB 2006, §5.1) and the routers of merged slices (§5.2).

Results never depend on the slice that stores a row. Let d = T_b - T_a. A pair with d >= 0 is routed by the
windows on a, and a pair with d < 0 by the windows on b. Every pair is also routed by the lineage of both
rows. A route's number depends only on its query ids (``route_numbers``). So it is the same in every bucket,
on replay and in every plan version, and is never reused for another set.

The number is computed by Zobrist hashing ("A new hashing method", 1970): each query id has a key, 63 bits of
its hash, and a set's number is the xor of its members' keys. So the number depends only on the ids, not on
their order, and two sets have the same number with a probability of 2^-63. For 22,000 sets of 450 out of
1,000 queries, Zobrist hashing takes 2 ms, plus 7 ms to convert the integers to arrays. Hashing the ids of
each set as text would take a second.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numba
import numpy as np

from catalog.values.plan import FamilyPlan, PlannedQuery
from catalog.values.query import is_rank
from catalog.values.routes.counts.query_rows import QueryRows
from catalog.values.routes.query_sets import WORD_BITS, QuerySets, UInt64s, words_of
from catalog.values.routes.route_table import RouteTable, combined
from operators.kernels.keys import INT64S, INT64S_READ, SETS_READ, Bools, Int64s
from operators.lineage.intersections import FEW_COMBINATIONS, intersected, renumbered
from operators.lineage.lineage import RowClasses, query_set
from operators.lineage.nested_sets import NestedSets, Windows, reaches_of

_NONE: Final = np.zeros(0, dtype=np.int64)


# Cached, because every plan version needs the keys again, for almost the same queries.
@lru_cache(maxsize=1 << 14)
def query_key(query_id: int) -> int:
    """Return the 63-bit key of a query id.

    >>> 0 < query_key(7) < 2**63
    True
    """
    return int.from_bytes(hashlib.blake2b(b"%d" % query_id, digest_size=8).digest(), "big") >> 1


def query_keys(query_ids: Sequence[int]) -> Int64s:
    """Return the key of each query, int64, with zeros appended up to the number of bits of a set's words."""
    keys = np.zeros(words_of(len(query_ids)) * WORD_BITS, dtype=np.int64)
    keys[: len(query_ids)] = [query_key(query_id) for query_id in query_ids]
    return keys


def route_numbers(sets: QuerySets, keys: Int64s) -> Int64s:
    """Return the number of each set, int64[n]; 0 for the empty set.

    Args:
        sets: Sets of queries.
        keys: Result of ``query_keys`` for the queries.
    """
    numbers: Int64s = _xor_of_members(sets.words, keys)
    return numbers


def rows_per_query(sets: QuerySets, rows: Int64s) -> Int64s:
    """Return the number of rows of each query, int64[queries].

    Args:
        sets: Sets of queries.
        rows: int64[n], number of rows of each set.
    """
    sums: Int64s = _sums_of_members(sets.words, rows)
    return sums[: len(sets.queries)]


# Both loops process every bit, set or not, because a loop without a branch is compiled to process four bits
# at a time.
@numba.njit(INT64S(SETS_READ, INT64S_READ), nogil=True, cache=True)
def _xor_of_members(sets: UInt64s, keys: Int64s) -> Int64s:
    numbers = np.zeros(len(sets), dtype=np.int64)
    for row in range(len(sets)):
        number = np.int64(0)
        for word in range(sets.shape[1]):
            bits = sets[row, word]
            if bits:
                for bit in range(64):
                    member = np.int64((bits >> np.uint64(bit)) & np.uint64(1))
                    number ^= keys[word * 64 + bit] & -member
        numbers[row] = number
    return numbers


@numba.njit(INT64S(SETS_READ, INT64S_READ), nogil=True, cache=True)
def _sums_of_members(sets: UInt64s, rows: Int64s) -> Int64s:
    sums = np.zeros(sets.shape[1] * 64, dtype=np.int64)
    for row in range(len(sets)):
        count = rows[row]
        for word in range(sets.shape[1]):
            bits = sets[row, word]
            if bits:
                for bit in range(64):
                    member = np.int64((bits >> np.uint64(bit)) & np.uint64(1))
                    sums[word * 64 + bit] += count & -member
    return sums


@dataclass(frozen=True, slots=True, eq=False)
class CountedPairs:
    """Pairs of one probe, counted by their set of queries.

    Attributes:
        numbers: int64[n], route number of each set; a number may occur twice.
        sets: The sets.
        pairs: int64[n], number of pairs of each set, at least one.
    """

    numbers: Int64s
    sets: QuerySets | NestedSets
    pairs: Int64s

    @classmethod
    def of(cls, codes: Int64s, numbers: Int64s, sets: QuerySets | NestedSets) -> CountedPairs:
        """Count pairs by the place of their set (``codes``, int64[pairs]); leave out sets without pairs."""
        counts = np.bincount(codes, minlength=len(sets))
        taken = np.flatnonzero(counts)
        return cls(numbers[taken], sets.take(taken), counts[taken])

    def table(self, among: Int64s | None) -> RouteTable:
        """Return all routes, or only the routes with the given numbers; a route may occur twice."""
        numbers, sets = self.numbers, self.sets
        if among is not None:
            wanted = np.flatnonzero(np.isin(numbers, among))
            numbers, sets = numbers[wanted], sets.take(wanted)
        return RouteTable(numbers, sets.intersections().compact() if isinstance(sets, NestedSets) else sets)

    def rows(self) -> Int64s:
        """Return the number of pairs of each query, int64[queries]."""
        if isinstance(self.sets, NestedSets):
            return self.sets.rows_per_query(self.pairs)
        return rows_per_query(self.sets, self.pairs)


@dataclass(frozen=True, slots=True, eq=False)
class RouteCounts:
    """Pairs of one family, counted by route.

    Attributes:
        queries: Queries of the routes; used only if there are no pairs.
        parts: Counted pairs of each probe; the queries of parts may differ.
    """

    queries: tuple[int, ...]
    parts: tuple[CountedPairs, ...]

    @classmethod
    def of(cls, routes: RouteTable, pairs: Int64s) -> RouteCounts:
        """Return the counts of a table of routes, given the number of pairs of each route, int64[n]."""
        return cls(routes.sets.queries, (CountedPairs(routes.numbers, routes.sets.listed(), pairs),))

    @property
    def numbers(self) -> Int64s:
        """Distinct numbers of the routes, ascending."""
        return np.unique(np.concatenate([_NONE, *(part.numbers for part in self.parts)]))

    def among(self, numbers: Int64s) -> RouteTable:
        """Return the routes with the given numbers, ascending, each once.

        Raises:
            InvariantBroken: Two sets of queries have the same number.
        """
        return self._table(numbers)

    def table(self) -> RouteTable:
        """Return all routes, ascending by number, each once; their sets have a bit for each query.

        Raises:
            InvariantBroken: Two sets of queries have the same number.
        """
        table = self._table(None)
        return RouteTable(table.numbers, table.sets.listed())

    def _table(self, among: Int64s | None) -> RouteTable:
        if not self.parts:
            return RouteTable(_NONE, QuerySets.of(self.queries, []))
        return combined([part.table(among) for part in self.parts])

    def query_rows(self) -> QueryRows:
        """Return the number of pairs of each query that has any."""
        sums: dict[tuple[int, ...], Int64s] = {}
        for part in self.parts:
            rows = part.rows()
            sums[part.sets.queries] = sums[part.sets.queries] + rows if part.sets.queries in sums else rows
        ids, counts = [_NONE], [_NONE]
        for queries, rows in sums.items():
            taken = np.flatnonzero(rows)
            ids.append(np.array(queries, dtype=np.int64)[taken])
            counts.append(rows[taken])
        return QueryRows.of(np.concatenate(ids), np.concatenate(counts))


def add_up(queries: tuple[int, ...], parts: Sequence[RouteCounts]) -> RouteCounts:
    """Combine the counts of several sets of pairs.

    Args:
        queries: Queries of the routes; used only if there are no parts.
        parts: Counts of each set of pairs; the queries of parts may differ.
    """
    return RouteCounts(queries, tuple(pairs for part in parts for pairs in part.parts))


@dataclass(frozen=True, slots=True, eq=False)
class TimeBounds:
    """Each query's bound on how much later a row may be than one row in a combination of the other side.

    Bounds are in time or in numbers of rows.

    Attributes:
        ends_us: Distinct bounds, inclusive, ascending, int64.
        within: Queries whose bound is not exceeded, per class. There is a class up to each bound, and one
            beyond the last bound.
    """

    ends_us: Int64s
    within: tuple[int, ...]

    def classes(self, later_us: Int64s) -> RowClasses:
        """Return the classes of pairs, given how much later the row is, int64[n], in µs or in rows."""
        return RowClasses(np.searchsorted(self.ends_us, later_us, side="left"), self.within)


@dataclass(frozen=True, slots=True, eq=False)
class Activations:
    """Queries that may use a pair only if at least one of its rows is from after the query's activation.

    Two rows from before a query's activation can be joined after it only if one of them waited for its place
    in the order of its stream.

    Attributes:
        versions: Distinct plan versions that activated such queries, ascending, int64.
        entered: Sets of queries that may use a pair, by the plan version of its later row: all queries except
            those activated after this version. The first set is for rows from before all ``versions``.
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
        keys: Keys of these queries (``operators.lineage.routes.query_keys``).
        bounds_a: Distinct windows of the join's queries on a, and the slice ends below the largest window,
            ascending, int64.
        bounds_b: Like ``bounds_a``, for windows on b and slices of b.
        windows: Windows of the join's queries, as distance classes: ``len(bounds_a) + 1`` classes for d >= 0,
            then ``len(bounds_b) + 1`` for d < 0.
        expiries: Bounds on how much later b's row may be than a row in a's combination, by the column of a
            that has the event time of that row.
        expiries_b: Bounds on how much later a's row may be than a row in b's combination, by column of b.
        ranks: Bounds on how many later rows the stream of a row in a's combination may have up to the event
            time of b's row, by the column of a that has the rank of the row in the combination.
        ranks_b: Like ``ranks``, for rows in b's combination, by column of b, up to the event time of a's row.
        activations: Queries that need a row from after their activation in each pair; None if every pair has
            such a row.
    """

    query_ids: tuple[int, ...]
    keys: Int64s
    bounds_a: Int64s
    bounds_b: Int64s
    windows: Windows
    expiries: tuple[tuple[str, TimeBounds], ...] = ()
    ranks: tuple[tuple[str, TimeBounds], ...] = ()
    expiries_b: tuple[tuple[str, TimeBounds], ...] = ()
    ranks_b: tuple[tuple[str, TimeBounds], ...] = ()
    activations: Activations | None = None

    @property
    def within(self) -> tuple[int, ...]:
        """For each distance class, the queries whose window covers it."""
        return self.windows.within

    def numbered(self, sets: Sequence[int]) -> tuple[Int64s, QuerySets]:
        """Return the route number of each set of queries (0 if empty), int64[n], and the sets as arrays."""
        found = QuerySets.of(self.query_ids, sets)
        return route_numbers(found, self.keys), found

    def masks(self, distance: Int64s, a: RowClasses, b: RowClasses) -> tuple[Int64s, list[int]]:
        """Find the queries of n candidate pairs.

        Args:
            distance: int64[n], T_b - T_a in µs.
            a: Classes of a's row of each pair.
            b: Classes of b's row of each pair.

        Returns:
            codes: int64[n], index of each pair's set in ``sets``.
            sets: The set of queries for each code.
        """
        return self.masks_of(self.distance_classes(distance), self.within, a, b)

    def masks_of(self, codes: Int64s, within: Sequence[int], *parts: RowClasses) -> tuple[Int64s, list[int]]:
        """Find the queries of n candidate pairs, given the queries whose windows cover each pair.

        Args:
            codes: int64[n], index into ``within`` for each pair.
            within: Sets of queries whose windows cover a pair.
            parts: Classifications of the pairs, for example by a's row and by b's row.
        """
        return intersected([RowClasses(codes, tuple(within)), *parts], len(codes))

    def nested(self, distances: Int64s, *parts: RowClasses) -> tuple[Int64s, NestedSets]:
        """Find the queries of n candidate pairs without building their sets.

        Args:
            distances: int64[n], distance classes.
            parts: Classifications of the pairs, for example by a's row and by b's row.

        Returns:
            Place of the set of each pair, int64[n], and the sets.
        """
        of_mask, masks = intersected(parts, len(distances))
        classes = len(self.within)
        codes, combinations = distances, len(masks) * classes
        if len(masks) > 1:
            codes = of_mask * classes + distances
        if combinations > FEW_COMBINATIONS:
            present, codes = renumbered(codes, combinations)
        else:
            present = np.arange(combinations)
        return codes, NestedSets(QuerySets.of(self.query_ids, masks), self.windows, present)

    def distance_classes(self, distance: Int64s) -> Int64s:
        """Return the distance class of each pair, int64[n]: its index in ``within``."""
        ahead = np.searchsorted(self.bounds_a, distance, side="right")
        if len(distance) and distance.min() < 0:
            behind = np.searchsorted(self.bounds_b, -distance, side="right") + len(self.bounds_a) + 1
            ahead = np.where(distance < 0, behind, ahead)
        return ahead.astype(np.int64)

    def one_way(
        self, side: str, ahead: Int64s, behind: Int64s, ties: Bools
    ) -> tuple[Int64s, Int64s, list[int]]:
        """Find the queries whose windows cover pairs, for one direction of a join with a clock per side.

        A pair with equal event times occurs in both directions and belongs to the queries of both directions.
        Direction b returns such a pair only for the queries for which direction a does not return it.

        Args:
            side: Side whose windows apply, ``a`` or ``b``; its row is not newer than the other row.
            ahead: int64[n], distance of each pair, measured on the clock of side ``a``.
            behind: int64[n], distance of each pair, measured on the clock of side ``b``.
            ties: bool[n], pairs whose rows have equal event times.

        Returns:
            Distance classes, codes, and the set of queries for each code.
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
        members: Numbers of the join's queries; pairs are routed only to these queries.
        keys: Keys of the family's queries, if they were computed for another join; None: compute them.
        ends_us: Slice ends of a and of b, which become bounds, so that no distance class spans two slices.
    """
    query_ids = tuple(q.id for q in family.queries)
    queries = [(number, family.queries[number]) for number in members]
    bounds_a = _bounds([q.w_a_us for _, q in queries], ends_us[0])
    bounds_b = _bounds([q.w_b_us for _, q in queries], ends_us[1])
    of_a, of_b = [(n, q.w_a_us) for n, q in queries], [(n, q.w_b_us) for n, q in queries]
    bits = words_of(len(query_ids)) * WORD_BITS
    arrays = [np.array(bounds, dtype=np.int64) for bounds in (bounds_a, bounds_b)]
    windows = Windows(
        within=(*_covering(of_a, bounds_a), *_covering(of_b, bounds_b)),
        behind=len(bounds_a) + 1,
        reaches=np.stack([reaches_of(*each, bits) for each in zip((of_a, of_b), arrays, strict=True)]),
    )
    expiries, expiries_b = _expiries(queries, "a"), _expiries(queries, "b")
    return Router(
        query_ids=query_ids,
        keys=query_keys(query_ids) if keys is None else keys,
        bounds_a=arrays[0],
        bounds_b=arrays[1],
        windows=windows,
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
    """Return the distinct windows, and the slice ends below the largest window, ascending.

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
