"""All trees that join some streams."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from planner.bind.keys.step_keys import spine
from planner.sql.scopes.step_scope import Item


def all_streams(order: tuple[Item, ...]) -> bool:
    """Return whether an order has no groups."""
    return all(isinstance(item, int) for item in order)


def all_trees(streams: tuple[int, ...], ids: Sequence[int]) -> list[tuple[Item, ...]]:
    """Return all trees that join some streams, whatever joins them."""
    if len(streams) == 1:
        return [streams]
    first, *rest = streams
    halves = [(first, *some) for size in range(len(rest)) for some in combinations(rest, size)]
    return [
        spine(one, other, ids)
        for half in halves
        for one in all_trees(half, ids)
        for other in all_trees(tuple(p for p in rest if p not in half), ids)
    ]
