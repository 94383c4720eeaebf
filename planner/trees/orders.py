"""Orders of joining by cost: dynamic programming over connected sets of streams.

    {A} ─┬─ {A, B} ─┬─ {A, B, C}     the best orders of a set are those of a smaller set and one stream more
    {B} ─┤          │
    {C} ─┴─ {B, C} ─┘

The cost of a step depends on the set of streams joined before it and on the key of the run that it may
continue (``planner.bind.step_keys``). It does not depend on the order in which that set was joined, so for
each set and key the best few orders are enough (Selinger et al., SIGMOD 1979). Trees are left-deep: a step
joins one stream.

Cost of a step, CPU seconds per second of event time:

    candidates      λ_d λ_c (W_d + W_c) S_key                 pairs with the step's key
    pairs made      λ of the larger set                       all equal columns hold
    rows            λ_c that are packed and inserted, and λ_d that are inserted
    exchange        λ_d packed once more, and a file of each bucket for each batch

Rows held: λ_d H_d + λ_c W_c. A row of an intermediate expires when a later row is in the window of one of
its rows no more, so it is held for less than W_d (``OrderRates.held_s``). A first step that runs already
costs only what is new in the windows of this query.

Rows of an intermediate that do not rest are neither inserted nor held. They are made again for new rows of
the stream that joins, as in an MJoin. Of N rows of A that rest, λ_c N S are looked at. In a batch of length
T, N (1 - exp(-λ_c T S)) of them meet a new row. These meet rows of B, and so on up to the last stream. The
cost depends on the order in which the streams of the intermediate were joined since the last one that rests.
So the best few orders are kept for each such order (``MOST_AGAIN``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import product
from math import expm1

import networkx as nx

from catalog.values.calibration import Calibration
from catalog.values.plan import FamilyPlan, Plan, PlannedQuery
from planner.bind.step_keys import (
    Equals,
    Joining,
    JoinShape,
    may_be_made_again,
    next_key,
    step_keys,
)
from planner.families.families import SIDES, SideName, family_id, side_filter, side_filters, side_window_us
from planner.trees.order_rates import OrderRates

#: Orders that are shown: the best one and the three next best.
SHOWN = 4
#: In joins of more streams all rows rest: there are too many orders to compare.
MOST_AGAIN = 5


@dataclass(frozen=True, slots=True)
class JoinOrder:
    """An order in which the streams of a query can be joined, and its cost.

    Attributes:
        positions: Positions in FROM; the first two are joined with each other.
        cpu_s: CPU seconds per second of event time.
        rows: Rows held.
        exchanges: How often the key changes, each a batch of delay.
        again: Steps, from 2, whose pairs of the step before do not rest.
    """

    positions: tuple[int, ...]
    cpu_s: float = 0.0
    rows: float = 0.0
    exchanges: int = 0
    again: tuple[int, ...] = ()

    @property
    def rank(self) -> tuple[float, float, int, tuple[int, ...], tuple[int, ...]]:
        """Value by which orders are compared; if all else is equal, the order of FROM decides."""
        # Rounded, so that sums of the same terms in another order are equal.
        cpu_s, rows = float(f"{self.cpu_s:.9e}"), float(f"{self.rows:.9e}")
        return cpu_s, rows, self.exchanges, self.positions, self.again

    @property
    def joining(self) -> Joining:
        """The order as a query is bound by it."""
        return Joining(self.positions, frozenset(self.again))

    @property
    def base(self) -> int:
        """How many streams come first whose rows, or combinations, rest in the last step or before it.

        >>> [JoinOrder((0, 1, 2, 3), again=again).base for again in ((), (3,), (2, 3))]
        [3, 2, 1]
        """
        base = len(self.positions) - 1
        while base > 1 and base in self.again:
            base -= 1
        return base

    def text(self, shape: JoinShape) -> str:
        """Return the order as it is displayed: ``((a, b), c)``, or ``(a, b, c)`` if (a, b) does not rest."""
        shown, *others = (shape.aliases[position] for position in self.positions)
        for step, alias in enumerate(others, 1):
            shown = f"{shown[:-1]}, {alias})" if step in self.again else f"({shown}, {alias})"
        return shown


@dataclass(frozen=True, slots=True)
class OrderCosts:
    """Costs of a query's steps.

    Attributes:
        rates: Rates of its streams.
        constants: Prices of the machine.
        previous: Plan in force; None if there is none.
    """

    rates: OrderRates
    constants: Calibration
    previous: Plan | None = None

    def begun(self, first: int, second: int) -> tuple[JoinOrder, frozenset[Equals]] | None:
        """Return the join of two streams and its key; None if nothing joins them."""
        shape = self.rates.shape
        key, _ = next_key(frozenset(), (first,), second, shape.equal)
        if not key:
            return None
        order = self._joined(JoinOrder((first,)), second, key, exchanged=False)
        return replace(order, cpu_s=order.cpu_s * self._new_fraction(first, second)), key

    def joined(
        self, order: JoinOrder, position: int, key: frozenset[Equals], *, rests: bool = True
    ) -> tuple[JoinOrder, frozenset[Equals]] | None:
        """Return an order with one stream more and the key of its last run; None if it is not possible.

        Args:
            order: The order so far, of two streams at least.
            position: Position of the stream that joins.
            key: Key of its last run.
            rests: Whether the combinations so far rest.
        """
        following, exchanged = next_key(key, order.positions, position, self.rates.shape.equal)
        if not following:
            return None
        if not rests and (exchanged or not may_be_made_again(self.rates.shape, order.positions, position)):
            return None
        return self._joined(order, position, following, exchanged=exchanged, rests=rests), following

    def of(self, positions: tuple[int, ...], again: Collection[int] = ()) -> JoinOrder | None:
        """Return an order with its cost; None if it is not possible.

        Args:
            positions: Positions in FROM.
            again: Steps, from 2, whose pairs of the step before do not rest.
        """
        found = self.begun(positions[0], positions[1])
        for step, position in enumerate(positions[2:], 2):
            if found is not None:
                found = self.joined(found[0], position, found[1], rests=step not in again)
        return None if found is None else found[0]

    def _joined(
        self,
        order: JoinOrder,
        position: int,
        key: frozenset[Equals],
        *,
        exchanged: bool,
        rests: bool = True,
    ) -> JoinOrder:
        rates, price, before = self.rates, self.constants, order.positions
        window_before, window_own = rates.windows_s(before, position)
        after = (*before, position)
        many, own = rates.combinations_per_s(before), rates.per_s[position]
        candidates = many * own * (window_before + window_own) * self._equal(key, before, position)
        cpu_s = price.per_match * candidates + price.per_result * rates.combinations_per_s(after)
        cpu_s += price.per_packed_row * own + (price.per_inserted_row + price.per_male) * (many + own)
        if exchanged:
            cpu_s += price.per_packed_row * many + price.per_stored_segment * rates.buckets / rates.batch_s
        rows, again = own * window_own, order.again
        if rests:
            rows += many * rates.held_s(before, position)
        else:
            again = (*again, len(before))
            partials, made = self.again_per_s(replace(order, positions=after, again=again), key)
            cpu_s += price.per_match * partials + (price.per_result + price.per_male) * made
            cpu_s -= price.per_inserted_row * many
        return JoinOrder(after, order.cpu_s + cpu_s, order.rows + rows, order.exchanges + exchanged, again)

    def again_per_s(self, order: JoinOrder, key: frozenset[Equals]) -> tuple[float, float]:
        """Return what is done per second of event time to make rows again for the last stream of an order.

        Args:
            order: The order.
            key: Key of its last run.

        Returns:
            Pairs of equal key that are looked at, and combinations that are made.
        """
        rates = self.rates
        *before, position = order.positions
        per_batch = rates.per_s[position] * rates.batch_s
        base = tuple(before[: order.base])
        looked_at = per_batch * self._held(order, len(base)) * self._equal(key, base, position)
        made = 0.0
        for joined in range(len(base), len(before)):
            left, right = tuple(before[:joined]), before[joined]
            met = self._held(order, joined) * -expm1(-per_batch * self._equal(key, left, position))
            _, window_s = rates.windows_s(left, right)
            looked_at += met * rates.per_s[right] * window_s * self._equal(key, left, right)
            whole = (*left, right)
            made += self._held(order, len(whole)) * -expm1(-per_batch * self._equal(key, whole, position))
        return looked_at / rates.batch_s, made / rates.batch_s

    def _held(self, order: JoinOrder, streams: int) -> float:
        """Return how many combinations of the first streams of an order can meet a row of the next one.

        Those of the batch are among them.
        """
        rates, first, following = self.rates, order.positions[:streams], order.positions[streams]
        held_s = rates.windows_s(first, following)[0] if streams == 1 else rates.held_s(first, following)
        return rates.combinations_per_s(first) * (held_s + rates.batch_s)

    def _equal(self, key: frozenset[Equals], before: tuple[int, ...], position: int) -> float:
        """Return the fraction of combinations of some streams and rows of another one that have one key."""
        equal = 1.0
        for columns in key:
            fraction = self.rates.equal_fraction(columns, before)
            equal *= self.rates.equal_fraction(columns, (*before, position)) / fraction if fraction else 0.0
        return equal

    def _new_fraction(self, first: int, second: int) -> float:
        """Return the part of the windows of two streams that no running query with their filters has."""
        shape = self.rates.shape
        a, b = sorted((first, second), key=lambda p: (shape.streams[p].id, (first, second).index(p)))
        (key,) = step_keys((first, second), a, shape.equal)
        pairs = tuple((left[1], right[1]) for left, right in key.parts)
        name = family_id(shape.streams[a].id, shape.streams[b].id, pairs)
        families = () if self.previous is None else self.previous.families
        running = next((family for family in families if family.id == name), None)
        if running is None:
            return 1.0
        windows: dict[SideName, int] = dict(zip(SIDES, shape.distances.windows_us((a,), b), strict=True))
        alike = tuple(self._alike(running, a, b))
        held = {
            side: max((min(side_window_us(q, side), windows[side]) for q in alike), default=0)
            for side in SIDES
        }
        return 1.0 - sum(held.values()) / sum(windows.values())

    def _alike(self, family: FamilyPlan, a: int, b: int) -> Iterable[PlannedQuery]:
        """Return the queries of a family that take all rows that pass the filters of two streams."""
        for query in family.queries:
            texts = [
                None if (bit := side_filter(query, side)) is None else side_filters(family, side)[bit].sql
                for side in SIDES
            ]
            wanted = [self.rates.shape.filters[position] for position in (a, b)]
            if all(
                text is None or (filter_ is not None and filter_[0] == text)
                for text, filter_ in zip(texts, wanted, strict=True)
            ):
                yield query


#: Streams joined, the key of the last run, and the streams that joined since the last rows that rest.
_State = tuple[frozenset[int], frozenset[Equals], tuple[int, ...]]


def best_orders(costs: OrderCosts, most: int = SHOWN) -> tuple[JoinOrder, ...]:
    """Return the orders of least cost, best first.

    Args:
        costs: Costs of the query's steps.
        most: How many at most.
    """
    shape = costs.rates.shape
    count = len(shape.streams)
    joined: nx.Graph[int] = nx.Graph()
    joined.add_nodes_from(range(count))
    joined.add_edges_from((p, q) for columns in shape.equal for p, _ in columns for q, _ in columns if p < q)
    states: dict[_State, list[JoinOrder]] = {}
    resting = (True, False) if count <= MOST_AGAIN else (True,)

    def state(order: JoinOrder, key: frozenset[Equals]) -> _State:
        tail = order.positions[order.base :] if len(resting) > 1 else ()
        return frozenset(order.positions), key, tail

    for first, second in joined.edges:
        found = costs.begun(*sorted((first, second)))
        if found is not None:
            states.setdefault(state(*found), []).append(found[0])
    for size in range(2, count):
        larger: dict[_State, list[JoinOrder]] = {}
        for (members, key, _), orders in states.items():
            for position in sorted(set(nx.node_boundary(joined, members))):
                for order, rests in product(orders, resting):
                    found = costs.joined(order, position, key, rests=rests)
                    if found is not None:
                        larger.setdefault(state(*found), []).append(found[0])
        states = {each: sorted(orders, key=_rank)[:most] for each, orders in larger.items()}
        assert all(len(members) == size + 1 for members, _, _ in states)
    return tuple(sorted((order for orders in states.values() for order in orders), key=_rank)[:most])


def _rank(order: JoinOrder) -> tuple[float, float, int, tuple[int, ...], tuple[int, ...]]:
    return order.rank
