"""Routes of pairs with how many pairs take each: what a bucket counts in a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from catalog.values.routes.query_sets import QuerySets
from catalog.values.routes.route_table import RouteTable, combined
from operators.kernels.keys import Int64s
from operators.lineage.route_numbers import rows_per_query


@dataclass(frozen=True, slots=True, eq=False)
class RouteCounts:
    """Routes of pairs of one family, counted.

    Attributes:
        table: The routes.
        pairs: int64[n], pairs of each, at least one.
    """

    table: RouteTable
    pairs: Int64s

    def query_rows(self) -> dict[int, int]:
        """Return pairs by query id; queries without any are missing."""
        rows = rows_per_query(self.table.sets, self.pairs).tolist()
        return {query_id: n for query_id, n in zip(self.table.sets.queries, rows, strict=True) if n}

    def totals(self) -> dict[int, int]:
        """Return the pairs of each route by its number."""
        return dict(zip(self.table.numbers.tolist(), self.pairs.tolist(), strict=True))


def add_up(queries: tuple[int, ...], parts: Sequence[RouteCounts]) -> RouteCounts:
    """Return the routes of several sets of pairs, each route once, sorted by number.

    Args:
        queries: Queries of the routes; used only if there are no parts.
        parts: Routes of each set of pairs; the queries of parts may differ.

    Raises:
        InvariantBroken: Two sets of queries have the same number.
    """
    if not parts:
        none = np.zeros(0, dtype=np.int64)
        return RouteCounts(RouteTable(none, QuerySets.of(queries, [])), none)
    table = combined([part.table for part in parts])
    sums = np.zeros(len(table), dtype=np.int64)
    for part in parts:
        np.add.at(sums, np.searchsorted(table.numbers, part.table.numbers), part.pairs)
    return RouteCounts(table, sums)
