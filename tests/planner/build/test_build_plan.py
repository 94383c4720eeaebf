from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.plan import FamilyPlan, Plan, Slice, Strategy
from catalog.values.query import UNBOUNDED_US, Output, Query
from catalog.values.statistics import Measure, Profile, StreamProfile
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.errors import InvalidPlan, UnknownStrategy
from planner.families.families import SIDES, SideName, side_chain, side_filter, side_filters, side_window_us
from planner.predicates.logic.implication import NormalForms, implies, normal_forms
from planner.predicates.read_condition import read_condition
from planner.strategies.strategies import STRATEGIES
from tests.builders import SECOND_US, a_query_s
from tests.planner.values import STREAMS

LOW, HIGH = '"v" < 0.2', '"v" > 0.9'

predicates = st.sampled_from([None, None, LOW, HIGH, '"v" = 1'])
windows = st.sampled_from([0.000001, 1, 2, 3, 10, 60])


@st.composite
def query_sets(draw: st.DrawFn, first_id: int = 1, max_size: int = 8) -> list[Query]:
    return [
        a_query_s(
            query_id,
            draw(windows),
            draw(windows),
            filter_a=draw(predicates),
            filter_b=draw(predicates),
            streams=draw(st.sampled_from([(1, 2), (1, 3), (1, 1)])),
            key=draw(st.sampled_from([(("k", "k"),), (("k", "k"), ("m", "m"))])),
            columns_a=draw(st.sampled_from([(), ("k",), ("v", "m")])),
        )
        for query_id in range(first_id, first_id + draw(st.integers(0, max_size)))
    ]


def test_the_first_plan_is_version_1_and_the_next_counts_on() -> None:
    first = build_plan([], STREAMS)
    assert first == Plan(1, "mem-opt", (), ())
    assert build_plan([], STREAMS, first).version == 2


def test_slices_end_where_windows_end_and_keep_what_is_still_needed() -> None:
    queries = [a_query_s(1, 10), a_query_s(2, 30, filter_a=LOW), a_query_s(3, 60, filter_a=HIGH)]
    (family,) = build_plan(queries, STREAMS).families
    (join,) = family.joins
    assert join.chain_a == (
        Slice(0, 10 * SECOND_US, None),
        Slice(10 * SECOND_US, 30 * SECOND_US, (0, 1)),
        Slice(30 * SECOND_US, 60 * SECOND_US, (1,)),
    )
    assert [(q.id, slices) for q, slices in family.slices_reached(join, "a")] == [(1, 1), (2, 2), (3, 3)]
    assert all(s.keep is None for s in join.chain_b)


