"""What must not change results: cuts, buckets, slack, storage, strategy, order of queries, boundaries."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.plan import Plan, Strategy
from tests.examples import examples
from tests.operators.cases import ALL_STRATEGIES, SETTINGS, Case, Step, cases, run
from tests.operators.chains import rechained


@settings(SETTINGS, max_examples=examples(30, short=5))
@given(cases(late=False), st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_the_cut_into_batches_does_not_change_results(case: Case, sizes: Sequence[int]) -> None:
    arrived = [row for step in case.steps for row in step.rows]
    steps = [Step(case.steps[0].queries, ())]
    for size in itertools.cycle(sizes):
        if not arrived:
            break
        steps.append(Step(None, tuple(arrived[:size])))
        del arrived[:size]
    whole = Step(case.steps[0].queries, tuple(row for step in case.steps for row in step.rows))
    in_pieces = run(replace(case, steps=tuple(steps)))
    assert in_pieces.results == run(replace(case, steps=(whole,))).results
    assert not any(in_pieces.late.values())


@settings(SETTINGS, max_examples=examples(30, short=5))
@given(cases(activations=True), st.integers(2, 7))
def test_the_number_of_buckets_does_not_change_results(case: Case, buckets: int) -> None:
    one, many = run(replace(case, buckets=1)), run(replace(case, buckets=buckets))
    assert one.results == many.results
    assert one.late == many.late


@settings(SETTINGS, max_examples=examples(30, short=5))
@given(cases(activations=True), st.sampled_from((1, 7, 50, 10_000)))
def test_slack_and_storage_do_not_change_results(case: Case, slack_us: int) -> None:
    exact = run(replace(case, slack_us=0, stored=False))
    assert run(replace(case, slack_us=slack_us, stored=True)).results == exact.results


@settings(SETTINGS, max_examples=examples(30, short=5))
@given(cases(activations=True), st.integers(0, 1000))
def test_the_order_of_families_in_the_plan_does_not_change_results(case: Case, seed: int) -> None:
    def shuffled(plan: Plan) -> Plan:
        order = random.Random(seed + plan.version)
        return replace(plan, families=tuple(order.sample(plan.families, len(plan.families))))

    assert run(case, shuffled).results == run(case).results


@settings(SETTINGS, max_examples=examples(60, short=7))
@given(cases(activations=True), st.sampled_from(ALL_STRATEGIES))
def test_the_strategy_does_not_change_results(case: Case, strategy: Strategy) -> None:
    """One strategy from beginning to end, against versions that go from strategy to strategy."""
    steps = tuple(replace(step, strategy=strategy) for step in case.steps)
    assert run(replace(case, steps=steps)).results == run(case).results


@settings(SETTINGS, max_examples=examples(60, short=7))
@given(cases(activations=True, family=0), st.integers(0, 1000))
def test_any_chain_of_slices_gives_the_same_results(case: Case, seed: int) -> None:
    assert run(case, lambda plan: rechained(plan, seed)).results == run(case).results
