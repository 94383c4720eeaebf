"""Bits of filters that have gone are used again, and no row ever passes a filter that it never met.

Long lives with few filters in force and many that ever were: queries come, hand their rows on and go;
families go and come back (also within one boundary, where no bucket sees that they were gone); rows rest
unbounded, batches crash and replay. Results are those of nested loops (``tests.operators.oracle``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.plan import Plan
from catalog.values.query import UNBOUNDED_US, Query
from operators.bucket.bucket import Bucket
from operators.segments.segment import WORD_BITS
from planner.build.build_plan import build_plan
from planner.build.check_plan import check_plan
from planner.build.objective import Objective
from planner.errors import InvalidPlan
from tests.builders import Key, a_query, a_stream
from tests.examples import examples
from tests.operators.cases import ALL_STRATEGIES, C_SYS, SETTINGS
from tests.operators.durable import Crash, DurableRunner
from tests.operators.oracle import NestedLoops, Result
from tests.operators.queries import Row, a_table

STREAMS = {1: a_stream(1), 2: a_stream(2)}
FILTERS = (None, '"v" < 5', '"v" > 2', '"w" = 1', '"v" IS NULL')
#: The second family comes and goes as a whole.
KEYS: tuple[tuple[Key, tuple[str, ...]], ...] = (((("k", "k"),), ("bigint",)), ((("m", "m"),), ("string",)))
WINDOWS_US = (9, 30, 60, UNBOUNDED_US)
CRASHES: tuple[Crash, ...] = ("never", "never", "before-commit", "after-commit")


class World:
    """Operators beside nested loops.

    Args:
        buckets: Number of buckets.
        slack_us: Slack of every family; None takes the families' own.
    """

    def __init__(self, buckets: int, slack_us: int | None) -> None:
        self.runner = DurableRunner(STREAMS, buckets, slack_us)
        self.oracle = NestedLoops(STREAMS)
        self.expected: Counter[Result] = Counter()

    def batch(
        self,
        rows: Mapping[int, Sequence[Row]],
        plans: Sequence[Plan],
        queries: Sequence[Query],
        crash: Crash = "never",
    ) -> None:
        """Run one batch and compare all results so far."""
        rows = {i: arrived for i, arrived in rows.items() if arrived}
        self.runner.crash = crash
        self.runner.step({i: a_table(STREAMS[i], arrived) for i, arrived in rows.items()}, plans)
        self.expected += self.oracle.step(queries, rows)
        assert self.runner.results == self.expected


class Life:
    """A world with its plans.

    Args:
        rng: Hypothesis' source of choices.
        slack_us: Slack of every family; None takes the families' own.
    """

    def __init__(self, rng: st.DataObject, slack_us: int | None) -> None:
        self.draw = rng.draw
        self.world = World(2, slack_us)
        self.plan: Plan | None = None
        self.running: list[Query] = []
        self.queries = 0
        self.clock = 0
        self.positions = {1: 0, 2: 0}
        self.numbers = 0

    def batch(self) -> None:
        """Change something, let some rows come, maybe crash, and check everything."""
        plans = [self._replanned() for _ in range(self.draw(st.sampled_from((1, 1, 1, 2))))]
        rows: dict[int, list[Row]] = {1: [], 2: []}
        for code in self.draw(st.lists(st.integers(0, 2 * 4 * 2 * 10 * 2 - 1), max_size=6)):
            code, stream = divmod(code, 2)
            code, advance = divmod(code, 4)
            code, m = divmod(code, 2)
            w, v = divmod(code, 10)
            self.clock += advance
            values = {"k": 1, "m": f"m{m}", "v": None if v == 9 else v, "w": w}
            rows[1 + stream].append(Row(self.positions[1 + stream], self.clock, values))
            self.positions[1 + stream] += 1
        self.world.batch(rows, plans, self.running, crash=self.draw(st.sampled_from(CRASHES)))
        for bucket in self.world.runner.state:
            self._check_places(bucket)

    def _replanned(self) -> Plan:
        """Let some queries go and some come; the plan that follows."""
        leaving = self.draw(st.integers(0, 3))
        self.running = [q for q in self.running if leaving and self.draw(st.integers(0, 3)) != leaving]
        for _ in range(self.draw(st.integers(0 if self.running else 1, 2))):
            self.queries += 1
            key, kinds = KEYS[self.draw(st.sampled_from((0, 0, 0, 1)))]
            self.running.append(
                a_query(
                    self.queries,
                    self.draw(st.sampled_from(WINDOWS_US)),
                    self.draw(st.sampled_from(WINDOWS_US)),
                    filter_a=self.draw(st.sampled_from(FILTERS)),
                    filter_b=self.draw(st.sampled_from(FILTERS)),
                    key=key,
                    key_types=kinds,
                    # Filters can be evaluated on rows that were kept for others.
                    columns_a=("v", "w"),
                    columns_b=("v", "w"),
                    backfill=self.draw(st.sampled_from(("state", "state", "none"))),
                )
            )
        strategy = self.draw(st.sampled_from(ALL_STRATEGIES))
        self.plan = build_plan(
            self.running,
            STREAMS,
            self.plan,
            objective=Objective(strategy, cost_model="paper", c_sys=C_SYS),
        )
        self.numbers = max([self.numbers, *(bit for _, bit in self.plan.next_bit)])
        return self.plan

    def _check_places(self, bucket: Bucket) -> None:
        """A segment's words are as wide as what it knows, whatever its numbers."""
        for joins in bucket.families.values():
            for segment in joins.segments():
                words = [name for name in segment.rows.schema.names if name.startswith("_l")]
                assert len(words) == -(-len(segment.filters) // WORD_BITS)
                assert len(set(segment.filters)) == len(segment.filters)


@settings(SETTINGS, max_examples=examples(40, short=5))
@given(st.data(), st.sampled_from((0, 7, None)))
def test_rows_pass_only_the_filters_that_they_met(data: st.DataObject, slack_us: int | None) -> None:
    life = Life(data, slack_us)
    for _ in range(data.draw(st.integers(2, 16))):
        life.batch()


def test_numbers_grow_and_places_do_not() -> None:
    """One query with a filter is replaced by the next a hundred times over, under rows that rest forever."""
    world = World(1, 0)
    plan: Plan | None = None
    widest = 0
    for number in range(1, 101):
        query = a_query(
            number,
            UNBOUNDED_US if number % 2 else 5,
            UNBOUNDED_US if number % 3 else 5,
            filter_a=FILTERS[1 + number % 2],
            columns_a=("v",),
            columns_b=("v",),
            backfill="state" if number > 1 else "none",
        )
        plan = build_plan([query], STREAMS, plan)
        values = {"k": 1, "m": None, "v": number % 7, "w": 0}
        rows = {side: [Row(number, number, values)] for side in (1, 2)}
        world.batch(rows, [plan], [query], crash=CRASHES[number % 4])
        (joins,) = world.runner.state[0].families.values()
        widest = max([widest, *(len(segment.filters) for segment in joins.segments())])
    assert plan is not None
    assert dict(plan.next_bit)[f"{plan.families[0].id}/a"] == 100
    assert widest <= WORD_BITS + 20


def test_a_plan_that_gives_a_number_again_is_refused() -> None:
    low = a_query(1, 60, filter_a='"v" < 5')
    first = build_plan([low, a_query(2, 60, key=KEYS[1][0], key_types=KEYS[1][1])], STREAMS)
    gone = build_plan([a_query(2, 60, key=KEYS[1][0], key_types=KEYS[1][1])], STREAMS, first)
    with pytest.raises(InvalidPlan, match="has decreased"):
        check_plan(replace(gone, next_bit=gone.next_bit[1:]), first)


@pytest.mark.parametrize("between", [True, False])
def test_a_family_that_comes_back_does_not_start_again(between: bool) -> None:
    """Also where both versions come at one boundary, so that no bucket sees that the family was gone."""
    low = a_query(1, 60, filter_a='"v" < 5', columns_a=("v",))
    other = a_query(2, 60, key=KEYS[1][0], key_types=KEYS[1][1])
    high = a_query(3, 60, filter_a='"v" > 2', columns_a=("v",), backfill="state")
    first = build_plan([low, other], STREAMS)
    gone = build_plan([other], STREAMS, first)
    back = build_plan([other, high], STREAMS, gone)
    assert [scope for scope, _ in gone.next_bit] == ["*", *(f"{gone.families[0].id}/{side}" for side in "ab")]
    (family,) = (f for f in back.families if f.filters_a)
    assert [f.bit for f in family.filters_a] == [1]
    world = World(1, 0)
    rows = [Row(n, n, {"k": 1, "m": "x", "v": v, "w": 0}) for n, v in enumerate((1, 4, 9))]
    world.batch({1: rows}, [first], [low, other])
    if not between:
        world.batch({}, [gone], [other])
    probe = [Row(0, 3, {"k": 1, "m": "x", "v": 0, "w": 0})]
    world.batch({2: probe}, [gone, back] if between else [back], [other, high])
