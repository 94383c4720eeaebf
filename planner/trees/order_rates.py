"""Rates of combinations of rows of a query's streams, from statistics of streams and pairs of streams.

    combinations of A, B, C per second    λ_A λ_B λ_C · S(a.k = b.k) S(b.k = c.k) · (W_A + W_B) (W_AB + W_C)

The rate of a set of streams is the same for each join order, because factors are multiplied in the order of
FROM.

Streams that are joined by their order have no windows. For a set of such streams, W is the time for which its
rows are held to meet rows of another set: W = M / r, where r is the rate and M is the number of rows held, by
Equations 7 and 8 (Window-Oblivious Join, Wu, Tan, Zhou). Equations 9 and 10 give r and k for several streams
together. The lag of several streams is the lag of the stream that lags most.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise
from math import prod

from catalog.values.query import UNBOUNDED_US, Clock, Query, Side
from catalog.values.statistics import Profile
from planner.bind.keys.step_keys import Equals, JoinShape
from planner.costs.rates import (
    ASSUMED_JOIN_SELECTIVITY,
    ASSUMED_RATE_PER_S,
    ASSUMED_SCRAMBLE,
    ASSUMED_SELECTIVITY,
    HORIZON_S,
)
from planner.expressions.types.column_types import key_type
from planner.families.families import family_of
from planner.orders.buffers import OrderedStream, buffer_rows, joined
from planner.sql.scopes.step_scope import Origin


def pair_query(shape: JoinShape, left: Origin, right: Origin) -> Query:
    """Return the join of two streams on one equal column, with the windows and filters of a query.

    Args:
        shape: Shape of the query.
        left: Column of one stream of the query.
        right: Column of another stream of the query.
    """
    (i, own), (j, other) = (left, right) if _before(shape, left, right) else (right, left)
    sides = []
    clock: Clock = "order" if shape.ordered and _is_order(shape, left) and _is_order(shape, right) else "time"
    for position, name, window_us in zip(
        (i, j), (own, other), shape.distances.windows_us((i,), (j,)), strict=True
    ):
        stream, passing = shape.streams[position], shape.filters[position]
        text, columns = passing if passing is not None else (None, ())
        read = tuple(sorted({name, stream.event_time, *columns}))
        alias = shape.aliases[position]
        sides.append(Side(stream.id, stream.name, alias, window_us, text, columns, read, clock=clock))
    types = [_type(shape, (i, own)), _type(shape, (j, other))]
    common = key_type(types[0], types[1]) or types[0]
    return Query(0, "", "", sides[0], sides[1], ((own, other),), (common,), None, ())


def pair_queries(shape: JoinShape) -> tuple[Query, ...]:
    """Return the two-stream joins whose statistics give the selectivities of a query's equal columns."""
    pairs = [pair for columns in shape.equal for pair in combinations(sorted(columns), 2)]
    found = [pair_query(shape, left, right) for left, right in pairs if left[0] != right[0]]
    return tuple(replace(query, id=number, name=f"pair {number}") for number, query in enumerate(found, 1))


