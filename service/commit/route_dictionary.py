"""The routes that the engine knows: a batch says only what it brings.

A route is the same set of queries for ever, so almost all routes of a batch were there in the one before.
What is known is kept as bits over the queries of the plan that last had it, in which the buckets report it
as well: comparing 20,000 routes takes 5 ms. Only what a generation (``routes``) does not know becomes
ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from catalog.errors import InvariantBroken
from catalog.values.batch import BatchManifest, Route
from catalog.values.plan import Plan
from operators.lineage.query_sets import QuerySets
from operators.lineage.route_table import RouteTable

#: Sets of queries as bytes (``QuerySets.bytes_of_each``) by number, under the queries that they are bits of.
_Sets = dict[tuple[int, ...], dict[int, bytes]]


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
    _sets: _Sets = field(default_factory=dict)
    # What the last manifest brings, until it is committed.
    _brought: _Sets = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(map(len, self._sets.values()))

    def with_routes(
        self,
        manifest: BatchManifest,
        routes: Iterable[RouteTable],
        plan_version: Callable[[int], Plan],
    ) -> BatchManifest:
        """Return a batch's manifest with those of its routes that its generation does not know.

        Args:
            manifest: The manifest without routes.
            routes: Routes that occur in the batch; one may come again.
            plan_version: Gives a plan by its version. A generation begins with all known routes that the
                queries of the plan in force can still have, and ends when it has twice as many: what is
                written is in proportion to what is new.

        Raises:
            InvariantBroken: The number of a known one stands for other queries now.
        """
        occurring = _by_queries(routes)
        unknown = {queries: self._unknown(queries, sets) for queries, sets in occurring.items()}
        new = sum(map(len, unknown.values()))
        begins = new > 0 and len(self) + new > 2 * self.at_first and manifest.plan_version != self.version
        if begins:
            families = plan_version(manifest.plan_version).families
            running = frozenset(query.id for family in families for query in family.queries)
            self._brought = {
                queries: _possible(queries, sets, running) for queries, sets in self._sets.items()
            }
            for queries, sets in occurring.items():
                self._brought.setdefault(queries, {}).update(sets)
        else:
            self._brought = unknown
        return replace(
            manifest,
            routes=_named(self._brought, manifest.plan_version),
            routes_since=manifest.batch if begins else self.since,
        )

    def committed(self, manifest: BatchManifest) -> None:
        """Know the routes of the manifest that ``with_routes`` gave last: the catalog has it."""
        if not manifest.routes or manifest.routes_since is None:
            return
        if manifest.routes_since == manifest.batch:
            self.version, self.since, self._sets = manifest.plan_version, manifest.batch, {}
            self.at_first = len(manifest.routes)
        for queries, sets in self._brought.items():
            if sets:
                self._sets.setdefault(queries, {}).update(sets)
        self._brought = {}

    def _unknown(self, queries: tuple[int, ...], sets: Mapping[int, bytes]) -> dict[int, bytes]:
        """Return the sets that are not known; known ones are kept as bits over these queries from now on."""
        known = self._sets.get(queries, {})
        others = {number: bits for number, bits in sets.items() if known.get(number) != bits}
        for former in [former for former in self._sets if former != queries] if others else ():
            self._move(former, queries, others)
        if changed := others.keys() & known.keys():
            number = min(changed)
            raise _two_sets(number, _ids(queries, known[number]), _ids(queries, others[number]))
        return others

    def _move(self, former: tuple[int, ...], queries: tuple[int, ...], others: dict[int, bytes]) -> None:
        """Let go of those of ``others`` that are known as bits over ``former``, and keep them as they are."""
        known = self._sets[former]
        found = sorted(others.keys() & known.keys())
        if not found:
            return
        recast, whole = QuerySets.of_bytes(former, [known[number] for number in found]).among(queries)
        for number, bits, lacks_none in zip(found, recast.bytes_of_each(), whole.tolist(), strict=True):
            if not lacks_none or bits != others[number]:
                raise _two_sets(number, _ids(former, known[number]), _ids(queries, others[number]))
        moved = self._sets.setdefault(queries, {})
        for number in found:
            moved[number] = others.pop(number)
            del known[number]
        if not known:
            del self._sets[former]


def _by_queries(routes: Iterable[RouteTable]) -> _Sets:
    """Gather the routes of all buckets."""
    gathered: _Sets = {}
    for table in routes:
        queries = table.sets.queries
        found = gathered.setdefault(queries, {})
        for number, bits in zip(table.numbers.tolist(), table.sets.bytes_of_each(), strict=True):
            if found.setdefault(number, bits) != bits:
                raise _two_sets(number, _ids(queries, found[number]), _ids(queries, bits))
    return gathered


def _possible(
    queries: tuple[int, ...], sets: Mapping[int, bytes], running: frozenset[int]
) -> dict[int, bytes]:
    """Return the sets that have running queries only."""
    possible = QuerySets.of_bytes(queries, list(sets.values())).subsets_of(running).tolist()
    return {number: bits for (number, bits), is_so in zip(sets.items(), possible, strict=True) if is_so}


def _named(brought: _Sets, version: int) -> tuple[Route, ...]:
    """Return routes by number, with their ids."""
    found: list[Route] = []
    for queries, sets in brought.items():
        ids = QuerySets.of_bytes(queries, list(sets.values())).ids()
        found += [Route(number, version, members) for number, members in zip(sets, ids, strict=True)]
    return tuple(sorted(found, key=lambda route: route.route))


def _ids(queries: tuple[int, ...], bits: bytes) -> list[int]:
    (members,) = QuerySets.of_bytes(queries, [bits]).ids()
    return list(members)


def _two_sets(number: int, known: list[int], now: list[int]) -> InvariantBroken:
    return InvariantBroken(
        f"route {number} stands for other queries already", detail=f"Known: {known}; now: {now}."
    )
