"""Known or assumed rates of a family's streams, from which costs are computed.

    Profile (given > measured > sampled) ──┐
    assumptions, where it has no value ────┴── FamilyRates ── loads

Filters are assumed to be independent: of n filters, 1 - (1 - S_1) ... (1 - S_n) of the rows pass at least
one. Filters that imply a common filter are assumed to be independent among the rows that pass this filter:

    g ─┬─ f1       P(f1 or f2) = P(g) (1 - (1 - P(f1) / P(g)) (1 - P(f2) / P(g)))
       └─ f2       P(f1 or g) = P(g)

If the other stream closes keys, a row leaves the state before its window ends. The time R until a row leaves
is assumed to be exponential with mean τ, so a fraction exp(-t/τ) of the rows of age t (in seconds) is still
held. A row that only semi and anti joins need leaves the state when it finds a match (``Unmatched``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from catalog.sql_text import quoted
from catalog.steps import in_order, made_by, membership, taken_intermediates
from catalog.values.plan import FamilyPlan, Plan
from catalog.values.policies.memory import Memory
from catalog.values.query import UNBOUNDED_US
from catalog.values.statistics import (
    FamilyProfile,
    FilterProfile,
    FrequentKey,
    Measure,
    Profile,
    StreamProfile,
)
from catalog.values.stream import Stream
from planner.families.families import (
    SIDES,
    Family,
    SideName,
    family_clocks,
    is_theta,
    other_side,
    side_filter,
    side_filters,
    side_window_us,
)
from planner.families.filters import NOTHING_IMPLIED, Weaker, keep_bits, weaker_filters
from planner.orders.buffers import OrderedStream, buffer_rows, joined
from planner.orders.buffers import memory_rows as expected_rows

_US_PER_S = 1_000_000

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]
#: Ids of stream a and stream b, and pairs of key columns.
FamilyKey = tuple[int, int, tuple[tuple[str, str], ...]]

#: Rate assumed without statistics: a medium rate of the benchmarks.
ASSUMED_RATE_PER_S = Measure(1000.0, "assumed")
#: Row size assumed without statistics: key, event time, position, lineage and two numbers.
ASSUMED_ROW_BYTES = Measure(64.0, "assumed")
#: Assumed selectivity of a filter without statistics: the filter is neither useless nor decisive.
ASSUMED_SELECTIVITY = Measure(0.5, "assumed")
#: Join selectivity assumed without statistics: a thousand keys, equally frequent.
ASSUMED_JOIN_SELECTIVITY = Measure(1e-3, "assumed")
#: Join selectivity without a key: every pair of rows inside the windows is a candidate.
EVERY_PAIR = Measure(1.0, "given")
#: Scrambling factor assumed for a stream whose factor is monitored: the smallest factor that monitoring sets
#: (``operators.orders``).
ASSUMED_SCRAMBLE = Measure(64.0, "assumed")
#: Lag assumed without statistics: ordered streams keep pace with each other.
ASSUMED_LAG = Measure(0.0, "assumed")
ASSUMED_BATCH_S = Measure(1.0, "assumed")
#: Length for which the cost of an unbounded window is computed: one day.
HORIZON_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Unmatched:
    """Range of ages at which only semi and anti joins need a row, so that the row leaves at its first match.

    Matches arrive as a Poisson process, so the fraction of rows without a match at age t is exp(-r (t + w)).

    Attributes:
        from_s: Start of this range in seconds; the range ends where the next ``Unmatched`` starts.
        per_s: Matches per row and second: r.
        behind_s: How far a row's window reaches back to earlier rows of the other side, in seconds: w.
    """

    from_s: float
    per_s: float
    behind_s: float


@dataclass(frozen=True, slots=True)
class SideRates:
    """Known or assumed statistics of the rows of one side.

    Attributes:
        rate: Rows per second of event time.
        row_bytes: Encoded bytes of a stored row.
        selectivity: Fraction of rows that pass each filter, by lineage bit.
        weaker: Filters that each filter implies, by bit.
        counted_s: Mean seconds between two units of the side's clock: counted rows for windows of rows, steps
            of the order for an ordered side. None if time is the clock.
        scramble: Scrambling factor of the stream, or None if its order is not the clock.
        lag: Number of rows by which this stream is ahead of the other one in the order; None without an
            order.
        ordered_rows: Expected number of rows in the state for equality of the order columns (Window-Oblivious
            Join, Eq. 7); None without an order.
        open_s: Mean seconds until the other stream closes the key of a row; None if that stream closes no
            keys, or if the time is unknown.
        unmatched: Ranges of ages in which rows stay only until their first match, ascending; empty if all
            rows stay for their whole window.
    """

    rate: Measure
    row_bytes: Measure
    selectivity: Mapping[int, Measure]
    weaker: Weaker = field(default_factory=lambda: NOTHING_IMPLIED)
    counted_s: float | None = None
    scramble: Measure | None = None
    lag: Measure | None = None
    ordered_rows: float | None = None
    open_s: Measure | None = None
    unmatched: tuple[Unmatched, ...] = ()
    #: Fraction of rows that pass each filter; never more than the fraction for a filter that it implies.
    _fractions: Mapping[int, float] = field(init=False, repr=False, compare=False)
    #: The most selective of the filters that each filter implies.
    _above: Mapping[int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        value = {bit: measure.value for bit, measure in self.selectivity.items()}
        fractions = {bit: min([value[bit], *(value[b] for b in self.weaker.get(bit, ()))]) for bit in value}
        above = {}
        for bit in self.weaker:
            # Two filters that imply each other are the same filter; one of them is placed above the other.
            implied = [b for b in self.weaker[bit] if bit not in self.weaker.get(b, ()) or b < bit]
            if implied:
                above[bit] = min(implied, key=lambda b: (fractions[b], -b))
        object.__setattr__(self, "_fractions", fractions)
        object.__setattr__(self, "_above", above)

    def passing_any(self, bits: Iterable[int | None]) -> float:
        """Return the fraction of rows that pass at least one of the filters; every row passes None.

        >>> side = SideRates(Measure(1), Measure(1), {0: Measure(0.5), 1: Measure(0.5)})
        >>> side.passing_any([0, 1, 0]), side.passing_any([0, None]), side.passing_any([])
        (0.75, 1.0, 0.0)
        """
        weakest = keep_bits(bits, self.weaker)
        if weakest is None:
            return 1.0
        below: dict[int | None, set[int]] = {}
        for bit in weakest:
            above = self._above.get(bit)
            while bit not in below.setdefault(above, set()):
                below[above].add(bit)
                if above is None:
                    break
                bit, above = above, self._above.get(above)
        return self._either(None, below, frozenset(weakest))

    def left(self, age_s: Floats) -> Floats:
        """Return the fractions of rows that are still held at the given ages: P(R > t)."""
        place, rates, offsets = self._decay(age_s)
        return np.asarray(np.exp(-offsets[place] - rates[place] * age_s))

    def lasting_s(self, age_s: Floats) -> Floats:
        """Return the mean time, in seconds, that a row spends in the state up to each age: ∫ P(R > t) dt.

        >>> side = SideRates(Measure(1), Measure(1), {}, open_s=Measure(10))
        >>> side.lasting_s(np.array([0.0, 10.0, 1000.0])).round(2).tolist()
        [0.0, 6.32, 10.0]
        """
        if self.open_s is None and not self.unmatched:
            return age_s
        place, rates, offsets = self._decay(age_s)
        starts = np.array([0.0, *(each.from_s for each in self.unmatched)])

        def within(piece: Any, until_s: Floats) -> Floats:
            rate, lasting_s = rates[piece], until_s - starts[piece]
            # If the rate is 0, no row leaves, so each row spends the whole time in the state.
            spent = np.where(
                rate > 0, -np.expm1(-rate * lasting_s) / np.where(rate > 0, rate, 1.0), lasting_s
            )
            return np.asarray(np.exp(-offsets[piece] - rate * starts[piece]) * spent)

        whole = np.cumsum([0.0, *(within(n, starts[n + 1]) for n in range(len(starts) - 1))])
        return np.asarray(whole[place] + within(place, age_s))

    def _decay(self, age_s: Floats) -> tuple[Any, Floats, Floats]:
        """Return the phase of each age, and the rate and offset of each phase.

        A phase is a range of ages in which rows leave at a constant rate. A fraction exp(-offset - rate t) of
        the rows of age t (in seconds) is still held.
        """
        closing = 0.0 if self.open_s is None else 1.0 / self.open_s.value
        rates = np.array([closing, *(closing + each.per_s for each in self.unmatched)])
        offsets = np.array([0.0, *(each.per_s * each.behind_s for each in self.unmatched)])
        place = np.searchsorted([each.from_s for each in self.unmatched], age_s, side="right")
        return place, rates, offsets

    def _either(
        self, above: int | None, below: Mapping[int | None, Iterable[int]], wanted: frozenset[int]
    ) -> float:
        """Return the fraction of rows that pass ``above`` and any of the wanted filters that imply it."""
        passing = 1.0 if above is None else self._fractions[above]
        if above in wanted or passing == 0.0:
            return passing
        shares = [min(self._either(b, below, wanted) / passing, 1.0) for b in sorted(below.get(above, ()))]
        if len(shares) == 1:
            return passing * shares[0]  # 1 - (1 - share) would round a very small share
        return passing * (1.0 - math.prod(1.0 - share for share in shares))


@dataclass(frozen=True, slots=True)
class FamilyRates:
    """Rates of a family, known or assumed; every ``Measure`` states its origin.

    Attributes:
        a: Rates of side a.
        b: Rates of side b.
        join_selectivity: Fraction of the pairs of rows that have equal keys: the paper's S_1.
        batch_s: Event time that one micro-batch covers, seconds.
        buckets: Number of buckets of the job.
        horizon_s: Length for which the cost of an unbounded window is computed, in seconds.
        frequent: Keys that many rows have.
    """

    a: SideRates
    b: SideRates
    join_selectivity: Measure
    batch_s: Measure = ASSUMED_BATCH_S
    buckets: int = 2
    horizon_s: float = HORIZON_S
    frequent: tuple[FrequentKey, ...] = ()

    def side(self, side: SideName) -> SideRates:
        """Return one side's rates."""
        return self.a if side == "a" else self.b

    def seconds(self, window_us: int, side: SideName) -> float:
        """Return a window of a side in seconds; an unbounded window is as long as the horizon.

        If the order is the clock, the first step of a window holds ``ordered_rows`` rows, and each later step
        one more row.
        """
        own = self.side(side)
        counted_s = own.counted_s
        if counted_s is not None and own.ordered_rows is not None:
            rows = own.ordered_rows + window_us - 1 if window_us > 0 else 0.0
            return min(rows * counted_s, self.horizon_s)
        if counted_s is not None:
            return min(window_us * counted_s, self.horizon_s)
        return self.horizon_s if window_us >= UNBOUNDED_US else window_us / _US_PER_S

    def lasting_s(self, window_us: int, side: SideName) -> float:
        """Return how many seconds a row of a side is in a window, on average."""
        window_s = np.array([self.seconds(window_us, side)], dtype=np.float64)
        return float(self.side(side).lasting_s(window_s)[0])


