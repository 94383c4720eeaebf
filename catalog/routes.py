"""Routes in the catalog: which queries a stored pair belongs to. Routes are added, never changed."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, insert, select

from catalog import tables
from catalog.errors import InvariantBroken
from catalog.part import StorePart
from catalog.values.batch import Route

_r = tables.routes.c
_rq = tables.route_queries.c
_ALL = select(_r.route, _r.plan_version, _r.queries).order_by(_r.route)
_OF_QUERY = select(_rq.route).where(_rq.query_id == bindparam("query_id")).order_by(_rq.route)


class RouteStore(StorePart):
    """Routes that occur in committed batches."""

    def routes(self) -> tuple[Route, ...]:
        """Return all routes, by number."""
        with self._database.read() as connection:
            return tuple(
                Route(row.route, row.plan_version, tuple(json.loads(row.queries)))
                for row in connection.execute(_ALL)
            )

    def routes_of(self, query_id: int) -> tuple[int, ...]:
        """Return the routes whose pairs belong to a query, ascending.

        Args:
            query_id: The query.

        Returns:
            Route numbers.
        """
        with self._database.read() as connection:
            return tuple(connection.scalars(_OF_QUERY, {"query_id": query_id}))


def add_routes(connection: Connection, routes: Sequence[Route]) -> None:
    """Add the routes that are not known yet, inside a write transaction.

    Args:
        connection: Connection of the transaction.
        routes: Routes of a batch.

    Raises:
        InvariantBroken: A known number stands for other queries now.
    """
    known: dict[int, str] = {}
    # SQLite binds at most 32,766 parameters in one statement.
    for start in range(0, len(routes), 1000):
        numbers = [route.route for route in routes[start : start + 1000]]
        known.update(
            {row.route: row.queries for row in connection.execute(_ALL.where(_r.route.in_(numbers)))}
        )
    stored = set(known)
    added, members = [], []
    for route in routes:
        queries = json.dumps(route.queries)
        if known.setdefault(route.route, queries) != queries:
            raise InvariantBroken(
                f"route {route.route} stands for other queries already",
                detail=f"Known: {known[route.route]}; now: {queries}.",
            )
        if route.route not in stored:
            stored.add(route.route)
            added.append({"route": route.route, "plan_version": route.plan_version, "queries": queries})
            members += [{"query_id": query_id, "route": route.route} for query_id in route.queries]
    # A change of a plan can bring hundreds of routes at once: two statements, not two for each.
    if added:
        connection.execute(insert(tables.routes), added)
    if members:
        connection.execute(insert(tables.route_queries), members)
