"""Orders of joining: dynamic programming gives what trying all orders gives."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, permutations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.steps import steps as steps_of
from catalog.values.query import Query
from catalog.values.statistics import FamilyProfile, FilterProfile, Measure, Profile, StreamProfile
from catalog.values.stream import Column, HttpSource, Stream
from planner.bind.bind import bind
from planner.bind.keys.step_keys import Joining, JoinShape
from planner.build.build_plan import build_plan
from planner.costs.calibration.shipped import SHIPPED
from planner.families.families import family_of
from planner.sql.scopes.step_scope import Item, flat
from planner.trees.choice import OrderChoice
from planner.trees.join_order import JoinOrder
from planner.trees.order_costs import OrderCosts
from planner.trees.order_rates import OrderRates, pair_queries
from planner.trees.orders import best_orders
from tests.examples import examples
from tests.planner.trees.all_trees import all_streams, all_trees

STREAMS = {
    name: Stream(
        number,
        name,
        (Column("ts", "timestamp"), *(Column(key, "bigint") for key in "kjm"), Column("v", "double")),
        "ts",
        0,
        HttpSource(),
    )
    for number, name in enumerate("ABCDE", 1)
}


def shape_of(cql: str, streams: Mapping[str, Stream] = STREAMS) -> JoinShape:
    """Return the shape of a query over some streams."""
    found: list[JoinShape] = []

    def choose(shape: JoinShape) -> Joining:
        found.append(shape)
        return best_orders(OrderCosts(OrderRates.of(shape, Profile()), SHIPPED))[0].joining

    bind(cql, streams, choose=choose)
    return found[0]


@st.composite
def queries(draw: st.DrawFn) -> tuple[str, Profile]:
    count = draw(st.integers(3, 5))
    conditions = []
    for joined in range(1, count):
        other = draw(st.integers(0, joined - 1))
        conditions.append(f"s{other}.{draw(st.sampled_from('kj'))} = s{joined}.{draw(st.sampled_from('kj'))}")
    for _ in range(draw(st.integers(0, 2))):
        i, j = draw(st.sampled_from([(i, j) for j in range(count) for i in range(j)]))
        conditions.append(f"s{i}.m = s{j}.m")
    conditions += [f"s{i}.v < 0.5" for i in range(count) if draw(st.booleans())]
    names = [draw(st.sampled_from(sorted(STREAMS))) for _ in range(count)]
    windows = [draw(st.integers(1, 60)) for _ in range(count)]
    sources = ", ".join(
        f"{n} [RANGE {w} SECONDS] s{i}" for i, (n, w) in enumerate(zip(names, windows, strict=True))
    )
    cql = f"SELECT s0.v AS v FROM {sources} WHERE {' AND '.join(conditions)}"
    rate = st.sampled_from((1.0, 10.0, 500.0))
    fraction = st.sampled_from((0.001, 0.01, 0.3))
    profile = Profile(
        tuple(StreamProfile(s.id, Measure(draw(rate))) for s in STREAMS.values()),
        tuple(FilterProfile(s.id, '"v" < 0.5', Measure(draw(fraction))) for s in STREAMS.values()),
        tuple(FamilyProfile(family_of(q), Measure(draw(fraction))) for q in pair_queries(shape_of(cql))),
    )
    return cql, profile


@given(queries())
@settings(max_examples=examples(100, short=20))
def test_the_best_orders_are_those_of_trying_all(case: tuple[str, Profile]) -> None:
    cql, profile = case
    costs = OrderCosts(OrderRates.of(shape_of(cql), profile), SHIPPED)
    found = best_orders(costs)
    assert [order.rank for order in found] == [o.rank for o in sorted(tried(costs), key=lambda o: o.rank)[:4]]
    bound = bind(cql, STREAMS, choose=lambda _: found[0].joining)
    assert order_of(bound) == found[0].positions
    unrested = [number for number, step in enumerate(steps_of(bound), 1) if not step.rests]
    assert unrested == list(found[0].again)


def tried(costs: OrderCosts) -> list[JoinOrder]:
    """Return all orders and trees in which the streams of a query can be joined, with their costs."""
    ids = [stream.id for stream in costs.rates.shape.streams]
    trees = all_trees(tuple(range(len(ids))), ids)
    every = [*permutations(range(len(ids))), *(tree for tree in trees if not all_streams(tree))]
    steps = range(2, len(ids))
    resting = [again for size in range(len(steps) + 1) for again in combinations(steps, size)]
    return [
        found
        for p, again in product(every, resting)
        if all_streams(p) or not again
        if flat(p)[0] < flat(p)[1] and (found := costs.of(p, again)) is not None
    ]


def order_of(query: Query) -> tuple[Item, ...]:
    """Return the order in which a query joins its streams, the first two by their position in FROM."""
    last: Item = int(query.b.alias[1:]) if query.right is None else order_of(query.right)
    if query.left is None:
        return tuple(sorted((int(query.a.alias[1:]), int(query.b.alias[1:]))))
    return (*order_of(query.left), last)


def chosen(cql: str, profile: Profile, *running: str) -> str:
    """Return the order that is chosen for a query beside running ones."""
    plan = build_plan(
        [bind(text, STREAMS, name=f"q{n}", query_id=n) for n, text in enumerate(running, 1)],
        {s.id: s for s in STREAMS.values()},
    )
    choice = OrderChoice(lambda _: profile, SHIPPED, plan)
    bind(cql, STREAMS, choose=choice)
    assert choice.last is not None
    return choice.last.orders[0].text(choice.last.shape)


def test_streams_of_equal_cost_are_joined_in_the_order_of_from() -> None:
    cql = "SELECT b.v FROM B b, A a, C c WHERE a.k = b.k AND b.k = c.k WINDOW 5 SECONDS"
    assert chosen(cql, Profile()) == "((b, a), c)"


def test_a_selective_pair_comes_first_unless_another_one_runs_already() -> None:
    cql = (
        "SELECT a.v FROM A [RANGE 9 SECONDS] a, B [RANGE 9 SECONDS] b, C [RANGE 9 SECONDS] c "
        "WHERE a.k = b.k AND b.j = c.j"
    )
    ab, bc = pair_queries(shape_of(cql))
    few, more = Measure(1e-4), Measure(1.1e-4)
    profile = Profile(families=(FamilyProfile(family_of(ab), more), FamilyProfile(family_of(bc), few)))
    assert chosen(cql, profile) == "((b, c), a)"
    running = "SELECT a.v FROM A [RANGE {0} SECONDS] a, B [RANGE {0} SECONDS] b WHERE a.k = b.k"
    assert chosen(cql, profile, running.format(20)) == "((a, b), c)"
    assert chosen(cql, profile, running.format(20) + " AND a.v < 0.5") == "((b, c), a)"


def test_an_order_with_fewer_changes_of_key_is_cheaper_if_all_else_is_equal() -> None:
    cql = "SELECT a.v FROM A a, B b, C c, D d WHERE a.k = b.k AND a.k = d.k AND a.j = c.j WINDOW 5 SECONDS"
    choice = OrderChoice(lambda _: Profile(), SHIPPED)
    bind(cql, STREAMS, choose=choice)
    assert choice.last is not None
    assert [order.exchanges for order in choice.last.orders] == [1, 1, 1, 1]


def test_eight_streams_on_different_keys_are_ordered() -> None:
    names = [(name, n) for n, name in enumerate("ABCDEABC")]
    sources = ", ".join(f"{name} s{n}" for name, n in names)
    conditions = " AND ".join(f"s{n}.{'kj'[n % 2]} = s{n + 1}.{'kj'[n % 2]}" for n in range(7))
    cql = f"SELECT s0.v FROM {sources} WHERE {conditions} WINDOW 5 SECONDS"
    assert chosen(cql, Profile()).count(",") == 7
