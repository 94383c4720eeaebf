"""Result punctuations come in the batch that the rule says, and no later result has their key."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.control import Pull
from catalog.values.plan import Plan
from catalog.values.policies.punctuation_policy import PunctuationPolicy
from catalog.values.query import PUNCTUATION_OUTPUT, Output, Query
from catalog.values.stream import Constraints, Punctuations, Stream
from operators.bucket.counters import punctuation_counters
from operators.bucket.state.manifest import encode_manifest
from operators.bucket.state.store_segments import SegmentIds, store_segments
from tests.builders import a_query, a_stream
from tests.examples import examples
from tests.operators.cases import ALL_STRATEGIES, SETTINGS, Case, Step, check_values, plan_versions
from tests.operators.closings.promised import Patterns, Promised, move, promised_cases, table_of
from tests.operators.closings.scenes import Scene
from tests.operators.durable import Crash, DurableRunner
from tests.operators.harness import Runner
from tests.operators.oracle import Family, NestedLoops, family_of, id_of, passes, side_of
from tests.operators.queries import Row

Key = tuple[object, ...]
#: Query id and key.
Finished = tuple[int, Key]

DEFAULT_POLICY = PunctuationPolicy()


def announcing(query: Query) -> Query:
    """Return a query that selects its key and result punctuations."""
    columns = tuple(sorted({("a", a) for a, _ in query.key} | {("b", b) for _, b in query.key}))
    sides = {
        letter: replace(
            side, columns=tuple(sorted({*side.columns, *(name for of, name in columns if of == letter)}))
        )
        for letter, side in (("a", query.a), ("b", query.b))
    }
    outputs = (*query.outputs, Output(PUNCTUATION_OUTPUT, "NULL", "string", columns))  # type: ignore[arg-type]
    return replace(query, a=sides["a"], b=sides["b"], outputs=outputs)


def with_announcements(promised: Promised, every: int = 1) -> Promised:
    """Return a case whose queries with a key, or one in ``every``, announce; nothing is forgotten."""

    def changed(queries: tuple[Query, ...] | None) -> tuple[Query, ...] | None:
        if queries is None:
            return None
        return tuple(announcing(q) if q.key and q.id % every == 0 else q for q in queries)

    steps = [
        replace(step, queries=changed(step.queries), between=changed(step.between))
        for step in promised.case.steps
    ]
    streams = {
        i: s if s.punctuations is None else replace(s, punctuations=replace(s.punctuations, remember_us=None))
        for i, s in promised.case.streams.items()
    }
    return replace(promised, case=replace(promised.case, steps=tuple(steps), streams=streams))


def unspread(promised: Promised) -> Promised:
    """Return a case in which every key has one bucket and is closed by punctuations or its one row."""
    streams = {
        i: replace(s, constraints=Constraints(s.constraints.unique)) for i, s in promised.case.streams.items()
    }
    steps = tuple(replace(step, spread=Step(None, ()).spread) for step in promised.case.steps)
    return replace(promised, case=replace(promised.case, steps=steps, streams=streams))


@dataclass
class Finishing:
    """The rule, by brute force: T_last from all rows that a query may use, then one comparison."""

    streams: Mapping[int, Stream]
    patterns: Patterns
    ways: Counter[str]
    closed: dict[tuple[Family, str], set[Key]] = field(default_factory=dict)
    waiting: dict[Finished, dict[str, int | None]] = field(default_factory=dict)

    def step(
        self,
        oracle: NestedLoops,
        came: Mapping[int, Sequence[Row]],
        limits: Mapping[int, int | None],
        entered: set[int],
    ) -> set[Finished]:
        families = {family_of(q) for q in oracle.queries if q.key}
        # A family that goes takes what it knows along.
        self.closed = {place: keys for place, keys in self.closed.items() if place[0] in families}
        running = {q.id for q in oracle.queries}
        self.waiting = {where: sides for where, sides in self.waiting.items() if where[0] in running}
        finished: set[Finished] = set()
        for family in families:
            queries = [q for q in oracle.queries if family_of(q) == family and announces(q)]
            before = {side: set(self.closed.get((family, side), ())) for side in ("a", "b")}
            for query in queries:
                if query.id in entered:
                    for side in ("a", "b"):
                        for key in before[side]:
                            self._wait(oracle, query, side, key)
            for side, other in (("a", "b"), ("b", "a")):
                for key in self._closings(family, side, came, limits) - before[side]:
                    self.closed.setdefault((family, side), set()).add(key)
                    for query in queries:
                        if key not in before[other] or (query.id, key) in self.waiting:
                            self._wait(oracle, query, side, key)
            for query in queries:
                keys = [key for query_id, key in self.waiting if query_id == query.id]
                finished |= {(query.id, key) for key in keys if self._is_finished(oracle, query, key)}
        for where in finished:
            del self.waiting[where]
        return finished

    def _wait(self, oracle: NestedLoops, query: Query, side: str, key: Key) -> None:
        rows = oracle.known.get(family_of(query), {}).get(side, [])
        times = [
            k.row.ts
            for k in rows
            if k.key == key and query.id in k.entitled and passes(side_of(query, side), k.row)
        ]
        self.waiting.setdefault((query.id, key), {}).setdefault(side, max(times, default=None))

    def _is_finished(self, oracle: NestedLoops, query: Query, key: Key) -> bool:
        sides = self.waiting[query.id, key]
        if len(sides) == 2 or None in sides.values():
            self.ways["both" if len(sides) == 2 else "none"] += 1
            return True
        ((side, newest),) = sides.items()
        watermark = oracle.watermark(side_of(query, "b" if side == "a" else "a").stream_id)
        assert newest is not None
        finished = watermark is not None and watermark >= newest + side_of(query, side).window_us
        self.ways["window"] += finished
        return finished

    def _closings(
        self,
        family: Family,
        side: str,
        came: Mapping[int, Sequence[Row]],
        limits: Mapping[int, int | None],
    ) -> set[Key]:
        number = "ab".index(side)
        stream_id = (family[0], family[1])[number]
        stream, columns = self.streams[stream_id], [pair[number] for pair in family[2]]
        found: set[Key] = set()
        promised = stream.punctuations is not None and any(
            set(on) == set(columns) for on in stream.punctuations.on
        )
        unique = set(stream.constraints.unique)
        for row in came.get(stream_id, ()):
            on = self.patterns.get((stream_id, row.pos))
            limit = limits.get(stream_id)
            if on is None:
                closes = bool(unique) and unique <= set(columns) and (limit is None or row.ts >= limit)
            else:
                closes = promised and set(on) == set(columns)
            values = tuple(row.values[c] for c in columns)
            if closes and None not in values:
                found.add(values)
        return found


def announces(query: Query) -> bool:
    return any(output.name == PUNCTUATION_OUTPUT for output in query.outputs)


def check(
    promised: Promised,
    runner: Runner | None = None,
    *,
    exact: bool = True,
    ways: Counter[str] | None = None,
    policy: PunctuationPolicy = DEFAULT_POLICY,
) -> Runner:
    """Run a case; compare result punctuations with the rule, and look for results behind them.

    Args:
        promised: The case.
        runner: Runs the batches; by default one that is stored if the case says so.
        exact: Whether keys are in one bucket, so that the rule is exact.
        ways: Counts why keys are finished.
        policy: When keys are purged and announced; somebody asks in every fourth batch.
    """
    case, patterns = promised.case, promised.patterns
    runner = runner or Runner(case.streams, case.buckets, case.slack_us, case.stored)
    oracle = NestedLoops(case.streams)
    rule = Finishing(case.streams, patterns, Counter() if ways is None else ways)
    plans: list[Plan] = []
    sources: dict[tuple[int, int], Row] = {}
    over: set[Finished] = set()
    for number, step in enumerate(case.steps):
        changes = plan_versions(step, case, plans[-1] if plans else None)
        plans += changes
        flowing = [s.id for s in plans[-1].streams]
        came = step.by_stream(flowing)
        rows = {i: [r for r in given if (i, r.pos) not in patterns] for i, given in came.items()}
        sources |= {(i, r.pos): r for i, arrived in rows.items() for r in arrived}
        beats = [b for b in step.heartbeats if b.stream_id in flowing]
        tables = {i: table_of(case.streams[i], given, patterns) for i, given in came.items()}
        limits = {i: oracle.watermark(i) for i in came}
        before = {q.id for q in oracle.queries}
        pulls = [Pull(q.id, 1) for q in oracle.queries if announces(q)] if number % 4 == 3 else []
        outputs = runner.step(tables, [with_policy(plan, policy) for plan in changes], beats, pulls=pulls)
        queries = step.queries if step.queries is not None else oracle.queries
        families = {id_of(f): f for f in map(family_of, queries)}
        oracle.violating = {
            (families[family], side, pos) for family, side, pos in runner.violating if family in families
        }
        pairs = oracle.step(step.queries, rows, beats)
        for output in outputs:
            check_values(output, plans[-1], oracle, sources)
        by_id = {q.id: q for q in oracle.queries}
        for query_id, pos_a, _ in pairs:
            query = by_id[query_id]
            assert pos_a is not None
            key = tuple(sources[query.a.stream_id, pos_a].values[a] for a, _ in query.key)
            assert (query_id, key) not in over, "a result came behind a punctuation of its key"
        announced = runner.announced.get(oracle.batch - 1, [])
        assert len(announced) == len(set(announced))
        if exact:
            assert set(announced) == rule.step(oracle, came, limits, set(by_id) - before)
            assert not over & set(announced), "a key was announced twice"
        over |= set(announced)
        move(runner, promised.numbers[number % len(promised.numbers)])
    return runner


def with_policy(plan: Plan, policy: PunctuationPolicy) -> Plan:
    return replace(plan, families=tuple(replace(f, punctuations=policy) for f in plan.families))


POLICIES = (
    PunctuationPolicy(propagate="pull"),
    PunctuationPolicy(1, propagate="matched"),
    PunctuationPolicy(3, every_us=10),
    PunctuationPolicy(every_closings=3),
)


@settings(SETTINGS, max_examples=examples(40, short=5))
@given(promised_cases(family=0), st.sampled_from(POLICIES))
def test_policies_announce_the_same_keys_later(promised: Promised, policy: PunctuationPolicy) -> None:
    promised = unspread(with_announcements(promised))
    pushed = check(promised)
    later = check(promised, exact=False, policy=policy)
    assert later.results == pushed.results
    later.step({}, pulls=[Pull(query.id, 1) for query in promised.case.steps[0].queries or ()])
    first = {one: batch for batch, found in pushed.announced.items() for one in found}
    assert {one for found in later.announced.values() for one in found} == set(first)
    assert all(batch >= first[one] for batch, found in later.announced.items() for one in found)


def a_scene(policy: PunctuationPolicy) -> Scene:
    scene = Scene(query=announcing(a_query(1, 10)))
    scene._plans = [with_policy(plan, policy) for plan in scene._plans]
    return scene


def test_a_key_that_nobody_has_asked_about_does_not_return_as_a_new_one() -> None:
    scene = a_scene(PunctuationPolicy(propagate="pull"))
    scene.batch(a=[(5, 7)], b=[(5, 7), [7]])
    scene.batch(a=[(40, 2)], b=[(40, 1)])
    scene.batch(b=[(41, 7)])
    assert (scene.runner.announced, scene.violating) == ({}, {3})
    scene.runner.step({}, pulls=[Pull(1, 1)])
    assert scene.runner.announced == {3: [(1, (7,))]}
    assert scene.batch(a=[(42, 7)], b=[(43, 7)]) == {(0, 0), (2, 4)}
    assert scene.violating == {3}


def test_a_key_is_finished_by_the_newest_event_time_of_its_rows() -> None:
    scene = a_scene(PunctuationPolicy())
    # The row at 5 comes last.
    scene.batch(a=[(5, 7)], b=[(9, 7), (5, 7), [7]])
    scene.batch(a=[(18, 1)])
    assert scene.runner.announced == {}
    scene.batch(a=[(19, 1)])
    assert scene.runner.announced == {2: [(1, (7,))]}


def test_a_key_is_finished_by_the_watermark_of_the_other_stream() -> None:
    scene = a_scene(PunctuationPolicy())
    scene.batch(a=[(5, 7)], b=[(5, 7), [7]])
    scene.batch(b=[(90, 1)])
    assert scene.runner.announced == {}
    scene.batch(a=[(15, 1)])
    assert scene.runner.announced == {2: [(1, (7,))]}


def test_keys_are_announced_as_often_as_the_policy_says() -> None:
    by_time, by_count, matched = (
        a_scene(policy)
        for policy in (
            PunctuationPolicy(every_us=10),
            PunctuationPolicy(every_closings=3),
            PunctuationPolicy(propagate="matched"),
        )
    )
    for number in range(5):
        for scene in (by_time, by_count, matched):
            # No row of a has the key, so it is finished at once.
            scene.batch(a=[(4 * number, 99)], b=[(4 * number, 98), [number]])
    assert {n: len(found) for n, found in by_time.runner.announced.items()} == {0: 1, 3: 3}
    assert {n: len(found) for n, found in by_count.runner.announced.items()} == {2: 3}
    assert matched.runner.announced == {}


def test_a_purge_policy_says_when_rows_of_closed_keys_leave() -> None:
    keys = range(5)
    held = []
    for policy in (PunctuationPolicy(), PunctuationPolicy(1), PunctuationPolicy(3)):
        scene = a_scene(policy)
        scene.batch(a=[(5, key) for key in range(40)])
        for key in keys:
            scene.batch(b=[[key]])
        held.append(len(scene.held("a")))
    assert held == [40, 35, 37]


@pytest.mark.parametrize("announces", [False, True])
def test_windows_bound_the_memory_of_closed_keys(announces: bool) -> None:
    query = a_query(1, 10)
    scene = Scene(query=announcing(query) if announces else query)
    remembered, manifests, waiting = [], [], []
    for number in range(100):
        # Keys that are not adjacent, so that no interval has several of them.
        scene.batch(a=[(2 * number, 2 * number)], b=[(2 * number, 2 * number), [2 * number]])
        (bucket,) = scene.runner.state
        remembered.append(sum(c.remembered for c in punctuation_counters(bucket.families)))
        store_segments(bucket, SegmentIds("checkpoint", 0, number), lambda *_: None)
        manifests.append(len(encode_manifest(bucket)))
        (joins,) = bucket.families.values()
        waiting.append(0 if joins.waiting is None else sum(map(len, joins.waiting.segments)))
    assert max(remembered) == max(remembered[:20]) <= 6
    assert max(waiting) == max(waiting[:20]) <= 6
    assert max(manifests[50:]) <= 1.1 * max(manifests[:40])
    assert len(scene.held("a")) <= 22


@settings(SETTINGS, max_examples=examples(30, short=5))
@given(promised_cases(family=0), st.sampled_from((1, 2)))
def test_keys_are_announced_in_the_batch_in_which_they_are_finished(promised: Promised, every: int) -> None:
    check(unspread(with_announcements(promised, every)))


@settings(SETTINGS, max_examples=examples(20, short=5))
@given(promised_cases())
def test_keys_of_all_kinds_are_announced(promised: Promised) -> None:
    check(unspread(with_announcements(promised)))


@settings(SETTINGS, max_examples=examples(30, short=5))
@given(promised_cases(activations=True, family=0), st.sampled_from((1, 2)))
def test_queries_come_and_go_while_keys_wait(promised: Promised, every: int) -> None:
    check(unspread(with_announcements(promised, every)))


@settings(SETTINGS, max_examples=examples(20, short=5))
@given(promised_cases(activations=True))
def test_no_result_follows_where_keys_are_spread(promised: Promised) -> None:
    check(with_announcements(promised), exact=False)


@settings(SETTINGS, max_examples=examples(20, short=5))
@given(promised_cases(activations=True), st.sampled_from(get_args(Crash)))
def test_a_batch_that_is_repeated_announces_the_same(promised: Promised, crash: Crash) -> None:
    promised = replace(with_announcements(promised), numbers=(0,))
    case = promised.case
    check(promised, DurableRunner(case.streams, case.buckets, case.slack_us, crash=crash), exact=False)


def test_all_strategies_announce_in_the_same_batch() -> None:
    contract = Punctuations((("k",),))
    streams = {i: replace(a_stream(i, 2), punctuations=contract) for i in (1, 2)}
    queries = (
        announcing(a_query(1, 10)),
        announcing(a_query(2, 30, 5, filter_a='"v" < 5', columns_a=("v",))),
        a_query(3, 400),
    )

    def row(pos: int, ts: int, k: int, v: int = 1) -> Row:
        return Row(pos, ts, {"k": k, "m": "x", "v": v, "w": 0})

    batches = (
        ((1, row(0, 5, 1)), (2, row(0, 6, 1)), (1, row(1, 8, 2, 7)), (2, row(1, 9, 2))),
        ((1, row(2, 0, 1)), (1, row(3, 0, 2))),
        *(((2, row(2 + n, 15 + n, 9)),) for n in range(25)),
    )
    patterns = {(1, 2): ("k",), (1, 3): ("k",)}
    found = []
    for strategy in ALL_STRATEGIES:
        steps = [Step(queries if n == 0 else None, rows, strategy=strategy) for n, rows in enumerate(batches)]
        case = Case(streams, tuple(steps), 2, None, stored=True)
        runner = check(Promised(case, patterns, "each", (0, 3, 2)))
        found.append({batch: sorted(keys) for batch, keys in runner.announced.items()})
    # Key 2 has no row that query 2 may use; the watermark is 2 behind b's newest row.
    assert found[0] == {1: [(2, (2,))], 4: [(1, (1,))], 7: [(1, (2,))], 24: [(2, (1,))]}
    assert all(other == found[0] for other in found)


def dense_case(seed: int) -> Promised:
    """Return two streams of which every fifth row closes a key, under any strategy, cuts and buckets."""
    numbers = random.Random(seed)
    contract = Punctuations((("k",),), remember_us=None)
    streams = {i: replace(a_stream(i, numbers.choice((0, 3))), punctuations=contract) for i in (1, 2)}
    queries = tuple(
        announcing(
            a_query(
                n,
                numbers.choice((4, 9, 14)),
                numbers.choice((4, 9, 30)),
                filter_a=numbers.choice((None, '"v" < 5')),
                filter_b=numbers.choice((None, '"w" = 1')),
            )
        )
        for n in (1, 2, 3)
    )
    patterns: dict[tuple[int, int], tuple[str, ...]] = {}
    positions, clock, steps = {1: 0, 2: 0}, 0, []
    for number in range(12):
        rows = []
        for _ in range(numbers.randrange(1, 14)):
            stream_id = numbers.choice((1, 2))
            pos = positions[stream_id]
            positions[stream_id] = pos + 1
            clock += numbers.choice((0, 0, 1))
            values = {"k": clock // 3 + numbers.randrange(5), "m": "x", "v": pos % 9, "w": pos % 3}
            if numbers.random() < 0.2:
                patterns[stream_id, pos] = ("k",)
            rows.append((stream_id, Row(pos, clock - numbers.randrange(3), values)))
        entering = queries if number == 0 else queries[: 2 + number % 2] if number % 5 == 0 else None
        steps.append(Step(entering, tuple(rows), strategy=numbers.choice(ALL_STRATEGIES)))
    case = Case(
        streams, tuple(steps), numbers.choice((1, 3)), numbers.choice((0, None)), stored=seed % 2 == 0
    )
    return Promised(case, patterns, "each", (0, 0, numbers.choice((1, 2, 3))))


def test_many_keys_are_announced_in_the_batch_in_which_they_are_finished() -> None:
    ways: Counter[str] = Counter()
    for seed in range(10):
        check(dense_case(seed), ways=ways)
    assert min(ways["both"], ways["none"], ways["window"]) > 15