def family_rates(
    family: Family | FamilyPlan,
    stream_a: int,
    stream_b: int,
    profile: Profile,
    *,
    horizon_s: float = HORIZON_S,
) -> FamilyRates:
    """Look up the rates of a family in a profile, and assume values for missing ones.

    Args:
        family: The family.
        stream_a: Stream id of side a.
        stream_b: Stream id of side b.
        profile: Statistics of streams, filters and families.
        horizon_s: Length for which the cost of an unbounded window is computed, in seconds; raised to the
            longest bounded window if that is longer.

    Returns:
        Rates of the family. Missing values have the origin ``assumed``: 1,000 rows per second, 64 bytes per
        row, half of the rows pass a filter, one pair in a thousand has equal keys.
    """
    streams = {s.stream_id: s for s in profile.streams}
    filters = {(f.stream_id, f.sql): f.selectivity for f in profile.filters}
    known = {f.family: f for f in profile.families}.get(family.id)
    ids: Mapping[SideName, int] = {"a": stream_a, "b": stream_b}
    clocks = dict(zip(SIDES, family_clocks(family.id), strict=True))
    join_selectivity = _join_selectivity(family.id, known)

    def side_rates(side: SideName) -> SideRates:
        stream = streams.get(ids[side])
        row_bytes = None if stream is None else stream.row_bytes
        rate = ASSUMED_RATE_PER_S if stream is None else stream.rate_per_s
        scramble = None
        if clocks[side] == "order":
            scramble = ASSUMED_SCRAMBLE if stream is None or stream.scramble is None else stream.scramble
        # Of n rows, about n times the join selectivity have the same key as a given row.
        counting = rate.value * (join_selectivity.value if clocks[side] == "key rows" else 1.0)
        return SideRates(
            rate=rate,
            row_bytes=ASSUMED_ROW_BYTES if row_bytes is None else row_bytes,
            selectivity={
                bit: filters.get((ids[side], planned.sql), ASSUMED_SELECTIVITY)
                for bit, planned in side_filters(family, side).items()
            },
            weaker=weaker_filters(family, side),
            counted_s=None if clocks[side] == "time" else 1.0 / counting if counting else math.inf,
            scramble=scramble,
            lag=_lag(side, known) if clocks[side] == "order" else None,
            open_s=_open_s(side, known),
        )

    timed = [side for side in SIDES if clocks[side] == "time"]
    bounded = [w for q in family.queries for s in timed if (w := side_window_us(q, s)) < UNBOUNDED_US]
    a, b = (side_rates(side) for side in SIDES)
    found = FamilyRates(
        a=_with_rows_held(a, b),
        b=_with_rows_held(b, a),
        join_selectivity=join_selectivity,
        batch_s=profile.batch_s,
        buckets=profile.buckets,
        horizon_s=max(horizon_s, max(bounded, default=0) / _US_PER_S),
        frequent=() if known is None else known.frequent,
    )
    if not any(query.needs_one_match(side) for query in family.queries for side in SIDES):
        return found
    return replace(
        found,
        a=replace(found.a, unmatched=_unmatched(family, "a", found)),
        b=replace(found.b, unmatched=_unmatched(family, "b", found)),
    )


