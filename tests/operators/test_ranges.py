"""A range closes the same keys as the list of its values, and whole numbers are remembered as intervals."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.columns.arrow_types import PUNCTUATION_COLUMN
from catalog.values.plan import Plan
from catalog.values.stream import Punctuations, Stream
from operators.closings.closing_rows import TO, as_stored, collapsed, ends, folded
from operators.segments.encoding.row_codec import KEY, POS, TS
from planner.build.build_plan import build_plan
from service.inputs.sources.posted.promises import posted_promises
from tests.builders import a_query, a_stream
from tests.examples import examples
from tests.operators.cases import SETTINGS, plan_versions
from tests.operators.closings.promised import Patterns, Promised, move, promised_cases, table_of
from tests.operators.closings.scenes import Scene
from tests.operators.harness import Runner
from tests.operators.queries import Row
from tests.operators.test_result_punctuations import announcing, with_announcements

#: Keys of the streams lie in between.
LEAST, GREATEST = -20, 20


def as_range(stream: Stream, rows: list[Row], patterns: Patterns, *, listed: bool, endless: bool) -> pa.Table:
    """Return rows and punctuations; those of ``k`` close a range, or each of its values at their position."""
    parts = []
    for row in rows:
        table = table_of(stream, [row], patterns)
        first = row.values["k"]
        if patterns.get((stream.id, row.pos)) != ("k",) or not isinstance(first, int) or row.pos % 3 == 0:
            parts.append(table)
            continue
        begin, below = first, first + row.pos % 4 + 1
        if row.pos % 5 == 0:
            below = GREATEST
        if row.pos % 7 == 0:
            begin = LEAST
        numbers = list(range(begin, below)) if listed else [None if begin == LEAST and endless else begin]
        end = "" if below == GREATEST and endless else str(below)
        mark = '["k"]' if listed else f'["k"]<{end}'
        closing = pa.concat_tables([table] * len(numbers))
        place = closing.column_names.index("k")
        closing = closing.set_column(place, "k", pa.array(numbers, pa.int64()))
        place = closing.column_names.index(PUNCTUATION_COLUMN)
        parts.append(
            closing.set_column(place, PUNCTUATION_COLUMN, pa.array([mark] * len(numbers), pa.string()))
        )
    return pa.concat_tables(parts).combine_chunks()


def compare(promised: Promised, *, endless: bool) -> None:
    """Run a case with ranges and with lists, and compare everything that comes out of each batch."""
    case, patterns = promised.case, promised.patterns
    runners = [Runner(case.streams, case.buckets, case.slack_us, case.stored) for _ in range(2)]
    plans: list[Plan] = []
    for number, step in enumerate(case.steps):
        changes = plan_versions(step, case, plans[-1] if plans else None)
        plans += changes
        flowing = [s.id for s in plans[-1].streams]
        came = step.by_stream(flowing)
        beats = [b for b in step.heartbeats if b.stream_id in flowing]
        for runner, listed in zip(runners, (False, True), strict=True):
            tables = {
                i: as_range(case.streams[i], given, patterns, listed=listed, endless=endless)
                for i, given in came.items()
            }
            runner.step(tables, changes, beats)
            move(runner, promised.numbers[number % len(promised.numbers)])
        one, other = runners
        assert one.results == other.results
        assert one.violating == other.violating
        if not endless:
            announced = [sorted(runner.announced.get(number, ())) for runner in runners]  # type: ignore[type-var]
            assert announced[0] == announced[1]


@settings(SETTINGS, max_examples=examples(30, short=5))
@given(promised_cases(activations=True, family=0))
def test_a_range_closes_what_the_list_of_its_values_closes(promised: Promised) -> None:
    compare(promised, endless=True)


@settings(SETTINGS, max_examples=examples(20, short=5))
@given(promised_cases(family=0))
def test_ranges_finish_their_keys(promised: Promised) -> None:
    steps = tuple(replace(step, spread=type(step)(None, ()).spread) for step in promised.case.steps)
    promised = replace(promised, case=replace(promised.case, steps=steps))
    compare(with_announcements(promised), endless=False)


@given(
    st.lists(
        st.tuples(st.integers(-9, 9), st.integers(0, 6), st.integers(0, 3), st.integers(0, 9)), min_size=1
    )
)
def test_intervals_are_disjoint_and_keep_first_position_and_latest_time(
    drawn: list[tuple[int, int, int, int]],
) -> None:
    rows = [(low, low + length, ts, pos) for low, length, ts, pos in drawn]
    low, high, ts, pos = (pa.array(values, pa.int64()) for values in zip(*rows, strict=True))
    found = folded([pa.RecordBatch.from_arrays([low, ts, pos, high], names=[KEY, TS, POS, TO])])
    keys, to = found.column(KEY).to_numpy(), ends(found)
    assert (keys[1:] > to[:-1]).all()
    told = {
        key: (int(found.column(TS)[n].as_py()), int(found.column(POS)[n].as_py()))
        for n in range(found.num_rows)
        for key in range(keys[n], to[n] + 1)
    }
    wanted: dict[int, tuple[int, int]] = {}
    for one, last, time, place in rows:
        for key in range(one, last + 1):
            before = wanted.get(key, (time, place))
            wanted[key] = max(time, before[0]), min(place, before[1])
    assert told == wanted
    for whenever in (False, True):
        fewer = collapsed(found, whenever=whenever)
        fewer = as_stored(fewer)
        keys, to = fewer.column(KEY).to_numpy(), ends(fewer)
        assert (TO in fewer.schema.names) == bool((keys != to).any())
        assert {key for n in range(fewer.num_rows) for key in range(keys[n], to[n] + 1)} == set(wanted)
        if whenever:
            assert (keys[1:] > to[:-1] + 1).all()


def test_whole_numbers_that_are_closed_in_order_take_one_row() -> None:
    scene = Scene(Punctuations((("k",),), remember_us=None))
    keys = list(range(300))
    random.Random(3).shuffle(keys)
    for start in range(0, 300, 30):
        scene.batch(a=[(5, 500)], b=[[key] for key in keys[start : start + 30]])
    (closed,) = (joins.closed["b"] for joins in scene.runner.state[0].families.values())
    closed.rehash(closed.segments)
    assert [(int(s.key[0]), int(ends(s.rows)[0]), len(s)) for s in closed.segments] == [(0, 299, 1)]
    scene.batch(b=[(6, 299), (6, 300), (6, -1)])
    assert scene.violating == {300}


@pytest.mark.parametrize(("below", "closed"), [(None, {7, 8, 400}), (8, {7}), (9, {7, 8})])
def test_a_range_of_a_control_record_stands_behind_the_rows_of_its_batch(
    below: int | None, closed: set[int]
) -> None:
    streams = {1: a_stream(1), 2: replace(a_stream(2), punctuations=Punctuations((("k",),)))}
    runner = Runner(streams, 3)
    bounds = {"from": 7} if below is None else {"from": 7, "below": below}
    promises = posted_promises(streams[2], [{PUNCTUATION_COLUMN: {"k": bounds}}])

    def rows(first: int) -> pa.Table:
        return table_of(
            streams[2],
            [Row(first + n, 5, {"k": k, "m": "x", "v": 1, "w": 1}) for n, k in enumerate((6, 7, 8, 400))],
            {},
        )

    runner.step({2: rows(0)}, [build_plan([announcing(a_query(1, 10))], streams)], promises=promises)
    assert not runner.violating
    runner.step({2: rows(10)})
    assert {pos - 10 for _, _, pos in runner.violating} == {(6, 7, 8, 400).index(key) for key in closed}
