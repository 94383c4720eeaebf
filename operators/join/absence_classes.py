"""Compiled outer, semi and anti joins: grouped by their conditions, and then by the rows that they return.

    query                                   condition group      judged class
    q1  A LEFT JOIN B, 10 s                 g1                   (g1, 10 s)
    q2  A LEFT JOIN B, 30 s                 g1                   (g1, 30 s)
    q3  A ANTI JOIN B, 30 s                 g1                   (g1, 30 s)
    q4  A ANTI JOIN B, 30 s, B.v < 5        g2                   (g2, 30 s)

The conditions of the queries of one *condition group* differ only in their windows. A match is *ahead* if
T_b - T_a >= 0, otherwise *behind*. So the nearest matches of a row, ahead and behind, are enough to find for
each of these queries whether the row has a match. The queries of one *judged class* return the same rows, in
the same batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate
from operator import or_

import numpy as np
import pandas as pd

from catalog.values.plan import FamilyPlan, PlannedQuery
from catalog.values.routes.query_sets import QuerySets, UInt64s
from catalog.values.routes.route_table import RouteTable
from operators.join.nearest import without_match
from operators.kernels.keys import Int64s
from operators.leaving.needs import QueryNeed, RowNeeds
from operators.lineage.lineage import keep, query_set
from operators.lineage.routes import route_numbers
from operators.segments.layout import SIDES

#: Maximum number of bytes for the query sets of all routes of a condition group's absent rows.
_MOST_ROUTE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class ConditionGroup:
    """Queries with equal conditions, which match the same pairs except for their windows.

    Attributes:
        number: int64 that identifies the conditions. It is the same in every plan version.
        queries: Set of the queries.
    """

    number: int
    queries: int


@dataclass(frozen=True, slots=True, eq=False)
class AbsentClasses:
    """Judged classes of one condition group and side whose queries return absent rows (outer, anti).

    Attributes:
        side: The side whose rows are checked for matches.
        group: Number of the condition group.
        since_version: Only rows processed under this plan version or a later one are checked for matches.
        queries: Set of the queries of all classes.
        ids: Ids of these queries.
        windows_us: int64[k], distance from a row to the opposite watermark at which each class decides it,
            µs.
        outer: For each outer join: its query id, and the index of its class.
        runs: Finds the runs of neighbouring classes that return a row.
    """

    side: str
    group: int
    since_version: int
    queries: int
    ids: frozenset[int]
    windows_us: Int64s
    outer: tuple[tuple[int, int], ...]
    runs: ClassRuns


@dataclass(frozen=True, slots=True, eq=False)
class ClassRuns:
    """Runs of neighbouring judged classes.

    A row that all classes of a run return in one batch is stored once for the whole run, or a few times if
    the run must be split (``digits``). No two classes have a query in common, so the query bits of a run are
    the difference of two prefix sums.

    Attributes:
        query_ids: Query ids of the family in plan order.
        windows_a_us: int64[k], window on a of each class, µs.
        windows_b_us: int64[k], window on b of each class, µs.
        ascending: Whether the windows on both sides ascend from class to class.
        digits: Maximum number of significant binary digits of a run's length
            (``join.nearest.without_match``). It bounds the memory for the routes of all runs.
    """

    query_ids: tuple[int, ...]
    windows_a_us: Int64s
    windows_b_us: Int64s
    ascending: bool
    digits: int
    # Prefix sums over the classes: before each class, and over all classes.
    _numbers: Int64s
    _words: UInt64s
    # Queries of each class.
    _sizes: Int64s

    @classmethod
    def of(
        cls, query_ids: tuple[int, ...], keys: Int64s, classes: Sequence[tuple[tuple[int, int], int]]
    ) -> ClassRuns:
        """Compile classes, each given as its windows on a and b and the set of its queries."""
        windows_a_us, windows_b_us = (
            np.array([both[place] for both, _ in classes], dtype=np.int64) for place in (0, 1)
        )
        upto = QuerySets.of(query_ids, list(accumulate((members for _, members in classes), or_, initial=0)))
        return cls(
            query_ids=query_ids,
            windows_a_us=windows_a_us,
            windows_b_us=windows_b_us,
            ascending=bool((np.diff(windows_a_us) >= 0).all() and (np.diff(windows_b_us) >= 0).all()),
            digits=_digits(len(classes), upto.words[0].nbytes),
            _numbers=route_numbers(upto, keys),
            _words=upto.words,
            _sizes=np.array([members.bit_count() for _, members in classes], dtype=np.int64),
        )

    def without_match(
        self, first: Int64s, last: Int64s, ahead: Int64s, behind: Int64s
    ) -> tuple[Int64s, Int64s, Int64s]:
        """Return, for each row, the runs of classes for which the row has no match.

        Args:
            first: int64[n], the first class for which each row is decided.
            last: int64[n], one more than the last class for which each row is decided.
            ahead: int64[n], distance of each row's nearest match ahead, µs.
            behind: int64[n], distance of each row's nearest match behind, µs.

        Returns:
            int64[m] each: index of the row, first class of the run, and one more than the run's last class.
        """
        found: tuple[Int64s, Int64s, Int64s] = without_match(
            *(first, last, ahead, behind),
            *(self.windows_a_us, self.windows_b_us, self.ascending, self.digits),
        )
        return found

    def rows(self, starts: Int64s, ends: Int64s) -> Int64s:
        """Return for each class how many of the given runs contain it, int64[k]."""
        classes = len(self.windows_a_us)
        began, ended = (np.bincount(part, minlength=classes + 1) for part in (starts, ends))
        return np.cumsum(began - ended)[:classes]

    def results(self, rows: Int64s) -> int:
        """Return the number of results, summed over all queries, given the number of rows per class."""
        return int(self._sizes @ rows)

    def routes(self, starts: Int64s, ends: Int64s) -> tuple[Int64s, RouteTable]:
        """Return the index of each run's route, int64[n], and the distinct routes."""
        classes = len(self._numbers)
        codes, distinct = pd.factorize(starts * classes + ends)
        start, end = np.divmod(distinct, classes)
        sets = QuerySets(self.query_ids, self._words[start] ^ self._words[end])
        return codes, RouteTable(self._numbers[start] ^ self._numbers[end], sets)


