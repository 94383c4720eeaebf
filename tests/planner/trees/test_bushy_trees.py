"""Trees with pairs on both sides of a step: when they are chosen, and when they are refused."""

from __future__ import annotations

import pytest

from catalog.values.plan import Plan
from catalog.values.statistics import FamilyProfile, Measure, Profile
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.costs.calibration.shipped import SHIPPED
from planner.errors import UnsupportedCql
from planner.families.families import family_of
from planner.trees.choice import OrderChoice
from planner.trees.order_rates import pair_queries
from tests.planner.trees.test_orders import STREAMS, shape_of

BY_ID = {stream.id: stream for stream in STREAMS.values()}
FOUR = "SELECT a.v FROM A a, B b, C c, D d WHERE a.k = b.k AND b.k = c.k AND c.k = d.k WINDOW 5 SECONDS"


def pairs_match(*fractions: float) -> Profile:
    """Return a profile in which such fractions of the pairs of A and B, A and C, ... match, as sorted."""
    found = zip(pair_queries(shape_of(FOUR)), fractions, strict=True)
    return Profile(families=tuple(FamilyProfile(family_of(q), Measure(of)) for q, of in found))


def best(profile: Profile, previous: Plan | None = None) -> list[str]:
    """Return the orders of least cost for the query over four streams."""
    choice = OrderChoice(lambda _: profile, SHIPPED, previous)
    bind(FOUR, STREAMS, choose=choice)
    assert choice.last is not None
    return [order.text(choice.last.shape) for order in choice.last.orders]


def test_two_selective_joins_are_made_before_the_one_between_them() -> None:
    # A and B match rarely, and so do C and D.
    rarely, often = 1e-5, 1e-3
    profile = pairs_match(rarely, often, often, often, often, rarely)
    assert best(profile)[0] == "((a, b), (c, d))"


def test_one_stream_is_added_after_the_other_where_both_ways_cost_the_same() -> None:
    assert all(", (" not in order for order in best(pairs_match(*[0.0] * 6)))


def spread(*texts: str) -> Plan:
    """Return a plan whose keys are spread over all buckets."""
    queries = [bind(text, STREAMS, name=f"q{n}", query_id=n) for n, text in enumerate(texts, 1)]
    return build_plan(queries, BY_ID, objective=Objective(partitioning="replicate"))


def test_keys_of_two_streams_that_are_spread_keep_a_tree_from_being_chosen() -> None:
    rarely, often = 1e-5, 1e-3
    profile = pairs_match(rarely, often, often, often, often, rarely)
    plan = spread("SELECT a.v FROM A a, B b WHERE a.k = b.k WINDOW 5 SECONDS")
    assert all("(c, d))" not in order for order in best(profile, plan))
    named = bind(f"{FOUR} TREE ((a, b), (c, d))", STREAMS, name="named", query_id=9)
    with pytest.raises(UnsupportedCql, match="rows of a key are in several buckets"):
        build_plan([named], BY_ID, plan)
    # The rows of other streams lie as before.
    other = spread("SELECT a.v FROM A a, E e WHERE a.k = e.k WINDOW 5 SECONDS")
    assert best(profile, other)[0] == "((a, b), (c, d))"
    assert build_plan([named], BY_ID, other).families


def test_pairs_on_both_sides_are_hashed_whatever_the_partitioning() -> None:
    named = bind(f"{FOUR} TREE ((a, b), (c, d))", STREAMS, name="named", query_id=1)
    plan = build_plan([named], BY_ID, objective=Objective(partitioning="replicate"))
    assert not any(family.replication.replicates for family in plan.families)
