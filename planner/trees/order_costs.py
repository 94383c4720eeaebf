"""Costs of the orders in which a query can join its streams.

Cost of a step that joins a stream c to combinations d, in CPU seconds per second of event time, by its parts:

    candidates      λ_d λ_c (W_d + W_c) S_key                 pairs with equal step keys
    pairs made      λ of the larger set                       pairs with equal values in all equal columns
    rows            λ_c, packed and inserted, and λ_d, inserted
    exchange        λ_d, packed once more, and a file of each bucket for each batch

Consecutive steps with the same key are a *run*; the pairs of a run stay in their bucket.

The number of rows held is λ_d H_d + λ_c W_c. A combination expires when no later row can be in the windows of
all its rows, so it is held for H_d, which is less than W_d (``OrderRates.held_s``). If the first step already
runs for another query, only the new part of this query's windows has a cost. A step that joins a group
inserts and holds the combinations of the group in the same way.

Combinations that are not stored are neither inserted nor held. They are recomputed for the new rows of the
joining stream c, as in an MJoin. Of N stored rows of A, λ_c N S are examined. In a batch of
length T, N (1 - exp(-λ_c T S)) of the N rows meet a new row. These rows then meet rows of B, and so on up to
the last stream. The cost depends on the order of the streams that were joined after the last step with
stored combinations. So the best few join orders are kept for each such order of streams
(``planner.trees.orders.MOST_AGAIN``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from math import expm1

from catalog.values.calibration import Calibration
from catalog.values.plan import FamilyPlan, Plan, PlannedQuery
from catalog.values.query import Clock
from planner.bind.keys.step_keys import (
    Equals,
    NextKey,
    may_be_made_again,
    next_key,
    spine,
    step_keys,
)
from planner.families.families import (
    SIDES,
    SideName,
    family_id,
    family_streams,
    side_filter,
    side_filters,
    side_window_us,
)
from planner.sql.scopes.step_scope import Item, flat, side_a
from planner.trees.join_order import JoinOrder
from planner.trees.order_rates import OrderRates


@dataclass(frozen=True, slots=True)
class OrderCosts:
    """Cost model for the steps of a query.

    Attributes:
        rates: Rates of the query's streams and of their combinations.
        constants: Calibrated constants of the machine.
        previous: Current plan, or None if there is no plan.
    """

    rates: OrderRates
    constants: Calibration
    previous: Plan | None = None

    def begun(self, first: int, second: int) -> tuple[JoinOrder, frozenset[Equals]] | None:
        """Return the join of two streams and its key, or None if no equal columns join them."""
        key = self._key((first,), (second,))
        if not key.columns:
            return None
        order = self._joined(JoinOrder((first,)), second, key)
        return replace(order, cpu_s=order.cpu_s * self._new_fraction(first, second)), key.columns

    def joined(
        self, order: JoinOrder, position: int, key: frozenset[Equals], *, rests: bool = True
    ) -> tuple[JoinOrder, frozenset[Equals]] | None:
        """Return an order with one more stream, and the key of its last run, or None if that is not possible.

        Args:
            order: Order of at least two streams.
            position: Position in FROM of the stream that is added.
            key: Key of the last run of ``order``.
            rests: Whether the combinations that ``order`` makes are stored.
        """
        before = flat(order.positions)
        following = self._key(before, (position,), key)
        if not following.columns:
            return None
        if not rests:
            shape = self.rates.shape
            possible = not shape.ordered and may_be_made_again(shape.distances, before, position)
            if following.exchanged or order.groups or not possible:
                return None
        return self._joined(order, position, following, rests=rests), following.columns

    def grouped(
        self, one: JoinOrder, other: JoinOrder, key_one: frozenset[Equals], key_other: frozenset[Equals]
    ) -> tuple[JoinOrder, frozenset[Equals]] | None:
        """Return the order that joins two orders, and the key of its last run, or None if it is not possible.

        Args:
            one: Order of at least two streams.
            other: Order of other streams, also at least two.
            key_one: Key of the last run of ``one``.
            key_other: Key of the last run of ``other``.
        """
        if one.again or other.again or not self._apart(one, other):
            return None
        ids = [stream.id for stream in self.rates.shape.streams]
        positions = spine(one.positions, other.positions, ids)
        if positions[-1] == one.positions:
            one, other, key_one, key_other = other, one, key_other, key_one
        left, right = flat(one.positions), flat(other.positions)
        key = self._key(left, right, key_one, key_other)
        if not key.columns:
            return None
        rates, price = self.rates, self.constants
        many, own = rates.combinations_per_s(left), rates.combinations_per_s(right)
        candidates = many * own * sum(rates.windows_s(left, right)) * self._equal(key.columns, left, right)
        cpu_s = price.per_match * candidates + price.per_result * rates.combinations_per_s((*left, *right))
        cpu_s += (price.per_inserted_row + price.per_male) * (many + own)
        # The cost of an order leaves out packing the rows of its first stream. If the order becomes a group,
        # these rows are packed, too.
        cpu_s += price.per_packed_row * rates.per_s[right[0]]
        for side, per_s in (("a", many), ("b", own)):
            if side in key.exchanged:
                cpu_s += self._exchange(per_s)
        rows = many * rates.held_s(left, right) + own * rates.held_s(right, left)
        return JoinOrder(
            positions,
            one.cpu_s + other.cpu_s + cpu_s,
            one.rows + other.rows + rows,
            max(one.exchanges, other.exchanges) + bool(key.exchanged),
        ), key.columns

    def of(self, positions: tuple[Item, ...], again: Collection[int] = ()) -> JoinOrder | None:
        """Return an order with its cost, or None if the order is not possible.

        Args:
            positions: Positions in FROM, in join order.
            again: Numbers of the steps, from 2, whose input pairs from the previous step are not stored.
        """
        found = self._of(positions, again)
        return None if found is None else found[0]

    def _of(
        self, positions: tuple[Item, ...], again: Collection[int]
    ) -> tuple[JoinOrder, frozenset[Equals]] | None:
        first, second = flat(positions[:2])
        found = self.begun(first, second)
        for step, item in enumerate(positions[2:], 2):
            if found is None:
                return None
            if isinstance(item, int):
                found = self.joined(found[0], item, found[1], rests=step not in again)
            else:
                group = self._of(item, ())
                found = None if group is None else self.grouped(found[0], group[0], found[1], group[1])
        return found

    def _key(
        self,
        left: tuple[int, ...],
        right: tuple[int, ...],
        key_a: frozenset[Equals] | None = None,
        key_b: frozenset[Equals] | None = None,
    ) -> NextKey:
        return next_key(left, right, self.rates.shape.equal, key_a, key_b)

    def _exchange(self, per_s: float) -> float:
        """Return the cost of exchanging ``per_s`` pairs per second between buckets for another key."""
        price, rates = self.constants, self.rates
        return price.per_packed_row * per_s + price.per_stored_segment * rates.buckets / rates.batch_s

    def _apart(self, one: JoinOrder, other: JoinOrder) -> bool:
        """Return whether no step of one order can be in the family of a step of the other.

        A family identifies a query by its id alone, so it can contain a query only once.
        """
        streams = self.rates.shape.streams
        ids, others = (Counter(streams[p].id for p in flat(order.positions)) for order in (one, other))
        return (ids & others).total() < 2

    def _joined(self, order: JoinOrder, position: int, key: NextKey, *, rests: bool = True) -> JoinOrder:
        rates, price, before = self.rates, self.constants, flat(order.positions)
        right = (position,)
        window_before, window_own = rates.windows_s(before, right)
        many, own = rates.combinations_per_s(before), rates.per_s[position]
        candidates = many * own * (window_before + window_own) * self._equal(key.columns, before, right)
        made = rates.combinations_per_s((*before, position))
        cpu_s = price.per_match * candidates + price.per_result * made
        cpu_s += price.per_packed_row * own + (price.per_inserted_row + price.per_male) * (many + own)
        if key.exchanged:
            cpu_s += self._exchange(many)
        rows, again = own * window_own, order.again
        after = (*order.positions, position)
        if rests:
            rows += many * rates.held_s(before, right)
        else:
            again = (*again, len(before))
            partials, remade = self.again_per_s(replace(order, positions=after, again=again), key.columns)
            cpu_s += price.per_match * partials + (price.per_result + price.per_male) * remade
            cpu_s -= price.per_inserted_row * many
        exchanges = order.exchanges + bool(key.exchanged)
        return JoinOrder(after, order.cpu_s + cpu_s, order.rows + rows, exchanges, again)

    def again_per_s(self, order: JoinOrder, key: frozenset[Equals]) -> tuple[float, float]:
        """Return the work per second of event time to recompute combinations for an order's last stream.

        Args:
            order: The order.
            key: Key of the last run of ``order``.

        Returns:
            Number of pairs of equal key that are examined, and number of combinations that are made.
        """
        rates = self.rates
        *before, position = flat(order.positions)
        per_batch = rates.per_s[position] * rates.batch_s
        base = tuple(before[: order.base])
        looked_at = per_batch * self._held(order, len(base)) * self._equal(key, base, (position,))
        made = 0.0
        for joined in range(len(base), len(before)):
            left, right = tuple(before[:joined]), before[joined]
            met = self._held(order, joined) * -expm1(-per_batch * self._equal(key, left, (position,)))
            _, window_s = rates.windows_s(left, (right,))
            looked_at += met * rates.per_s[right] * window_s * self._equal(key, left, (right,))
            whole = (*left, right)
            made += self._held(order, len(whole)) * -expm1(-per_batch * self._equal(key, whole, (position,)))
        return looked_at / rates.batch_s, made / rates.batch_s

    def _held(self, order: JoinOrder, streams: int) -> float:
        """Return how many combinations of the first streams of an order can meet a row of the next stream.

        Combinations made in the current batch are included.
        """
        rates, positions = self.rates, flat(order.positions)
        first, following = positions[:streams], positions[streams : streams + 1]
        held_s = rates.windows_s(first, following)[0] if streams == 1 else rates.held_s(first, following)
        return rates.combinations_per_s(first) * (held_s + rates.batch_s)

    def _equal(self, key: frozenset[Equals], left: tuple[int, ...], right: tuple[int, ...]) -> float:
        """Return the fraction of combinations of ``left`` and ``right`` that have equal keys."""
        equal = 1.0
        for columns in key:
            fraction = self.rates.equal_fraction(columns, left)
            if len(right) > 1:
                fraction *= self.rates.equal_fraction(columns, right)
            equal *= self.rates.equal_fraction(columns, (*left, *right)) / fraction if fraction else 0.0
        return equal

    def spread(self) -> bool:
        """Return whether a join of some of the streams has, or had, the rows of one key in several buckets.

        In that case, some pairs of two steps would not meet in the same bucket.
        """
        ids = {stream.id for stream in self.rates.shape.streams}
        spread = {} if self.previous is None else self.previous.replications()
        return any(ids.issuperset(family_streams(family)) for family in spread)

    def _new_fraction(self, first: int, second: int) -> float:
        """Return the fraction of two streams' windows that no running query with the same filters covers."""
        shape = self.rates.shape
        ids = [stream.id for stream in shape.streams]
        a = side_a(first, second, ids)
        b = first if a == second else second
        (key,) = step_keys((first, second), ids, shape.equal)
        pairs = tuple((left[1], right[1]) for left, right in key.parts)
        clock: Clock = "order" if shape.ordered else "time"
        name = family_id(shape.streams[a].id, shape.streams[b].id, pairs, clocks=(clock, clock))
        families = () if self.previous is None else self.previous.families
        running = next((family for family in families if family.id == name), None)
        if running is None:
            return 1.0
        windows: dict[SideName, int] = dict(zip(SIDES, shape.distances.windows_us((a,), (b,)), strict=True))
        alike = tuple(self._alike(running, a, b))
        held = {
            side: max((min(side_window_us(q, side), windows[side]) for q in alike), default=0)
            for side in SIDES
        }
        return 1.0 - sum(held.values()) / sum(windows.values())

    def _alike(self, family: FamilyPlan, a: int, b: int) -> Iterable[PlannedQuery]:
        """Return the queries of a family that use all rows that pass the filters of two streams."""
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