def _digits(classes: int, set_bytes: int) -> int:
    """Return how many digits a run length may have so that all runs' routes fit in ``_MOST_ROUTE_BYTES``.

    For each first class of a run there are 2^(d - 1) possible lengths per power of 2, where d is the maximum
    number of digits.
    """
    magnitudes = classes.bit_length()
    lengths = _MOST_ROUTE_BYTES // max(classes * magnitudes * set_bytes, 1)
    return max(min(lengths.bit_length(), magnitudes), 1)


@dataclass(frozen=True, slots=True, eq=False)
class SemiClasses:
    """Semi joins of one condition group and side: each returns a row at the row's first match.

    A match has the later event time of its two rows. So a match with an earlier row is first, and otherwise
    the nearest match with a later row. For a row of a, later rows are ahead; for a row of b, they are behind.
    All queries that return a row at the same time share one result.

    Attributes:
        side: The side whose rows are checked for matches.
        query_ids: Query ids of the family in plan order.
        keys: Keys of these queries (``operators.lineage.routes.query_keys``).
        bounds_a: Distinct windows on a, int64, ascending, µs.
        bounds_b: Distinct windows on b, int64, ascending, µs.
        within_a: Sets of queries whose window contains a match ahead. Set i is for distances that are at or
            above i of the values in ``bounds_a``.
        within_b: Sets of queries whose window contains a match behind, in the same way by ``bounds_b``.
    """

    side: str
    query_ids: tuple[int, ...]
    keys: Int64s
    bounds_a: Int64s
    bounds_b: Int64s
    within_a: tuple[int, ...]
    within_b: tuple[int, ...]

    @classmethod
    def of(
        cls, side: str, query_ids: tuple[int, ...], keys: Int64s, windows: Mapping[tuple[int, int], int]
    ) -> SemiClasses:
        """Compile semi joins, given as a map from pairs of windows to sets of queries."""
        steps = [sorted({both[place] for both in windows}) for place in (0, 1)]
        within_a, within_b = (
            tuple(
                reduce(or_, (members for both, members in windows.items() if both[place] > reached), 0)
                for reached in (-1, *steps[place])
            )
            for place in (0, 1)
        )
        bounds_a, bounds_b = (np.array(own, dtype=np.int64) for own in steps)
        return cls(side, query_ids, keys, bounds_a, bounds_b, within_a, within_b)

    def first_matches(
        self, ahead: Int64s, behind: Int64s, known_ahead: Int64s, known_behind: Int64s
    ) -> tuple[tuple[Int64s, RouteTable], tuple[Int64s, RouteTable]]:
        """Return the queries for which rows have their first match in this batch.

        Args:
            ahead: int64[n], distance of each row's nearest match ahead in this batch, µs.
            behind: int64[n], distance of each row's nearest match behind in this batch, µs.
            known_ahead: int64[n], distance of each row's nearest match ahead in earlier batches, µs.
            known_behind: int64[n], distance of each row's nearest match behind in earlier batches, µs.

        Returns:
            Two results: one for queries whose first match is an earlier row, and one for queries whose first
            match is a later row. Each has int64[n], the index of each row's route (-1 if no query returns the
            row), and the routes.
        """
        reached = [
            np.searchsorted(bounds, distance, side="right")
            for bounds, distance in (
                (self.bounds_a, ahead),
                (self.bounds_b, behind),
                (self.bounds_a, known_ahead),
                (self.bounds_b, known_behind),
            )
        ]
        sizes = (len(self.within_a), len(self.within_b), len(self.within_a), len(self.within_b))
        codes, distinct = pd.factorize(np.ravel_multi_index(reached, sizes))
        earlier, later = [], []
        for a, b, before_a, before_b in zip(
            *(part.tolist() for part in np.unravel_index(distinct, sizes)), strict=True
        ):
            undecided = ~(self.within_a[before_a] | self.within_b[before_b])
            at_once, then = self.within_b[b], self.within_a[a]
            if self.side == "b":
                at_once, then = then, at_once
            earlier.append(at_once & undecided)
            later.append(then & ~at_once & undecided)
        return self._routes(codes, earlier), self._routes(codes, later)

    def _routes(self, codes: Int64s, sets: Sequence[int]) -> tuple[Int64s, RouteTable]:
        places = {members: place for place, members in enumerate(dict.fromkeys(filter(None, sets)))}
        found = QuerySets.of(self.query_ids, list(places))
        of_code = np.array([places.get(members, -1) for members in sets], dtype=np.int64)
        return of_code[codes], RouteTable(route_numbers(found, self.keys), found)