def _unmatched(family: Family | FamilyPlan, side: SideName, rates: FamilyRates) -> tuple[Unmatched, ...]:
    """Return the ranges of ages in which rows of a side stay only until their first match.

    Every row stays for the longest window of the queries that need all rows of the side. After that, a row
    stays until each semi or anti join whose window still reaches the row has found a match. The estimate
    assumes for all these queries the fewest matches that one of them has.
    """
    mates = other_side(side)
    of_mates = rates.side(mates)
    needs: dict[float, list[tuple[float, float]]] = {}
    whole_s = 0.0
    for query in family.queries:
        own_s = rates.seconds(side_window_us(query, side), side)
        if not query.needs_one_match(side) or query.announces:
            whole_s = max(whole_s, own_s)
            continue
        behind_s = rates.seconds(side_window_us(query, mates), mates)
        needs.setdefault(own_s, []).append((behind_s, of_mates.passing_any([side_filter(query, mates)])))
    matches_per_s = of_mates.rate.value * rates.join_selectivity.value
    found: list[Unmatched] = []
    windows_s = sorted(own_s for own_s in needs if own_s > whole_s)
    for number, start_s in enumerate([whole_s, *windows_s[:-1]] if windows_s else []):
        reaching = [need for own_s in windows_s[number:] for need in needs[own_s]]
        behind_s, passing = (min(values) for values in zip(*reaching, strict=True))
        found.append(Unmatched(start_s, matches_per_s * passing, behind_s))
    return tuple(found)


