"""Trees of joins without windows: chosen by the rows that scrambling factors and lags make a step hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.statistics import FamilyProfile, FilterProfile, Measure, Profile, StreamProfile
from catalog.values.stream import Order
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.costs.calibration.shipped import SHIPPED
from planner.families.families import family_of
from planner.orders.buffers import OrderedStream, buffer_rows, joined
from planner.trees.choice import OrderChoice
from planner.trees.order_costs import OrderCosts
from planner.trees.order_rates import OrderRates, pair_queries
from planner.trees.orders import best_orders
from tests.examples import examples
from tests.planner.trees.test_orders import STREAMS, order_of, shape_of, tried

IN_ORDER = {name: replace(stream, order=Order("k", 50)) for name, stream in STREAMS.items()}
FOUR = "SELECT a.v FROM A a, B b, C c, D d WHERE a.k = b.k AND b.k = c.k AND c.k = d.k"
RARELY, OFTEN = 1e-5, 1e-3


@st.composite
def queries(draw: st.DrawFn) -> tuple[str, Profile]:
    count = draw(st.integers(3, 5))
    conditions = [f"s{draw(st.integers(0, joined - 1))}.k = s{joined}.k" for joined in range(1, count)]
    conditions += [f"s{i}.v < 0.5" for i in range(count) if draw(st.booleans())]
    if draw(st.booleans()):
        conditions.append("s0.m = s1.m")
    names = [draw(st.sampled_from(sorted(IN_ORDER))) for _ in range(count)]
    sources = ", ".join(f"{name} s{i}" for i, name in enumerate(names))
    cql = f"SELECT s0.v AS v FROM {sources} WHERE {' AND '.join(conditions)}"
    fraction, lag = st.sampled_from((0.001, 0.01, 0.3)), st.sampled_from((-900.0, 0.0, 50.0))
    scramble = st.sampled_from((0.0, 100.0, 5000.0))
    pairs = {family_of(query): query for query in pair_queries(shape_of(cql, IN_ORDER))}
    profile = Profile(
        tuple(
            StreamProfile(
                s.id, Measure(draw(st.sampled_from((1.0, 10.0, 500.0)))), scramble=Measure(draw(scramble))
            )
            for s in IN_ORDER.values()
        ),
        tuple(FilterProfile(s.id, '"v" < 0.5', Measure(draw(fraction))) for s in IN_ORDER.values()),
        tuple(FamilyProfile(name, Measure(draw(fraction)), lag_a=Measure(draw(lag))) for name in pairs),
    )
    return cql, profile


@given(queries())
@settings(max_examples=examples(100, short=20))
def test_the_best_trees_are_those_of_trying_all(case: tuple[str, Profile]) -> None:
    cql, profile = case
    costs = OrderCosts(OrderRates.of(shape_of(cql, IN_ORDER), profile), SHIPPED)
    found = best_orders(costs)
    assert [order.rank for order in found] == [o.rank for o in sorted(tried(costs), key=lambda o: o.rank)[:4]]
    bound = bind(cql, IN_ORDER, choose=lambda _: found[0].joining)
    assert bound.ordered
    assert order_of(bound) == found[0].positions
    assert all(not order.again for order in found), "rows of ordered joins always rest"


def test_two_selective_joins_are_made_before_the_one_between_them() -> None:
    fractions = (RARELY, OFTEN, OFTEN, OFTEN, OFTEN, RARELY)
    found = zip(pair_queries(shape_of(FOUR, IN_ORDER)), fractions, strict=True)
    families = tuple(FamilyProfile(family_of(q), Measure(of)) for q, of in found)
    # Rows are held for about ten seconds.
    streams = tuple(StreamProfile(s.id, Measure(1000.0), scramble=Measure(5000.0)) for s in IN_ORDER.values())
    choice = OrderChoice(lambda _: Profile(streams, families=families), SHIPPED)
    query = bind(FOUR, IN_ORDER, query_id=1, choose=choice)
    assert choice.last is not None
    assert choice.last.orders[0].text(choice.last.shape) == "((a, b), (c, d))"
    plan = build_plan([query], {stream.id: stream for stream in IN_ORDER.values()})
    assert [family.ordered for family in plan.families] == [True] * 3


def test_a_stream_far_behind_is_joined_last() -> None:
    # While C lags, what the others have joined waits for it once, not twice.
    cql = "SELECT a.v FROM C c, A a, B b WHERE a.k = b.k AND b.k = c.k"
    shape = shape_of(cql, IN_ORDER)
    by_streams = {tuple(sorted((q.a.stream, q.b.stream))): q for q in pair_queries(shape)}
    families = []
    for (one, other), query in by_streams.items():
        lag = 0.0 if (one, other) == ("A", "B") else 10_000.0 * (1 if query.b.stream == "C" else -1)
        families.append(FamilyProfile(family_of(query), Measure(RARELY), lag_a=Measure(lag)))
    choice = OrderChoice(lambda _: Profile(families=tuple(families)), SHIPPED)
    bind(cql, IN_ORDER, choose=choice)
    assert choice.last is not None
    assert choice.last.orders[0].text(shape) == "((a, b), c)"


def test_rows_held_are_those_of_the_equations() -> None:
    shape = shape_of(FOUR, IN_ORDER)
    factors, rates_per_s = (10.0, 20.0, 30.0, 40.0), (50.0, 25.0, 100.0, 10.0)
    streams = [
        StreamProfile(s.id, Measure(rate), scramble=Measure(k))
        for s, rate, k in zip(shape.streams, rates_per_s, factors, strict=True)
    ]
    rates = OrderRates.of(shape, Profile(tuple(streams)))
    facts = [OrderedStream(k, rate) for k, rate in zip(factors, rates_per_s, strict=True)]
    own_s, other_s = rates.windows_s((0,), (1,))
    assert own_s * 50 == pytest.approx(buffer_rows(facts[0], facts[1]))
    assert other_s * 25 == pytest.approx(buffer_rows(facts[1], facts[0]))
    three = joined(facts[:3])
    assert rates.held_s((0, 1, 2), (3,)) * three.rate_per_s == pytest.approx(buffer_rows(three, facts[3]))


def test_pairs_wait_for_the_stream_that_lags_most() -> None:
    shape = shape_of("SELECT a.v FROM A a, B b, C c WHERE a.k = b.k AND b.k = c.k", IN_ORDER)
    # B leads A by 100 rows of A, C leads both.
    lags = {("A", "B"): -100.0, ("A", "C"): -200.0, ("B", "C"): -100.0}
    families = tuple(
        FamilyProfile(family_of(q), Measure(OFTEN), lag_a=Measure(lags[q.a.stream, q.b.stream]))
        for q in pair_queries(shape)
    )
    streams = tuple(StreamProfile(s.id, Measure(10.0), scramble=Measure(0.0)) for s in shape.streams)
    rates = OrderRates.of(shape, Profile(streams, families=families))
    # Rows of C wait as long for pairs of A and B as for A.
    assert rates.windows_s((2,), (0, 1))[0] == pytest.approx(20.0 + 2 * 0.1)
    assert rates.windows_s((2,), (1,))[0] == pytest.approx(10.0 + 2 * 0.1)
    # Pairs of A and B come when A comes, and C has come long before.
    assert rates.windows_s((0, 1), (2,))[0] == pytest.approx(1 / 20)
