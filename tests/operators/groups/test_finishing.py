"""Groups without intervals come out once, when punctuations finish their key, and have all pairs of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.control import Heartbeat
from catalog.values.groups.grouping import Aggregate, Grouping
from catalog.values.plan import Plan
from catalog.values.query import Query
from catalog.values.stream import Constraints, Punctuations
from planner.build.build_plan import build_plan
from planner.families.families import SideName, family_id
from tests.builders import a_query, a_stream, grouped_by
from tests.examples import examples
from tests.operators.cases import SETTINGS, Case, Step, plan_versions
from tests.operators.closings.promised import Promised, move, promised_cases, table_of
from tests.operators.durable import Crash, DurableRunner
from tests.operators.groups.test_groups import outputs_of
from tests.operators.harness import Runner
from tests.operators.oracle import NestedLoops, family_of
from tests.operators.queries import Row

TOTAL = Aggregate("sum", 'b."v"', "int")

#: Query and key.
Group = tuple[int, tuple[object, ...]]


def by_key(query: Query) -> Query:
    """Return a query that groups its pairs by their key."""
    columns: set[tuple[SideName, str]] = {("b", "v"), *(("a", a) for a, _ in query.key)}
    return grouped_by(query, Grouping(None, (TOTAL,), None, tuple(sorted(columns))))


def with_groups(case: Case) -> Case:
    steps = [
        replace(
            step,
            queries=None if step.queries is None else tuple(by_key(q) for q in step.queries if q.key),
            between=None if step.between is None else tuple(by_key(q) for q in step.between if q.key),
            spread=Step(None, ()).spread,
        )
        for step in case.steps
    ]
    return replace(case, steps=tuple(steps))


def check(promised: Promised, runner: Runner | None = None) -> list[tuple[Group, int, str]]:
    """Compare groups with the pairs of nested loops since the last group of the same key.

    A value that returns after its promise was forgotten makes a group of its own, in which the rows of a
    stream with a contract are new.

    Args:
        promised: What to run.
        runner: Runs the batches; by default one that is stored if the case says so.
    """
    case, patterns = promised.case, promised.patterns
    runner = runner or Runner(case.streams, case.buckets, case.slack_us, case.stored)
    oracle = NestedLoops(case.streams)
    plans: list[Plan] = []
    rows: dict[tuple[int, int], Row] = {}
    waiting: dict[Group, list[int | None]] = {}
    came_out: list[tuple[Group, int, str]] = []
    came_at: dict[tuple[int, int], int] = {}
    promising = {i for i, stream in case.streams.items() if stream.has_contract}
    for number, step in enumerate(case.steps):
        changes = plan_versions(step, case, plans[-1] if plans else None)
        plans += changes
        flowing = [s.id for s in plans[-1].streams]
        came = step.by_stream(flowing)
        kept = {i: [r for r in given if (i, r.pos) not in patterns] for i, given in came.items()}
        rows |= {(i, r.pos): r for i, arrived in kept.items() for r in arrived}
        came_at |= {(i, r.pos): oracle.batch for i, arrived in kept.items() for r in arrived}
        beats = [b for b in step.heartbeats if b.stream_id in flowing]
        tables = {i: table_of(case.streams[i], given, patterns) for i, given in came.items()}
        outputs = runner.step(tables, changes, beats)
        queries = {q.id: q for q in (step.queries if step.queries is not None else oracle.queries)}
        known = {q.id: q for q in oracle.queries} | queries
        families = {family_id(f[0], f[1], f[2], groups=True): f for f in map(family_of, queries.values())}
        oracle.violating = {
            (families[family], side, pos) for family, side, pos in runner.violating if family in families
        }
        pairs = oracle.step(step.queries, kept, beats)
        # Who leaves has no pairs of this batch.
        left = [group for group in waiting if group[0] not in queries]
        for (query_id, a, b), _ in pairs.items():
            query = queries[query_id]
            assert a is not None
            assert b is not None
            one, other = rows[query.a.stream_id, a], rows[query.b.stream_id, b]
            key = tuple(one.values[name] for name, _ in query.key)
            before = [batch for group, batch, _ in came_out if group == (query_id, key)]
            sides = ((query.a.stream_id, a), (query.b.stream_id, b))
            assert not before or any(i in promising and came_at[i, pos] > before[-1] for i, pos in sides)
            value = other.values["v"]
            assert value is None or isinstance(value, int)
            waiting.setdefault((query_id, key), []).append(value)
        for output in outputs:
            for row in outputs_of(output):
                query = known[row["query"]]
                group = (query.id, tuple(row[f"g_key_{n}"] for n in range(len(query.key))))
                values = waiting.pop(group)
                assert row["g_count_all"] == len(values)
                some = [value for value in values if value is not None]
                assert row[f"g_{TOTAL.name}"] == (sum(some) if some else None)
                assert (row["g_closed_by"] == "leave") == (group in left)
                assert row["g_tumble"] is None
                came_out.append((group, oracle.batch - 1, row["g_closed_by"]))
        assert not any(group in waiting for group in left)
        move(runner, promised.numbers[number % len(promised.numbers)])
    return came_out


@settings(SETTINGS, max_examples=examples(25, short=5))
@given(promised_cases(family=0))
def test_groups_have_all_pairs_of_their_key(promised: Promised) -> None:
    check(replace(promised, case=with_groups(promised.case)))


@settings(SETTINGS, max_examples=examples(25, short=5))
@given(promised_cases(activations=True))
def test_queries_come_and_go_while_keys_are_finished(promised: Promised) -> None:
    check(replace(promised, case=with_groups(promised.case)))


@settings(SETTINGS, max_examples=examples(15, short=5))
@given(promised_cases(activations=True), st.sampled_from(get_args(Crash)))
def test_a_batch_that_is_repeated_gives_and_stores_the_same(promised: Promised, crash: Crash) -> None:
    case = with_groups(promised.case)
    runner = DurableRunner(case.streams, case.buckets, case.slack_us, crash=crash)
    check(replace(promised, case=case, numbers=(0,)), runner)


def scene(
    *batches: tuple[tuple[int, Row], ...], patterns: Mapping[tuple[int, int], tuple[str, ...]], **facts: Any
) -> list[tuple[Group, int, str]]:
    """Run two streams with contracts on ``k``, windows of 10 µs on both."""
    contract = {"punctuations": Punctuations((("k",),)), "constraints": Constraints(), **facts}
    streams = {i: replace(a_stream(i), **contract) for i in (1, 2)}
    query = by_key(a_query(1, 10))
    steps = [Step((query,) if n == 0 else None, rows) for n, rows in enumerate(batches)]
    return check(Promised(Case(streams, tuple(steps), 2, 0, stored=True), patterns, "each", (0,)))


def row(pos: int, ts: int, k: int, v: int = 1) -> Row:
    return Row(pos, ts, {"k": k, "m": "x", "v": v, "w": 0})


def test_a_key_that_both_sides_have_closed_is_finished_at_once() -> None:
    found = scene(
        ((1, row(0, 5, 1)), (2, row(0, 5, 1)), (1, row(1, 5, 2)), (2, row(1, 5, 2))),
        ((1, row(2, 0, 1)),),
        ((2, row(2, 0, 1)),),
        patterns={(1, 2): ("k",), (2, 2): ("k",)},
    )
    assert found == [((1, (1,)), 2, "punctuation")]


def test_a_key_that_one_side_has_closed_is_finished_when_its_rows_have_left_the_window() -> None:
    batches = [
        ((1, row(0, 5, 1)), (2, row(0, 5, 1)), (1, row(1, 20, 7))),
        ((1, row(2, 0, 1)),),
        ((2, row(1, 14, 9)),),
        ((2, row(2, 15, 9)),),
    ]
    assert scene(*batches, patterns={(1, 2): ("k",)}) == [((1, (1,)), 3, "punctuation")]


def test_rows_of_a_unique_stream_close_their_own_key() -> None:
    batches = [((1, row(0, 5, 1)), (2, row(0, 6, 1))), ((2, row(1, 14, 1)),), ((2, row(2, 15, 9)),)]
    found = scene(*batches, patterns={}, constraints=Constraints(("k",)), punctuations=None)
    # Both streams are unique: the second row of b breaks its promise, and the key is finished at once.
    assert found == [((1, (1,)), 0, "punctuation")]


def test_an_updated_query_gives_its_open_groups_and_begins_anew() -> None:
    streams = {i: replace(a_stream(i), punctuations=Punctuations((("k",),))) for i in (1, 2)}
    former = by_key(a_query(1, 10))
    text = replace(by_key(a_query(2, 20)), name=former.name)
    runner = Runner(streams, 2)

    def batch(
        *rows: tuple[int, Row], patterns: Mapping[tuple[int, int], tuple[str, ...]], **facts: Any
    ) -> None:
        came = Step(None, rows).by_stream((1, 2))
        runner.step({i: table_of(streams[i], given, patterns) for i, given in came.items()}, **facts)

    first = build_plan([former], streams)
    batch(
        (1, row(0, 5, 1)), (2, row(0, 5, 1)), (1, row(1, 5, 2)), (2, row(1, 5, 2)), patterns={}, plans=[first]
    )
    closing = {(1, 3): ("k",), (2, 3): ("k",)}
    second = build_plan([text], streams, first)
    # The pair of the new text and both promises come with the update: its group waits for the next batch.
    rows = ((1, row(2, 6, 3)), (2, row(2, 6, 3)), (1, row(3, 0, 3)), (2, row(3, 0, 3)))
    batch(*rows, patterns=closing, plans=[second])
    found = [(g["g_key_0"], g["g_closed_by"], g["g_count_all"]) for g in runner.groups[former.id]]
    assert sorted(found) == [(1, "leave", 1), (2, "leave", 1)]
    assert text.id not in runner.groups
    batch((1, row(4, 7, 9)), patterns={})
    found = [(g["g_key_0"], g["g_closed_by"], g["g_count_all"]) for g in runner.groups[text.id]]
    assert found == [(3, "punctuation", 1)]


def test_heartbeats_finish_keys_too() -> None:
    streams = {1: replace(a_stream(1), punctuations=Punctuations((("k",),))), 2: a_stream(2)}
    query = by_key(a_query(1, 10))
    steps = (
        Step((query,), ((1, row(0, 5, 1)), (2, row(0, 5, 1)), (1, row(1, 0, 1)))),
        Step(None, (), (Heartbeat(2, 15),)),
    )
    assert build_plan([query], streams).families[0].has_groups
    found = check(Promised(Case(streams, steps, 1, 0, stored=False), {(1, 1): ("k",)}, "each", (0,)))
    assert found == [((1, (1,)), 1, "punctuation")]