def _lag(side: SideName, known: FamilyProfile | None) -> Measure:
    """Return the number of rows by which a side is ahead of the other side in their common order."""
    lag = None if known is None else known.lag_a if side == "a" else known.lag_b
    return ASSUMED_LAG if lag is None else lag


def _open_s(side: SideName, known: FamilyProfile | None) -> Measure | None:
    """Return the mean seconds until the other side closes the key of a row, or None if unknown."""
    return None if known is None else known.open_a_s if side == "a" else known.open_b_s


def _with_rows_held(own: SideRates, other: SideRates) -> SideRates:
    """Return the rates of a side with ``ordered_rows`` set, if both sides are ordered."""
    if own.scramble is None or other.scramble is None or own.lag is None:
        return own
    one, two = (OrderedStream(s.scramble.value, s.rate.value) for s in (own, other) if s.scramble)
    return replace(own, ordered_rows=buffer_rows(one, two, own.lag.value))


def memory_rows(memory: Memory, own: SideRates, other: SideRates) -> float | None:
    """Return the expected number of rows of side ``own`` in memory, or None if a side has no order."""
    if own.scramble is None or other.scramble is None or own.lag is None:
        return None
    one = OrderedStream(own.scramble.value, own.rate.value)
    two = OrderedStream(other.scramble.value, other.rate.value)
    return expected_rows(memory, one, two, own.lag.value)


