"""Punctuations change no result, whatever the batches, buckets and plans: they only shrink the state."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.arrow_types import PUNCTUATION_COLUMN
from catalog.values.batch import StreamPunctuations
from catalog.values.plan import Heartbeat, Plan, PurgePrices
from catalog.values.query import UNBOUNDED_US, Query
from catalog.values.stream import Constraints, Punctuations, Stream
from operators.bucket.bucket_state import SegmentIds, encode_manifest, store_segments
from operators.bucket.counters import punctuation_counters, slice_counters
from operators.bucket.rehash import rehashed
from operators.closings import closed_keys
from operators.closings.closing_rows import ends, matching
from operators.errors import PromiseBroken
from operators.segments.layout import SideLayout
from operators.segments.row_codec import KEY, POS, TS
from operators.segments.segment import COLUMN, Segment
from planner.build.build_plan import build_plan
from planner.families.families import family_id
from service.inputs.sources.promises import promises_of
from tests.builders import a_query, a_stream
from tests.examples import examples
from tests.operators.cases import SETTINGS, SPREADS, Case, cases, check_values, plan_versions
from tests.operators.harness import Runner
from tests.operators.oracle import Family, NestedLoops, Result, family_of, passes, side_of
from tests.operators.queries import Row, a_table

#: Sets of columns that a punctuation may fix; some are keys of families, some are not.
ON = (("k",), ("m",), ("k", "m"), ("w",), ("v",))

#: Columns that a punctuation fixes, by stream and position.
Patterns = Mapping[tuple[int, int], tuple[str, ...]]


@dataclass(frozen=True)
class Promised:
    """Case in which some rows are punctuations.

    Attributes:
        case: The case, its streams with contracts.
        patterns: Rows that are punctuations, with the columns that they fix.
        eager: True if stored rows are searched after each batch.
        numbers: Number of buckets after each batch in turn; 0 for no change.
    """

    case: Case
    patterns: Patterns
    eager: bool
    numbers: tuple[int, ...]


@st.composite
def promised_cases(
    draw: st.DrawFn, *, activations: bool = False, family: int | None = None, absence: bool = False
) -> Promised:
    case = draw(cases(activations=activations, family=family, max_rows=90, absence=absence))
    remember_us = draw(st.sampled_from((0, 0, 0, 20, None)))
    unique = draw(st.sampled_from(((), (), ("k",), ("m",), ("k", "m"))))
    clustered = draw(st.sampled_from(((), (), (), ("k",), ("m",), ("k", "m"))))
    ordered = draw(st.sampled_from(((), (), (("k", 0),), (("k", 2), ("w", 1)))))
    with_contract = draw(st.sets(st.sampled_from((1, 2, 3)), min_size=1))
    streams = {
        i: replace(
            s,
            punctuations=Punctuations(ON, remember_us=remember_us),
            constraints=Constraints(unique, clustered, ordered) if draw(st.booleans()) else Constraints(),
        )
        if i in with_contract
        else s
        for i, s in case.streams.items()
    }
    seed = draw(st.integers(0, 2**30))
    every = draw(st.sampled_from((3, 5, 9)))
    patterns: dict[tuple[int, int], tuple[str, ...]] = {}
    for step in case.steps:
        for stream_id, row in step.rows:
            code = hash((seed, stream_id, row.pos)) % 1009
            if stream_id in with_contract and code % every == 0:
                # Mostly the key that most families have.
                patterns[stream_id, row.pos] = ON[max(0, code // every % 8 - 3)]
    # Keys of families with contracts do not spread over more buckets.
    spread = draw(st.sampled_from(SPREADS))
    case = replace(case, steps=tuple(replace(step, spread=spread) for step in case.steps))
    moves = draw(st.sampled_from(((0,), (0,), (0, 1, 0, 3, 2))))
    return Promised(replace(case, streams=streams), patterns, draw(st.booleans()), moves)


def table_of(stream: Stream, rows: Sequence[Row], patterns: Patterns) -> pa.Table:
    """Return rows and punctuations as they are read; columns that a punctuation does not fix are NULL."""
    fixed = [patterns.get((stream.id, row.pos)) for row in rows]
    bare = [
        row if on is None else replace(row, values={n: v if n in on else None for n, v in row.values.items()})
        for row, on in zip(rows, fixed, strict=True)
    ]
    table = a_table(stream, bare)
    if stream.punctuations is None:
        return table
    times = [None if on is not None else row.ts for row, on in zip(rows, fixed, strict=True)]
    place = table.column_names.index(stream.event_time)
    table = table.set_column(place, stream.event_time, pa.array(times, pa.int64()).cast(pa.timestamp("us")))
    marks = [None if on is None else json.dumps(on) for on in fixed]
    return table.append_column(PUNCTUATION_COLUMN, pa.array(marks, pa.string()))


def check_promised(promised: Promised, *, exactly: bool = False) -> Runner:
    """Compare a case with nested loops over the rows that are neither late nor recorded as violating."""
    case, patterns = promised.case, promised.patterns
    runner = Runner(case.streams, case.buckets, case.slack_us, case.stored)
    oracle = NestedLoops(case.streams)
    judge = Judge(case.streams, patterns)
    plans: list[Plan] = []
    sources: dict[tuple[int, int], Row] = {}
    expected: Counter[Result] = Counter()
    for number, step in enumerate(case.steps):
        changes = plan_versions(step, case, plans[-1] if plans else None)
        plans += changes
        flowing = [s.id for s in plans[-1].streams]
        staying = set.intersection(*({f.id for f in plan.families} for plan in changes or plans[-1:]))
        before = {place: closed for place, closed in remembered(runner).items() if place[0] in staying}
        came = step.by_stream(flowing)
        rows = {i: [r for r in given if (i, r.pos) not in patterns] for i, given in came.items()}
        sources |= {(i, r.pos): r for i, arrived in rows.items() for r in arrived}
        beats = [b for b in step.heartbeats if b.stream_id in flowing]
        tables = {i: table_of(case.streams[i], given, patterns) for i, given in came.items()}
        limits = {i: oracle.watermark(i) for i in came}
        outputs = runner.step(tables, changes, beats)
        queries = step.queries if step.queries is not None else oracle.queries
        families = {family_id(f[0], f[1], f[2], absence=f[3]): f for f in map(family_of, queries)}
        oracle.violating = {
            (families[family], side, pos) for family, side, pos in runner.violating if family in families
        }
        judge.step(families.values(), came, limits)
        assert oracle.violating <= judge.may_violate
        if exactly:
            # Rows that no query wants need not come to the bucket.
            wanted = {
                (family, side, pos)
                for family, side, pos in judge.may_violate
                for query in queries
                if family_of(query) == family
                and passes(side_of(query, side), sources[side_of(query, side).stream_id, pos])
            }
            assert wanted <= oracle.violating
        oracle.closed = closed_by(judge, (before, remembered(runner)))
        expected += oracle.step(step.queries, rows, beats)
        where = f"batch {oracle.batch - 1}"
        if runner.results != expected:
            missing, surplus = expected - runner.results, runner.results - expected
            raise AssertionError(f"{where}: missing {dict(missing)}, surplus {dict(surplus)}")
        late = {i: positions for i, positions in oracle.late.items() if positions}
        assert {i: positions for i, positions in runner.late.items() if positions} == late, where
        for output in outputs:
            check_values(output, plans[-1], oracle, sources)
        move(runner, promised.numbers[number % len(promised.numbers)])
    return runner


#: Remembered closings per family id and side: intervals of exact keys, or keys by value.
Remembered = Mapping[tuple[str, str], tuple[list[tuple[int, int]], set[tuple[object, ...]]]]


def remembered(runner: Runner) -> Remembered:
    """Return the closings that the buckets remember."""
    found: dict[tuple[str, str], tuple[list[tuple[int, int]], set[tuple[object, ...]]]] = {}
    for bucket in runner.state:
        for family, joins in bucket.families.items():
            for side, closed in joins.closed.items():
                intervals, keys = found.setdefault((family, side), ([], set()))
                closings = closed.all_remembered()
                if closings is None:
                    continue
                if closed.layout.exact:
                    intervals += zip(closings.column(KEY).to_pylist(), ends(closings).tolist(), strict=True)
                else:
                    names = [name for name in closings.schema.names if name.startswith(COLUMN)]
                    keys |= {tuple(row.values()) for row in closings.select(names).to_pylist()}
    return found


def closed_by(judge: Judge, known: Sequence[Remembered]) -> Callable[[Family, str, tuple[object, ...]], bool]:
    """Return whether the buckets remember that a side has closed a key; it must have done so."""

    def closed(family: Family, side: str, key: tuple[object, ...]) -> bool:
        place = (family_id(family[0], family[1], family[2], absence=family[3]), side)
        for intervals, keys in (each[place] for each in known if place in each):
            (number, *_) = key
            within = isinstance(number, int) and any(low <= number <= high for low, high in intervals)
            if within or key in keys:
                assert judge.has_closed(family, side, key)
                return True
        return False

    return closed


class Judge:
    """Return the rows that break a promise if nothing is ever forgotten, given rows and punctuations."""

    def __init__(self, streams: Mapping[int, Stream], patterns: Patterns) -> None:
        self._streams = streams
        self._patterns = patterns
        self._closed: set[tuple[Family, str, tuple[object, ...]]] = set()
        self._greatest: dict[tuple[Family, str], int] = {}
        self._last: dict[tuple[Family, str], tuple[object, ...]] = {}
        self.may_violate: set[tuple[Family, str, int]] = set()

    def has_closed(self, family: Family, side: str, key: tuple[object, ...]) -> bool:
        """Return whether a side of a family has closed a key so far."""
        number = 0 if side == "a" else 1
        slack = self._streams[family[number]].constraints.slack(frozenset(pair[number] for pair in family[2]))
        greatest = self._greatest.get((family, side))
        passed = slack is not None and greatest is not None and isinstance(key[0], int)
        return (family, side, key) in self._closed or (passed and key[0] < greatest - slack)  # type: ignore[operator]

    def step(
        self,
        families: Iterable[Family],
        came: Mapping[int, Sequence[Row]],
        limits: Mapping[int, int | None],
    ) -> None:
        for family in families:
            for side, number in (("a", 0), ("b", 1)):
                stream_id = family[number]
                key = [pair[number] for pair in family[2]]
                limit = limits.get(stream_id)
                rules, place = self._streams[stream_id].constraints, (family, side)
                slack = rules.slack(frozenset(key))
                for row in came.get(stream_id, ()):
                    on = self._patterns.get((stream_id, row.pos))
                    values = tuple(row.ts if c == "ts" else row.values[c] for c in key)
                    if on is None and set(rules.clustered) == set(key):
                        before = self._last.get(place, values)
                        if before != values and None not in before:
                            self._closed.add((*place, before))
                        self._last[place] = values
                    if on is None and limit is not None and row.ts < limit:
                        continue
                    number = values[0] if slack is not None and on is None else None
                    behind = slack is not None and place in self._greatest and isinstance(number, int)
                    if behind and number < self._greatest[place] - slack:  # type: ignore[operator]
                        self.may_violate.add((family, side, row.pos))
                    if isinstance(number, int) and slack is not None:
                        self._greatest[place] = max(number, self._greatest.get(place, number))
                    if on is None and (family, side, values) in self._closed:
                        self.may_violate.add((family, side, row.pos))
                    unique = set(self._streams[stream_id].constraints.unique)
                    closes = unique and unique <= set(key) if on is None else set(on) == set(key)
                    if closes and None not in values:
                        self._closed.add((family, side, values))


def move(runner: Runner, buckets: int) -> None:
    """Hash the state into another number of buckets; 0 for no change."""
    if not buckets:
        return
    runner.state = [rehashed(runner.state, number, buckets) for number in range(buckets)]
    runner.buckets, runner.segments = buckets, [{} for _ in range(buckets)]
    if runner.stored:
        runner.batch -= 1  # the batch that is over names the segments
        runner.state = [runner._reloaded(number, bucket) for number, bucket in enumerate(runner.state)]
        runner.batch += 1


def run(promised: Promised, *, exactly: bool = False) -> Runner:
    """Check a case whose stored rows are searched after each closing, or after as many as there are rows."""

    def closings(prices: PurgePrices, rows: int, *counts: float) -> float:
        return 1 if promised.eager else max(1, rows)

    with patch.object(closed_keys, "closings_until_search", closings):
        return check_promised(promised, exactly=exactly)


@settings(SETTINGS, max_examples=examples(120, short=15))
@given(promised_cases())
def test_results_are_those_of_nested_loops_over_rows_that_keep_promises(promised: Promised) -> None:
    run(promised)


@settings(SETTINGS, max_examples=examples(120, short=15))
@given(promised_cases(activations=True, family=0))
def test_queries_come_and_go_while_closings_are_remembered(promised: Promised) -> None:
    run(promised)


@settings(SETTINGS, max_examples=examples(80, short=10))
@given(promised_cases(activations=True))
def test_families_of_several_keys_use_the_punctuations_that_fix_theirs(promised: Promised) -> None:
    run(promised)


@settings(SETTINGS, max_examples=examples(120, short=30))
@given(promised_cases(activations=True, absence=True, family=0))
def test_rows_without_a_partner_are_decided_when_the_other_side_closes_their_key(promised: Promised) -> None:
    run(promised)


@settings(SETTINGS, max_examples=examples(60, short=15))
@given(promised_cases(activations=True, absence=True))
def test_absence_in_families_of_several_keys_is_decided_by_the_punctuations_of_theirs(
    promised: Promised,
) -> None:
    run(promised)


@settings(SETTINGS, max_examples=examples(40, short=5))
@given(promised_cases(), st.sampled_from((1, 2, 3, 8)))
def test_the_number_of_buckets_changes_no_verdict(promised: Promised, buckets: int) -> None:
    promised = replace(promised, numbers=(0,))
    one = run(promised)
    other = run(replace(promised, case=replace(promised.case, buckets=buckets)))
    assert one.violating == other.violating


# Each test below isolates one rule. Stream 1 is side a, stream 2 side b; both windows are 10 µs.


class Scene:
    """Two streams joined on ``k``; stream 2 has a contract."""

    def __init__(
        self,
        contract: Punctuations | None = Punctuations((("k",),)),  # noqa: B008  # it is frozen
        unique: tuple[str, ...] = (),
        *,
        buckets: int = 1,
        window_b_us: int = 10,
        lateness_us: int = 0,
        query: Query | None = None,
    ) -> None:
        promising = replace(a_stream(2, lateness_us), punctuations=contract, constraints=Constraints(unique))
        self.streams = {1: a_stream(1, lateness_us), 2: promising}
        self.runner = Runner(self.streams, buckets)
        queries = (a_query(1, 10, window_b_us) if query is None else query,)
        self._plans = [build_plan(queries, self.streams)]
        self._positions = dict.fromkeys(self.streams, 0)

    def batch(self, a: Sequence[object] = (), b: Sequence[object] = ()) -> set[tuple[int, int | None]]:
        """Feed (time, key) for a row, a key in brackets for a punctuation; return the results so far."""
        tables = {}
        for stream_id, items in ((1, a), (2, b)):
            rows, patterns = [], {}
            for item in items:
                pos, self._positions[stream_id] = self._positions[stream_id], self._positions[stream_id] + 1
                ts, key = item if isinstance(item, tuple) else (0, item[0])  # type: ignore[index]
                if isinstance(item, list):
                    patterns[stream_id, pos] = ("k",)
                rows.append(Row(pos, ts, {"k": key, "m": "x", "v": 1, "w": 1}))
            if rows:
                tables[stream_id] = table_of(self.streams[stream_id], rows, patterns)
        plans, self._plans = self._plans, []
        self.runner.step(tables, plans)
        return {(pos_a, pos_b) for _, pos_a, pos_b in self.runner.results if pos_a is not None}

    def replan(self, *queries: Query) -> None:
        """Change the queries from the next batch on."""
        self._plans = [build_plan(queries, self.streams, self.runner.plan)]

    @property
    def violating(self) -> set[int]:
        return {pos for _, side, pos in self.runner.violating if side == "b"}

    def held(self, side: str) -> set[int]:
        (family,) = self.runner.plan.families if self.runner.plan is not None else ()
        return set().union(*self.runner.state_rows(family.id, side))


def test_a_row_behind_a_punctuation_of_its_batch_breaks_the_promise_and_one_before_it_does_not() -> None:
    scene = Scene()
    assert scene.batch(a=[(5, 7)], b=[(4, 7), [7], (5, 7), (5, 8)]) == {(0, 0)}
    assert scene.violating == {2}


def test_rows_of_the_other_side_meet_all_rows_of_the_batch_that_closes_their_key() -> None:
    scene = Scene()
    assert scene.batch(a=[(5, 7)], b=[(4, 7), [7]]) == {(0, 0)}
    # The next row probes and is not stored.
    assert scene.batch(a=[(6, 7), (6, 8)]) == {(0, 0), (1, 0)}
    assert 2 in scene.held("a")
    assert 1 not in scene.held("a")


def test_a_closing_is_forgotten_by_the_watermark_of_its_own_stream_alone() -> None:
    scene = Scene(lateness_us=3)
    scene.batch(a=[(5, 7)], b=[(5, 7), [7]])
    # a's watermark passes far beyond; rows of b may still be in the window of a row of a.
    scene.batch(a=[(500, 9)])
    scene.batch(b=[(5, 7)])
    assert scene.violating == {2}


def test_a_value_that_returns_once_no_window_reaches_back_is_new() -> None:
    scene = Scene()
    scene.batch(a=[(5, 7)], b=[(5, 7), [7]])
    scene.batch(b=[(14, 1)])
    scene.batch(b=[(14, 7)])
    assert scene.violating == {3}
    scene.batch(b=[(15, 1)])
    assert scene.batch(a=[(16, 7)], b=[(15, 7)]) == {(0, 0), (1, 5)}
    assert scene.violating == {3}


def test_a_row_that_does_not_rest_has_its_closing_remembered_for_its_own_window() -> None:
    scene = Scene()
    scene.batch(a=[(5, 7)], b=[(5, 7), [7]])
    scene.batch(a=[(12, 7)])
    scene.batch(b=[(18, 1)])
    assert scene.batch(b=[(18, 7)]) == {(0, 0), (1, 0)}
    assert scene.violating == {3}


def test_promises_are_kept_as_long_as_the_contract_says() -> None:
    long, forever = (
        Scene(Punctuations((("k",),), remember_us=100)),
        Scene(Punctuations((("k",),), remember_us=None)),
    )
    for scene in (long, forever):
        scene.batch(b=[(5, 7), [7]])
        scene.batch(b=[(104, 1)])
        scene.batch(b=[(104, 7), (105, 1)])
        scene.batch(b=[(105, 7)])
    assert long.violating == {3}
    assert forever.violating == {3, 5}


def test_a_promise_from_before_the_first_row_counts_from_its_time_on() -> None:
    scene = Scene(Punctuations((("k",),), remember_us=100))
    scene.batch(b=[[7]])
    scene.batch(a=[(500, 1)])
    scene.batch(b=[(520, 1)])
    scene.batch(b=[(599, 7), (600, 1)])
    scene.batch(b=[(600, 7)])
    assert scene.violating == {2}


def test_a_reset_watermark_makes_no_promise_shorter() -> None:
    scene = Scene(lateness_us=100)
    scene.batch(a=[(5, 7), (1000, 7)])
    scene.runner.step({}, heartbeats=[Heartbeat(1, None)])
    scene.batch(a=[(20, 1)], b=[(20, 7), [7]])
    # The row at 1000 was dropped, and rows of b that would have matched it may still come.
    scene.batch(b=[(1005, 1)])
    assert scene.batch(b=[(1005, 7)]) == set()
    assert scene.violating == {3}


def test_promises_of_control_records_stand_behind_all_rows_of_their_batch() -> None:
    scene = Scene(buckets=3)
    scene.batch(a=[(5, 7)], b=[(4, 7)])
    rows = pa.table({"k": pa.array([7, 8], pa.int64())})
    promises = promises_of(scene.streams[2], ("k",), rows)
    table = a_table(scene.streams[2], [Row(9, 6, {"k": 7, "m": "x", "v": 1, "w": 1})])
    outputs = scene.runner.step({2: table}, promises=[promises, promises_of(scene.streams[1], ("k",), rows)])
    received = sorted((r for output in outputs for r in output.received), key=lambda r: r.stream_id)
    assert received == [StreamPunctuations(1, 2, 2), StreamPunctuations(2, 2, 0)]
    assert scene.violating == set()
    assert scene.batch(b=[(6, 7), (6, 9)]) == {(0, 0), (0, 9)}
    assert scene.violating == {1}
    # A batch with only control records also goes to the buckets of the keys.
    scene.runner.step({}, promises=[promises_of(scene.streams[2], ("k",), pa.table({"k": [9]}))])
    assert sum(c.closed for b in scene.runner.state for c in punctuation_counters(b.families)) == 1
    scene.batch(b=[(6, 9)])
    assert scene.violating == {1, 3}


def test_a_closing_is_remembered_by_the_newest_row_of_the_other_stream() -> None:
    scene = Scene(lateness_us=100)
    # The row at 50 is dropped; b's own rows are far behind it.
    scene.batch(a=[(50, 7)], b=[(5, 1), [7]])
    scene.batch(b=[(120, 1)])
    assert scene.batch(b=[(55, 7)]) == set()
    assert scene.violating == {3}


@pytest.mark.parametrize(("window_b_us", "at_us"), [(1, 14), (90, 15)])
def test_a_closing_is_remembered_for_the_window_on_the_other_side(window_b_us: int, at_us: int) -> None:
    scene = Scene(window_b_us=window_b_us)
    scene.batch(a=[(5, 7)], b=[(5, 7), [7]])
    scene.batch(b=[(at_us, 1)])
    scene.batch(b=[(at_us, 7)])
    assert scene.violating == ({3} if at_us < 15 else set())


def test_closed_keys_are_remembered_through_changes_of_plan_and_other_numbers_of_buckets() -> None:
    scene = Scene()
    scene.batch(
        a=[(5, key) for key in range(9)], b=[*((5, key) for key in range(9)), *([n] for n in range(9))]
    )
    scene.replan(a_query(1, 10), a_query(2, 20, columns_a=("v",)))
    scene.batch(b=[(6, 1)])
    for buckets in (3, 2):
        scene.runner.state = [rehashed(scene.runner.state, n, buckets) for n in range(buckets)]
        scene.runner.buckets, scene.runner.segments = buckets, [{} for _ in range(buckets)]
    scene.batch(b=[(6, key) for key in range(9)])
    assert scene.violating == set(range(18, 28))


def test_a_row_that_does_not_rest_is_covered_when_windows_become_bounded() -> None:
    scene = Scene(query=a_query(1, UNBOUNDED_US, 10))
    scene.batch(a=[(5, 7)], b=[(5, 7), [7]])
    scene.batch(a=[(50, 7)])
    scene.replan(a_query(2, 10))
    scene.batch(b=[(55, 1)])
    scene.batch(b=[(56, 7)])
    assert scene.violating == {3}
    # From 60 on no row of b that is not late can match the row of a that was not stored.
    scene.batch(b=[(60, 1)])
    scene.batch(b=[(61, 7)])
    assert scene.violating == {3}


def test_each_row_of_a_unique_stream_closes_its_key_unless_it_is_late() -> None:
    scene = Scene(None, ("k",))
    scene.batch(a=[(20, 7)], b=[(20, 1), (21, 7)])
    scene.batch(b=[(22, 7), (3, 5)])
    assert scene.violating == {2}
    assert scene.batch(a=[(23, 5)], b=[(22, 5)]) == {(0, 1), (1, 4)}
    assert scene.violating == {2}


def test_rows_at_rest_whose_key_is_closed_leave_the_state() -> None:
    scene = Scene()
    keys = range(40)
    scene.batch(a=[(5, key) for key in keys])
    scene.batch(b=[[key] for key in keys if key % 2])
    assert scene.held("a") == {key for key in keys if key % 2 == 0}


def test_each_slice_counts_its_rows_of_closed_keys() -> None:
    scene = Scene()
    scene.replan(a_query(1, 10), a_query(2, 100))
    scene.batch(a=[(5, key) for key in range(40)])
    # The first slice ends at 10; most rows of the second one are dead and leave, those of the first one stay.
    scene.batch(a=[(30, key) for key in range(40, 80)], b=[(25, 99)])
    scene.batch(b=[*([key] for key in range(30)), *([key] for key in range(40, 45))])
    scene.batch(a=[(31, 1), (31, 200)])
    counters = [
        counters
        for bucket in scene.runner.state
        for counters in slice_counters(bucket.families, bucket.clocks)
        if counters.side == "a"
    ]
    assert [(c.slice, c.lying, c.discarded, c.dead) for c in counters] == [(1, 41, 1, 5), (2, 10, 0, 0)]
    done = {name[3]: deeds["closed"] for name, deeds in scene.runner.done.items() if name[2] == "a"}
    assert done == {1: 0, 2: 30}


def test_a_contract_can_say_to_stop() -> None:
    scene = Scene(Punctuations((("k",),), violation="stop"))
    scene.batch(b=[(5, 7), [7]])
    with pytest.raises(PromiseBroken, match=r'a row of stream "B" breaks a promise: k = 7 was closed'):
        scene.batch(b=[(6, 7)])


def test_equal_hashes_are_not_taken_for_equal_keys() -> None:
    layout = SideLayout({"m": "string"}, "ts", ("m",), ("string",), ("m",), None)
    rows = pa.RecordBatch.from_pydict(
        {KEY: [9, 9], TS: [1, 2], POS: [1, 2], COLUMN + "m": ["x", "y"]},
        pa.schema({KEY: pa.int64(), TS: pa.int64(), POS: pa.int64(), COLUMN + "m": pa.string()}),
    )
    closings = pa.RecordBatch.from_arrays(
        [pa.array([9]), pa.array([0]), pa.array([0]), pa.array(["y"])], names=[KEY, TS, POS, COLUMN + "0"]
    )
    assert matching(Segment(rows, 1, ()), layout, closings).tolist() == [False, True]


def test_families_without_contracts_store_what_they_always_did() -> None:
    plain = Scene(None)
    plain.batch(a=[(5, 7)], b=[(5, 7)])
    (bucket,) = plain.runner.state
    store_segments(bucket, SegmentIds("c", 0, 0), lambda *_: None)
    document = json.loads(encode_manifest(bucket))
    assert document["format"] == 5
    assert "closed" not in document


def test_a_row_without_a_partner_is_decided_by_the_closing_of_its_key() -> None:
    scene = Scene(query=a_query(1, 10, kind="outer", preserved=("a",)))
    assert scene.batch(a=[(5, 7), (5, 8)], b=[(5, 7)]) == {(0, 0)}
    # The row of 8 is decided, and so are rows that come later; the one of 9 waits until 15.
    assert scene.batch(b=[[8]]) == {(0, 0), (1, None)}
    assert scene.batch(a=[(6, 8), (5, 9)]) == {(0, 0), (1, None), (2, None)}
    assert scene.batch(b=[(15, 1)]) == {(0, 0), (1, None), (2, None), (3, None)}
    assert scene.batch(b=[(90, 1)]) == {(0, 0), (1, None), (2, None), (3, None)}
    assert set(scene.runner.results.values()) == {1}


def test_a_row_that_the_other_side_closed_before_its_first_row_is_decided() -> None:
    scene = Scene(query=a_query(1, 10, kind="anti", preserved=("a",)))
    assert scene.batch(b=[[7]]) == set()
    assert scene.batch(a=[(5, 7), (5, 8)]) == {(0, None)}


def test_a_contract_that_ends_makes_no_row_a_result_twice() -> None:
    query = a_query(1, 10, kind="anti", preserved=("a",))
    scene = Scene(query=query)
    assert scene.batch(a=[(5, 7), (5, 8)], b=[(4, 1), [7]]) == {(0, None)}
    assert scene.held("a") == {0, 1}
    scene.streams[2] = replace(scene.streams[2], punctuations=None)
    scene.replan(query)
    assert scene.batch(b=[(40, 1)]) == {(0, None), (1, None)}
    assert set(scene.runner.results.values()) == {1}


def test_an_unbounded_outer_join_keeps_nothing_of_closed_keys() -> None:
    keys = range(40)
    scene = Scene(query=a_query(1, UNBOUNDED_US, 1, kind="outer", preserved=("a",)))
    scene.batch(a=[(5, key) for key in keys], b=[(5, key) for key in keys if key % 2])
    scene.batch(b=[[key] for key in keys])
    scene.batch(a=[(6, key) for key in keys])
    found = scene.batch(b=[(9, 41), *([key] for key in range(100, 140))])
    assert sum(pos_b is None for _, pos_b in found) == 60
    assert scene.held("a") == set()
    (joins,) = scene.runner.state[0].families.values()
    assert joins.absence is not None
    assert joins.absence.marks["a"].segments == []


@settings(SETTINGS, max_examples=examples(25, short=5))
@given(promised_cases(family=0))
def test_every_row_that_breaks_a_promise_is_dropped_if_nothing_is_forgotten(promised: Promised) -> None:
    streams = {
        i: s if not s.has_contract else replace(s, punctuations=Punctuations(ON, remember_us=None))
        for i, s in promised.case.streams.items()
    }
    run(replace(promised, case=replace(promised.case, streams=streams)), exactly=True)
