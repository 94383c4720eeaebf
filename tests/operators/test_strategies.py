"""State and work of the strategies beside each other (State-Slice, VLDB 2006, §3, §5.1 and §6.1).

All of them give the same results (``test_metamorphic``, ``test_stack_differential``); here is what differs.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.plan import FamilyPlan, Strategy
from operators.segments.layout import SIDES
from tests.examples import examples
from tests.operators.backfill_chains import backfill_chains
from tests.operators.cases import ALL_STRATEGIES, SETTINGS, Case, cases, check, run
from tests.operators.harness import Runner
from tests.operators.oracle import Family, NestedLoops


def any_case(strategy: Strategy) -> st.SearchStrategy[Case]:
    """Draw a case of one family at the default slack or none, under one strategy from beginning to end."""
    drawn = st.one_of(cases(activations=True, family=0, strategies=(strategy,)), backfill_chains((strategy,)))
    slacks = st.sampled_from((None, 0))
    return st.builds(lambda case, slack_us: replace(case, slack_us=slack_us), drawn, slacks)


def the_family(runner: Runner) -> tuple[FamilyPlan, Family] | None:
    """Return the family in force, with its name in the oracle."""
    assert runner.plan is not None
    for family in runner.plan.families:
        return family, (family.stream_a, family.stream_b, family.key, family.of_absence, ())
    return None


def slack_of(runner: Runner, family_id: str, join_id: str) -> int:
    """Return the slack of a join, µs."""
    return runner.state[0].families[family_id].chains[join_id].join.slacks["a"]


def rows_held(runner: Runner) -> int:
    """Return the rows held on both sides in all joins."""
    return sum(
        len(s) for bucket in runner.state for joins in bucket.families.values() for s in joins.segments()
    )


@settings(SETTINGS, max_examples=examples(80, short=10))
@given(any_case("unshared"))
def test_unshared_a_join_holds_what_its_own_query_can_use(case: Case) -> None:
    def inspect(runner: Runner, oracle: NestedLoops) -> None:
        found = the_family(runner)
        if found is None:
            return
        for join in found[0].joins:
            for side in SIDES:
                (held,) = runner.state_rows(found[0].id, side, join.id)
                slack_us = slack_of(runner, found[0].id, join.id)
                usable = oracle.usable(found[1], side, queries=join.queries)
                assert usable <= held <= oracle.usable(found[1], side, slack_us, queries=join.queries)

    check(case, inspect)


@settings(SETTINGS, max_examples=examples(80, short=10))
@given(any_case("pushdown"))
def test_pushdown_a_row_of_the_split_side_is_in_one_join(case: Case) -> None:
    """And every row that some query can use is in a join."""

    def inspect(runner: Runner, oracle: NestedLoops) -> None:
        found = the_family(runner)
        if found is None:
            return
        for side in SIDES:
            held = [runner.state_rows(found[0].id, side, join.id)[0] for join in found[0].joins]
            assert oracle.usable(found[1], side) <= set().union(*held)
            if any(join.partition and join.partition.side == side for join in found[0].joins):
                assert sum(len(rows) for rows in held) == len(set().union(*held))

    check(case, inspect)


@settings(SETTINGS, max_examples=examples(80, short=10))
@given(any_case("pullup"))
def test_pullup_holds_whatever_the_largest_window_reaches(case: Case) -> None:
    """Rows of before the plan came are there as far as some query could use them then."""

    def inspect(runner: Runner, oracle: NestedLoops) -> None:
        found = the_family(runner)
        if found is None:
            return
        for side in SIDES:
            (held,) = runner.state_rows(found[0].id, side)
            opposite = oracle.watermark(found[1][1] if side == "a" else found[1][0])
            window = max(q.w_a_us if side == "a" else q.w_b_us for q in found[0].queries)
            # Queries have come and gone in this very step: what the oracle knows as the family's since then.
            known = [k.row for k in oracle.known.get(found[1], {}).get(side, []) if k.key is not None]
            rows, with_slack = (
                {row.pos for row in known if opposite is None or row.ts + window > opposite - slack_us}
                for slack_us in (0, slack_of(runner, found[0].id, found[0].joins[0].id))
            )
            assert oracle.usable(found[1], side) <= held <= with_slack
            if oracle.batch == 1:
                assert rows <= held

    check(case, inspect)


@settings(SETTINGS, max_examples=examples(100, short=12))
@given(cases(family=0), st.sampled_from([s for s in ALL_STRATEGIES if s != "mem-opt"]))
def test_no_strategy_holds_fewer_rows_than_mem_opt(case: Case, strategy: Strategy) -> None:
    """Theorems 3 and 4, against every other strategy, at the end of any run."""
    outcomes = []
    for chosen in ("mem-opt", strategy):
        steps = tuple(replace(step, strategy=chosen) for step in case.steps)
        outcomes.append(run(replace(case, steps=steps, slack_us=0)))
    mem_opt, other = outcomes
    assert rows_held(mem_opt.runner) <= rows_held(other.runner)