def with_handed(profile: Profile, family: Family | FamilyPlan, made: int, rates: FamilyRates) -> Profile:
    """Add the expected rate of the pairs that a family passes to the next step, if the profile lacks it.

    A query passes on S λ_a λ_b (W_a + W_b) pairs per second; the largest rate of any query is used for the
    family.

    Args:
        profile: Known statistics.
        family: The family.
        made: Id of the intermediate whose rows are these pairs.
        rates: Rates of the family.
    """
    per_s = {
        query.id: rates.join_selectivity.value
        * rates.a.rate.value
        * rates.a.passing_any([query.filter_a])
        * rates.b.rate.value
        * rates.b.passing_any([query.filter_b])
        * (rates.lasting_s(query.w_a_us, "a") + rates.lasting_s(query.w_b_us, "b"))
        for query in family.queries
        if query.hands_on
    }
    most = max(per_s.values(), default=0.0)
    shares = {quoted(membership(i)): rate / most if most else 0.0 for i, rate in per_s.items()}
    known = {(f.stream_id, f.sql) for f in profile.filters}
    filters = [FilterProfile(made, sql, Measure(share, "assumed")) for sql, share in shares.items()]
    inputs = [OrderedStream(s.scramble.value, s.rate.value) for s in (rates.a, rates.b) if s.scramble]
    scramble = Measure(joined(inputs).scramble, "assumed") if len(inputs) > 1 else None
    streams = [StreamProfile(made, Measure(most, "assumed"), scramble=scramble)]
    if any(s.stream_id == made for s in profile.streams):
        streams = []
    return replace(
        profile,
        streams=(*profile.streams, *streams),
        filters=(*profile.filters, *(f for f in filters if (made, f.sql) not in known)),
    )


def with_orders(profile: Profile, streams: Iterable[Stream]) -> Profile:
    """Add the scrambling factors that streams declare, with an assumed rate for unmeasured streams.

    Args:
        profile: Known statistics.
        streams: Registered streams.
    """
    declared = {
        stream.id: Measure(float(stream.order.scramble))
        for stream in streams
        if stream.order is not None and stream.order.scramble is not None
    }
    known = {s.stream_id: s for s in profile.streams}
    known |= {i: StreamProfile(i, ASSUMED_RATE_PER_S) for i in declared.keys() - known.keys()}
    return replace(
        profile,
        streams=tuple(replace(known[i], scramble=declared.get(i, known[i].scramble)) for i in sorted(known)),
    )


def with_open_times(
    profile: Profile, keys: Mapping[str, FamilyKey], streams: Mapping[int, Stream]
) -> Profile:
    """Add to families the declared times after which one of their streams closes a key.

    Args:
        profile: Known statistics.
        keys: Ids of streams a and b, and key columns, by family id.
        streams: Streams by id.
    """
    known = {f.family: f for f in profile.families}
    for family, (stream_a, stream_b, key) in keys.items():
        if set(family_clocks(family)) != {"time"}:
            continue
        # Rows of side a wait for stream b to close their keys, and rows of side b for stream a.
        open_a_s = _declared_s(streams.get(stream_b), frozenset(b for _, b in key))
        open_b_s = _declared_s(streams.get(stream_a), frozenset(a for a, _ in key))
        if open_a_s is not None or open_b_s is not None:
            found = known.get(family)
            found = FamilyProfile(family, _join_selectivity(family, None)) if found is None else found
            known[family] = replace(
                found, open_a_s=open_a_s or found.open_a_s, open_b_s=open_b_s or found.open_b_s
            )
    return replace(profile, families=tuple(known[name] for name in sorted(known)))


def _declared_s(stream: Stream | None, key: frozenset[str]) -> Measure | None:
    """Return the declared time after which a stream closes a key of these columns, or None if unknown."""
    if stream is None or stream.punctuations is None or not stream.closes_keys(key):
        return None
    declared_us = stream.punctuations.open_time_us
    return None if declared_us is None else Measure(declared_us / _US_PER_S)


def with_plan(profile: Profile, plan: Plan) -> Profile:
    """Add statistics that follow from a plan: times until keys are closed, and rates of intermediates."""
    keys = {family.id: (family.stream_a, family.stream_b, family.key) for family in plan.families}
    profile = with_open_times(profile, keys, {stream.id: stream for stream in plan.streams})
    taken = taken_intermediates(plan.families)
    for family in in_order(plan.families) if taken else ():
        for made in made_by(family, taken):
            rates = family_rates(family, family.stream_a, family.stream_b, profile)
            profile = with_handed(profile, family, made, rates)
    return profile


def _join_selectivity(family: str, known: FamilyProfile | None) -> Measure:
    """Return the fraction of all pairs of rows that have equal keys; all pairs if there is no key."""
    if known is not None:
        return known.join_selectivity
    return EVERY_PAIR if is_theta(family) else ASSUMED_JOIN_SELECTIVITY
