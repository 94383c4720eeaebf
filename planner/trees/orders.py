"""Search for the cheapest join orders: dynamic programming over connected sets of streams.

    {A} ─┬─ {A, B} ─┬─ {A, B, C}     the best orders of a set extend those of a smaller set by one stream
    {B} ─┤          │
    {C} ─┴─ {B, C} ─┘

    {A, B} and {C, D}                or join the orders of two smaller sets: a bushy tree

The cost of a step depends on the set of streams joined before it and on the key of the run that it may
continue (``planner.bind.keys.step_keys``). If all combinations are stored, the cost does not depend on the
order in which this set was joined, so the best few orders for each set and key are enough (Selinger et al.,
SIGMOD 1979). A step joins one stream, or a group of streams that have been joined with each other. A tree
with groups stores all combinations, and is chosen only if it is cheaper than every tree without groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import product

import networkx as nx

from planner.bind.keys.step_keys import Equals
from planner.sql.scopes.step_scope import Item, flat
from planner.trees.join_order import JoinOrder
from planner.trees.order_costs import OrderCosts

#: Number of orders shown to users: the best order and the three next best orders.
SHOWN = 4
#: Maximum number of streams in a join for which orders that do not store some combinations are compared. With
#: more streams there are too many orders: all combinations are stored, and only the best order of each group
#: is compared.
MOST_AGAIN = 5

#: The joined streams, the key of the last run, the streams joined after the last step with stored
#: combinations, and whether some combinations are not stored.
_State = tuple[frozenset[int], frozenset[Equals], tuple[Item, ...], bool]


def best_orders(costs: OrderCosts, most: int = SHOWN) -> tuple[JoinOrder, ...]:
    """Return the cheapest orders, best first.

    Args:
        costs: Costs of the query's steps.
        most: Maximum number of orders.
    """
    shape = costs.rates.shape
    count = len(shape.streams)
    joined: nx.Graph[int] = nx.Graph()
    joined.add_nodes_from(range(count))
    joined.add_edges_from((p, q) for columns in shape.equal for p, _ in columns for q, _ in columns if p < q)
    few = count <= MOST_AGAIN

    def best(found: Iterable[tuple[JoinOrder, frozenset[Equals]] | None]) -> dict[_State, list[JoinOrder]]:
        states: dict[_State, list[JoinOrder]] = {}
        for order, key in filter(None, found):
            tail = order.positions[order.base :] if few and not order.groups else ()
            state = (frozenset(flat(order.positions)), key, tail, bool(order.again))
            states.setdefault(state, []).append(order)
        return {state: nsmallest(most, orders, key=_rank) for state, orders in states.items()}

    sizes = {2: best(costs.begun(*sorted(edge)) for edge in joined.edges)}
    groups = {2: _groups_of(sizes[2], most if few else 1)}
    for size in range(3, count + 1):
        sizes[size] = best(
            [
                *_with_one_more(costs, joined, sizes[size - 1], (True, False) if few else (True,)),
                *_with_groups(costs, groups, size),
            ]
        )
        groups[size] = _groups_of(sizes[size], most if few else 1)
    whole = [order for orders in sizes[count].values() for order in orders]
    return tuple(nsmallest(most, whole, key=_rank))


def _with_one_more(
    costs: OrderCosts,
    joined: nx.Graph[int],
    states: Mapping[_State, Sequence[JoinOrder]],
    resting: Sequence[bool],
) -> Iterator[tuple[JoinOrder, frozenset[Equals]] | None]:
    """Yield the orders that extend an order in ``states`` by one stream."""
    for (members, key, _, _), orders in states.items():
        for position in sorted(set(nx.node_boundary(joined, members))):
            for order, rests in product(orders, resting):
                yield costs.joined(order, position, key, rests=rests)


#: Best orders that store all combinations, by their set of streams and the key of their last run.
_Groups = Mapping[tuple[frozenset[int], frozenset[Equals]], Sequence[JoinOrder]]


def _groups_of(states: Mapping[_State, Sequence[JoinOrder]], most: int) -> _Groups:
    found: dict[tuple[frozenset[int], frozenset[Equals]], list[JoinOrder]] = {}
    for (members, key, _, again), orders in states.items():
        if not again:
            found.setdefault((members, key), []).extend(orders)
    return {each: nsmallest(most, orders, key=_rank) for each, orders in found.items()}


def _with_groups(
    costs: OrderCosts, groups: Mapping[int, _Groups], size: int
) -> Iterator[tuple[JoinOrder, frozenset[Equals]] | None]:
    """Yield the orders of ``size`` streams that join two groups of streams."""
    if costs.spread():
        return
    for smaller in range(2, size // 2 + 1):
        for ((few, key), orders), ((rest, other_key), others) in product(
            groups[smaller].items(), groups[size - smaller].items()
        ):
            # Two groups of equal size are tried in one order only.
            if few.isdisjoint(rest) and (2 * smaller < size or min(few) < min(rest)):
                for order, other in product(orders, others):
                    yield costs.grouped(order, other, key, other_key)


def _rank(order: JoinOrder) -> tuple[float, int, float, int, tuple[int, ...], tuple[int, ...], str]:
    return order.rank
