from __future__ import annotations

from dataclasses import replace

import duckdb
import pytest

from catalog.values.plan import Plan, Strategy
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from service.planning.dry_run import dry_run
from tests.builders import a_query
from tests.operators.cases import ALL_STRATEGIES
from tests.operators.segment_builders import STREAMS, a_plan


def test_a_sound_plan_and_its_successor_pass() -> None:
    first = a_plan(a_query(1, 10, filter_a='"v" < 5'))
    last = a_plan(a_query(2, 10, residual='a."v" < b."v"', backfill="state"), previous=first)
    dry_run(None, first)
    dry_run(first, last)
    dry_run(last, a_plan(previous=last))


@pytest.mark.parametrize("strategy", ALL_STRATEGIES)
def test_a_plan_of_any_strategy_may_follow_one_of_another(strategy: Strategy) -> None:
    queries = [a_query(1, 10, filter_a='"v" < 5'), a_query(2, 30)]
    first = build_plan(queries, STREAMS, objective=Objective(strategy, cost_model="paper"))
    for next_strategy in ALL_STRATEGIES:
        dry_run(
            first,
            build_plan(queries, STREAMS, first, objective=Objective(next_strategy, cost_model="paper")),
        )


def _with_filter(plan: Plan, text: str) -> Plan:
    (family,) = plan.families
    return replace(plan, families=(replace(family, filters_a=(replace(family.filters_a[0], sql=text),)),))


def test_a_filter_that_does_not_bind_fails_before_it_is_applied() -> None:
    plan = a_plan(a_query(1, 10, filter_a='"v" < 5'))
    with pytest.raises(duckdb.Error, match="nosuch"):
        dry_run(None, _with_filter(plan, '"nosuch" < 5'))


def test_a_residual_that_does_not_bind_fails_before_it_is_applied() -> None:
    plan = a_plan(a_query(1, 10))
    (family,) = plan.families
    broken = replace(family, queries=(replace(family.queries[0], residual='a."nosuch" = 1'),))
    with pytest.raises(duckdb.Error, match="nosuch"):
        dry_run(None, replace(plan, families=(broken,)))