@dataclass(frozen=True, slots=True)
class CompiledAbsence:
    """The outer, semi and anti joins of a family.

    Attributes:
        groups: Condition groups per side, with the queries that check rows of that side for matches.
        absent: Classes of outer and anti joins per side and condition group.
        semi: Semi joins per side and condition group.
        silent: Set of the queries that return rows instead of pairs: semi and anti joins.
        reach_us: Distance per side from a row to the opposite watermark at which all classes have decided the
            row, µs.
        needs: For each side whose rows may be removed early: how long each query, in plan order, needs rows.
    """

    groups: Mapping[str, tuple[ConditionGroup, ...]]
    absent: Mapping[tuple[str, int], AbsentClasses]
    semi: Mapping[tuple[str, int], SemiClasses]
    silent: int
    reach_us: Mapping[str, int]
    needs: Mapping[str, tuple[QueryNeed, ...]]
    _of_classes: dict[tuple[str, int], RowNeeds | None] = field(default_factory=dict)

    def needs_of(self, side: str, masks: Sequence[int]) -> dict[int, RowNeeds]:
        """Return how long rows are needed, by the set of queries that they may serve.

        Sets of queries whose rows cannot be removed early have no entry.
        """
        found = {}
        for mask in set(masks):
            if (side, mask) not in self._of_classes:
                members = [need for n, need in enumerate(self.needs[side]) if mask >> n & 1]
                keep(self._of_classes, (side, mask), RowNeeds.of(members))
            needs = self._of_classes[side, mask]
            if needs is not None:
                found[mask] = needs
        return found


