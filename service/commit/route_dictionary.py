"""Dictionary of the routes that the engine knows, so that buckets report only new routes.

A route never changes its set of queries, and almost all routes of a batch occurred in the batch before. So
buckets report the sets of new routes only (``reporting``). The engine keeps only the numbers of known
routes: their sets are in the catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from catalog.values.batch import BatchManifest
from catalog.values.plan import Plan
from catalog.values.routes.intersections import Intersections
from catalog.values.routes.query_sets import Int64s
from catalog.values.routes.route_table import BatchRoutes, RouteTable, combined


@dataclass(slots=True)
class RouteDictionary:
    """The current generation of routes: those of committed batches (``catalog.store.repositories.routes``).

    Attributes:
        version: Plan version of the generation's first batch; 0 before the engine's first batch.
        since: Number of the generation's first batch.
        at_first: Number of routes that the generation had after its first batch.
    """

    version: int = 0
    since: int = 0
    at_first: int = 0
    # Numbers of the known routes, ascending.
    _numbers: Int64s = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __len__(self) -> int:
        return len(self._numbers)

    def unknown(self, numbers: Int64s) -> Int64s:
        """Return those of the given route numbers that the engine does not know."""
        places = np.searchsorted(self._numbers, numbers)
        # ``searchsorted`` puts larger numbers behind the last known one; there they are compared with -1,
        # which equals no route number.
        unknown: Int64s = numbers[np.append(self._numbers, -1)[places] != numbers]
        return unknown

    def new_routes(
        self,
        manifest: BatchManifest,
        routes: Iterable[RouteTable],
        plan_version: Callable[[int], Plan],
        generation: Callable[[int], Iterable[RouteTable]],
    ) -> BatchRoutes | None:
        """Return the routes that a batch adds to the catalog, or None if it adds none.

        Args:
            manifest: Manifest of the batch.
            routes: Routes that occur in the batch, at least those that the engine does not know. A route may
                occur twice.
            plan_version: Returns the plan with a given version. A generation begins with all known routes
                that are possible with the queries of the plan in force. The next one begins under a later
                plan, once the generation would have more than twice the routes of its beginning. The number
                of written routes therefore stays proportional to the number of new routes.
            generation: Reads the routes of a generation, given its first batch; a route may occur twice.

        Raises:
            InvariantBroken: Two different sets of queries have the same route number.
        """
        tables = [table for table in routes if len(table)]
        if not tables:
            return None
        occurring = combined(tables)
        new = occurring.among(self.unknown(occurring.numbers))
        if not len(new):
            return None
        if len(self) + len(new) <= 2 * self.at_first or manifest.plan_version == self.version:
            return BatchRoutes(new, self.since)
        known = generation(self.since) if self.version else ()
        families = plan_version(manifest.plan_version).families
        running = tuple(dict.fromkeys(query.id for family in families for query in family.queries))
        possible = (_possible(table, running) for table in known)
        table = combined([*(table for table in possible if len(table)), occurring])
        return BatchRoutes(table, manifest.batch)

    def committed(self, manifest: BatchManifest, routes: BatchRoutes | None) -> None:
        """Make known the routes that ``new_routes`` returned last, once the catalog has stored them."""
        if routes is None:
            return
        if routes.since == manifest.batch:
            self.version, self.since, self.at_first = manifest.plan_version, manifest.batch, len(routes.table)
            self._numbers = np.empty(0, dtype=np.int64)
        self._numbers = np.sort(np.concatenate([self._numbers, routes.table.numbers]), kind="stable")


def _possible(table: RouteTable, running: tuple[int, ...]) -> RouteTable:
    """Return the routes whose queries are all running, as a table with bits for running queries only."""
    some = table.take(table.sets.subsets_of(set(running)))
    return RouteTable(some.numbers, Intersections.of(some.sets).among(running).compact())