def test_a_filter_that_implies_another_of_the_slice_is_not_kept_beside_it() -> None:
    wide, narrow = '"v" > 5', '"v" > 10'
    filters = {10: narrow, 20: wide, 30: narrow}
    queries = [a_query_s(w // 10, w, filter_a=f) for w, f in filters.items()]
    (family,) = build_plan(queries, STREAMS).families
    bits = {f.sql: f.bit for f in family.filters_a}
    assert [s.keep for s in family.joins[0].chain_a] == [(bits[wide],), (bits[wide],), (bits[narrow],)]


def test_each_side_has_its_own_boundaries() -> None:
    (join,) = build_plan([a_query_s(1, 10, 30), a_query_s(2, 20, 30)], STREAMS).families[0].joins
    assert [s.w_end_us for s in join.chain_a] == [10 * SECOND_US, 20 * SECOND_US]
    assert join.chain_b == (Slice(0, 30 * SECOND_US, None),)


def test_an_unbounded_window_is_the_last_slice() -> None:
    unbounded = replace(a_query_s(2), a=replace(a_query_s(2).a, window_us=UNBOUNDED_US))
    (family,) = build_plan([a_query_s(1, 10), unbounded], STREAMS).families
    assert family.joins[0].chain_a[-1].w_end_us == UNBOUNDED_US


def test_a_family_stores_the_columns_of_all_its_queries() -> None:
    queries = [a_query_s(1, columns_a=("m",)), a_query_s(2, columns_a=("k",), filter_a=LOW)]
    (family,) = build_plan(queries, STREAMS).families
    assert family.columns_a == ("k", "m", "v")
    assert [q.columns_a for q in family.queries] == [("m",), ("k", "v")]


def test_pairs_carry_the_columns_that_outputs_read() -> None:
    output = Output("m", 'a."m"', "string", (("a", "m"),))
    told = replace(a_query_s(1, columns_a=("m",), filter_a=LOW), outputs=(output,))
    (family,) = build_plan([told], STREAMS).families
    assert (family.columns_a, family.carried("a"), family.carried("b")) == (("m", "v"), ("m",), ())


def test_pairs_carry_all_columns_of_a_query_that_does_not_say_what_its_outputs_read() -> None:
    stored_before = a_query_s(2, columns_a=("k",), filter_a=LOW)
    told = replace(
        a_query_s(1, columns_a=("ts",)), outputs=(Output("ts", 'a."ts"', "timestamp", (("a", "ts"),)),)
    )
    (family,) = build_plan([told, stored_before], STREAMS).families
    assert family.carried("a") == ("k", "ts", "v")


def test_queries_of_another_pair_or_key_are_another_family() -> None:
    queries = [
        a_query_s(1),
        a_query_s(2, streams=(1, 3)),
        a_query_s(3, key=(("m", "m"),)),
        a_query_s(4, streams=(1, 1)),
    ]
    plan = build_plan(queries, STREAMS)
    assert sorted(q.id for f in plan.families for q in f.queries) == [1, 2, 3, 4]
    assert len(plan.families) == 4
    assert [s.id for s in plan.streams] == [1, 2, 3]


def test_a_query_keeps_the_version_that_activated_it() -> None:
    first = build_plan([a_query_s(1)], STREAMS)
    second = build_plan([a_query_s(1), a_query_s(2)], STREAMS, first)
    assert [q.since_version for q in second.families[0].queries] == [1, 2]


def test_a_stream_once_used_stays_as_it_was() -> None:
    first = build_plan([a_query_s(1)], STREAMS)
    changed = {**STREAMS, 1: replace(STREAMS[1], lateness_us=0)}
    second = build_plan([], changed, first)
    assert second.streams == (STREAMS[1], STREAMS[2])
    assert build_plan([a_query_s(2)], changed, second).streams == second.streams


def test_a_filter_keeps_its_bit_and_one_that_comes_back_gets_a_new_one() -> None:
    first = build_plan([a_query_s(1, filter_a=HIGH), a_query_s(2, filter_a=LOW)], STREAMS)
    second = build_plan([a_query_s(1, filter_a=HIGH)], STREAMS, first)
    third = build_plan([a_query_s(1, filter_a=HIGH), a_query_s(3, filter_a=LOW)], STREAMS, second)
    bits = [{f.sql: f.bit for f in plan.families[0].filters_a} for plan in (first, second, third)]
    assert bits == [{LOW: 0, HIGH: 1}, {HIGH: 1}, {HIGH: 1, LOW: 2}]


def test_bits_are_not_reused_when_a_family_leaves_and_comes_back() -> None:
    first = build_plan([a_query_s(1, filter_a=LOW)], STREAMS)
    gone = build_plan([], STREAMS, first)
    back = build_plan([a_query_s(2, filter_a=LOW)], STREAMS, gone)
    assert [f.bit for f in back.families[0].filters_a] == [1]


@pytest.mark.parametrize("options", [{"strategy": "fastest"}, {"family_strategies": {"s1s2-0": "fastest"}}])
def test_an_unknown_strategy_is_refused_with_those_there_are(options: dict[str, Any]) -> None:
    with pytest.raises(UnknownStrategy) as caught:
        build_plan([a_query_s(1)], STREAMS, objective=Objective(**options))
    assert str(caught.value) == (
        'strategy "fastest" does not exist\n'
        '  hint: Strategies: "unshared", "pullup", "pushdown", "mem-opt" and "cpu-opt".'
    )


def test_a_family_can_have_an_objective_of_its_own() -> None:
    queries = [a_query_s(1, 10), a_query_s(2, 30), a_query_s(3, 10, streams=(1, 3))]
    first, second = build_plan(queries, STREAMS).families
    own: dict[str, Strategy] = {first.id: "pullup", "s8s9-00000000": "unshared"}
    plan = build_plan(queries, STREAMS, objective=Objective("pushdown", family_strategies=own))
    assert plan.strategy == "pushdown"
    assert [f.strategy for f in plan.families] == ["pullup", "pushdown"]
    assert plan.families[0].joins[0].pulled_up
    assert replace(plan.families[1], strategy="mem-opt") == second


@settings(deadline=None)
@given(query_sets(), st.sampled_from([*STRATEGIES]))
def test_bits_and_activations_do_not_depend_on_the_strategy(queries: list[Query], strategy: Strategy) -> None:
    plain, other = (
        build_plan(queries, STREAMS),
        build_plan(queries, STREAMS, objective=Objective(strategy, cost_model="paper")),
    )
    assert other.next_bit == plain.next_bit
    for one, two in zip(plain.families, other.families, strict=True):
        assert replace(two, joins=one.joins, strategy="mem-opt") == one


def test_statistics_and_model_decide_where_cpu_opt_cuts() -> None:
    queries = [a_query_s(1, 10), a_query_s(2, 30)]

    def ends(rate: float, c_sys: float) -> list[int]:
        profile = Profile(streams=(StreamProfile(1, Measure(rate)), StreamProfile(2, Measure(rate))))
        plan = build_plan(
            queries,
            STREAMS,
            objective=Objective("cpu-opt", cost_model="paper", c_sys=c_sys),
            profile=profile,
        )
        return [s.w_end_us // SECOND_US for s in plan.families[0].joins[0].chain_a]

    # S_1 is assumed 0.001: a merged slice routes 30 λ² 0.001 pairs and saves λ (purge, union, 3 C_sys).
    assert ends(10, 3) == [30]
    assert ends(1000, 3) == [10, 30]


def test_a_stream_that_is_not_given_is_named() -> None:
    with pytest.raises(InvalidPlan, match='query "q1" uses unknown stream 2'):
        build_plan([a_query_s(1)], {1: STREAMS[1]})


@settings(deadline=None)
@given(query_sets(), st.randoms(use_true_random=False))
def test_the_order_of_queries_does_not_matter(queries: list[Query], random: object) -> None:
    plan = build_plan(queries, STREAMS)
    random.shuffle(queries)  # type: ignore[attr-defined]  # Hypothesis wraps random.Random
    assert build_plan(queries, STREAMS) == plan


@settings(deadline=None)
@given(query_sets())
def test_planning_the_same_again_changes_only_the_version(queries: list[Query]) -> None:
    plan = build_plan(queries, STREAMS)
    assert replace(build_plan(queries, STREAMS, plan), version=1) == plan


def forms_of(family: FamilyPlan, side: SideName) -> dict[int, NormalForms]:
    return {bit: normal_forms(read_condition(f.sql)) for bit, f in side_filters(family, side).items()}


@settings(deadline=None)
@given(query_sets())
def test_chains_are_contiguous_and_keep_the_or_of_the_filters_that_reach_them(queries: list[Query]) -> None:
    for family in build_plan(queries, STREAMS).families:
        for side in SIDES:
            chain = side_chain(family.joins[0], side)
            reached = family.slices_reached(family.joins[0], side)
            ends = [s.w_end_us for s in chain]
            assert [s.w_start_us for s in chain] == [0, *ends[:-1]]
            assert ends == sorted({side_window_us(q, side) for q in family.queries})
            for piece in chain:
                reaching = [q for q in family.queries if side_window_us(q, side) >= piece.w_end_us]
                bits = {side_filter(q, side) for q in reaching}
                assert reaching == [q for q, slices in reached if slices > chain.index(piece)]
                assert (piece.keep is None) == (None in bits)
                if piece.keep is not None:
                    assert set(piece.keep) <= bits
                    # A filter is left out for one that it implies.
                    forms = forms_of(family, side)
                    for bit in bits - set(piece.keep) - {None}:
                        assert any(implies(forms[bit], forms[kept]) for kept in piece.keep if bit is not None)


@settings(deadline=None)
@given(query_sets())
def test_a_later_slice_keeps_no_row_that_an_earlier_one_dropped(queries: list[Query]) -> None:
    for family in build_plan(queries, STREAMS).families:
        for side in SIDES:
            for before, after in itertools.pairwise(side_chain(family.joins[0], side)):
                if before.keep is None:
                    continue
                assert after.keep is not None
                forms = forms_of(family, side)
                for bit in after.keep:
                    assert any(implies(forms[bit], forms[kept]) for kept in before.keep)


@settings(deadline=None)
@given(st.lists(query_sets(max_size=5), min_size=1, max_size=5), st.data())
def test_a_bit_means_one_filter_for_ever(arrivals: list[list[Query]], data: st.DataObject) -> None:
    meaning: dict[tuple[str, str, int], str] = {}
    given_up: set[tuple[str, str, int]] = set()
    running: list[Query] = []
    plan, next_id = None, 1
    for arriving in arrivals:
        running = [q for q in running if data.draw(st.booleans())]
        for query in arriving:
            running.append(replace(query, id=next_id, name=f"q{next_id}"))
            next_id += 1
        plan = build_plan(running, STREAMS, plan)
        present: dict[tuple[str, str, int], str] = {
            (f.id, s, bit): p.sql
            for f in plan.families
            for s in SIDES
            for bit, p in side_filters(f, s).items()
        }
        assert all(meaning.get(bit, sql) == sql for bit, sql in present.items())
        assert not given_up & present.keys()
        meaning |= present
        given_up |= meaning.keys() - present.keys()
