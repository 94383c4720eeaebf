"""The routes that the engine knows; a batch reports only new ones.

A route is the same set of queries forever, so almost all routes of a batch were there in the one before, and
buckets tell the sets of the others alone (``commit.reports``). Known routes are kept as bit tables over the
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

#: Routes by the queries that their sets are bits of, none empty.
_Tables = dict[tuple[int, ...], RouteTable]


@dataclass(slots=True)
class RouteDictionary:
    """The generation of routes that committed batches have brought (``catalog.store.repositories.routes``).

    Attributes:
        version: Plan version of its first batch; 0 before an engine's first.
        since: Its first batch.
        at_first: Routes that it began with.
    """

    version: int = 0
    since: int = 0
    at_first: int = 0
    _known: _Tables = field(default_factory=dict)
    # What the last batch brings, until it is committed.
    _brought: _Tables = field(default_factory=dict)
    # Numbers of those that are known, ascending.
    _numbers: Int64s = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    def unknown(self, numbers: Int64s) -> Int64s:
        """Return those of some numbers of routes that are not known."""
        places = np.searchsorted(self._numbers, numbers)
        # Behind the last number there is none that could be equal.
        unknown: Int64s = numbers[np.append(self._numbers, -1)[places] != numbers]
        return unknown

    def new_routes(
        self,
        manifest: BatchManifest,
        routes: Iterable[RouteTable],
        plan_version: Callable[[int], Plan],
    ) -> BatchRoutes | None:
        """Return those of a batch's routes that its generation does not know, None if it knows all.

        Args:
            manifest: Manifest of the batch.
            routes: Routes that occur in the batch, at least those that are unknown; one may come again.
            plan_version: Gives a plan by its version. A generation begins with all known routes that the
                queries of the plan in force can still have, and ends when it has twice as many: what is
                written is in proportion to what is new.

        Raises:
            InvariantBroken: The number of a known one stands for other queries now.
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
        """Know the routes that ``new_routes`` gave last: the catalog has them."""
        if routes is None:
            return
        if routes.since == manifest.batch:
            self.version, self.since, self._known = manifest.plan_version, manifest.batch, {}
            self.at_first = len(routes.table)
        # What is brought was not known, so it is put behind what is.
        for queries, brought in self._brought.items():
            known = self._known.get(queries)
            self._known[queries] = brought if known is None else _joined(known, brought)
        self._brought = {}
        numbers = (table.numbers for table in self._known.values())
        self._numbers = np.sort(np.concatenate([np.empty(0, dtype=np.int64), *numbers]))

    def _unknown(self, table: RouteTable) -> RouteTable:
        """Return the routes that are not known; keep known ones as bits over these queries from now on."""
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
        """Keep routes known as bits over ``former`` as ``table`` has them; return the table without them."""
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
    """Return the places of the common numbers in each of both tables."""
    _, here, there = np.intersect1d(table.numbers, known.numbers, assume_unique=True, return_indices=True)
    return here, there


def _without(table: RouteTable, places: Int64s) -> RouteTable:
    kept = np.ones(len(table), dtype=np.bool_)
    kept[places] = False
    return table.take(kept)
