"""Pairs of each route, which only tests need: a bucket reports the pairs of each query."""

from __future__ import annotations

from collections import Counter

from operators.lineage.routes import RouteCounts


def route_totals(routes: RouteCounts) -> Counter[int]:
    """Return the pairs of each route by its number."""
    found = Counter[int]()
    for part in routes.parts:
        for number, pairs in zip(part.numbers.tolist(), part.pairs.tolist(), strict=True):
            found[number] += pairs
    return found
