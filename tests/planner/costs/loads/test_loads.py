"""Expected loads against counts of simulated rows: what each slice holds, probes and gives."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from catalog.values.plan import FamilyPlan, JoinPlan, PlannedQuery, Slice, Strategy
from catalog.values.query import Query
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.costs.loads.loads import join_input, search_loads, slice_loads
from planner.costs.rates import FamilyRates
from planner.explain.explicit_chain import explicit_chain
from planner.families.families import (
    SIDES,
    Family,
    SideName,
    other_side,
    side_chain,
    side_filter,
    side_window_us,
)
from planner.strategies.strategies import STRATEGIES
from tests.builders import SECOND_US, a_query_s
from tests.planner.values import STREAMS, rates_of

LOW, MIDDLE, HIGH = '"v" < 0.2', '"v" = 0.5', '"v" > 0.9'
PASSING = {LOW: 0.3, MIDDLE: 0.6, HIGH: 0.15}
RATE_PER_S: Mapping[SideName, float] = {"a": 12.0, "b": 8.0}
KEYS, SECONDS, WARM_UP_S, SEED = 4, 400.0, 6.0, 20061

QUERY_SETS = {
    "the paper's": [a_query_s(1, 2), a_query_s(2, 5, filter_a=LOW)],
    "filters on both sides": [
        a_query_s(1, 1, filter_a=MIDDLE),
        a_query_s(2, 3, 2, filter_a=LOW, filter_b=HIGH),
        a_query_s(3, 5, 4, filter_a=HIGH, filter_b=MIDDLE),
    ],
    "shared filters": [
        a_query_s(1, 2, 4, filter_a=LOW),
        a_query_s(2, 3, 1),
        a_query_s(3, 5, 5, filter_a=LOW, filter_b=MIDDLE),
        a_query_s(4, 4, 5, filter_a=MIDDLE, filter_b=MIDDLE),
    ],
}


class Rows:
    """Poisson arrivals of one side: times (s), keys, and which filters each row passes."""

    def __init__(
        self, family: FamilyPlan, side: SideName, random: np.random.Generator, open_s: float | None = None
    ) -> None:
        count = random.poisson(RATE_PER_S[side] * SECONDS)
        self.times = np.sort(random.uniform(0, SECONDS, count))
        self.keys = random.integers(0, KEYS, count)
        filters = family.filters_a if side == "a" else family.filters_b
        self.passed = {f.bit: random.random(count) < PASSING[f.sql] for f in filters}
        #: Age at which the other side closes the key of the row.
        self.closed_s = np.full(count, np.inf) if open_s is None else random.exponential(open_s, count)

    def serve(self, queries: list[PlannedQuery], side: SideName) -> Any:
        """Return which rows pass the filter of one of the queries."""
        some = np.zeros(len(self.times), dtype=bool)
        for query in queries:
            bit = side_filter(query, side)
            some |= np.ones(len(self.times), dtype=bool) if bit is None else self.passed[bit]
        return some

    def admitted(self, family: FamilyPlan, join: JoinPlan, queries: tuple[int, ...], side: SideName) -> Any:
        """Return which rows a slice for these queries lets in, and which males probe it."""
        if join.pulled_up:
            return np.ones(len(self.times), dtype=bool)
        by_id = {q.id: q for q in family.queries}
        serving = self.serve([by_id[i] for i in queries], side)
        if join.partition is not None and join.partition.side == side:
            serving &= self.serve([by_id[i] for i in join.partition.one_of], side)
            serving &= ~self.serve([by_id[i] for i in join.partition.none_of], side)
        return serving


def counted(
    family: FamilyPlan, join: JoinPlan, side: SideName, piece: Slice, rows: Mapping[SideName, Rows]
) -> dict[str, float]:
    """Count what a slice does, per second after the warm-up."""
    mates = other_side(side)
    own, other = rows[side], rows[mates]
    number = side_chain(join, side).index(piece)
    ids = tuple(q.id for q, slices in family.slices_reached(join, side) if slices > number)
    entering = own.admitted(family, join, ids, side)
    males = other.admitted(family, join, ids, mates) & (other.times >= WARM_UP_S)
    age = other.times[males][None, :] - own.times[entering][:, None]
    near = (age >= piece.w_start_us / SECOND_US) & (age < piece.w_end_us / SECOND_US)
    near &= age < own.closed_s[entering][:, None]
    equal = near & (own.keys[entering][:, None] == other.keys[males][None, :])
    served = np.zeros_like(equal)
    for query in family.queries:
        if query.id in join.queries:
            mine = own.serve([query], side)[entering][:, None]
            theirs = other.serve([query], mates)[males][None, :]
            served |= equal & mine & theirs & (age < side_window_us(query, side) / SECOND_US)
    seconds = SECONDS - WARM_UP_S
    return {
        "entering_per_s": np.count_nonzero(entering & (own.closed_s > piece.w_start_us / SECOND_US))
        / SECONDS,
        "males_per_s": np.count_nonzero(males) / seconds,
        "chain_males_per_s": np.count_nonzero(other.admitted(family, join, join.queries, mates)) / SECONDS,
        "candidates_per_s": np.count_nonzero(near) / seconds,
        "matches_per_s": np.count_nonzero(equal) / seconds,
        "results_per_s": np.count_nonzero(served) / seconds,
    }


def planned(queries: list[Query], strategy: Strategy) -> FamilyPlan:
    (family,) = build_plan(queries, STREAMS, objective=Objective(strategy, cost_model="paper")).families
    return family


def unplanned(family: FamilyPlan) -> Family:
    return Family(family.id, family.queries, family.filters_a, family.filters_b)


@pytest.mark.parametrize(
    ("strategy", "queries", "open_s"),
    [
        *itertools.product(STRATEGIES, QUERY_SETS, [None]),
        *itertools.product(("mem-opt", "pullup"), ("the paper's", "filters on both sides"), (4.0,)),
    ],
)
def test_loads_are_what_simulated_rows_do(strategy: Strategy, queries: str, open_s: float | None) -> None:
    family = planned(QUERY_SETS[queries], strategy)
    random = np.random.default_rng(SEED)
    rows = {side: Rows(family, side, random, open_s) for side in SIDES}
    rates = rates_of(
        unplanned(family),
        RATE_PER_S["a"],
        RATE_PER_S["b"],
        selectivity=PASSING,
        join_selectivity=1 / KEYS,
        open_s=open_s,
    )
    for join in family.joins:
        loads = iter(slice_loads(family, join, rates))
        for side in SIDES:
            for piece in side_chain(join, side):
                load = next(loads)
                assert load.side == side
                for name, count in counted(family, join, side, piece, rows).items():
                    # Sampling noise of 400 s; over twelve seeds no mean is two standard errors off.
                    assert getattr(load, name) == pytest.approx(count, rel=0.1, abs=0.2), (join.id, name)
        assert next(loads, None) is None
        assert_searched_alike(family, join, rates)


def assert_searched_alike(family: FamilyPlan, join: JoinPlan, rates: FamilyRates) -> None:
    """Loads of the search alone are those of the slices, to the last bit."""
    for side, searched in zip(SIDES, search_loads(family, join, rates), strict=True):
        loads = [load for load in slice_loads(family, join, rates) if load.side == side]
        for name in ("males_per_s", "segments", "candidates_per_s", "matches_per_s"):
            assert getattr(searched, name).tolist() == [getattr(load, name) for load in loads], name
        assert searched.inserted_per_s == loads[0].entering_per_s


@pytest.mark.parametrize("open_s", [0.5, 3.0, 40.0])
def test_slices_hold_the_rows_whose_keys_are_open(open_s: float) -> None:
    family = planned([a_query_s(1, 2), a_query_s(2, 5), a_query_s(3, 12)], "mem-opt")
    rates = rates_of(unplanned(family), 200.0, open_s=open_s)
    random = np.random.default_rng(SEED)
    times = np.sort(random.uniform(0, 500, random.poisson(200 * 500)))
    leaves = times + random.exponential(open_s, len(times))
    looks = np.arange(20, 500, 1.0)
    for load in slice_loads(family, family.joins[0], rates):
        held = 0
        for now in looks:
            first, last = np.searchsorted(times, (now - load.w_end_s, now - load.w_start_s), side="right")
            held += np.count_nonzero(leaves[first:last] > now)
        assert load.held_rows == pytest.approx(held / len(looks), rel=0.04, abs=0.2)
        assert load.held_bytes == 10 * load.held_rows
        assert load.results_per_s <= load.matches_per_s * (1 + 1e-9)


def test_a_slices_load_names_its_ends_and_its_place() -> None:
    family = planned([a_query_s(1, 10), a_query_s(2, 30)], "mem-opt")
    rates = rates_of(unplanned(family), 10.0, 20.0, join_selectivity=0.5)
    first, second, *_ = slice_loads(family, family.joins[0], rates)
    assert (first.w_start_s, first.w_end_s, first.first, first.last) == (0, 10, True, False)
    assert (second.w_start_s, second.w_end_s, second.first, second.last) == (10, 30, False, True)
    assert (first.held_rows, second.held_rows, second.held_bytes) == (100, 200, 2000)
    assert (second.candidates_per_s, second.matches_per_s, second.results_per_s) == (4000, 2000, 2000)
    assert (first.unions, second.unions, second.boundaries) == (0, 1, 0)
    assert all(isinstance(load.held_rows, float) for load in (first, second))


def test_rows_are_judged_where_the_filter_changes_and_at_the_entry() -> None:
    queries = [
        a_query_s(1, 10, filter_a=LOW),
        a_query_s(2, 20, filter_a=HIGH),
        a_query_s(3, 30, filter_a=HIGH),
    ]
    family = planned(queries, "mem-opt")
    rates = rates_of(unplanned(family), 10.0, selectivity={LOW: 0.5, HIGH: 0.2})
    one, two, three, *of_b = slice_loads(family, family.joins[0], rates)
    assert one.entering_per_s == pytest.approx(6)
    # All rows at the entry, those of slice 1 when they leave it; slices 2 and 3 have one filter.
    assert (one.judged_per_s, two.judged_per_s, three.judged_per_s) == pytest.approx((10 + 6, 0, 0))
    assert all(load.judged_per_s == 0 for load in of_b)
    # Pairs of slice 1 are judged by both filters; those of slices 2 and 3 have passed HIGH.
    assert one.judged_results_per_s == pytest.approx(2 * one.matches_per_s)
    assert (two.judged_results_per_s, three.judged_results_per_s) == (0, 0)


def test_a_boundary_between_windows_routes_nothing_and_merged_ones_route_at_each_window() -> None:
    family = planned([a_query_s(n, 10 * n) for n in (1, 2, 3, 4)], "mem-opt")
    rates = rates_of(unplanned(family), 10.0)

    def boundaries(*ends: int) -> list[int]:
        ends_us = [end * SECOND_US for end in ends]
        (join,) = explicit_chain(family, ends_us, ends_us)
        return [load.boundaries for load in slice_loads(family, join, rates) if load.side == "a"]

    assert boundaries(40) == [3]
    assert boundaries(10, 40) == [0, 2]
    assert boundaries(5, 15, 40) == [0, 1, 2]


def test_a_split_bought_by_explicit_boundaries_changes_no_rows() -> None:
    family = planned([a_query_s(1, 10), a_query_s(2, 30, filter_a=LOW)], "mem-opt")
    rates = rates_of(unplanned(family), 10.0, selectivity=0.25)
    ends_us = [end * SECOND_US for end in (4, 10, 17, 30)]
    (cut,) = explicit_chain(family, ends_us, ends_us)
    whole = slice_loads(family, family.joins[0], rates)
    pieces = slice_loads(family, cut, rates)
    for name in ("held_rows", "candidates_per_s", "results_per_s", "judged_per_s", "judged_results_per_s"):
        total = sum(getattr(load, name) for load in whole)
        assert sum(getattr(load, name) for load in pieces) == pytest.approx(total), name


def test_what_comes_to_the_joins_is_counted_once() -> None:
    queries = [
        a_query_s(1, 10),
        a_query_s(2, 20, 30, filter_a=LOW),
        a_query_s(3, 30, filter_a=HIGH, filter_b=LOW),
    ]
    split, apart, shared = (planned(queries, s) for s in ("pushdown", "unshared", "mem-opt"))
    rates = rates_of(unplanned(shared), 10.0, 20.0, selectivity={LOW: 0.5, HIGH: 0.1}, join_selectivity=0.2)
    of_shared, of_split, of_apart = (join_input(f, f.joins, rates) for f in (shared, split, apart))
    for load in (of_shared, of_split, of_apart):
        assert (load.rows_per_s, load.filter_evaluations_per_s) == (30, 2 * 10 + 20)
        assert (load.filters, load.filtered_sides) == (3, 2)
    assert (of_shared.split_per_s, of_shared.private_filters_per_s, of_shared.merged_per_s) == (0, 0, 0)
    # p1, p2 and p3 feed q1; p2 and p3 feed q2, which half of a passes; p3 alone feeds q3.
    assert of_split.split_per_s == 2 * 10
    assert of_split.merged_per_s == pytest.approx(10 * 20 * 0.2 * ((10 + 10) + 0.5 * (20 + 30)))
    assert of_apart.private_filters_per_s == 10 + 10 + 20