def compile_absence(family: FamilyPlan, keys: Int64s) -> CompiledAbsence | None:
    """Compile the outer, semi and anti joins of a family, or return None if all its joins are inner.

    Args:
        family: The family.
        keys: Keys of the family's queries (``lineage.routes.query_keys``).
    """
    if not family.judges_absence:
        return None
    groups: dict[str, dict[int, int]] = {side: {} for side in SIDES}
    # The key is (side, condition group, first plan version, whether the joins are semi joins). The value maps
    # each pair of windows to the set of queries with these windows.
    classes: dict[tuple[str, int, int, bool], dict[tuple[int, int], int]] = {}
    reach = dict.fromkeys(SIDES, 0)
    for number, query in enumerate(family.queries):
        group, member = _group_number(query), 1 << number
        for side in query.preserved:
            reach[side] = max(reach[side], query.w_a_us if side == "a" else query.w_b_us)
            groups[side][group] = groups[side].get(group, 0) | member
            windows = classes.setdefault((side, group, query.since_version, query.kind == "semi"), {})
            both = (query.w_a_us, query.w_b_us)
            windows[both] = windows.get(both, 0) | member
    query_ids = tuple(query.id for query in family.queries)

    absent: dict[tuple[str, int], AbsentClasses] = {}
    semi: dict[tuple[str, int], SemiClasses] = {}
    for (judged, group, since_version, is_semi), windows in sorted(classes.items()):
        if is_semi:
            semi[judged, group] = SemiClasses.of(judged, query_ids, keys, windows)
            continue
        own = 0 if judged == "a" else 1
        ordered = sorted(windows, key=lambda both: (both[own], both))
        queries = reduce(or_, windows.values())
        absent[judged, group] = AbsentClasses(
            side=judged,
            group=group,
            since_version=since_version,
            queries=queries,
            ids=frozenset(query_id for n, query_id in enumerate(query_ids) if queries >> n & 1),
            windows_us=np.array([both[own] for both in ordered], dtype=np.int64),
            outer=tuple(
                (query.id, place)
                for place, both in enumerate(ordered)
                for number, query in enumerate(family.queries)
                if query.kind == "outer" and windows[both] >> number & 1
            ),
            runs=ClassRuns.of(query_ids, keys, [(both, windows[both]) for both in ordered]),
        )
    return CompiledAbsence(
        groups={
            side: tuple(ConditionGroup(number, members) for number, members in sorted(found.items()))
            for side, found in groups.items()
        },
        absent=absent,
        semi=semi,
        silent=query_set([n for n, q in enumerate(family.queries) if not q.gives_pairs]),
        reach_us=reach,
        needs={
            side: _needs(family, side)
            for side in SIDES
            if any(query.needs_one_match(side) for query in family.queries)
        },
    )


def _needs(family: FamilyPlan, side: str) -> tuple[QueryNeed, ...]:
    """Return how long each query needs the rows of a side."""
    # Stored rows determine when a closed key is finished. So a query that reports finished keys needs a row
    # as long as the query's window reaches the row.
    return tuple(
        QueryNeed(
            query.w_a_us if side == "a" else query.w_b_us,
            _group_number(query) if query.needs_one_match(side) and not query.announces else None,
            query.w_a_us,
            query.w_b_us,
        )
        for query in family.queries
    )


def _group_number(query: PlannedQuery) -> int:
    """Return a number that identifies a query's conditions and the rows that it may use."""
    columns = (query.columns_a, query.columns_b) if query.backfill == "state" else ()
    facts = (query.filter_a, query.filter_b, query.residual, query.since_version, query.backfill, columns)
    return int.from_bytes(hashlib.blake2b(repr(facts).encode(), digest_size=8).digest(), "big") >> 1