@dataclass(frozen=True, slots=True)
class OrderRates:
    """Rates of a query's streams and of their combinations.

    Attributes:
        shape: Shape of the query.
        per_s: Rows of each stream that pass its filter, per second.
        selectivity: Fraction of pairs of rows that have equal values, by the two columns.
        batch_s: Event time that a batch covers, in seconds.
        buckets: Number of buckets of the job.
        ordered: Scrambling factor of each stream, and the rate of its rows before filters; empty unless the
            streams are joined by their order.
        lag_s: Seconds by which a stream leads another one in the order; 0 for missing pairs.
    """

    shape: JoinShape
    per_s: tuple[float, ...]
    selectivity: Mapping[tuple[Origin, Origin], float]
    batch_s: float
    buckets: int
    ordered: tuple[OrderedStream, ...] = ()
    lag_s: Mapping[tuple[int, int], float] = field(default_factory=dict)
    _combinations_per_s: dict[frozenset[int], float] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, shape: JoinShape, profile: Profile) -> OrderRates:
        """Return the rates according to a profile; default values replace missing rates."""
        rates = {s.stream_id: s.rate_per_s.value for s in profile.streams}
        passing = {(f.stream_id, f.sql): f.selectivity.value for f in profile.filters}
        known = {f.family: f for f in profile.families}
        scrambles = {s.stream_id: s.scramble for s in profile.streams if s.scramble is not None}
        per_s, ordered = [], []
        for stream, filter_ in zip(shape.streams, shape.filters, strict=True):
            fraction = 1.0
            if filter_ is not None:
                fraction = passing.get((stream.id, filter_[0]), ASSUMED_SELECTIVITY.value)
            rate = rates.get(stream.id, ASSUMED_RATE_PER_S.value)
            per_s.append(rate * fraction)
            if shape.ordered:
                ordered.append(OrderedStream(scrambles.get(stream.id, ASSUMED_SCRAMBLE).value, rate))
        selectivity, lag_s = {}, {}
        for columns in shape.equal:
            for left, right in combinations(sorted(columns), 2):
                facts = known.get(family_of(pair_query(shape, left, right))) if left[0] != right[0] else None
                equal = ASSUMED_JOIN_SELECTIVITY if facts is None else facts.join_selectivity
                selectivity[left, right] = equal.value
                if facts is None or facts.lag_a is None or not ordered:
                    continue
                a, b = (left[0], right[0]) if _before(shape, left, right) else (right[0], left[0])
                if ordered[a].rate_per_s > 0:
                    lag_s[a, b] = facts.lag_a.value / ordered[a].rate_per_s
                    lag_s[b, a] = -lag_s[a, b]
        return cls(
            shape, tuple(per_s), selectivity, profile.batch_s.value, profile.buckets, tuple(ordered), lag_s
        )

    def combinations_per_s(self, positions: Collection[int]) -> float:
        """Return the number of combinations of some streams per second that satisfy all windows and keys."""
        members = frozenset(positions)
        if members not in self._combinations_per_s:
            self._combinations_per_s[members] = self._per_s(sorted(members))
        return self._combinations_per_s[members]

    def _per_s(self, ordered: Sequence[int]) -> float:
        rate = prod(self.per_s[position] for position in ordered)
        rate *= prod(self.equal_fraction(columns, ordered) for columns in self.shape.equal)
        for place in range(1, len(ordered)):
            rate *= sum(self.windows_s(ordered[:place], ordered[place : place + 1]))
        return rate

    def windows_s(self, left: Collection[int], right: Collection[int]) -> tuple[float, float]:
        """Return the windows of the two sides of a step, in seconds."""
        if self.ordered:
            return self._order_held_s(left, right), self._order_held_s(right, left)
        a, b = self.shape.distances.windows_us(tuple(left), tuple(right))
        return _seconds(a), _seconds(b)

    def held_s(self, left: Sequence[int], right: Collection[int]) -> float:
        """Return how long, in seconds, a combination of ``left`` streams waits for later rows of ``right``.

        For a combination of streams a and b, this is the mean of min(T_a + W_a, T_b + W_b) - max(T_a, T_b)
        over all pairs in the windows: [f(W_a, W_b) + f(W_b, W_a)] / (W_a + W_b), f(W, V) = mW - m²/2,
        m = min(W, V). For n streams
        with equal windows W, this is W / n.
        """
        window_s, _ = self.windows_s(left, right)
        if self.ordered:
            return window_s
        if len(left) != 2:
            return window_s / len(left)
        a, b = left
        ahead_s = {i: self.windows_s((i,), right)[0] for i in left}
        apart_s = dict(zip(left, self.windows_s((a,), (b,)), strict=True))
        waiting = _waiting(apart_s[a], ahead_s[a], ahead_s[b]) + _waiting(apart_s[b], ahead_s[b], ahead_s[a])
        return waiting / sum(apart_s.values())

    def _order_held_s(self, left: Collection[int], right: Collection[int]) -> float:
        """Return for how many seconds an ordered join holds rows of ``left`` for rows of ``right``."""
        own, other = (self._in_order(positions) for positions in (left, right))
        if own.rate_per_s <= 0:
            return 0.0
        # A combination is made when its last row has arrived, which is the row of the stream that lags most.
        lag_s = min(max(self.lag_s.get((i, j), 0.0) for j in right) for i in left)
        return min(buffer_rows(own, other, lag_s * own.rate_per_s) / own.rate_per_s, HORIZON_S)

    def _in_order(self, positions: Collection[int]) -> OrderedStream:
        streams = [self.ordered[position] for position in sorted(positions)]
        return streams[0] if len(streams) == 1 else joined(streams)

    def equal_fraction(self, columns: Equals, positions: Collection[int]) -> float:
        """Return the fraction of combinations of some streams that have equal values in a set of columns."""
        held = [origin for origin in sorted(columns) if origin[0] in positions]
        return prod(self.selectivity[pair] for pair in pairwise(held))


def _before(shape: JoinShape, left: Origin, right: Origin) -> bool:
    """Return whether the stream of ``left`` is side a of its join with the stream of ``right``."""
    one, other = shape.streams[left[0]].id, shape.streams[right[0]].id
    return (one, left[0]) < (other, right[0])


def _is_order(shape: JoinShape, origin: Origin) -> bool:
    order = shape.streams[origin[0]].order
    return order is not None and order.column == origin[1]


def _type(shape: JoinShape, origin: Origin) -> str:
    column = shape.streams[origin[0]].column(origin[1])
    assert column is not None, "names were resolved"
    return column.type


def _waiting(apart_s: float, own_s: float, other_s: float) -> float:
    """Return the integral of min(own - x, other), where positive, over x from 0 to ``apart``.

    >>> _waiting(30.0, 30.0, 30.0), _waiting(30.0, 30.0, 10.0)
    (450.0, 250.0)
    """
    flat = min(max(own_s - other_s, 0.0), apart_s)
    end = max(min(apart_s, own_s), flat)
    return other_s * flat + own_s * (end - flat) - (end**2 - flat**2) / 2


def _seconds(window_us: int) -> float:
    return HORIZON_S if window_us >= UNBOUNDED_US else window_us / 1e6
