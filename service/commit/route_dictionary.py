"""The routes that the engine knows; a batch reports only new ones.

A route never changes its set of queries, and almost all routes of a batch occurred in the batch before. So
buckets report the sets of new routes only (``commit.reports``). Known routes are kept as bit tables over the
queries of the plan that introduced them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from catalog.errors import InvariantBroken
from catalog.values.batch import BatchManifest
from catalog.values.plan import Plan
from catalog.values.routes.query_sets import Int64s, QuerySets
from catalog.values.routes.route_table import BatchRoutes, RouteTable, check_equal, combined, merged

#: Tables of routes, none empty, by the queries to which the bits of their sets refer.
_Tables = dict[tuple[int, ...], RouteTable]


@dataclass(slots=True)
class RouteDictionary:
    """Generation of routes introduced by committed batches (``catalog.store.repositories.routes``).

    Attributes:
        version: Plan version of its first batch; 0 before the engine's first batch.
        since: Its first batch.
        at_first: Number of routes that it began with.
    """

    version: int = 0
    since: int = 0
    at_first: int = 0
    _known: _Tables = field(default_factory=dict)
    # Routes that the last batch introduces, until it is committed.
    _brought: _Tables = field(default_factory=dict)
    # Numbers of the known routes, ascending.
    _numbers: Int64s = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    def unknown(self, numbers: Int64s) -> Int64s:
        """Return the route numbers that are not known."""
        places = np.searchsorted(self._numbers, numbers)
        # A place behind the last known number compares with -1, which equals no number.
        unknown: Int64s = numbers[np.append(self._numbers, -1)[places] != numbers]
        return unknown

    def new_routes(
        self,
        manifest: BatchManifest,
        routes: Iterable[RouteTable],
        plan_version: Callable[[int], Plan],
    ) -> BatchRoutes | None:
        """Return the routes of a batch that its generation does not know, None if it knows all.

        Args:
            manifest: Manifest of the batch.
            routes: Routes that occur in the batch, at least the unknown ones; a route may occur twice.
            plan_version: Gives a plan by its version. A generation begins with all known routes that the
                queries of the plan in force can still have, and ends when it has twice as many. So the routes
                written stay in proportion to the new ones.

        Raises:
            InvariantBroken: The number of a known route now stands for other queries.
        """
        occurring = _by_queries(routes)
        self._brought = _not_empty(self._unknown(table) for table in occurring.values())
        new = sum(map(len, self._brought.values()))
        begins = new > 0 and len(self) + new > 2 * self.at_first and manifest.plan_version != self.version
        if begins:
            families = plan_version(manifest.plan_version).families
            running = {query.id for family in families for query in family.queries}
            possible = [table.take(table.sets.subsets_of(running)) for table in self._known.values()]
            self._brought = _not_empty(_by_queries([*possible, *occurring.values()]).values())
        if not self._brought:
            return None
        table = combined(list(self._brought.values()))
        return BatchRoutes(table, manifest.batch if begins else self.since)

    def committed(self, manifest: BatchManifest, routes: BatchRoutes | None) -> None:
        """Add the routes that ``new_routes`` returned last: the catalog has them now."""
        if routes is None:
            return
        if routes.since == manifest.batch:
            self.version, self.since, self._known = manifest.plan_version, manifest.batch, {}
            self.at_first = len(routes.table)
        # The new routes were not known, so they can be appended without a search.
        for queries, brought in self._brought.items():
            known = self._known.get(queries)
            self._known[queries] = brought if known is None else _joined(known, brought)
        self._brought = {}
        numbers = (table.numbers for table in self._known.values())
        self._numbers = np.sort(np.concatenate([np.empty(0, dtype=np.int64), *numbers]))

    def _unknown(self, table: RouteTable) -> RouteTable:
        """Return the unknown routes; store known ones as bits over the table's queries from now on."""
        queries = table.sets.queries
        if queries in self._known:
            known = self._known[queries]
            here, there = _common(table, known)
            check_equal(table.numbers[here], known.sets.take(there), table.sets.take(here))
            table = _without(table, here)
        for former in [former for former in self._known if former != queries] if len(table) else ():
            table = self._move(former, table)
        return table

    def _move(self, former: tuple[int, ...], table: RouteTable) -> RouteTable:
        """Recast known routes from bits over ``former`` to those of ``table``; return its other routes."""
        known = self._known[former]
        here, there = _common(table, known)
        if not len(here):
            return table
        moved, before = table.take(here), known.sets.take(there)
        recast, whole = before.among(table.sets.queries)
        if not whole.all():
            place = np.flatnonzero(~whole)[:1]
            ((was,), (is_now,)) = before.take(place).ids(), moved.sets.take(place).ids()
            raise InvariantBroken(
                f"route {moved.numbers[place[0]]} stands for other queries already",
                detail=f"Known: {list(was)}; now: {list(is_now)}.",
            )
        check_equal(moved.numbers, recast, moved.sets)
        del self._known[former]
        others = [_without(known, there), *self._known.values(), moved]
        self._known = _not_empty(_by_queries(others).values())
        return _without(table, here)


def _by_queries(tables: Iterable[RouteTable]) -> _Tables:
    """Concatenate route tables of the same queries."""
    gathered: dict[tuple[int, ...], list[RouteTable]] = {}
    for table in tables:
        gathered.setdefault(table.sets.queries, []).append(table)
    return {queries: merged(some) for queries, some in gathered.items()}


def _joined(one: RouteTable, other: RouteTable) -> RouteTable:
    """Return the routes of two tables of the same queries that have none in common."""
    numbers = np.concatenate([one.numbers, other.numbers])
    words = np.concatenate([one.sets.words, other.sets.words])
    return RouteTable(numbers, QuerySets(one.sets.queries, words))


def _not_empty(tables: Iterable[RouteTable]) -> _Tables:
    return {table.sets.queries: table for table in tables if len(table)}


def _common(table: RouteTable, known: RouteTable) -> tuple[Int64s, Int64s]:
    """Return the places of the common numbers in each of the two tables."""
    _, here, there = np.intersect1d(table.numbers, known.numbers, assume_unique=True, return_indices=True)
    return here, there


def _without(table: RouteTable, places: Int64s) -> RouteTable:
    kept = np.ones(len(table), dtype=np.bool_)
    kept[places] = False
    return table.take(kept)
