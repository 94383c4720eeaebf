"""Joins whose steps have pairs on both sides give what one DuckDB join over all rows gives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

from catalog.steps import steps
from catalog.values.statistics import Profile
from planner.bind.keys.step_keys import Joining, JoinShape, may_be_made_again, step_keys
from planner.costs.calibration.shipped import SHIPPED
from planner.sql.scopes.step_scope import Item, flat
from planner.trees.order_costs import OrderCosts
from planner.trees.order_rates import OrderRates
from tests.examples import examples
from tests.operators.cases import SETTINGS
from tests.operators.steps.combinations import Written, expected
from tests.operators.steps.drawn import run_drawn
from tests.planner.trees.all_trees import all_streams, all_trees

WINDOWS_S = st.sampled_from((1, 2, 3, 5, 8, 13))


@st.composite
def written(draw: st.DrawFn, known: int, batches: int) -> Written:
    """Return a query over four or five streams on one key or on several; or a join of two of them."""
    two = draw(st.integers(0, 3)) == 0
    count = 2 if two else draw(st.integers(4, 5))
    streams = tuple(draw(st.permutations(range(1, known + 1)))[: min(count, known)])
    count = len(streams)
    one_key = draw(st.booleans())
    column = st.just("k") if one_key else st.sampled_from(("k", "j"))
    conditions = []
    for joined in range(1, count):
        other = draw(st.integers(0, joined - 1))
        conditions.append(f"s{other}.{draw(column)} = s{joined}.{draw(column)}")
    if draw(st.booleans()):
        i, j = draw(st.permutations(range(count)))[:2]
        conditions.append(f"s{i}.g = s{j}.g")
    some = st.sampled_from(
        [
            *(f"s{n}.v < {limit}" for n in range(count) for limit in (0.3, 0.7)),
            *(f"s{i}.v <= s{j}.v" for i in range(count) for j in range(count) if i != j),
            f"s{count - 1}.ts >= s0.ts",
            "s1.ts BETWEEN s0.ts - INTERVAL '2' SECOND AND s0.ts + INTERVAL '4' SECOND",
        ]
    )
    conditions += draw(st.lists(some, max_size=2, unique=True))
    since = draw(st.integers(0, batches - 1))
    until = draw(st.integers(since + 1, batches + 3))
    alike = draw(st.booleans())
    window = draw(WINDOWS_S)
    windows = tuple(window if alike else draw(WINDOWS_S) for _ in range(count))
    return Written(streams, windows, tuple(conditions), since, until)


def any_tree(rng: np.random.Generator, shape: JoinShape) -> Joining:
    """Return a tree in which both sides of a step are pairs, where there is one.

    Of the pairs that need not rest, some do not.
    """
    costs = OrderCosts(OrderRates.of(shape, Profile()), SHIPPED)
    ids = [stream.id for stream in shape.streams]
    trees = [t for t in all_trees(tuple(range(len(ids))), ids) if costs.of(t) is not None]
    bushy = [tree for tree in trees if not all_streams(tree)]
    possible = bushy or trees
    tree = possible[int(rng.integers(len(possible)))]
    keys = {key.joined: key for key in step_keys(tree, ids, shape.equal)}
    again = [
        frozenset(before)
        for before, joined in _one_by_one(tree)
        if rng.random() < 0.5
        and keys[frozenset((*before, joined))].parts
        and not keys[frozenset((*before, joined))].exchanged
        and may_be_made_again(shape.distances, before, joined)
    ]
    return Joining(tree, frozenset(again))


def _one_by_one(items: tuple[Item, ...]) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield the streams joined before and the one that joins, of each step whose side b is a stream."""
    for place, item in enumerate(items[1:], 1):
        before = flat(items[:place])
        if not isinstance(item, int):
            yield from _one_by_one(item)
        elif len(before) > 1:
            yield before, item


@settings(SETTINGS, max_examples=examples(120, short=15))
@given(data=st.data())
def test_combinations_of_bushy_trees_are_those_of_duckdb(data: st.DataObject) -> None:
    ran = run_drawn(
        data,
        written,
        batches=5,
        rows_of_stream=(5, 22),
        buckets=5,
        known=(4, 5),
        any_order=any_tree,
        # Pairs of two steps meet in one bucket.
        partitionings=("hash",),
    )
    runner, batches = ran.runner, ran.batches
    while runner.sent:
        runner.step({})
        assert runner.batch <= batches + 4, "each exchange takes one batch"
    for query, each in zip(ran.queries, ran.bound, strict=True):
        lasting = replace(query, until=1 << 30) if query.until >= batches else query
        found = {} if each is None else runner.rows_of(each)
        wanted = expected(lasting, ran.tables, ran.placed, runner.late, each)
        if each is not None and each.left is not None:
            event(f"bushy {each.right is not None}, results {bool(wanted)}")
            event(f"some do not rest {not all(step.rests for step in steps(each))}")
        assert found == wanted, query.cql
