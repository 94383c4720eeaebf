"""Pairs that do not rest in the next step: when they begin to rest, where they must, and what they cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from catalog.values.plan import Plan
from catalog.values.policies.probe import Probe
from catalog.values.query import JoinKind, Query
from catalog.values.statistics import FamilyProfile, Measure, Profile, StreamProfile
from catalog.values.stream import Punctuations, Stream
from planner.bind.bind import bind
from planner.bind.keys.step_keys import Joining, JoinShape
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.costs.calibration.shipped import SHIPPED
from planner.errors import InvalidProbe
from planner.families.families import family_of
from planner.trees.order_costs import OrderCosts
from planner.trees.order_rates import OrderRates, pair_queries
from tests.operators.steps.combinations import Recorder, Written, expected, rows, stream

ABC = ("s0.k = s1.k", "s1.k = s2.k")
ABCD = (*ABC, "s2.k = s3.k")
STREAMS = {n: stream(n) for n in (1, 2, 3, 4)}


def bound(
    written: Written, number: int, again: Sequence[int] = (), streams: Mapping[int, Stream] = STREAMS
) -> Query:
    """Return a query whose streams are joined in the order of FROM."""
    joining = Joining(tuple(range(len(written.streams))), frozenset(frozenset(range(n)) for n in again))
    by_name = {s.name: s for s in streams.values()}
    return bind(written.cql, by_name, name=f"q{number}", query_id=number, choose=lambda _: joining)


def unrested(plan: Plan) -> list[str]:
    """Return the families of a plan whose pairs are made again."""
    return [family.id for family in plan.families if not family.rests]


def run(
    runner: Recorder,
    plans: Mapping[int, Plan],
    tables: Mapping[int, pa.Table],
    placed: Mapping[int, np.ndarray[tuple[int], np.dtype[np.int64]]],
) -> None:
    """Run batches; a plan takes effect at the start of its batch."""
    for batch in range(max(int(at.max()) for at in placed.values()) + 1):
        given = {n: t.filter(pa.array(placed[n] == batch)) for n, t in tables.items()}
        runner.step(given, [plans[batch]] if batch in plans else [])


@pytest.mark.parametrize(
    "again", [(2, 3), *(pytest.param(each, marks=pytest.mark.slow) for each in ((2,), (3,)))]
)
def test_pairs_begin_to_rest_when_a_query_needs_it(again: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    tables = {n: rows(rng, STREAMS[n], 60, 30, 0, 3) for n in STREAMS}
    # The last streams lag behind: rows that the first ones need no longer still have results to come.
    placed = {n: np.minimum(np.arange(60) // 10 + (n > 2), 6) for n in STREAMS}
    first = Written((1, 2, 3, 4), (6, 5, 7, 4), ABCD)
    second = replace(first, windows_s=(3, 9, 4, 8), since=4)
    queries = [bound(first, 1, again), bound(second, 2)]
    one = build_plan(queries[:1], STREAMS)
    both = build_plan(queries, STREAMS, one)
    alone = build_plan(queries[:1], STREAMS, both)
    assert len(unrested(one)) == len(again)
    assert unrested(both) == unrested(alone) == []
    runner = Recorder(STREAMS, 2, slack_us=None, stored=True)
    run(runner, {0: one, 4: both, 6: alone}, tables, placed)
    gone = replace(second, until=6)
    for written, query in ((first, queries[0]), (gone, queries[1])):
        wanted = expected(written, tables, placed, runner.late)
        assert len(wanted) > 50
        assert runner.rows_of(query) == wanted


def test_rows_leave_when_no_stream_needs_them_any_more() -> None:
    rng = np.random.default_rng(5)
    tables = {n: rows(rng, STREAMS[n], 80, 40, 0, 3) for n in (1, 2, 3)}
    placed = {1: np.arange(80) // 20, 2: np.arange(80) // 20, 3: np.where(np.arange(80) < 20, 0, 4)}
    placed[3][-1] = 5
    query = bound(Written((1, 2, 3), (5, 5, 5), ABC), 1, [2])
    plan = build_plan([query], STREAMS)
    first, second = (family.id for family in sorted(plan.families, key=lambda f: f.rests, reverse=True))
    runner = Recorder(STREAMS, 1)
    run(runner, {0: plan}, tables, placed)
    runner.step({n: tables[n].slice(0, 0) for n in (1, 2, 3)})
    assert runner.rows_of(query) == expected(Written((1, 2, 3), (5, 5, 5), ABC), tables, placed, runner.late)
    newest = {n: tables[n].column("ts").cast(pa.int64()).to_numpy().max() for n in (1, 2, 3)}
    for side, number, other in (("a", 1, 2), ("b", 2, 1)):
        times = tables[number].column("ts").cast(pa.int64()).to_numpy()
        keyed = tables[number].column("k").is_valid().to_numpy()
        needed = keyed & (times + 5_000_000 > min(newest[other], newest[3]))
        held = set().union(*runner.state_rows(first, side))
        assert held == set(np.flatnonzero(needed).tolist())
    assert not set().union(*runner.state_rows(second, "a"))
    assert runner.done[second, "shared", "a", 1]["again"] > 0


def test_pairs_rest_where_rows_of_the_step_before_may_be_missing() -> None:
    two, three = Written((1, 2), (8, 8), ("s0.k = s1.k",)), Written((1, 2, 3), (8, 8, 8), ABC)
    queries = [bound(two, 1), bound(three, 2, [2])]
    (family,) = build_plan(queries[:1], STREAMS).families
    assert unrested(build_plan(queries, STREAMS))
    spread = build_plan(queries[:1], STREAMS, objective=Objective(partitioning="replicate"))
    assert unrested(build_plan(queries, STREAMS, spread)) == []
    rings = Objective(family_probes={family.id: Probe("hash", 8)})
    ringed = build_plan(queries[:1], STREAMS, objective=rings)
    assert unrested(build_plan(queries, STREAMS, ringed)) == []
    with pytest.raises(InvalidProbe, match="cannot be searched by hash"):
        build_plan(queries, STREAMS, build_plan(queries, STREAMS), objective=rings)
    judged = replace(queries[0], kind="outer", preserved=("a",), beside_inner=True)
    assert unrested(build_plan([judged, queries[1]], STREAMS)) == []
    closing = STREAMS | {3: replace(STREAMS[3], punctuations=Punctuations((("k",),)))}
    assert unrested(build_plan([bound(three, 2, [2], closing)], closing)) == []


@pytest.mark.parametrize("kind", ["outer", "anti"])
def test_rows_of_a_step_may_be_judged(kind: JoinKind) -> None:
    rng = np.random.default_rng(4)
    tables = {n: rows(rng, STREAMS[n], 60, 30, 0, 4) for n in (1, 2, 3)}
    # The last stream lags behind: rows are decided long before they meet its rows.
    placed = {n: np.minimum(np.arange(60) // 10 + 2 * (n > 2), 7) for n in (1, 2, 3)}
    written = Written((1, 2, 3), (6, 5, 7), ABC)
    joined, judging = bound(written, 1, [2]), bound(Written((1, 2), (1, 1), ("s0.k = s1.k",)), 2)
    apart = replace(judging, kind=kind, preserved=("a",))
    beside = replace(apart, beside_inner=True)
    given = {}
    for queries in ([joined, beside], [apart]):
        plan = build_plan(queries, STREAMS)
        assert unrested(plan) == []
        runner = Recorder(STREAMS, 2)
        flowing = [stream.id for stream in plan.streams]
        run(runner, {0: plan}, {n: tables[n] for n in flowing}, {n: placed[n] for n in flowing})
        given[queries[-1]] = Counter({r: n for r, n in runner.results.items() if r[0] == judging.id})
        if joined in queries:
            assert len(plan.families) == 2
            assert runner.rows_of(joined) == expected(written, tables, placed, runner.late)
    assert given[beside] == given[apart]
    assert len(given[apart]) > 10


def test_pairs_are_made_again_where_the_last_stream_is_no_further_away() -> None:
    found: list[JoinShape] = []

    def choose(shape: JoinShape) -> Joining:
        found.append(shape)
        return Joining((0, 1, 2))

    near = "s1.ts BETWEEN s0.ts - INTERVAL '1' SECOND AND s0.ts + INTERVAL '1' SECOND"
    by_name = {s.name: s for s in STREAMS.values()}
    for conditions in (ABC, (*ABC, near)):
        bind(Written((1, 2, 3), (8, 8, 8), conditions).cql, by_name, choose=choose)
    costs = [OrderCosts(OrderRates.of(shape, Profile()), SHIPPED) for shape in found]
    assert [each.of((0, 1, 2), [2]) is not None for each in costs] == [True, False]
    assert [each.of((0, 2, 1), [2]) is not None for each in costs] == [True, True]


@pytest.mark.parametrize(
    ("again", "rate_of_last"),
    [((2,), 6), *(pytest.param(*each, marks=pytest.mark.slow) for each in (((2,), 30), ((2, 3), 6)))],
)
def test_costs_count_what_the_operators_do(again: tuple[int, ...], rate_of_last: int) -> None:
    rng = np.random.default_rng(7)
    count, keys, seconds = len(again) + 2, 25, 40
    windows = (12, 8, 10, 9)[:count]
    rates = dict.fromkeys(range(1, count), 20) | {count: rate_of_last}
    tables = {n: rows(rng, STREAMS[n], rates[n] * seconds, seconds, 0, keys) for n in rates}
    placed = {n: t.column("ts").cast(pa.int64()).to_numpy() // 2_000_000 for n, t in tables.items()}
    # No combination is a result, which would take long to count.
    written = Written(tuple(rates), windows, (*ABCD[: count - 1], f"s0.v + s{count - 1}.v < 0"))
    query = bound(written, 1, again)
    plan = build_plan([query], STREAMS)
    runner = Recorder(STREAMS, 1)
    # The windows are full when counting begins.
    run(runner, {0: plan, 8: replace(plan, version=2)}, tables, placed)
    last, seconds = runner.done[family_of(query), "shared", "a", 1], seconds - 16

    shapes: list[JoinShape] = []

    def choose(shape: JoinShape) -> Joining:
        shapes.append(shape)
        return Joining(tuple(range(count)))

    bind(written.cql, {s.name: s for s in STREAMS.values()}, choose=choose)
    families = tuple(FamilyProfile(family_of(q), Measure(1 / keys)) for q in pair_queries(shapes[0]))
    streams = tuple(StreamProfile(n, Measure(rate * 0.95)) for n, rate in rates.items())
    profile = Profile(streams, families=families, batch_s=Measure(2.0))
    costs = OrderCosts(OrderRates.of(shapes[0], profile), SHIPPED)
    order = costs.of(tuple(range(count)), again)
    assert order is not None
    partials, made = costs.again_per_s(order, frozenset(shapes[0].equal))
    assert partials * seconds == pytest.approx(last["partials"], rel=0.2)
    if len(again) == 1:
        # Otherwise pairs are made on the way, too.
        assert made * seconds == pytest.approx(last["again"], rel=0.2)
