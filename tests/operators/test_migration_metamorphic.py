"""What must not change results when plans change: passers-by, migrations, the order of changes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.plan import Strategy
from catalog.values.query import Query
from operators.segments.layout import SIDES
from tests.builders import a_query
from tests.examples import examples
from tests.operators.backfill_chains import backfill_chains
from tests.operators.cases import ALL_STRATEGIES, SETTINGS, WINDOWS_US, Case, Outcome, Step, cases, run
from tests.operators.chains import rechained
from tests.operators.queries import FILTERS_OF_ALL

#: An id that no case gives.
PASSER_BY = 10_000

any_case = st.one_of(cases(activations=True, family=0), backfill_chains())
seeds = st.integers(0, 10_000)


@st.composite
def passers_by(draw: st.DrawFn) -> Query:
    """Draw a query of the family of all cases here, wider and narrower than theirs."""
    filters = st.one_of(st.none(), st.sampled_from(FILTERS_OF_ALL))
    return a_query(
        PASSER_BY,
        draw(st.sampled_from(WINDOWS_US)),
        draw(st.sampled_from(WINDOWS_US)),
        filter_a=draw(filters),
        filter_b=draw(filters),
        columns_a=draw(st.sampled_from(((), ("v", "w")))),
        backfill=draw(st.sampled_from(("none", "state"))),
    )


def in_force(case: Case) -> list[tuple[Query, ...]]:
    """Return the queries in force in every batch."""
    queries: list[tuple[Query, ...]] = []
    for step in case.steps:
        queries.append(step.queries if step.queries is not None else queries[-1])
    return queries


def of_others(outcome: Outcome) -> Counter[tuple[int, int, int]]:
    return Counter({result: n for result, n in outcome.results.items() if result[0] != PASSER_BY})


def rows_held(outcome: Outcome) -> dict[tuple[str, str], list[set[int]]]:
    runner = outcome.runner
    assert runner.plan is not None
    return {(f.id, side): runner.state_rows(f.id, side) for f in runner.plan.families for side in SIDES}


def visited(case: Case, guest: Query, first: int, end: int) -> Case:
    """Return the case with a guest in force in batches ``[first, end)``."""
    steps = []
    for number, (step, queries) in enumerate(zip(case.steps, in_force(case), strict=True)):
        here = first <= number < end
        between = step.between
        if between is not None and first < number < end:
            between = (*between, guest)
        if number in (first, end) or step.queries is not None:
            queries = (*queries, guest) if here else queries
            step = replace(step, queries=queries, between=between)
        steps.append(step)
    return replace(case, steps=tuple(steps))


def without_backfill_after(case: Case, first: int) -> Case:
    """Return the case with no query backfilled from ``first`` on: it could tell what a guest had held."""
    before = {q.id for queries in in_force(case)[:first] for q in queries}

    def plain(queries: tuple[Query, ...] | None) -> tuple[Query, ...] | None:
        if queries is None:
            return None
        return tuple(q if q.id in before else replace(q, backfill="none") for q in queries)

    return replace(
        case,
        steps=tuple(replace(s, queries=plain(s.queries), between=plain(s.between)) for s in case.steps),
    )


@settings(SETTINGS, max_examples=examples(40, short=5))
@given(any_case, passers_by(), st.integers(1, 6), st.integers(1, 6))
def test_a_query_that_came_and_left_was_never_there(
    case: Case, guest: Query, first: int, batches: int
) -> None:
    case = without_backfill_after(case, first)
    assert of_others(run(visited(case, guest, first, first + batches))) == run(case).results


@settings(SETTINGS, max_examples=examples(30, short=5))
@given(any_case, passers_by(), st.integers(1, 4), st.integers(1, 3))
def test_a_query_that_came_and_left_leaves_no_row_behind(
    case: Case, guest: Query, first: int, batches: int
) -> None:
    """Mem-Opt with exact purging: what departed queries alone could use has gone with them."""
    steps = tuple(replace(step, strategy="mem-opt") for step in case.steps)
    case = without_backfill_after(replace(case, steps=steps, slack_us=0), first)
    after = visited(case, guest, first, first + batches)
    if first + batches < len(case.steps):
        assert rows_held(run(after)) == rows_held(run(case))


@settings(SETTINGS, max_examples=examples(30, short=5))
@given(any_case, passers_by(), st.sets(st.integers(1, 8), min_size=1, max_size=3))
def test_a_query_that_comes_and_leaves_at_one_boundary_was_never_there(
    case: Case, guest: Query, at: set[int]
) -> None:
    """It was in no plan in force, so later queries find nothing that it held."""
    steps = [
        replace(step, between=(*queries, guest), queries=queries)
        if number in at and step.between is None
        else step
        for number, (step, queries) in enumerate(zip(case.steps, in_force(case), strict=True))
    ]
    assert run(replace(case, steps=tuple(steps))).results == run(case).results


@settings(SETTINGS, max_examples=examples(40, short=5))
@given(any_case, st.lists(st.sampled_from(ALL_STRATEGIES), min_size=1, max_size=4), seeds)
def test_migrating_at_every_boundary_changes_no_result(
    case: Case, strategies: Sequence[Strategy], seed: int
) -> None:
    """Migrate, then run, equals run: another strategy and another chain before every batch."""
    steps = tuple(
        replace(step, queries=queries, strategy=strategies[number % len(strategies)])
        for number, (step, queries) in enumerate(zip(case.steps, in_force(case), strict=True))
    )
    moving = run(replace(case, steps=steps), lambda plan: rechained(plan, seed))
    assert moving.results == run(case).results


@settings(SETTINGS, max_examples=examples(30, short=5))
@given(any_case, seeds, seeds)
def test_any_chain_gives_what_any_other_chain_gives(case: Case, one: int, other: int) -> None:
    first, second = (run(case, partial(rechained, seed=seed)) for seed in (one, other))
    assert first.results == second.results


@settings(SETTINGS, max_examples=examples(40, short=5))
@given(any_case, seeds)
def test_the_order_of_changes_at_a_boundary_does_not_matter(case: Case, seed: int) -> None:
    """Ids are given in another order, and the changes come in several versions, some first, some after."""
    order = random.Random(seed)
    renamed = _other_ids(case, order)
    steps: list[Step] = []
    before: tuple[Query, ...] = ()
    for step, queries in zip(case.steps, in_force(case), strict=True):
        between: tuple[Query, ...] | None = None
        if steps and step.queries is not None:
            leaving = [q for q in before if q not in queries]
            coming = [q for q in queries if q not in before]
            some = order.sample(leaving, order.randint(0, len(leaving)))
            between = tuple(q for q in before if q not in some)
            between += tuple(order.sample(coming, order.randint(0, len(coming))))
        steps.append(
            replace(
                step,
                queries=None if step.queries is None else _with_ids(queries, renamed, order),
                between=None if between is None else _with_ids(between, renamed, order),
            )
        )
        before = queries
    expected = {(renamed[q], a, b): n for (q, a, b), n in run(case).results.items()}
    assert run(replace(case, steps=tuple(steps))).results == expected


def _other_ids(case: Case, order: random.Random) -> dict[int, int]:
    """Return other ids: those that enter at one boundary change theirs among themselves."""
    ids: dict[int, int] = {}
    for queries in in_force(case):
        new = sorted({q.id for q in queries} - ids.keys())
        ids |= dict(zip(new, order.sample(new, len(new)), strict=True))
    return ids


def _with_ids(queries: Sequence[Query], ids: dict[int, int], order: random.Random) -> tuple[Query, ...]:
    renamed = [replace(q, id=ids[q.id], name=f"q{ids[q.id]}") for q in queries]
    return tuple(order.sample(renamed, len(renamed)))
