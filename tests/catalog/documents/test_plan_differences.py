"""Plans as differences: applied in order they are the plans themselves, whatever comes and goes."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.documents.codec import decode, encode
from catalog.documents.plan_differences import PlanDifference, applied, difference
from catalog.errors import InvariantBroken
from catalog.store.repositories import control_log as module
from catalog.store.store import Store
from catalog.values.plan import Plan, Strategy
from catalog.values.query import Query
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from tests.builders import a_query_s
from tests.examples import examples
from tests.planner.values import STREAMS

FILTERS = (None, '"v" < 0.2', '"v" > 0.9', '"v" < 0.5')
STRATEGIES: tuple[Strategy, ...] = ("mem-opt", "unshared", "pullup", "pushdown")


def versions(seed: int, count: int) -> list[Plan]:
    """Plans of queries that come and go, under strategies that change."""
    rng = random.Random(seed)
    running: dict[int, Query] = {}
    plans: list[Plan] = []
    for _ in range(count):
        for query_id in rng.sample(sorted(running), rng.randint(0, len(running) // 2)):
            del running[query_id]
        for _ in range(rng.choice((0, 1, 1, 4))):
            query_id = max(running, default=0) + rng.randint(1, 3) + 10 * len(plans)
            running[query_id] = a_query_s(
                query_id,
                rng.choice((5, 10, 30, 60)),
                rng.choice((5, 20, 30)),
                filter_a=rng.choice(FILTERS),
                filter_b=rng.choice(FILTERS),
            )
        objective = Objective(rng.choice(STRATEGIES), cost_model="paper")
        before = plans[-1] if plans else None
        plans.append(build_plan(list(running.values()), STREAMS, before, objective=objective))
    return plans


@settings(deadline=None, max_examples=examples(30))
@given(st.integers(0, 2**32))
def test_differences_in_order_are_the_plans(seed: int) -> None:
    print(f"seed {seed}")
    plans = versions(seed, 6)
    reached = plans[0]
    for old, new in pairwise(plans):
        change = difference(old, new)
        again = decode(PlanDifference, encode(change))
        assert again == change
        assert encode(applied(old, change)) == encode(new)
        reached = applied(reached, again)
        assert encode(reached) == encode(new)


def test_a_difference_names_what_has_changed_alone() -> None:
    queries = [a_query_s(n, 10 * (1 + n % 3)) for n in range(1, 200)]
    old = build_plan(queries, STREAMS)
    new = build_plan([*queries[1:], a_query_s(200, 20)], STREAMS, old)
    (family,) = difference(old, new).families
    assert family.gone == (1,)
    assert [q.id for q in family.queries] == [200]
    assert [(each.serves_all, each.slices_a, each.slices_b) for each in family.joins] == [(True, (), ())]
    again = applied(old, difference(old, new))
    assert again.families[0].queries[5] is old.families[0].queries[6]


def test_a_difference_to_another_version_is_refused() -> None:
    first, second, third = versions(1, 3)
    change = difference(second, third)
    with pytest.raises(InvariantBroken, match="plan version 3 can only be restored from version 2"):
        applied(first, change)
    with pytest.raises(InvariantBroken, match="can only be restored from version 2"):
        applied(None, change)


@pytest.mark.parametrize("seed", range(3))
def test_the_catalog_gives_every_version_back(
    seed: int, store: Store, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)
    monkeypatch.setattr(module, "WHOLE_EVERY", rng.choice((1, 3, 64)))
    plans = versions(seed, 12)
    for plan in plans:
        store.control_log.append(plan=plan)
    whole = rng.randint(2, 11)
    store.control_log.make_whole(whole)
    with Store.open(url, migrate=False) as other:
        for plan in rng.sample(plans, len(plans)):
            found = other.control_log.plan(plan.version)
            assert encode(found) == encode(plan)
        assert [r.plan for r in other.control_log.records(0)] == plans
        assert other.control_log.latest_plan() == plans[-1]
