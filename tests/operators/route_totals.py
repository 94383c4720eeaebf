"""Number of pairs per route, for tests only: a bucket reports pairs per query."""

from __future__ import annotations

from collections import Counter

from operators.lineage.routes import RouteCounts


def route_totals(routes: RouteCounts) -> Counter[int]:
    """Return the number of pairs of each route, by route number."""
    found = Counter[int]()
    for part in routes.parts:
        for number, pairs in zip(part.numbers.tolist(), part.pairs.tolist(), strict=True):
            found[number] += pairs
    return found
